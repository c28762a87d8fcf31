"""kill -9 of a stream at each step of its snapshot, while random programs write: the copy is what SELECT answers."""

from __future__ import annotations

import json
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cassandra.cluster import Session

from tailrace.local.process import wait_until
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.table import Table
from tailrace_spark.snapshot.progress import Snapshots, State, snapshots_from_json
from tests.corpus.kinds import Kinds
from tests.integration.processes import PROGRAM
from tests.integration.snapshot import dying_snapshot
from tests.integration.snapshot.dying_snapshot import Step
from tests.integration.snapshot.following import Place
from tests.integration.streams import StreamProcess
from tests.oracle.comparison import Answer, Difference, Downstream, Row, ask, differ
from tests.oracle.writing import Source, Writer
from tests.postgres import new_database

KINDS = Kinds(
    counters=False, ahead=False, expiries=False, long_keys=False, finite=True, sparing=True, alterations=False
)


class Paced:
    """A session whose later statements wait a little, so that a program lasts as long as the kills."""

    def __init__(self, session: Session, quick: int, seconds: float) -> None:
        self._session = session
        self._quick = quick
        self._seconds = seconds
        self._over = threading.Event()

    def execute(self, *arguments: Any) -> Any:
        self._quick -= 1
        if self._quick < 0:
            self._over.wait(self._seconds)
        return self._session.execute(*arguments)

    def hurry(self) -> None:
        """Wait no more."""
        self._over.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def told(table: Table, rows: tuple[Row, ...] | list[Row]) -> tuple[Row, ...]:
    """What a snapshot can tell of rows: not those of keys alone, and no lists (docs/snapshots.md)."""
    keys = len(table.key)
    lists = {keys + index for index, column in enumerate(table.columns) if column.type.kind == "list"}
    shown = [tuple(None if index in lists else value for index, value in enumerate(row)) for row in rows]
    return tuple(row for row in shown if any(value is not None for value in row[keys:]))


def different(place: Place, tables: tuple[Table, ...], store: Downstream) -> list[Difference]:
    return [
        difference
        for answer in ask(place.session, tables)
        for difference in differ(
            Answer(answer.table, told(answer.table, answer.rows)), told(answer.table, store.rows(answer.table))
        )
    ]


def progress(checkpoint: Path) -> Snapshots:
    """How far the snapshots are, by the newest note that is whole."""
    values = [Snapshots()]
    for file in (checkpoint / "tailrace").glob("snapshots-?.json"):
        with suppress(CorruptError):  # cut off, as the step says
            values.append(snapshots_from_json(file.read_text()))
    return max(values, key=lambda value: value.sequence)


@pytest.mark.promise("snapshots.resumes", "snapshots.equal")
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("execution", ["driver", "executors"])
def test_a_stream_that_is_killed_at_each_step_of_its_snapshot_resumes_at_the_range(
    place: Place, tmp_path: Path, execution: str
) -> None:
    keyspace = f"{place.keyspace}_{execution[:2]}"
    session: Any = Paced(place.session, 600, 0.1)
    store, writer = Downstream(new_database()), Writer(Source(session, place.live), keyspace)
    program = threading.Thread(target=writer.write, args=(7, KINDS, 2500), name="program")
    program.start()
    assert wait_until(lambda: len(writer.lines) > 500, 120)
    sections = place.sections("unused")
    limits = {"consistency": "ONE", "ranges": 16, "page_rows": 20, "concurrent_ranges": 1, "range_mebibytes": 1}
    more = {"cluster": sections["cluster"], "snapshot": limits, "tables": {"include": [f"{keyspace}.*"]}}
    settings = {
        # The log before the start is not read: only the snapshot has what was written till now.
        "starting_offsets": '"latest"', "snapshot": '"initial"', "execution": json.dumps(execution),
        "metrics_port": 0, "topics": json.dumps(rf"{place.prefix}\.{keyspace}\..*"),
    }  # fmt: skip

    def stream(name: str, program: tuple[str, ...] = PROGRAM) -> StreamProcess:
        return StreamProcess(
            tmp_path, place.kafka, place.prefix, store.url, name=name, stream=settings, sections=more, program=program
        )

    rows = 0
    for number, step in enumerate(Step):
        with stream("dying", (dying_snapshot.__file__, step, str(2 + number % 2))) as dying:
            assert dying.ended(400) == -signal.SIGKILL, f"{step}\n{dying.words()}"
        now = sum(snapshot.rows for snapshot in progress(tmp_path / "checkpoint").tables)
        assert now >= rows, step
        rows = now
    with stream("stream") as last:
        last.until(lambda: not progress(tmp_path / "checkpoint").active, 400)
        session.hurry()
        program.join()
        last.until(lambda: different(place, writer.present, store) == [], 240)
        assert last.stop() == 0, last.words()
    tables = progress(tmp_path / "checkpoint").tables
    assert {snapshot.state for snapshot in tables} == {State.DONE}
    assert sum(snapshot.rows for snapshot in tables) >= rows > 0
    assert store.set_aside() == []
    store.close()
    writer.drop()
