"""The run loop on surroundings in memory: order, transactions, releases, DDL, and a crash at every step."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import uuid4

import pytest

from tailrace.agent.limits import Limits
from tailrace.errors import HeldError
from tailrace.ops.health import HealthBoard
from tailrace.publish.reports import acknowledged, loss_words
from tailrace.state import Loss, Missing
from tailrace_common.kafka import Record as KafkaRecord
from tailrace_schemas.change import SCHEMA_INFERRED, Op
from tailrace_schemas.errors import FencedError, ServiceError
from tailrace_schemas.position import Position
from tailrace_schemas.topics import Internal
from tests.support.kafka import CassandraDown, Crash, Faults, MemoryProgress, MemoryPublisher
from tests.unit.agent.world import ELSEWHERE, LATE, NOTES, ORDERS, World, entries, every_fault, world_with
from tests.unit.ddl import NOW, alter, create, drop, truncate
from tests.unit.mutations import EPOCH, deletion, insertion, mutation
from tests.unit.tables import table


def test_publishes_everything_once_in_order_and_releases_what_is_final() -> None:
    """Transactions end at a mutation's boundary, the last one covers the end, and final segments are gone."""
    world = world_with(entries("abcdefg"))
    world.log.append(2, entries("hij"))
    world.log.append(3, entries("kl"), final=False)
    world.live()
    assert world.keys() == list("abcdefghijkl")
    assert world.position == (3, 2)
    assert sorted(world.log.segments) == [3]
    assert world.kafka.resume.open == ((1, 1), (2, 2), (3, 3))


LOSS = Loss(Missing.LOST, (2, 2), Position(1, 2, 0), Position(1, 3, 0))


@pytest.mark.parametrize("step", ["", "note", "commit", "committed"])
def test_what_is_missing_is_told_once_with_the_position(step: str) -> None:
    """In the transaction of what was read before it; a crash on the way tells it again, or did not tell it at all."""
    world = world_with(entries("a"), final=False)
    world.log.append(3, entries("b"), final=False)
    world.log.losses = (LOSS,)
    if step:
        with pytest.raises(Crash):
            world.live(Faults(step, 1))
        # The capture that died had not heard of its commit; its successor has the record, by which it finds no more.
        world.log.losses = () if step == "committed" else (LOSS,)
    world.live()
    (note,) = told(world)
    assert note[:2] == (Internal.PROGRESS, b"c/h1/loss/1/2")
    assert json.loads(note[2])["segments"] == [2, 2]
    assert world.keys() == ["a", "b"]
    if step != "committed":
        assert world.health.now.counts["lost"] == 1
        assert world.health.now.degraded["loss of 2"] == loss_words(str(LOSS))


def told(world: World) -> list[tuple[Internal, bytes, bytes]]:
    """The records of losses."""
    return [note for note in world.kafka.notes if b"/loss/" in note[1]]


@pytest.mark.promise("agent.losses-acknowledged")
def test_a_loss_stays_in_health_until_it_is_acknowledged() -> None:
    """Over restarts of the agent; an acknowledgement is noticed while it runs."""
    world = world_with(entries("a"), final=False)
    world.log.losses = (LOSS,)
    world.live()
    world.health = HealthBoard(lambda: 0.0)
    world.live()
    assert world.health.now.degraded["loss of 2"] == loss_words(str(LOSS))
    assert world.health.now.gauges["unacknowledged_losses"] == 1
    ((_, key, value),) = told(world)
    world.live(on_wait=lambda: world.kafka.notes.append((Internal.PROGRESS, key, acknowledged(value, 5))))
    assert "loss of 2" not in world.health.now.degraded
    assert world.health.now.gauges["unacknowledged_losses"] == 0
    world.health = HealthBoard(lambda: 0.0)
    world.live()
    assert "loss of 2" not in world.health.now.degraded


