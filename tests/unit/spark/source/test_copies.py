"""Copies of changes that a task leaves out: rows end as if it had been given them, whatever was truncated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace_schemas.avro import Encoder
from tailrace_schemas.change import Change, Op
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered
from tailrace_spark.source import decode
from tailrace_spark.source.decode import Copies, pieces
from tests.unit.spark.cassandra import with_source
from tests.unit.spark.changes import PLAIN
from tests.unit.spark.merge.replicas import HOSTS, LOG, Cluster, Store, history, interleaved, shown, steps
from tests.unit.spark.published import records_of, schemas_of

ENCODER = Encoder(PLAIN, "t")
SCHEMAS = schemas_of(ENCODER, "t.ks.t")


def records(changes: Sequence[Change], values: Mapping[int, bytes] | None = None) -> pa.Table:
    """As a task reads them of Kafka; some with other bytes than the agent's."""
    written = [(values or {}).get(offset, ENCODER.value(change)) for offset, change in enumerate(changes)]
    heads = {
        "digest": pa.array([change.digest for change in changes], pa.binary()),
        "schema_id": pa.array([ENCODER.schema_id] * len(changes), pa.binary()),
    }
    return records_of("t.ks.t", written, **heads)


def never(_: object) -> bool:
    return False


def left(
    read: pa.Table,
    truncated: Callable[[Table], bool] = never,
    is_asked: Callable[[Change], bool] | None = None,
    share: Copies | None = None,
) -> tuple[list[Delivered], list[DeadLetter]]:
    """What a task has of its records."""
    known = Copies(truncated, is_asked) if share is None else share
    made = list(pieces(read, SCHEMAS, copies=known, most_records=3))
    return [one for piece in made for one in piece.changes], [one for piece in made for one in piece.dead_letters]


def of_replicas(change: Change) -> list[Change]:
    return [with_source(change, host=host) for host in HOSTS]


@pytest.mark.slow
@example([("truncate", ["a", "b", "c"], ("insert", 0, 0), "now")], ["a", "b", "a"], [1, 2])
@given(steps, st.lists(st.sampled_from(HOSTS), max_size=40), st.lists(st.integers(1, 9), max_size=20))
def test_rows_end_as_a_select_of_all_replicas(
    program: list[tuple[object, ...]], order: list[str], sizes: list[int]
) -> None:
    """Batches as tasks write them, and the driver those with a truncation: also behind what tasks had written."""
    cluster, store = Cluster(), Store()
    history(cluster, program)
    log = list(interleaved(cluster.logs, order))
    start = 0
    for size in (*sizes, len(log)):
        batch = records(log[start : start + size])
        by_task, _ = left(batch, lambda _: bool(store.truncations.statements))
        for one in by_task:
            if one.change.op is Op.TRUNCATE:
                for piece in pieces(batch, SCHEMAS):
                    store.take(piece.changes)
                break
            store.take([one])
        start += size
    assert shown(store.partition) == shown(cluster.select())


@pytest.mark.promise("tasks.copies")
def test_each_change_comes_once_in_whatever_pieces() -> None:
    changes = [LOG.insert((1,), (number,), 5, v=number) for number in range(10)]
    log = [copy for change in changes for copy in of_replicas(change)]
    share = Copies(never, None)
    once, _ = left(records(log[:17]), share=share)
    more, _ = left(records([*log[17:], *log[:4]]), share=share)
    assert [one.change.digest for one in (*once, *more)] == [change.digest for change in changes]


def test_all_copies_come_of_a_table_with_truncations_and_of_what_is_read_back() -> None:
    log = of_replicas(LOG.insert((1,), (1,), 5, v=1)) * 2
    for given_all in (left(records(log), lambda table: table == PLAIN), left(records(log), is_asked=lambda _: True)):
        assert len(given_all[0]) == len(log)


def test_a_copy_comes_where_the_one_before_was_damaged() -> None:
    change = LOG.insert((1,), (1,), 5, v=1)
    [good], [damaged] = left(records(of_replicas(change), {0: ENCODER.value(change)[:-3]}))
    assert (good.change.digest, good.record_id.offset, damaged.record_id.offset) == (change.digest, 1, 0)


def test_a_copy_under_another_schema_comes_too() -> None:
    log = of_replicas(LOG.insert((1,), (1,), 5, v=1))
    read = records(log)
    schemas = pa.array([ENCODER.schema_id, b"another", ENCODER.schema_id], pa.binary())
    both, _ = left(read.set_column(read.column_names.index("schema_id"), "schema_id", schemas))
    assert [one.record_id.offset for one in both] == [0, 1]


def test_so_many_digests_are_kept_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "_MOST", 2)
    changes = [LOG.insert((1,), (number,), 5, v=number) for number in range(3)]
    once, _ = left(records([*changes, changes[0], changes[2]]))
    assert [one.record_id.offset for one in once] == [0, 1, 2, 3]


def test_what_has_no_head_is_set_aside_each_time() -> None:
    read = records(of_replicas(LOG.insert((1,), (1,), 5, v=1)), dict.fromkeys(range(3), b"rubbish"))
    headless = read.set_column(read.column_names.index("digest"), "digest", pa.nulls(3, pa.binary()))
    assert [letter.record_id.offset for letter in left(headless)[1]] == [0, 1, 2]
