"""Snapshots of several tables of a stream: what one of them lacks stops no other, and is said."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import tailrace_spark.job.snapshot_run
from tailrace_common.sections.stream import StreamSettings
from tailrace_common.settings import Settings
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import partition
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.progress import SinkInfo
from tailrace_spark.job.snapshot_run import SnapshotRun
from tailrace_spark.job.snapshot_writing import ReadRound, Written
from tailrace_spark.sinks.protocol import Capabilities
from tailrace_spark.snapshot.progress import Snapshots, State
from tailrace_spark.snapshot.ranges import Estimates, Limits, TokenRange
from tailrace_spark.snapshot.reading import UnreadableError
from tailrace_spark.snapshot.session import Ring
from tests.unit.tables import table

NAMES = ("people", "orders", "lines")
RING = Ring(((TokenRange(), ("a",)),), Estimates())


class MemoryNotes:
    """Notes that are kept here."""

    def __init__(self) -> None:
        self.value = Snapshots(copies=True)
        self.writes = 0

    def read(self) -> Snapshots:
        return self.value

    def write(self, value: Snapshots) -> None:
        self.value, self.writes = value, self.writes + 1

    def requested(self) -> list[Any]:
        return []

    def take(self, name: str) -> None:
        raise AssertionError(name)


class Cluster:
    """Tables in one range each; `masked` are refused before they are read, `faults` are raised when they are."""

    limits = Limits(1 << 20, 1, 1)

    def __init__(self) -> None:
        self.masked: dict[str, Exception] = {}
        self.faults: dict[str, Exception] = {}
        self.read: list[str] = []
        self.agrees = True
        self._tables = {f"shop.{name}": table({"id": "int"}, name=name, keyspace="shop") for name in NAMES}

    def tables(self) -> list[Table]:
        return list(self._tables.values())

    def find(self, name: str) -> Table | None:
        found = self._tables.get(name)
        return None if found is None else replace(found)  # made anew of each answer

    def drop(self, name: str) -> None:
        del self._tables[name]

    def altered(self, tables: dict[str, Table]) -> dict[str, Table]:
        """From here on these have cdc; those that had."""
        before, self._tables = self._tables, tables
        return before

    def leave_cluster(self) -> None:
        pass

    def require_agreement(self) -> None:
        if not self.agrees:
            raise ServiceError("nodes have different schemas")

    def require_readable(self, table: Table, where: str | None) -> None:
        del where
        if str(table) in self.masked:
            raise self.masked[str(table)]

    def ring(self, table: Table) -> Ring:
        del table
        return RING

    def generations(self) -> Any:
        return SimpleNamespace(timestamps=[0])

    def log_ends(self, topics: Any) -> dict[str, dict[str, int]]:
        del topics
        return {}

    def partitions_of(self, topic: str) -> int:
        del topic
        return 12

    def entry(self, table: Table) -> SchemaEntry:
        return SchemaEntry(schema_id=b"", topic=f"t.{table}", table=table, avro="")

    def reader(self, table: Table, *arguments: Any, **options: Any) -> str:
        del arguments, options
        return str(table)

    @contextmanager
    def reading(self, spark: Any, name: str) -> Iterator[ReadRound]:
        """As `read_round`."""
        del spark
        if name in self.faults:
            raise self.faults[name]
        self.read.append(name)
        yield ReadRound(None, 1, 10, 10)  # type: ignore[arg-type]  # nobody writes it


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(tailrace_spark.job.snapshot_run, "read_round", cluster.reading)
    return cluster


def run_of(
    cluster: Cluster,
    notes: MemoryNotes,
    metrics: StreamMetrics | None = None,
    summary: Summary | None = None,
    *,
    own_notes: bool = True,
    timer: Callable[[], float] = lambda: 0.0,
    ordered: bool = False,
    write: Callable[[Written], None] = lambda _: None,
) -> SnapshotRun:
    """`summary` is what becomes of each range in the sink, and `write` is given it."""

    def written(read: Written, _: object) -> Summary:
        write(read)
        return summary or Summary()

    writer: Any = SimpleNamespace(write=written)
    planned: Any = SimpleNamespace(committed=lambda: (0, {}), begun=lambda: False)
    context: Any = cluster
    spark: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(setJobGroup=lambda *_: None, setLocalProperty=lambda *_: None)
    )
    sink: Any = SimpleNamespace(capabilities=Capabilities(ordered=ordered))
    return SnapshotRun(
        spark, Settings(), sink, notes, context, writer, planned, own_notes=own_notes, alone=threading.Lock(),
        metrics=metrics or StreamMetrics(), clock=lambda: 1.0, timer=timer,
    )  # fmt: skip


def states(notes: MemoryNotes) -> dict[str, tuple[State, str]]:
    return {snapshot.table.partition(".")[2]: (snapshot.state, snapshot.reason) for snapshot in notes.value.tables}


@pytest.mark.parametrize("own_notes", [True, False], ids=["stream", "subscription"])
def test_what_becomes_of_existing_rows_is_noted_and_said_by_streams(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, own_notes: bool
) -> None:
    """Of a subscription others have decided it, who say it there."""
    caplog.set_level(logging.INFO, "tailrace_spark")
    notes = MemoryNotes()
    notes.value = Snapshots()
    run = run_of(cluster, notes, own_notes=own_notes)
    run.decide(StreamSettings())
    assert run.value.copies
    assert (notes.value.copies, notes.writes) == (own_notes, int(own_notes))
    said = [line for line in caplog.messages if line.startswith("existing rows: copied once from Cassandra")]
    assert len(said) == int(own_notes)


def test_without_existing_rows_nothing_is_read(cluster: Cluster) -> None:
    notes = MemoryNotes()
    notes.value = Snapshots()
    run = run_of(cluster, notes)
    run.decide(StreamSettings(snapshot="never"))
    assert not run.step()
    assert (cluster.read, states(notes)) == ([], {})


@pytest.mark.parametrize("own_notes", [True, False], ids=["stream", "subscription"])
def test_a_subscription_whose_table_gets_cdc_later_has_its_rows(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, own_notes: bool
) -> None:
    """It says what to alter, and the table's rows are older than that. A stream of all tables begins with none."""
    monkeypatch.setattr(tailrace_spark.job.snapshot_run, "_TABLES_SECONDS", 0.0)
    notes, later = MemoryNotes(), cluster.altered({})
    run = run_of(cluster, notes, own_notes=own_notes)
    assert run.step() is not own_notes
    cluster.altered(later)
    while run.step():
        pass
    assert states(notes) == ({} if own_notes else dict.fromkeys(NAMES, DONE))