class FailingOnce(MemoryProgress):
    """As of a reader that Kafka refuses for a moment."""

    failed = False

    def poll(self, seconds: float) -> KafkaRecord | None:
        if seconds and not self.failed:
            self.failed = True
            raise ServiceError("Kafka: reading p.progress[0]: Topic authorization failed")
        return super().poll(seconds)


def test_an_acknowledgement_is_noticed_though_a_look_for_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_with(entries("a"), final=False)
    world.log.losses = (LOSS,)
    world.live()
    ((_, key, value),) = told(world)
    progress = FailingOnce(world.kafka)
    monkeypatch.setattr(MemoryPublisher, "progress", lambda _: progress)

    def acknowledge() -> None:
        if progress.failed:
            world.kafka.notes.append((Internal.PROGRESS, key, acknowledged(value, 5)))

    world.live(idle_waits=5, on_wait=acknowledge)
    assert progress.failed
    assert "loss of 2" not in world.health.now.degraded


def test_a_loss_that_is_found_again_stays_acknowledged() -> None:
    """As a retraction is, by each agent that reads a segment which is kept."""
    world = world_with(entries("a"), final=False)
    world.log.losses = (LOSS,)
    world.live()
    ((_, key, value),) = told(world)
    world.kafka.notes.append((Internal.PROGRESS, key, acknowledged(value, 5)))
    world.log.losses = (LOSS,)
    world.health = HealthBoard(lambda: 0.0)
    world.live()
    assert "loss of 2" not in world.health.now.degraded
    assert "lost" not in world.health.now.counts
    assert len(told(world)) == 2


def test_a_loss_is_told_though_nothing_else_happens() -> None:
    world = world_with(entries("a"), final=False)
    world.live()
    commits = world.kafka.commits
    world.log.losses = (LOSS,)
    world.live()
    assert (len(told(world)), world.kafka.commits) == (1, commits + 1)


def test_the_record_says_what_was_not_read_to_its_end() -> None:
    """What vanishes of that is missed by a successor; what was read to its end may go."""
    world = world_with(entries("a"), final=False)
    world.live()
    assert world.kafka.resume.unread == ((1, 1),)
    world.log.append(1, ())
    world.log.append(2, entries("b"), final=False)
    world.live()
    assert (sorted(world.log.segments), world.kafka.resume.unread) == ([2], ((2, 2),))


def test_a_file_that_cannot_be_read_does_not_hold_up_what_is_before_it() -> None:
    """What was read is committed before the failure ends the session; otherwise every new one would abort it again."""
    world = world_with(entries("abcd"), limits=Limits(changes=100, read=4))
    world.log.append(2, entries("ef"), final=False)
    faults = Faults("read", 2, ServiceError("cannot read segment 2"))
    world.live(faults, idle_waits=1)
    assert world.keys() == list("abcd")
    assert (world.kafka.commits, world.position) == (1, (1, 4))
    assert sorted(world.log.segments) == [2]
    assert "cannot read segment 2" in str(world.health.now.as_json(0))


@pytest.mark.slow
@pytest.mark.promise("agent.whole-mutations")
@pytest.mark.parametrize("size", [1, 60_000], ids=["small", "large"])
@pytest.mark.parametrize("changes", [1, 2, 3, 7])
def test_no_transaction_ends_inside_a_mutation(changes: int, size: int) -> None:
    """Mutations of several changes behind one that showed that their table can be published, whatever a transaction
    takes; the large ones have several pieces."""
    world = World(limits=Limits(changes=changes, read=100))
    several = [mutation(*[(ORDERS, name * size, EPOCH)] * 5) for name in (b"b", b"c", b"d")]
    world.log.append(1, [*entries("a"), *several, *entries("ef")])
    world.live()
    keys = world.keys()
    assert [key[0] for key in keys] == list("a" + "bbbbb" + "ccccc" + "ddddd" + "ef")
    published = world.changes()
    assert len(world.kafka.ends) > 1 or changes > 3
    for end in world.kafka.ends:
        source = published[end - 1].source
        assert source is not None
        assert source.index == source.count - 1


