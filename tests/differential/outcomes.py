"""What every compiled entry point makes of its inputs, case by case; and which functions were reached meanwhile.

    python -m tests.differential.outcomes pure SEED FOLDER
    python -m tests.differential.outcomes compiled SEED FOLDER

The first runs the sources, and notes in the folder too which functions have returned something.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.differential.reached import Reached


def outcomes(seed: int) -> Iterator[tuple[str, str]]:
    """The name of each case, and its result or error."""
    from tests.differential import avro_cases, cql_cases, log_cases, sink_cases, state_cases  # once they are marked
    from tests.differential.cases import outcome

    for module in (cql_cases, log_cases, avro_cases, state_cases, sink_cases):
        for family in module.FAMILIES:
            for name, call in family(Random(seed)):
                yield f"{module.__name__.rpartition('.')[2]}{family.__name__}: {name}", outcome(call)


def main(code: str, seed: str, folder: str) -> None:
    """One side, into files of the folder: CODE.jsonl, and reached.json."""
    reached = Reached() if code == "pure" else None
    with Path(folder, f"{code}.jsonl").open("w", encoding="utf-8") as lines:
        for case in outcomes(int(seed)):
            lines.write(json.dumps(case) + "\n")
    if reached is not None:
        Path(folder, "reached.json").write_text(json.dumps(sorted(reached.names())), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
