"""Fuzz the decoder, guided by coverage: `make fuzz`, or python -m tests.fuzz.run CORPUS [libFuzzer's options]."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["tailrace", "tailrace_schemas"]):
    from tests.fuzz.layers import run, seeds

CASES = Path(__file__).parent / "cases"


def main() -> None:
    """The first argument is a directory: the seeds are put there, and every input that reached something new."""
    corpus = Path(sys.argv[1])
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in (*seeds(), *(path.read_bytes() for path in sorted(CASES.glob("*.bin")))):
        (corpus / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    atheris.Setup(sys.argv, run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