def test_only_tables_with_cdc_are_published() -> None:
    """Others move the position, and their finished segment is released, in one transaction and not one a poll."""
    world = world_with([*entries("ab", NOTES), *entries("cd", ELSEWHERE)])
    world.live()
    assert (world.keys(), world.position, world.kafka.commits, world.log.segments) == ([], (1, 4), 1, {})


@pytest.mark.promise("agent.idle-cluster")
def test_an_idle_cluster_writes_few_transactions() -> None:
    """Mutations without changes alone, one a second: the position moves every ten seconds, and at the end. What was
    read of the schema at the first start is committed at once."""
    world = world_with(entries("a", NOTES), final=False)
    world.live(idle_waits=100, on_wait=lambda: world.log.append(1, entries("b", NOTES), final=False))
    assert world.clock.now == pytest.approx(100)
    assert world.kafka.commits == 11
    assert world.position == (1, 100)


@pytest.mark.promise("agent.idle-cluster")
def test_a_log_without_a_change_that_turns_over_costs_few_transactions_too() -> None:
    """There is no position to commit yet, only how far the log was read for DDL. The loop waits in between."""
    world = World()

    def turn_over() -> None:
        segment = max(world.log.segments, default=0) + 1
        world.log.append(segment, entries("a", NOTES))
        world.log.plain.add(segment)

    faults = Faults("read", 2000)
    world.live(faults, idle_waits=200, on_wait=turn_over)
    assert world.clock.now == pytest.approx(200)
    assert faults.seen["read"] < 250
    assert world.kafka.commits <= 21
    assert world.kafka.resume.schema is not None
    assert world.kafka.resume.schema.segment > 190


def test_a_transaction_waits_for_company_but_not_long() -> None:
    """With nothing more to read it is committed at its age."""
    world = world_with(entries("a"), final=False)
    world.live(idle_waits=2)
    assert world.clock.waits[0] == pytest.approx(0.02)
    assert world.kafka.commits == 1


def test_ddl_holds_from_its_place_in_the_log() -> None:
    """cdc false -> true -> false: exactly what was written while true, though events and reads come early."""
    off, on = replace(ORDERS, cdc=False), ORDERS
    world = World(tables=[off], limits=Limits(read=1))
    log = [*entries("a"), alter(off, on), *entries("b"), alter(on, off, NOW + 1), *entries("c")]

    def go_on() -> None:
        if log:
            world.log.append(1, [log.pop(0)], final=False)
        # Between a write and its release the table is altered already; the event comes at once.
        world.tables[:] = [on if len(log) in (3, 2) else off]
        assert world.schema is not None
        world.schema.hint()

    world.live(idle_waits=20, on_wait=go_on)
    assert world.keys() == ["b"]


def test_the_schema_history_is_committed_with_what_follows_from_it() -> None:
    """Not before, not after; nothing is left to send, and a successor starts with it and reads no DDL again."""
    off, wide = replace(ORDERS, cdc=False), table({"id": "text"}, regular={"v": "int"}, name="orders")
    world = world_with([*entries("a"), alter(off, wide), *entries("b")], final=False, tables=[off])
    faults = Faults("commit", 1)
    with pytest.raises(Crash):
        world.live(faults)
    assert (world.kafka.history, world.keys()) == ([], [])
    world.live()
    assert [(one.position.offset, one.table) for one in world.kafka.history] == [(0, off), (2, wide)]
    assert world.keys() == ["b"]
    world.tables[:] = [replace(wide, cdc=False)]
    world.log.append(1, entries("c"), final=False)
    world.live()
    assert (len(world.kafka.history), world.keys()) == (2, ["b", "c"])


