"""Tasks of the search sink beside each other: repeated and late attempts, truncations, stale workers, dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import count
from threading import Event
from typing import Any
from uuid import UUID

import pytest

from tailrace_schemas.change import Change
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import MicroBatch, Piece, Summary
from tailrace_spark.sinks.opensearch.pieces import OpensearchWriter
from tailrace_spark.sinks.opensearch.sink import OpensearchSink
from tailrace_spark.sinks.protocol import HereOnlyError, write_here
from tests import java_sources
from tests.support.expiry import SECOND
from tests.support.shop import PLAIN, WIDE_COLUMNS, WIDER
from tests.unit.spark.cassandra import Log, truncate, with_source
from tests.unit.spark.sinks.contract import piece
from tests.unit.spark.sinks.in_tasks import FENCING, SECONDS, STREAM, LogInTasks, attempt, interrupted, planned_by
from tests.unit.spark.sinks.merging_contract import WIDE, selected
from tests.unit.spark.sinks.opensearch.indexes import Searched
from tests.unit.spark.sinks.opensearch.proxy import Answer, Asked, SearchProxy, dying
from tests.unit.tables import table

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(java_sources.missing() is not None, reason=str(java_sources.missing())),
]

PARTITION: KafkaPartition = ("t.shop.plain", 0)
LOG = Log(PLAIN)
_workers = count()


def planned(sink: OpensearchSink, *definitions: Table) -> OpensearchWriter:
    batch = MicroBatch(STREAM, 0, {PARTITION: 1 << 40})
    return planned_by(
        OpensearchWriter, sink, batch, [(number, definition) for number, definition in enumerate(definitions)]
    )


def in_worker(task: OpensearchWriter, url: str | None = None) -> OpensearchWriter:
    """The task with connections and a memory of its own, as in another worker process."""
    settings = task.cluster.settings.model_copy(update={} if url is None else {"url": url})
    return replace(task, cluster=replace(task.cluster, name=f"worker {next(_workers)}", settings=settings))


class Holding:
    """Holds the first request with this in its path, until it is let go; then it and all others pass."""

    def __init__(self, proxy: SearchProxy, path: str, then: Answer = "pass") -> None:
        self._path = path
        self._then = then
        self._let_go = Event()
        self._held = False
        self.reached = Event()
        proxy.answer = self

    def __call__(self, asked: Asked) -> Answer:
        if self._held:
            return self._then
        if self._path in asked.path:
            self._held = True
            self.reached.set()
            assert self._let_go.wait(SECONDS)
        return "pass"

    def let_go(self) -> None:
        self._let_go.set()


def program() -> list[Change]:
    """New rows, changed ones, statics, and deletions of ranges and a partition."""
    log = Log(WIDE)
    return [
        *(log.insert((key,), (row,), 10 + row, v=f"{key}/{row}") for key in range(6) for row in range(4)),
        *(log.update((key,), (row,), 30, v="newer") for key in range(0, 6, 2) for row in range(2)),
        log.static((1,), 20, s="S"), log.static((2,), 21, s="T"),
        log.delete_range((3,), (1,), (2,), 15), log.delete_partition((4,), 12),
    ]  # fmt: skip


@pytest.mark.promise("tasks.attempts")
def test_two_attempts_at_a_partition_come_out_as_one(searched: Searched) -> None:
    """A repeated task beside the one that Spark has given up, which is in the middle of the records."""
    changes = program()
    first, last = piece(changes[:14]), piece(changes[14:])
    with closing(searched.open()) as sink:
        task = planned(sink, WIDE)
        with interrupted(in_worker(task), PARTITION, first, then=last) as end:
            attempt(in_worker(task), PARTITION, [first, last])
            assert end().summary.dead_letters == 0
    assert searched.rows(WIDE, *WIDE_COLUMNS) == selected(WIDE, changes, *WIDE_COLUMNS)


@pytest.mark.promise("tasks.attempts")
@pytest.mark.parametrize("step", ["_bulk", "_mget", "_search"])
def test_attempts_that_overtake_each_other_come_out_as_one(proxy: SearchProxy, step: str) -> None:
    """One has read what the other writes meanwhile; its batch and a later one."""
    searched, changes = Searched(proxy.url), program()
    later = [Log(WIDE).update((0,), (0,), 40, v="latest"), Log(WIDE).delete_range((1,), (2,), (9,), 40)]
    with closing(searched.open()) as sink, ThreadPoolExecutor(1) as pool:
        task = planned(sink, WIDE)
        hold = Holding(proxy, step)
        zombie = pool.submit(in_worker(task, proxy.address).write, PARTITION, [piece(changes)])
        assert hold.reached.wait(SECONDS)
        attempt(in_worker(task), PARTITION, [piece(changes)])
        attempt(in_worker(planned(sink)), PARTITION, [piece(later)])
        hold.let_go()
        zombie.result(SECONDS)
    assert searched.rows(WIDE, *WIDE_COLUMNS) == selected(WIDE, [*changes, *later], *WIDE_COLUMNS)


@pytest.mark.promise("opensearch.late-tasks")
def test_what_a_truncation_took_does_not_come_back_by_a_late_attempt_that_dies(proxy: SearchProxy) -> None:
    """It has read before the truncation, writes behind it, and is killed before it can look back."""
    searched = Searched(proxy.url)
    row, kept = LOG.insert((1,), (), 5, v="gone"), LOG.insert((2,), (), 90 * SECOND, v="stays")
    with closing(searched.open()) as sink, ThreadPoolExecutor(1) as pool:
        task = planned(sink, PLAIN)
        hold = Holding(proxy, "_bulk", then="drop")
        late = replace(task, cluster=replace(task.cluster, settings=searched.settings.model_copy(
            update={"url": proxy.address, "retry_seconds": 0.01})))  # fmt: skip
        zombie = pool.submit(late.write, PARTITION, [piece([row])])
        assert hold.reached.wait(SECONDS)
        attempt(in_worker(task), PARTITION, [piece([row])])
        write_here(sink, [piece([truncate(PLAIN, "h", 50 * SECOND), kept])], FENCING)
        hold.let_go()
        with pytest.raises(ServiceError):
            zombie.result(SECONDS)
        attempt(in_worker(planned(sink)), PARTITION, [piece([LOG.insert((3,), (), 91 * SECOND)])])
    assert searched.rows(PLAIN, "id", "v") == [(2, "stays"), (3, None)]


@pytest.mark.promise("opensearch.late-tasks")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("by_tasks", [False, True], ids=["driver", "tasks"])
def test_a_truncation_cut_off_at_any_request_is_brought_to_its_end(proxy: SearchProxy, *, by_tasks: bool) -> None:
    """Tasks leave the table to the driver until then; its index takes writes again."""
    rows = [LOG.insert((key,), (), 5, v="gone") for key in range(3)]
    for step in count():
        proxy.answer = lambda _: "pass"
        searched = Searched(proxy.url, proxy.address, retry_seconds=0.01)
        batch = [LOG.update((0,), (), 60 * SECOND, v="kept"), truncate(PLAIN, "h", 50 * SECOND)]
        with closing(searched.open()) as sink:
            write_here(sink, [piece(rows)])
            proxy.answer = dying(len(proxy.asked) + step, "drop after")
            died = False
            try:
                write_here(sink, [piece(batch)])
            except ServiceError:
                died = True
        proxy.answer = lambda _: "pass"
        with closing(searched.open()) as sink:
            # The batch comes again, before its truncation with something else for the table's record.
            wider = piece([Log(WIDER).insert((7,), (), 70 * SECOND, v="new")])
            try:
                write_here(LogInTasks(sink) if by_tasks else sink, [wider, piece(batch)])
            except ServiceError as error:
                pytest.fail(f"died after {step} requests: {error}")
        assert searched.rows(PLAIN, "id", "v") == [(0, "kept"), (7, "new")], f"died after {step} requests"
        if not died:
            assert step >= 6
            return


def test_a_truncation_that_a_task_meets_is_the_drivers(searched: Searched) -> None:
    """Tasks know of it from then on."""
    truncated = truncate(PLAIN, "h", 9 * SECOND, Position(1, 5, 10**6))
    with closing(searched.open(lambda: 100)) as sink:
        task = planned(sink, PLAIN)
        attempt(in_worker(task), PARTITION, [piece([LOG.insert((1,), (), 5, v="a")])])
        worker = in_worker(planned(sink))
        with pytest.raises(HereOnlyError, match=r"a truncation of shop\.plain"):
            attempt(worker, PARTITION, [piece([LOG.insert((3,), (), 5, v="c"), truncated])])
        write_here(sink, [piece([truncated])], FENCING)
        assert searched.rows(PLAIN, "id") == []
        old = with_source(LOG.insert((4,), (), 10**15, v="old"), host="h", position=Position(1, 5, 10**6))
        assert worker.write(PARTITION, [piece([old, LOG.insert((5,), (), 20 * SECOND)])]).summary == Summary(2, 1)
    assert searched.rows(PLAIN, "id") == [(5,)]


def test_indexes_and_their_fields_are_the_drivers(searched: Searched) -> None:
    """A worker that lacks one makes none, also where it has written the table before."""
    with closing(searched.open()) as sink:
        worker = in_worker(planned(sink))
        with pytest.raises(HereOnlyError):
            attempt(worker, PARTITION, [piece([LOG.insert((1,), (), 5, v="a")])])
        assert not searched.follows(PLAIN)
        planned(sink, PLAIN)
        attempt(worker, PARTITION, [piece([LOG.insert((1,), (), 5, v="a")])])
        wide = piece([Log(WIDER).update((1,), (), 6, x="b")])
        with pytest.raises(HereOnlyError):
            attempt(worker, PARTITION, [wide])
        planned(sink, WIDER)
        attempt(worker, PARTITION, [wide])
        # One of the former definition goes on.
        attempt(worker, PARTITION, [piece([LOG.insert((2,), (), 5, v="c")])])
        [index] = searched.call("GET", f"/_alias/{searched.alias(PLAIN)}")
        searched.call("DELETE", f"/{index}")
        with pytest.raises(ServiceError, match="no such index"):
            attempt(worker, PARTITION, [wide])
        with pytest.raises(HereOnlyError):
            attempt(worker, PARTITION, [wide])
        planned(sink, WIDER)
        attempt(worker, PARTITION, [wide])
    assert searched.rows(PLAIN, "id", "x") == [(1, "b")]


def test_a_column_that_goes_while_a_late_attempt_writes_stays_gone(proxy: SearchProxy) -> None:
    """The driver has rebuilt the index: the attempt merges into the new one."""
    searched, rows = Searched(proxy.url), [LOG.insert((key,), (), 10, v="a", w=key) for key in range(3)]
    gone = table({"id": "int"}, regular={"w": "int"}, dropped={"v": ("text", 20)}, keyspace="shop", name="plain")
    with closing(searched.open()) as sink, ThreadPoolExecutor(1) as pool:
        task = planned(sink, PLAIN)
        hold = Holding(proxy, "_bulk")
        zombie = pool.submit(in_worker(task, proxy.address).write, PARTITION, [piece(rows)])
        assert hold.reached.wait(SECONDS)
        attempt(in_worker(task), PARTITION, [piece(rows)])
        planned(sink, gone)
        hold.let_go()
        with pytest.raises(ServiceError):
            zombie.result(SECONDS)
    assert searched.search(PLAIN) == [{"_id": str(key), "id": key, "w": key} for key in range(3)]


@pytest.mark.promise("sinks.dead-letters")
def test_what_the_server_refuses_is_a_letter(proxy: SearchProxy) -> None:
    """A document, and a table whose index the server does not make; once each, though the batch comes again."""
    of = table({"id": "int"}, regular={"m": "map<text, int>"}, keyspace="shop", name="maps", table_id=UUID(int=8))
    strange = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="strange", table_id=UUID(int=9))
    searched = Searched(proxy.url, proxy.address)
    reason = b'{"error":{"type":"mapper_parsing_exception","reason":"no such analyzer"}}'
    proxy.answer = lambda asked: (
        (400, {}, reason) if (asked.method, "strange" in asked.path) == ("PUT", True) else "pass"
    )
    with closing(searched.open()) as sink:
        write_here(sink, [piece([Log(of).insert((0,), (), 1)])])
        searched.call("PUT", f"/{searched.alias(of)}/_settings", {"index.mapping.nested_objects.limit": 2})
        proper = piece([Log(of).insert((1,), (), 1, m={"=": None, "a": 1}), LOG.insert((1,), (), 1, v="x")])
        large = piece([Log(of).insert((2,), (), 1, m={"=": None, "a": 1, "b": 2, "c": 3})])
        refused = piece([Log(strange).insert((3,), (), 1, v="y")])
        for _ in range(2):
            assert write_here(LogInTasks(sink), [proper, large, refused]).dead_letters == 2
        proxy.answer = lambda _: "pass"
        reasons = {letter.record_id: letter.reason for letter in searched.letters.all}
        assert reasons.keys() == {large.changes[0].record_id, refused.changes[0].record_id}
        assert "nested" in reasons[large.changes[0].record_id]
        assert "analyzer" in reasons[refused.changes[0].record_id]
        assert write_here(sink, [refused]).changes == 1
    assert searched.rows(of, "id") == [(0,), (1,)]
    assert searched.rows(PLAIN, "id") == [(1,)]
    assert searched.rows(strange, "id") == [(3,)]


def refused_and_replayed(proxy: SearchProxy, stored: Change, changes: Sequence[Change]) -> Mapping[str, Any]:
    """The document of the one row, once the letters of changes are written again that made it too large."""
    searched, batch = Searched(proxy.url, proxy.address), piece(changes)
    with closing(searched.open()) as sink:
        write_here(sink, [piece([stored])])
        settings = f"/{searched.alias(stored.table)}/_settings"
        searched.call("PUT", settings, {"index.mapping.nested_objects.limit": 1})
        write_here(sink, [batch])
        searched.call("PUT", settings, {"index.mapping.nested_objects.limit": 10})
        letters = {letter.record_id for letter in searched.letters.all}
        write_here(sink, [Piece(tuple(delivered for delivered in batch.changes if delivered.record_id in letters))])
    [row] = searched.search(stored.table)
    return row


@pytest.mark.promise("sinks.dead-letters")
def test_a_deletion_that_a_refused_row_came_with_is_a_letter_too(proxy: SearchProxy) -> None:
    """Without it the row would have what was deleted, once its letter is written again."""
    log = Log(table({"id": "int"}, regular={"m": "map<text, int>"}, keyspace="shop", table_id=UUID(int=10)))
    batch = [log.delete_partition((1,), 10), log.update((1,), (), 20, m={"b": 2, "c": 3})]
    row = refused_and_replayed(proxy, log.insert((1,), (), 1, m={"a": 1}), batch)
    assert row["m"] == [{"key": "b", "value": 2}, {"key": "c", "value": 3}]


@pytest.mark.promise("sinks.dead-letters")
def test_a_static_row_that_its_rows_are_refused_with_is_a_letter(proxy: SearchProxy) -> None:
    of = table(
        {"id": "int"}, {"c": "int"}, static={"s": "map<text, int>"}, regular={"v": "text"}, keyspace="shop",
        table_id=UUID(int=11),
    )  # fmt: skip
    log = Log(of)
    batch = [log.static((1,), 20, s={"b": 2, "c": 3})]
    row = refused_and_replayed(proxy, log.insert((1,), (1,), 1, v="a"), batch)
    assert row.get("s") == [{"key": "b", "value": 2}, {"key": "c", "value": 3}]
