"""Progress of snapshots against an oracle that is plain: sets of small numbers, tokens read one by one."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.errors import CorruptError
from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN
from tailrace_spark.snapshot.progress import (
    Request,
    Snapshots,
    State,
    TableSnapshot,
    request_from_json,
    snapshots_from_json,
    status_row,
)
from tailrace_spark.snapshot.ranges import (
    WHOLE,
    Estimates,
    Intervals,
    Limits,
    Split,
    TokenRange,
    again,
    next_least,
    plan_round,
    tasks_of,
    union,
    width,
    without,
)

MIB = 1 << 20
SMALL = 40
small_ranges = st.lists(
    st.tuples(st.integers(0, SMALL), st.integers(0, SMALL)).filter(lambda pair: pair[0] < pair[1]), max_size=8
).map(lambda pairs: [TokenRange(*pair) for pair in pairs])


def tokens(ranges: Intervals) -> set[int]:
    return {token for token_range in ranges for token in range(token_range.start + 1, token_range.end + 1)}


@pytest.mark.slow
@given(small_ranges, small_ranges)
def test_sets_of_tokens_are_joined_and_subtracted_as_sets_are(
    first: list[TokenRange], second: list[TokenRange]
) -> None:
    ranges, removed = union(first), union(second)
    for normal in (ranges, removed, union(first, second), without(ranges, removed)):
        assert all(left.end < right.start for left, right in pairwise(normal))
    assert tokens(ranges) == tokens(tuple(first))
    assert tokens(union(first, second)) == tokens(tuple(first)) | tokens(tuple(second))
    assert tokens(without(ranges, removed)) == tokens(ranges) - tokens(removed)
    assert width(ranges) == len(tokens(ranges))


def ring(*ends: int) -> list[tuple[TokenRange, tuple[str, ...]]]:
    """A ring whose nodes a, b, c take turns."""
    bounds = [MIN_TOKEN, *sorted(set(ends)), MAX_TOKEN]
    return [
        (TokenRange(start, end), ("abc"[index % 3], "abc"[(index + 1) % 3]))
        for index, (start, end) in enumerate(pairwise(bounds))
        if start < end
    ]


rings = st.lists(st.integers(MIN_TOKEN + 1, MAX_TOKEN - 1), max_size=9).map(lambda ends: ring(*ends))


@pytest.mark.slow
@pytest.mark.promise("snapshots.rounds")
@given(st.lists(rings, min_size=1, max_size=4), st.integers(1, 5), st.integers(1, 3), st.data())
def test_rounds_read_each_token_once_however_the_ring_changes_between_them(
    changing: list[list[tuple[TokenRange, tuple[str, ...]]]], tasks: int, per_node: int, data: st.DataObject
) -> None:
    snapshot = TableSnapshot(id="1", table="shop.orders", asked=0).begun("x", 1, {}, 0)
    read: Intervals = ()
    for number in count():
        owned = changing[number % len(changing)]
        limits = Limits(64 * MIB, snapshot.least, tasks, per_node)
        slots = plan_round(owned, Estimates(), limits, snapshot.remaining)
        if not slots:
            break
        assert len(slots) <= tasks
        nodes = [splits[0].replicas[0] for splits in slots]
        assert all({split.replicas[0] for split in splits} == {nodes[i]} for i, splits in enumerate(slots))
        assert max(nodes.count(node) for node in nodes) <= per_node
        snapshot = snapshot.planned([union(split.range for split in splits) for splits in slots])
        assert snapshot.round is not None
        if data.draw(st.booleans(), "crash"):
            snapshots = Snapshots(tables=(snapshot,))
            [snapshot] = snapshots_from_json(snapshots.to_json()).tables
            assert snapshots.tables == (snapshot,)
            assert snapshot.round is not None
            repeated = again(changing[(number + 1) % len(changing)], snapshot.round.slots)
            assert [union(split.range for split in splits) for splits in repeated] == list(snapshot.round.slots)
        assert snapshot.round is not None
        assert width(union(read, snapshot.round.tokens)) == width(read) + width(snapshot.round.tokens)
        read = union(read, snapshot.round.tokens)
        largest = data.draw(st.sampled_from([0, 20 * MIB, 500 * MIB]), "largest") if number < 10 else 0
        snapshot = snapshot.written(10, 100, 1.0, next_least(snapshot.least, 64 * MIB, largest))
        assert snapshot.done == read
    assert read == WHOLE
    assert snapshot.remaining == ()
    assert snapshot.over(State.DONE, 9).share == 1.0


def test_an_empty_table_takes_few_rounds() -> None:
    snapshot, rounds = TableSnapshot(id="1", table="shop.orders", asked=0), 0
    owned = ring(*range(-(2**63) + 1, 2**63 - 1, 2**58))
    while slots := plan_round(owned, Estimates(), Limits(64 * MIB, snapshot.least, 1), snapshot.remaining):
        snapshot = snapshot.planned([union(split.range for split in splits) for splits in slots])
        snapshot = snapshot.written(0, 0, 0.1, next_least(snapshot.least, 64 * MIB, 0))
        rounds += 1
    assert rounds <= 6


def test_a_range_that_came_out_large_is_followed_by_smaller_ones() -> None:
    assert next_least(32, 64 * MIB, 500 * MIB) == 64
    assert next_least(32, 64 * MIB, 60 * MIB) == 32
    assert next_least(32, 64 * MIB, 1 * MIB) == 8
    assert next_least(1, 64 * MIB, 0) == 1


def request(action: str, table: str = "shop.orders", name: str = "r1") -> Request:
    return Request(id=name, action=action, table=table, asked=5.0, within=(TokenRange(-5, 5),), where="c = 3")


def test_requests_are_taken_once_and_concern_their_table_alone() -> None:
    snapshots = Snapshots().with_initial(["shop.orders", "shop.lines"], iter(["a", "b"]).__next__, 1.0)
    assert snapshots.initial
    assert snapshots.current() == snapshots.tables[0]
    paused = snapshots.take(request("pause"), 2.0)
    assert [snapshot.state for snapshot in paused.tables] == [State.PAUSED, State.PENDING]
    assert paused.current() == paused.tables[1]
    assert paused.take(request("resume"), 3.0) == paused  # of the id that was taken
    resumed = paused.take(request("resume", name="r2"), 3.0)
    assert [snapshot.state for snapshot in resumed.tables] == [State.PENDING, State.PENDING]
    cancelled = resumed.take(request("cancel", name="r3"), 4.0)
    assert [snapshot.state for snapshot in cancelled.tables] == [State.CANCELLED, State.PENDING]
    started = cancelled.take(request("start", name="r4"), 5.0)
    assert started.tables[-1].origin == "command"
    assert (started.tables[-1].within, started.tables[-1].where) == ((TokenRange(-5, 5),), "c = 3")
    assert started.active


@pytest.mark.promise("snapshot.unreadable")
def test_one_that_waits_lets_the_others_go_first_and_says_why_until_it_goes_on() -> None:
    snapshots = Snapshots().with_initial(["shop.orders", "shop.lines"], iter(["a", "b"]).__next__, 1.0)
    snapshots = snapshots.put(snapshots.tables[0].begun("x", 2.0, {}, 0).planned([WHOLE]))
    waits = snapshots_from_json(snapshots.waiting("a", "no page in time").to_json())
    assert waits.current() == waits.find("b")
    assert status_row(waits.find("a"))["reason"] == "no page in time"
    assert waits.waiting("a", "no page in time") == waits
    alone = waits.put(waits.find("b").over(State.DONE, 3.0))
    assert alone.current() == alone.find("a")
    assert status_row(alone.find("a").written(1, 1, 1.0, 1))["reason"] is None


@pytest.mark.slow
@pytest.mark.promise("snapshots.read-back")
def test_which_tables_were_read_is_known_after_many_more_snapshots() -> None:
    """Those that ended long ago are forgotten, but for their tables; of a table that was not begun nothing was read."""
    snapshots, tables = Snapshots(), [f"shop.t{number}" for number in range(250)]
    for number, table in enumerate(tables):
        snapshots = snapshots.take(request("start", table, f"r{number}"), 1.0)
        asked = snapshots.tables[-1]
        if number % 2:
            snapshots = snapshots.put(asked.over(State.CANCELLED, 3.0))
        else:
            snapshots = snapshots.put(asked.begun("x", 2.0, {}, 0).over(State.DONE, 3.0))
        snapshots = snapshots_from_json(snapshots.to_json())
    assert [snapshot.table for snapshot in snapshots.tables] == tables[-101:]
    assert snapshots.tables_read == set(tables[::2])


def test_one_that_has_not_ended_is_never_forgotten() -> None:
    snapshots = Snapshots().take(request("start", "shop.slow", "slow"), 1.0)
    snapshots = snapshots.put(snapshots.tables[0].begun("x", 2.0, {}, 0).paused())
    for number in range(150):
        snapshots = snapshots.take(request("start", name=f"r{number}"), 1.0)
        snapshots = snapshots.put(snapshots.tables[-1].over(State.CANCELLED, 3.0))
    assert (snapshots.tables[0].table, len(snapshots.tables)) == ("shop.slow", 102)
    assert snapshots.tables_read == {"shop.slow"}


def test_a_snapshot_that_is_paused_in_a_round_reads_that_round_first_when_it_goes_on() -> None:
    snapshot = TableSnapshot(id="a", table="shop.orders", asked=0).begun("x", 1, {}, 0).planned([WHOLE])
    snapshots = Snapshots(tables=(snapshot,)).take(request("pause"), 2.0).take(request("resume", name="r2"), 3.0)
    assert snapshots.tables == (snapshot,)


def test_progress_is_shown_with_rate_and_time_left() -> None:
    half = (TokenRange(MIN_TOKEN, -1),)
    snapshot = TableSnapshot(id="a", table="shop.orders", asked=0).begun("x", 1, {}, 0).planned([half])
    snapshot = snapshot.written(1000, 50_000, 4.0, 8)
    row = status_row(snapshot)
    assert (row["percent"], row["rows"], row["bytes"]) == (50.0, 1000, 50_000)
    assert (row["rows_per_second"], row["seconds_left"]) == (250.0, 4)
    assert status_row(replace(snapshot, state=State.PAUSED))["seconds_left"] is None


def test_what_another_version_wrote_is_refused() -> None:
    later = json.dumps({**json.loads(Snapshots().to_json()), "version": 2})
    for text in (later, "{", "[]", '{"version": 1}'):
        with pytest.raises(CorruptError):
            snapshots_from_json(text)
        with pytest.raises(CorruptError):
            request_from_json(text)
    assert request_from_json(request("start").to_json()) == request("start")
    with pytest.raises(CorruptError, match="no action"):
        request_from_json(replace(request("start"), action="destroy").to_json())


@given(
    st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3), max_size=12),
    st.one_of(st.none(), st.integers(1, 3)),
)
def test_tasks_ask_each_node_no_more_than_its_limit_and_read_each_slot_once(
    nodes: list[list[str]], per_node: int | None
) -> None:
    slots = [[Split(TokenRange(), (node, "e")) for node in nodes_of_slot] for nodes_of_slot in nodes]
    tasks = tasks_of(slots, per_node)
    assert sorted(slot for task in tasks for slot in task) == list(range(len(slots)))
    for node in "abcd":
        asking = [task for task in tasks if any(node in nodes[slot] for slot in task)]
        assert per_node is None or len(asking) <= per_node
    if per_node is None:
        assert len(tasks) == len(slots)


def test_a_round_noted_before_a_node_died_is_read_within_the_limit_at_its_replicas() -> None:
    limits = Limits(MIB, 1, 3, 1)
    alive = ring(0, 1 << 61)
    slots = plan_round(alive, Estimates(), limits, WHOLE)
    assert {task[0].replicas[0] for task in slots} == {"a", "b", "c"}
    dead = [(token_range, tuple(sorted(hosts, key=lambda host: host == "b"))) for token_range, hosts in alive]
    later = again(dead, [union(split.range for split in task) for task in slots])
    asked = [split.replicas[0] for task in later for split in task]
    assert "b" not in asked
    assert asked.count("c") == 2
    assert len(tasks_of(later, 1)) == 2