def test_a_segment_written_before_ddl_is_published_under_its_own_definition_after_a_restart() -> None:
    """Dropped and created again with another key, all while no agent ran: old segments by the old, new by the new."""
    world = world_with(entries("a"), final=False, tables=[ORDERS])
    world.live()
    again = replace(table({"n": "text"}, name="orders", table_id=uuid4()))
    off = replace(again, cdc=False)
    world.tables[:] = [off]
    world.log.append(1, entries("b"))
    world.log.append(2, [drop(ORDERS), create(again, NOW + 1), *entries("c", again), alter(again, off, NOW + 2)])
    world.log.append(3, [*entries("d", again), *entries("e", ORDERS)], final=False)
    world.live()
    assert world.keys() == ["a", "b", "c", "e"]
    assert [change.table.partition_key[0].name for change in world.changes()] == ["id", "id", "n", "id"]


def test_ddl_of_a_segment_without_cdc_data_is_read_before_it_vanishes() -> None:
    """It has no index, and is gone when the next changes come; also when the agent dies in between."""
    off = replace(ORDERS, cdc=False)
    world = world_with(entries("a"))
    world.log.append(2, [alter(ORDERS, off), *entries("b"), alter(off, ORDERS, NOW + 1)])
    world.log.plain.add(2)
    world.live()
    del world.log.segments[2]
    world.log.append(3, entries("c"))
    world.log.append(4, [alter(ORDERS, off, NOW + 2)])
    world.log.plain.add(4)
    world.live()
    del world.log.segments[4]
    world.log.append(5, entries("d"), final=False)
    world.live()
    assert world.keys() == ["a", "c"]
    assert [
        (one.position.segment, one.table and one.table.cdc) for one in world.kafka.history if one.name[1] == "orders"
    ] == [
        (0, True),
        (2, False),
        (2, True),
        (4, False),
    ]


@pytest.mark.promise("agent.release-after-commit")
def test_a_segment_is_released_only_when_its_ddl_is_known_to_be_read() -> None:
    """The position up to which DDL was read is committed first: without it a successor would miss what it never saw. A
    segment of which all changes are published waits for that."""
    world = world_with(entries("a"), final=False)
    released: list[Position | None] = []
    # The segment ends behind what was read of it for DDL, which goes on when the next one begins.
    meanwhile = [lambda: world.log.final.add(1), lambda: None, lambda: world.log.append(2, entries("b"), final=False)]

    class Watching(Faults):
        """Notes what is committed when a segment goes."""

        def at(self, step: str) -> None:
            """Count, and look."""
            if step == "release":
                released.append(world.kafka.resume.schema)
            super().at(step)

    world.live(Watching(), idle_waits=6, on_wait=lambda: meanwhile.pop(0)() if meanwhile else None)
    assert (released, world.keys()) == ([Position(1, 2, 1)], ["a", "b"])
    assert world.log.segments.keys() == {2}


def test_ddl_is_read_while_kafka_is_down() -> None:
    """Its segment vanishes meanwhile."""
    off = replace(ORDERS, cdc=False)
    world = World()
    down = Faults("commit", 2, ServiceError("down"))
    world.log.append(1, entries("a"), final=False)

    def come_and_go() -> None:
        if down.seen["commit"] == 2 and 2 not in world.log.plain:
            world.log.append(2, [alter(ORDERS, off)])
            world.log.plain.add(2)
        elif 2 in world.log.segments:
            del world.log.segments[2]
            world.log.append(3, entries("b"), final=False)
        elif down.seen["commit"] == 1 and len(world.log.segments[1]) == 1:
            world.log.append(1, entries("c"), final=False)

    world.live(down, idle_waits=10, on_wait=come_and_go)
    assert (world.keys(), world.position) == (["a", "c"], (3, 1))


def test_cassandra_down_stops_only_what_needs_its_schema() -> None:
    """What is known is published; an event that cannot be followed makes health degraded, and nothing more."""
    world = World()

    down = CassandraDown()

    def event_and_write() -> None:
        assert world.schema is not None
        if down.seen["schema"] == 1:
            world.schema.hint()
            world.log.append(1, entries("a"), final=False)

    world.live(down, idle_waits=4, on_wait=event_and_write)
    assert world.keys() == ["a"]
    assert world.health.now.degraded["schema"] == "Cassandra is down"


