"""A table and a random program with rows before their log, and a stream that copies them while they are written."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tailrace_schemas.errors import CorruptError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import table_topic
from tailrace_spark.snapshot.progress import Snapshots, State, snapshots_from_json
from tests.integration.agents import published
from tests.integration.letters import letters_in
from tests.integration.processes import PROGRAM
from tests.integration.snapshot.following import KEYS, Place, Writes
from tests.integration.snapshot.programs import RandomWrites
from tests.integration.streams import StreamProcess
from tests.integration.targets import Logged, Target
from tests.oracle.comparison import Difference, Row, ask, differ
from tests.unit.spark.sinks.change_log_contract import once, place_of

_LOG = logging.getLogger("tailrace.test")
ChangePlace = tuple[str, int, int]
"""Topic, partition and offset."""
_LIMITS: Final = {"consistency": "ONE", "ranges": 16, "page_rows": 20, "concurrent_ranges": 2, "range_mebibytes": 1}
SECONDS: Final = 600.0
"""A start of Spark and a round, where the machine has much to do."""
FIRST: Final = 200
"""So many statements of a program are before the log that the stream reads."""
_PAUSE: Final = 0.5
"""Seconds between two statements: a reader of a change log merges all of it again each time it is asked."""
_LAST: Final = 9999
"""The key of the last row: when a copy has it, all has been published."""


class Copy:
    """A table and perhaps a program's tables, what writes them, and a stream that copies them into a target."""

    def __init__(
        self, place: Place, name: str, directory: Path, target: Target, writes: Writes,
        program: RandomWrites | None, *, execution: str, master: str,
    ) -> None:  # fmt: skip
        self.target = target
        self._place, self._name, self._directory, self._master = place, name, directory, master
        self._writes, self._program = writes, program
        topics = rf"{place.prefix}\.({place.keyspace}\.{name}|{place.keyspace}_{name}\..+)"
        self._settings = {
            # The log before the start is not read: only the snapshot has what was written till then.
            "starting_offsets": '"latest"', "snapshot": '"initial"', "execution": json.dumps(execution),
            "metrics_port": 0, "topics": json.dumps(topics),
        }  # fmt: skip

    def stream(self, name: str, program: tuple[str, ...] = PROGRAM) -> StreamProcess:
        sections = {"cluster": self._place.sections(self._name)["cluster"], "snapshot": _LIMITS}
        return StreamProcess(
            self._directory, self._place.kafka, self._place.prefix, self.target.section,
            name=name, stream=self._settings, sections=sections, program=program, master=self._master,
        )  # fmt: skip

    @property
    def progress(self) -> Snapshots:
        """How far the snapshots are, by the newest note that is whole."""
        values = [Snapshots()]
        for file in (self._directory / "checkpoint" / "tailrace").glob("snapshots-?.json"):
            with suppress(CorruptError, FileNotFoundError):  # cut off, as the step says, or about to be replaced
                values.append(snapshots_from_json(file.read_text()))
        return max(values, key=lambda value: value.sequence)

    @property
    def rows(self) -> int:
        """How many rows are noted as written."""
        return sum(snapshot.rows for snapshot in self.progress.tables)

    @property
    def done(self) -> bool:
        """Whether the snapshots are over."""
        return {snapshot.state for snapshot in self.progress.tables} == {State.DONE}

    @property
    def written(self) -> int:
        """How many statements there were beside the rows from before."""
        return self._writes.count + (self._program.count if self._program else 0)

    @property
    def tables(self) -> list[Table]:
        return [self._place.table(self._name), *(self._program.tables if self._program else ())]

    def differences(self) -> list[Difference]:
        return [
            difference
            for answer in ask(self._place.session, self.tables)
            for difference in differ(
                replace(answer, rows=self._told(answer.table, answer.rows)),
                self._told(answer.table, self.target.rows(answer.table)),
            )
        ]

    def _told(self, table: Table, rows: Sequence[Row]) -> tuple[Row, ...]:
        """Those rows that a target has. Who merges a change log reads nothing back (docs/snapshots.md), and may lack
        rows without a cell of their own."""
        if not isinstance(self.target, Logged):
            return tuple(rows)
        own = [number for number, column in enumerate(table.columns, len(table.key)) if column not in table.static]
        return tuple(row for row in rows if any(row[number] is not None for number in own))

    def finish(self, stream: StreamProcess) -> None:
        """Wait for the end of the snapshots, and that nothing differs."""
        stream.until(lambda: self.done, 2 * SECONDS)
        if self._program is not None:
            self._program.end()
        self._writes.end()
        self._place.run(f"INSERT INTO KS.{self._name} (k, c, v) VALUES ({_LAST}, 0, 'last')")
        try:
            stream.until(lambda: self.differences() == [] and self._logged(behind=True) <= self._changes(), 2 * SECONDS)
        except AssertionError as error:
            error.add_note("\n".join(map(str, self.differences()[:5])))
            raise
        rows = {str(answer.table): answer.counts for answer in ask(self._place.session, self.tables)}
        for snapshot in self.progress.tables:
            read = f"{snapshot.rows} rows in {snapshot.rounds} rounds"
            _LOG.info("%s: %s; in the end %s", snapshot.table, read, dict(rows[snapshot.table]))
        _LOG.info("%d writes, no difference", self.written)
        assert {snapshot.table for snapshot in self.progress.tables} == {*rows}
        assert rows[str(self.tables[0])]["rows"] > KEYS
        assert sum(counts["rows"] > 0 for counts in rows.values()) >= min(2, len(rows))
        if isinstance(self.target, Logged):
            self._require_once(self.target)
        else:
            self.target.require(0)
        assert letters_in(self._place.kafka, self._place.prefix) == []

    def _require_once(self, target: Logged) -> None:
        """Each row that was read is told once, and each change; and no change that was not published."""
        records = target.outside.records()
        assert len(records) == len(once(records)) or not target.outside.exactly_once
        read = Counter(_row(record) for record in once(records) if record["op"] == "read")
        assert [row for row, count in read.items() if count > 1] == []
        assert self._changes() <= self._logged(behind=False)
        _LOG.info("%d rows that were read and %d changes, each once", len(read), len(self._changes()))

    def _changes(self) -> set[ChangePlace]:
        """Of a change log, the places of the changes that it has of the log; else none."""
        if not isinstance(self.target, Logged):
            return set()
        return {place_of(record) for record in self.target.outside.records() if record["op"] != "read"}

    def _logged(self, *, behind: bool) -> set[ChangePlace]:
        """Of a change log, the places of the changes that were published; those `behind` the ends that the snapshots
        have noted, or all."""
        places: set[ChangePlace] = set()
        ends = {snapshot.table: snapshot.log_ends for snapshot in self.progress.tables}
        for table in self.tables if isinstance(self.target, Logged) else ():
            topic = table_topic(self._place.prefix, table.keyspace, table.name, table.id)
            first = ends[str(table)].get(topic, {}) if behind else {}
            for record in published(self._place.kafka, self._place.prefix, topic):
                if record.offset >= first.get(str(record.partition), 0):
                    places.add((topic, record.partition, record.offset))
        return places


def _row(record: Mapping[str, Any]) -> tuple[str, str, bool]:
    """Which row a record of a snapshot has: of which table, its key, and whether it is a partition's static one."""
    return record["table"], json.dumps(record["key"], sort_keys=True), bool(record.get("static"))


@contextmanager
def copied(
    place: Place, name: str, directory: Path, target: Target, *, execution: str, master: str = "local[1]",
    seed: int | None = None,
) -> Iterator[Copy]:  # fmt: skip
    """A table of this name with rows from before, beside a program of the seed if there is one; both are written inside
    the `with`."""
    place.create(name)
    with ExitStack() as stack:
        if seed is None:
            program, writes = None, Writes(place, name)
        else:
            program = RandomWrites(place, f"{place.keyspace}_{name}", seed, FIRST, pause=_PAUSE)
            writes = Writes(place, name, pause=_PAUSE)
            stack.enter_context(program)
        stack.enter_context(writes)
        yield Copy(place, name, directory, target, writes, program, execution=execution, master=master)