def test_rows_that_a_sink_refuses_are_counted_and_said(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    metrics = StreamMetrics(SinkInfo("w-1", "sql", "", "", letters="tailrace subscriptions shop.people/w --letters"))
    run = run_of(cluster, MemoryNotes(), metrics, Summary(dead_letters=2))
    while run.step():
        pass
    assert metrics.dead_letters == 2 * len(NAMES)
    command = "`tailrace subscriptions shop.people/w --letters`"
    assert f"shop.people: 2 rows of its snapshot are dead letters; {command} has the reasons" in caplog.messages


DONE = (State.DONE, "")


@pytest.mark.promise("snapshots.once")
def test_rows_of_a_key_have_the_partition_of_its_changes_in_sinks_that_append(cluster: Cluster) -> None:
    """Such a sink may choose a partition of its own by it: a row that was read stood in another than later changes."""
    rounds: list[Written] = []
    run = run_of(cluster, MemoryNotes(), ordered=True, write=rounds.append)
    run.step()
    [read] = rounds
    assert read.position.topic.startswith("t.shop.people@")
    for token in (-(2**63), 0, 2**63 - 1):
        assert read.position.partition(token) == partition(token, 12)
    assert read.ends == {(read.position.topic, number): read.position.end for number in range(12)}


@pytest.mark.parametrize("ordered", [True, False], ids=["appending", "merging"])
def test_all_rounds_of_a_table_have_one_definition(cluster: Cluster, ordered: bool) -> None:
    """Sinks keep 100 KiB and more for each, on the driver and in each worker process."""
    cluster.limits = Limits(1 << 20, 4, 1)
    rounds: list[Written] = []
    run = run_of(cluster, MemoryNotes(), ordered=ordered, write=rounds.append)
    while len(rounds) < 6:
        assert run.step()
    entries = {id(entry): entry for read in rounds for entry in read.schemas.values()}
    names = [str(entry.table) for entry in entries.values()]
    assert len(names) == len(set(names)) < len(rounds)


UNREADABLE = "tokens (1, 2] of shop.people cannot be read: READ_TOO_MANY_TOMBSTONES"


@pytest.mark.promise("snapshot.unreadable")
def test_a_table_that_cassandra_does_not_give_ends_alone_with_its_reason(cluster: Cluster) -> None:
    cluster.faults["shop.people"] = UnreadableError(UNREADABLE)
    notes = MemoryNotes()
    run = run_of(cluster, notes)
    while run.step():
        pass
    assert states(notes) == {"people": (State.REFUSED, UNREADABLE), "orders": DONE, "lines": DONE}


@pytest.mark.promise("snapshot.masked")
def test_a_table_with_masked_columns_is_refused_before_anything_of_it_is_read(cluster: Cluster) -> None:
    cluster.masked["shop.orders"] = UnreadableError("Cassandra masks shop.orders.id for this role")
    notes = MemoryNotes()
    run = run_of(cluster, notes)
    while run.step():
        pass
    refused = (State.REFUSED, "Cassandra masks shop.orders.id for this role")
    assert states(notes) == {"people": DONE, "orders": refused, "lines": DONE}
    assert "shop.orders" not in cluster.read
    assert "shop.orders" not in notes.value.tables_read


def test_a_condition_that_is_none_ends_the_snapshot_that_it_was_asked_for(cluster: Cluster) -> None:
    """Else it ends the stream, and each one that is started again."""
    cluster.masked["shop.orders"] = SettingsError("filter is a CQL condition without question marks and semicolons")
    notes = MemoryNotes()
    run = run_of(cluster, notes)
    while run.step():
        pass
    refused = (State.REFUSED, str(cluster.masked["shop.orders"]))
    assert states(notes) == {"people": DONE, "orders": refused, "lines": DONE}


@pytest.mark.promise("snapshots.changed")
def test_a_table_is_dropped_once_all_nodes_say_so(cluster: Cluster) -> None:
    """One that was down while the table was made does not know it for a moment."""
    notes = MemoryNotes()
    run = run_of(cluster, notes)
    run.step()
    cluster.drop("shop.people")
    cluster.agrees = False
    with pytest.raises(ServiceError, match="nodes have different schemas"):
        run.step()
    assert states(notes)["people"] == (State.READING, "nodes have different schemas")
    cluster.agrees = True
    while run.step():
        pass
    reason = "there is no table shop.people in Cassandra (any more)"
    assert states(notes) == {"people": (State.DROPPED, reason), "orders": DONE, "lines": DONE}


def test_patience_is_measured_by_a_clock_that_nobody_sets(cluster: Cluster) -> None:
    """That of the notes stands still here."""
    run = run_of(cluster, MemoryNotes(), timer=iter([0.0, 61.0]).__next__)
    run.step()
    cluster.drop("shop.people")
    cluster.agrees, run.patience = False, 60.0
    with pytest.raises(ServiceError, match=r"the snapshot is given up after 60 s \(stream.once_wait_seconds\): nodes"):
        run.run(threading.Event())


@pytest.mark.promise("snapshot.unreadable")
def test_a_table_that_cannot_be_read_now_lets_others_go_first_and_says_why_it_waits(cluster: Cluster) -> None:
    cluster.faults["shop.people"] = ServiceError("tokens (1, 2] of shop.people cannot be read after 8 attempts")
    notes = MemoryNotes()
    run = run_of(cluster, notes)
    with pytest.raises(ServiceError):
        run.step()
    assert states(notes)["people"] == (State.READING, str(cluster.faults["shop.people"]))
    while states(notes)["lines"] != DONE:
        assert run.step()
    assert set(cluster.read) == {"shop.orders", "shop.lines"}
    noted = notes.writes
    for _ in range(3):  # the same reason is noted once
        with pytest.raises(ServiceError):
            run.step()
    assert notes.writes == noted
    cluster.faults.clear()
    while run.step():
        pass
    assert states(notes) == dict.fromkeys(NAMES, DONE)