@pytest.mark.promise("agent.failing-service")
def test_an_event_that_cannot_be_followed_is_followed_later() -> None:
    """One read fails, as behind a node's pause, and no other event comes: health is not degraded for ever."""
    world = World()
    failing = Faults("schema", 2, ServiceError("a query timed out"))
    late = replace(ORDERS, name="late", id=LATE)

    def event() -> None:
        if late not in world.tables:
            world.tables.append(late)
            assert world.schema is not None
            world.schema.hint()

    world.live(failing, idle_waits=8, on_wait=event)
    assert failing.seen["schema"] == 3
    assert "schema" not in world.health.now.degraded
    assert world.schema is not None
    assert world.schema.history.newest(LATE) == late


def test_ddl_needs_no_cassandra() -> None:
    """The log says it all."""
    world = World()
    off = replace(ORDERS, cdc=False)
    world.log.append(1, [*entries("a"), alter(ORDERS, off), *entries("b"), alter(off, ORDERS, NOW + 1), *entries("c")])
    world.live(Faults("schema", 2, ServiceError("Cassandra is down")))
    assert (world.keys(), world.log.segments) == (["a", "c"], {})


def test_ddl_that_was_never_seen_is_taken_from_the_cluster_where_the_log_needs_it() -> None:
    """A write names a column that no known definition has: the cluster's is believed from there on, and noted so."""
    world = World()
    wide = table({"id": "text"}, regular={"v": "int"}, name="orders")
    world.log.append(1, entries("a"), final=False)
    world.live()
    world.tables[:] = [wide]
    world.log.append(1, [*entries("b"), insertion(wide, b"c"), *entries("d")], final=False)
    world.live()
    assert world.keys() == list("abcd")
    assert [(one.position.offset, one.inferred) for one in world.kafka.history if one.table == wide] == [(2, True)]


def test_what_the_cluster_is_asked_for_says_nothing_of_the_flag() -> None:
    """It was switched off since, further on in the log, which is read ahead: up to there it is on."""
    world = World()
    wide = table({"id": "text"}, regular={"v": "int"}, name="orders")
    off = replace(wide, cdc=False)
    world.log.append(1, entries("a"), final=False)
    world.live()
    world.tables[:] = [off]
    world.log.append(1, [insertion(wide, b"b"), *entries("c"), alter(wide, off), *entries("d")], final=False)
    world.live()
    assert world.keys() == list("abc")
    assert [change.source and change.source.flags for change in world.changes()] == [
        0,
        SCHEMA_INFERRED,
        SCHEMA_INFERRED,
    ]
    world.log.append(1, entries("e"), final=False)
    world.live()
    assert world.keys() == list("abc")
    assert list(world.health.now.degraded) == ["definition of ks.orders"]
    assert world.health.now.counts["schema_inferred"] == 2


def test_bytes_that_do_not_decode_quarantine_their_segment() -> None:
    """What stood before is published, the segment kept for ever, the next segment goes on."""
    world = world_with([*entries("a"), deletion(ORDERS, b"x")[:-1], *entries("b")])
    world.log.append(2, entries("c"))
    world.live()
    assert (world.keys(), sorted(world.log.segments)) == (["a", "c"], [1])
    assert world.kafka.resume.quarantined[0].segment == 1
    assert "quarantined" in world.health.now.degraded["segment 1"]
    world.live()
    assert (world.keys(), sorted(world.log.segments)) == (["a", "c"], [1])


def test_a_shape_that_is_refused_is_reported_when_the_schema_changes() -> None:
    """Before any change of it, and until it is accepted."""
    world = World()
    late, seen = replace(ORDERS, name="late", id=LATE), list[str]()

    def event() -> None:
        if not seen:
            world.tables.append(late)
            assert world.schema is not None
            world.schema.hint()
        seen.append(world.health.now.degraded.get(f"schema of {late}", ""))

    world.log.append(1, entries("a"), final=False)
    world.live(Faults("announce", 2, HeldError("the rule is BACKWARD")), idle_waits=6, on_wait=event)
    assert "the rule is BACKWARD" in seen
    assert seen[-1] == ""
    assert world.keys() == ["a"]


def busy_world() -> World:
    """Segments with and without changes, DDL in between."""
    world = world_with([*entries("abcde"), *entries("x", NOTES)])
    world.log.append(2, [*entries("yz", NOTES), truncate(NOTES.id, 1)])
    world.log.append(3, [truncate(ORDERS.id, 2)])
    world.log.plain.add(3)
    world.log.append(
        4,
        [
            *entries("fg"),
            alter(NOTES, replace(NOTES, cdc=True)),
            *entries("hi"),
            truncate(ORDERS.id, 3),
            *entries("jkl"),
        ],
    )
    world.log.append(5, [*entries("mn"), truncate(ORDERS.id, 4)], final=False)
    return world


BUSY = list("abcdeTTTfghiTTTjklmnTTT")
TOLD = [
    "table ks.notes truncated",
    "table ks.orders truncated",
    "table ks.notes altered: cdc on",
    "table ks.orders truncated",
    "table ks.orders truncated",
]


@pytest.mark.slow
@pytest.mark.promise("agent.exactly-once", "agent.schema-events")
@pytest.mark.parametrize("faults", every_fault(busy_world().live, Crash), ids=lambda f: f"{f.step}-{f.nth}")
def test_a_crash_at_any_step_loses_nothing_and_repeats_nothing(faults: Faults) -> None:
    """The process dies there; its successor goes on from what Kafka and the directory have."""
    world = busy_world()
    try:
        world.live(faults)
    except Crash:
        world.live()
    assert world.keys() == BUSY
    assert world.told() == TOLD
    assert world.kafka.resume.truncations == ()
    assert sorted(world.log.segments) == [3, 5]


@pytest.mark.slow
@pytest.mark.promise("agent.failing-service")
@pytest.mark.parametrize(
    "faults", every_fault(busy_world().live, lambda: ServiceError("down")), ids=lambda f: f"{f.step}-{f.nth}"
)
def test_a_failing_service_at_any_step_is_retried_without_loss_or_repetition(faults: Faults) -> None:
    """The same agent starts over from what Kafka has, by itself."""
    world = busy_world()
    world.live(faults, idle_waits=60)
    assert world.keys() == BUSY
    assert world.told() == TOLD
    assert sorted(world.log.segments) == [3, 5]
    assert world.health.now.degraded == {}


@pytest.mark.promise("agent.one-per-node")
def test_an_older_agent_is_fenced() -> None:
    """A second agent starts while the first runs: the first ends with FencedError, nothing appears twice."""
    world = world_with(entries("ab"), final=False)

    def second() -> None:
        world.log.append(1, entries("cd"), final=False)
        MemoryPublisher(world.kafka, Faults()).start()

    with pytest.raises(FencedError) as fenced:
        world.live(on_wait=second)
    assert fenced.value.exit_code == 5
    world.live()
    assert world.keys() == list("abcd")


@pytest.mark.promise("agent.failing-service")
def test_retries_are_spaced_until_something_is_committed() -> None:
    """A start that succeeds proves nothing: a Kafka that refuses every commit is asked less and less often."""
    world = World(limits=Limits(retry_seconds=1, retry_seconds_most=8, seconds=0))

    class Refusing(Faults):
        """Refuses the first five commits."""

        def at(self, step: str) -> None:
            """Count, and refuse."""
            self.seen[step] += 1
            if step == "commit" and self.seen[step] <= 5:
                raise ServiceError("record too large")

    world.log.append(1, entries("a"), final=False)
    world.live(Refusing(), idle_waits=7)
    assert world.clock.waits[:5] == [1, 2, 4, 8, 8]
    assert world.keys() == ["a"]


def test_no_transaction_stays_open_while_the_schema_is_read() -> None:
    """It may take long, and readers of shared partitions would wait."""
    world = world_with([*entries("ab"), *entries("c", replace(ORDERS, name="late", id=uuid4()))], final=False)
    with pytest.raises(Crash):
        world.live(Faults("schema", 2))
    assert world.keys() == ["a", "b"]


def test_a_truncation_stands_before_the_changes_that_it_left() -> None:
    """Its record is in the log behind them. Where they were published already, the record says so."""
    world = world_with(
        [*entries("abc"), truncate(ORDERS.id, 1, (1, 2)), *entries("d")],
        final=False,
        tables=[ORDERS, replace(NOTES, cdc=True)],
    )
    later = [[*entries("e"), *entries("x", NOTES)], [truncate(ORDERS.id, 2, (2, 0)), truncate(NOTES.id, 2, (2, 2))]]

    def on_wait() -> None:
        if later:
            world.log.append(4 - len(later), later.pop(0))

    world.live(idle_waits=9, on_wait=on_wait)
    assert world.keys() == list("abTTTcdexTTTTTT")
    truncations = [change for change in world.changes() if change.op is Op.TRUNCATE]
    told = {(change.table.name, change.upto, bool(change.source and change.source.flags)) for change in truncations}
    assert told == {
        ("orders", Position(1, 1, 2), False),
        ("orders", Position(1, 2, 0), True),
        ("notes", Position(1, 2, 2), False),
    }


@pytest.mark.promise("agent.truncation-everywhere")
@pytest.mark.parametrize("error", [None, ServiceError("down")], ids=["restarted", "session"])
def test_a_truncation_knows_what_earlier_sessions_published_behind_it(error: Exception | None) -> None:
    """Its record comes when changes that it left are committed, and nothing in memory tells of them any more."""
    world = World()
    world.log.append(2, entries("cde"), final=False)
    if error is None:
        world.live()
    later = [[truncate(ORDERS.id, 2, (2, 1)), *entries("f"), truncate(ORDERS.id, 3, (2, 5))]]

    def on_wait() -> None:
        if later:
            world.log.append(2, later.pop(), final=False)

    # The second read, which finds what was logged since, fails where the process stays.
    world.live(Faults("read", 3 if error else 0, error or Crash()), idle_waits=9, on_wait=on_wait)
    assert world.keys() == list("cdeTTTfTTT")
    truncations = [change for change in world.changes() if change.op is Op.TRUNCATE and change.source]
    told = {(change.upto, bool(change.source and change.source.flags)) for change in truncations}
    assert told == {(Position(1, 2, 1), True), (Position(1, 2, 5), False)}


def test_what_earlier_sessions_published_of_other_tables_makes_no_truncation_late() -> None:
    """A node names the place of its table's last flush where nothing was written since; the position is behind it."""
    world = World(tables=[ORDERS, replace(NOTES, cdc=True)])
    world.log.append(2, [*entries("ab"), *entries("xy", NOTES)], final=False)
    world.live()
    world.log.append(2, [truncate(ORDERS.id, 2, (2, 2))], final=False)
    world.live()
    assert world.keys() == list("abxyTTT")
    assert {change.source and change.source.flags for change in world.changes()} == {0}


def test_a_truncation_ahead_of_the_flush_says_so() -> None:
    """In early mode, as the changes beside it do."""
    world = World()
    log = [*entries("a"), truncate(ORDERS.id, 1), *entries("b"), truncate(ORDERS.id, 2)]
    world.log.append(1, log, final=False)
    world.log.durable = Position(1, 1, 2)
    world.live()
    assert world.keys() == list("aTTTbTTT")
    assert [change.source and change.source.durable for change in world.changes()] == 4 * [True] + 4 * [False]
