"""Parking on surroundings in memory: what is set aside, when it comes back, in which order, and what is told."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from uuid import uuid4

import pytest

from tailrace.agent.limits import Limits
from tailrace.errors import HeldError
from tailrace_schemas.change import Origin
from tailrace_schemas.cql.types import MAX_DEPTH, CqlType
from tailrace_schemas.errors import RefusedError, ServiceError
from tailrace_schemas.table import Column, ColumnKind, Table
from tailrace_schemas.topics import Internal
from tests.support.clock import ManualClock
from tests.support.kafka import CassandraDown, Crash, Faults
from tests.unit.agent.world import LATE, NOTES, ORDERS, World, entries, every_fault, explain, world_with
from tests.unit.ddl import create, truncate
from tests.unit.mutations import EPOCH, deletion, insertion, mutation
from tests.unit.tables import table

SECRET = replace(ORDERS, name="late", id=LATE)
OTHER = replace(ORDERS, name="other", id=uuid4())


def parked(world: World) -> list[tuple[int, str, tuple[int, ...], bool]]:
    """What Kafka has of it: segment, table, offsets, dead or not."""
    names = {SECRET.id: "late", OTHER.id: "other", ORDERS.id: "orders"}
    return [(lot.segment, names[lot.table], lot.offsets, lot.dead) for lot in world.kafka.resume.parked]


def letters(world: World) -> list[dict[str, object]]:
    """The dead letters in Kafka, without those that carry bytes."""
    found = [json.loads(value) for which, _, value in world.kafka.notes if which is Internal.DEAD_LETTER]
    return [letter for letter in found if "chunk" not in letter]


def origins(world: World) -> list[tuple[str, Origin]]:
    """Key and origin of what was published."""
    return [
        (key, change.source.origin) for key, change in zip(world.keys(), world.changes(), strict=True) if change.source
    ]


@pytest.mark.promise("agent.parked")
def test_an_unknown_table_is_parked_and_everything_else_goes_on() -> None:
    """Its mutation waits whole, its segment is kept, health says so; explained, it is published and all is released."""
    world = world_with(entries("a"))
    world.log.append(2, [*entries("b"), *entries("c", SECRET), *entries("d")])
    world.log.append(3, entries("e"))
    world.live(idle_waits=4)
    assert (world.keys(), world.position, sorted(world.log.segments)) == (list("abde"), (3, 1), [2])
    assert parked(world) == [(2, "late", (2,), False)]
    assert str(SECRET.id) in world.health.now.degraded["parked"]
    world.live(idle_waits=6, on_wait=explain(world, SECRET))
    assert origins(world)[-1] == ("c", Origin.PARKED)
    assert (world.keys(), parked(world), world.log.segments) == (list("abdec"), [], {})
    assert "parked" not in world.health.now.degraded
    assert world.health.now.gauges["parked_now"] == 0


def test_a_segment_that_is_deleted_already_is_kept_first() -> None:
    """It had no index, and is read from its open file: there is none to name it by before."""
    world = world_with(entries("a"))
    world.log.append(2, entries("c", SECRET))
    world.log.gone.add(2)
    world.log.append(3, entries("e"))
    world.live(idle_waits=4)
    world.live(idle_waits=6, on_wait=explain(world, SECRET))
    assert origins(world)[-1] == ("c", Origin.PARKED)


@pytest.mark.promise("agent.parked", "agent.mixed-batches")
@pytest.mark.parametrize(
    "updates",
    [(ORDERS, SECRET), (SECRET, ORDERS), (ORDERS, SECRET, NOTES), (NOTES, SECRET, ORDERS), (SECRET, NOTES, ORDERS)],
    ids=lambda tables: "-".join(one.name for one in tables),
)
def test_a_mixed_mutation_is_parked_whole_and_published_whole(updates: tuple[object, ...]) -> None:
    """An unknown table's update has no length: wherever it stands, nothing of the mutation is published before it is
    explained, and then all of it."""
    world = World()
    world.log.append(1, [mutation(*((t, b"k", EPOCH) for t in updates)), *entries("z")])  # type: ignore[arg-type]
    world.live()
    assert world.keys() == ["z"]
    world.live(idle_waits=5, on_wait=explain(world, SECRET))
    published = [(c.table.name, c.source and (c.source.index, c.source.count)) for c in world.changes()[1:]]
    wanted = [t.name for t in updates if t is not NOTES]  # type: ignore[attr-defined]
    assert published == [(name, (number, 2)) for number, name in enumerate(wanted)]


@pytest.mark.promise("agent.parked-then-published")
def test_parked_mutations_outlive_the_agent() -> None:
    """A successor keeps their segments, and publishes them when it can: at its start already."""
    world = world_with([*entries("a"), *entries("bc", SECRET)])
    world.live()
    world.live()
    assert (world.keys(), sorted(world.log.segments), parked(world)) == (["a"], [1], [(1, "late", (2, 3), False)])
    world.tables.append(SECRET)
    world.live()
    assert (world.keys(), world.log.segments, parked(world)) == (list("abc"), {}, [])


@pytest.mark.promise("agent.parked-then-published")
def test_what_waits_for_a_table_comes_before_its_later_changes() -> None:
    """The definition is there, and new changes with it."""
    world = world_with(entries("ab", SECRET), final=False)

    def come() -> None:
        if SECRET not in world.tables:
            explain(world, SECRET)()
            world.log.append(1, entries("cd", SECRET), final=False)

    world.live(idle_waits=6, on_wait=come)
    assert world.keys() == list("abcd")


@pytest.mark.promise("agent.parked")
def test_what_ddl_explains_comes_before_the_later_changes_that_stand_behind_that() -> None:
    world = world_with(entries("ab", SECRET), final=False)

    def come() -> None:
        if not world.log.segments.get(2):
            world.log.append(2, [create(SECRET), *entries("cd", SECRET)], final=False)

    world.live(idle_waits=6, on_wait=come)
    assert world.keys() == list("abcd")


DEAD = Limits(changes=3, read=4, parked_seconds=1)
ALIVE = Limits(changes=3, read=4, parked_seconds=1000)


def with_a_letter() -> World:
    """A mutation of a table that nobody knows was told of in a dead letter, and a later one is not told of yet."""
    world = world_with([*entries("a"), *entries("x", SECRET)], final=False, limits=DEAD)
    world.live(idle_waits=8)
    assert parked(world) == [(1, "late", (2,), True)]
    world.limits, world.clock = ALIVE, ManualClock()
    return world


@pytest.mark.promise("agent.parked")
def test_a_look_for_one_table_finds_what_others_wait_for() -> None:
    """Nobody says that the schema has changed: the look from time to time is for what is in no dead letter yet."""
    world = with_a_letter()
    world.log.append(1, entries("y", OTHER), final=False)

    def come() -> None:
        if SECRET not in world.tables and parked(world)[1:]:
            world.tables.append(SECRET)
        elif world.keys() == ["a", "x"] and not world.log.segments[1][3:]:
            world.log.append(1, entries("z", SECRET), final=False)

    world.live(idle_waits=100, on_wait=come)
    assert (world.keys(), parked(world)) == (list("axz"), [(1, "other", (3,), False)])


@pytest.mark.promise("agent.parked")
def test_a_look_for_a_damaged_mutation_finds_what_others_wait_for() -> None:
    """It is quarantined, and what was set aside goes before what follows it."""
    world = world_with(
        entries("x", SECRET), final=False, limits=replace(ALIVE, retry_seconds=100, retry_seconds_most=100)
    )

    def come() -> None:
        if SECRET not in world.tables:
            world.tables.append(SECRET)
            world.log.append(1, [deletion(ORDERS, b"x")[:-1]])
            world.log.append(2, entries("z", SECRET))

    world.live(idle_waits=3, on_wait=come)
    assert world.keys() == list("xz")


@pytest.mark.promise("agent.parked")
def test_ddl_that_is_read_while_the_log_is_held_explains_what_was_parked() -> None:
    """So there is room again for the one that holds the log."""
    world = with_a_letter()
    world.limits = Limits(changes=3, read=4, parked=1)
    world.log.append(1, [*entries("y", OTHER), *entries("b")], final=False)

    def come() -> None:
        if not world.log.segments.get(2) and "held" in world.health.now.degraded:
            world.log.append(2, [create(SECRET)], final=False)

    world.live(idle_waits=30, on_wait=come)
    assert (world.keys(), parked(world)) == (list("axb"), [(1, "other", (3,), False)])
    assert "held" not in world.health.now.degraded


def test_the_schema_is_not_read_again_for_each_mutation_of_an_unknown_table() -> None:
    """Once for the first, and then less and less often; an event is followed at once."""
    world = world_with(
        entries("abcdefgh", SECRET), final=False, limits=Limits(retry_seconds=1, retry_seconds_most=8, poll_seconds=1)
    )
    faults = Faults()
    world.live(faults, idle_waits=16)
    assert faults.seen["schema"] == 6  # at the start, for a, and after 1, 2, 4 and 8 seconds, about
    faults = Faults()
    world.live(faults, idle_waits=3, on_wait=explain(world, SECRET))
    assert world.keys() == list("abcdefgh")


def test_while_the_schema_cannot_be_read_what_needs_it_is_parked() -> None:
    """It is asked again after a while, not for each mutation."""
    world = World()
    world.tables.remove(ORDERS)

    down = CassandraDown()
    world.log.append(1, [*entries("ab"), *entries("c", NOTES)], final=False)

    def come() -> None:
        if ORDERS not in world.tables:
            world.tables.append(ORDERS)

    world.live(down, idle_waits=2)
    assert parked(world) == [(1, "orders", (1, 2), False)]
    assert world.health.now.degraded["schema"] == "Cassandra is down"
    assert down.seen["schema"] == 3
    world.live(idle_waits=10, on_wait=come)
    assert world.keys() == ["a", "b"]
    assert world.health.now.degraded == {}


@pytest.mark.promise("agent.parked-deadline")
def test_after_a_deadline_a_dead_letter_tells_what_waits_and_none_of_its_bytes() -> None:
    """Positions, sizes, a hash, the reason: one for a table and segment. The segment stays, and so does the hope."""
    world = world_with([*entries("a"), *entries("topsecret", SECRET)], limits=Limits(parked_seconds=30, poll_seconds=5))
    world.live(idle_waits=12)
    (letter,) = letters(world)
    assert (letter["table_id"], letter["table"], letter["epoch"], letter["segment"]) == (str(LATE), None, 1, 1)
    assert letter["mutations"] == [[number, len(entries("t", SECRET)[0])] for number in range(2, 11)]
    assert letter["sha256"] == hashlib.sha256(b"".join(entries("topsecret", SECRET))).hexdigest()
    assert letter["lost"] == []
    assert (letter["file"], letter["reason"]) == ("CommitLog-7-1.log", f"table id {LATE} is in no known schema")
    assert parked(world) == [(1, "late", tuple(range(2, 11)), True)]
    assert sorted(world.log.segments) == [1]
    assert world.health.now.counts["dead_letters"] == 1
    world.live(idle_waits=12)
    assert len(letters(world)) == 1
    world.live(idle_waits=4, on_wait=explain(world, SECRET))
    assert (world.keys(), parked(world), world.log.segments) == (list("atopsecret"), [], {})


def test_bytes_go_into_dead_letters_for_those_who_ask() -> None:
    """In records of their own, in chunks."""
    world = world_with(entries("a", SECRET), limits=Limits(parked_seconds=3, dead_letter_payloads=True))
    world.live(idle_waits=8)
    (one,) = [json.loads(v) for w, k, v in world.kafka.notes if w is Internal.DEAD_LETTER and k.endswith(b"/1/0")]
    assert (one["offset"], one["chunk"], one["of"]) == (1, 0, 1)
    assert len(letters(world)) == 1


@pytest.mark.promise("agent.refused-table-alone")
def test_a_refused_shape_parks_its_table_alone() -> None:
    """Others go on; accepted, what waited is published in its order, before what came later."""
    world = World(limits=Limits(retry_seconds=1))
    world.tables.append(SECRET)
    world.log.append(1, [*entries("a"), *entries("b", SECRET), *entries("c"), *entries("d", SECRET)], final=False)
    refused = Faults("announce", 2, HeldError("the rule is BACKWARD"))
    seen = list[list[str]]()

    def later() -> None:
        seen.append(world.keys())
        if len(seen) == 1:
            world.log.append(1, entries("e", SECRET), final=False)

    world.live(refused, idle_waits=6, on_wait=later)
    assert world.keys() == list("acbde")
    assert ["a", "c"] in seen
    assert world.health.now.degraded == {}


@pytest.mark.promise("agent.refused-table-alone")
def test_a_topic_that_kafka_refuses_parks_its_table_alone() -> None:
    """The session starts over without it: others go on, and it is tried again after a while."""
    world = World()
    world.tables.append(SECRET)
    world.log.append(1, [*entries("a"), *entries("b", SECRET), *entries("c")], final=False)

    class Refusing(Faults):
        """Refuses the second record, and each later one of that topic up to the fourth time."""

        refused = 0

        def at(self, step: str) -> None:
            self.seen[step] += 1
            if step == "send" and self.seen["send"] in (2, 4):
                raise RefusedError("ks.late", "no right to write")

    world.live(Refusing(), idle_waits=60)
    assert world.keys() == list("acb")
    assert world.health.now.degraded == {}


@pytest.mark.promise("agent.refused-table-alone")
def test_what_a_dead_letter_told_of_comes_before_what_waits_for_the_same_topic() -> None:
    """Kafka takes nothing for it until long after the letter; the next change of its table is parked then."""
    world = world_with([*entries("a"), *entries("b", SECRET)], final=False, limits=replace(DEAD, parked_seconds=3))
    world.tables.append(SECRET)

    def come() -> None:
        if parked(world) == [(1, "late", (2,), True)] and not world.log.segments[1][2:]:
            world.log.append(1, entries("c", SECRET), final=False)

    world.live(Faults("send", 2, RefusedError("ks.late", "no right to write")), idle_waits=60, on_wait=come)
    assert (world.keys(), parked(world)) == (list("abc"), [])


@pytest.mark.promise("agent.refused-table-alone")
def test_what_waits_for_a_topic_goes_first_where_another_one_s_retry_opens_it() -> None:
    """Both are refused, and tried together: the one is free again before what waits for it is due."""
    limits = Limits(changes=3, read=4, retry_seconds=0.5, retry_seconds_most=8, poll_seconds=0.5)
    world = world_with(entries("a"), final=False, limits=limits)
    world.tables.append(SECRET)
    world.kafka.refused.add("ks.other")

    def come() -> None:
        explain(world, OTHER)()
        for name, moment in (("b", 11), ("c", 17)):
            if world.clock.now >= moment and entries(name, SECRET)[0] not in world.log.segments[1]:
                world.log.append(1, entries(name, SECRET), final=False)

    world.live(Faults("send", 2, RefusedError("ks.late", "no right to write")), idle_waits=60, on_wait=come)
    assert world.keys() == list("abc")


@pytest.mark.promise("agent.refused-table-alone")
def test_a_change_too_large_for_its_topic_goes_to_dead_letters_at_once() -> None:
    """The table's other changes go on, the segment is kept; it is published when the topic takes it."""
    world = World()
    world.kafka.limits["ks.orders"] = 1000
    world.log.append(1, [*entries("a"), *[deletion(ORDERS, b"x" * 1000)], *entries("b")])
    world.log.append(2, entries("c"))
    world.live(idle_waits=4)
    assert world.keys() == list("abc")
    (letter,) = letters(world)
    assert "max.message.bytes" in str(letter["reason"])
    assert parked(world) == [(1, "orders", (2,), True)]
    assert sorted(world.log.segments) == [1]
    del world.kafka.limits["ks.orders"]
    world.live()
    assert (world.keys(), world.log.segments) == ([*"abc", "x" * 1000], {})


def test_a_truncation_does_not_wait_for_a_change_that_is_set_aside() -> None:
    """That was written before it, and says so."""
    world = World()
    world.kafka.limits["ks.orders"] = 1000
    world.log.append(1, [deletion(ORDERS, b"x" * 1000), truncate(ORDERS.id, 3), *entries("b")])
    world.live(idle_waits=5)
    assert world.keys() == [*"TTT", "b"]


def test_a_mutation_that_waits_for_two_tables_waits_for_the_second_when_the_first_has_come() -> None:
    """It is parked for the first unknown one in its bytes."""
    world = world_with([mutation((SECRET, b"k", EPOCH), (OTHER, b"k", EPOCH)), *entries("z")])
    world.live()
    assert parked(world) == [(1, "late", (1,), False)]
    world.tables.append(SECRET)
    world.live()
    assert (world.keys(), parked(world)) == (["z"], [(1, "other", (1,), False)])
    world.tables.append(OTHER)
    world.live()
    assert (world.keys(), parked(world), world.log.segments) == (["z", "k", "k"], [], {})


@pytest.mark.promise("agent.parked")
def test_too_many_hold_the_log() -> None:
    """Nothing later is published, nothing released, health says why; explained, it goes on, nothing lost."""
    world = world_with(entries("a"), limits=Limits(parked=3, retry_seconds=1, retry_seconds_most=8))
    world.log.append(2, [*entries("bcdef", SECRET), *entries("g")])
    world.live(idle_waits=6)
    assert (world.keys(), world.position, sorted(world.log.segments)) == (["a"], (2, 3), [1, 2])
    assert str(SECRET.id) in world.health.now.degraded["held"]
    assert world.clock.waits[:4] == [1, 2, 4, 8]
    world.live(idle_waits=6, on_wait=explain(world, SECRET))
    assert (world.keys(), world.log.segments) == (list("abcdefg"), {})
    assert "held" not in world.health.now.degraded


def test_parked_mutations_whose_file_is_gone_are_reported_as_lost() -> None:
    """Never silently."""
    world = world_with(entries("ab", SECRET))
    world.live()
    del world.log.segments[1]
    world.tables.append(SECRET)
    world.live()
    assert (world.keys(), parked(world)) == ([], [])
    assert world.health.now.counts["lost_parked"] == 2
    (letter,) = letters(world)
    assert (letter["mutations"], letter["lost"]) == ([], [1, 2])
    assert "lost" in world.health.now.degraded["lost 1"]


def test_a_column_that_nothing_explains_is_parked_for_its_table() -> None:
    """The cluster's definition lacks it too: altered unseen, and back."""
    world = World()
    wide = table({"id": "text"}, regular={"v": "int"}, name="orders")
    world.log.append(1, [*entries("a"), insertion(wide, b"b"), *entries("c")], final=False)
    world.live()
    assert (world.keys(), parked(world)) == (["a", "c"], [(1, "orders", (2,), False)])
    world.tables[:] = [wide]
    world.live(idle_waits=5, on_wait=explain(world))
    assert world.keys() == ["a", "c", "b"]


class Coming(Faults):
    """These tables are what the cluster has from a read of its schema on, counted from 1."""

    def __init__(self, world: World, read: int, *tables: Table) -> None:
        super().__init__()
        self._world, self._read, self._tables = world, read, tables

    def at(self, step: str) -> None:
        self.seen[step] += 1
        if step == "schema" and self.seen["schema"] == self._read:
            self._world.tables[:] = self._tables


@pytest.mark.promise("agent.parked")
def test_of_two_mutations_with_a_new_column_the_one_that_waits_goes_first() -> None:
    """The second one asks for the definition, and explains the first by that."""
    wide = table({"id": "text"}, regular={"v": "int"}, name="orders")
    world = world_with([insertion(wide, b"a"), insertion(wide, b"b")], final=False)
    world.live(Coming(world, 3, wide))
    assert world.keys() == list("ab")


def hint(world: World) -> Callable[[], None]:
    """The driver says that the schema may have changed."""

    def say() -> None:
        assert world.schema is not None
        world.schema.hint()

    return say


def parking_world() -> World:
    """Unknown tables in two segments, one explained in the middle of it all, one after the deadline."""
    world = world_with(
        [*entries("ab"), *entries("cde", SECRET), *entries("f")], limits=Limits(changes=3, read=4, parked_seconds=5)
    )
    world.log.append(2, [*entries("g", SECRET), *entries("h", OTHER), *entries("i")])
    return world


def lived(world: World, faults: Faults) -> None:
    """A life in which the tables come."""
    waits = 0

    def come() -> None:
        nonlocal waits
        waits += 1
        if waits == 4:
            explain(world, SECRET)()
        if waits == 12:
            explain(world, OTHER)()

    world.live(faults, idle_waits=120, on_wait=come)


@pytest.mark.slow
@pytest.mark.promise("agent.parked-then-published")
@pytest.mark.parametrize(
    "faults", every_fault(partial(lived, parking_world()), Crash, one_in=5), ids=lambda f: f"{f.step}-{f.nth}"
)
def test_a_crash_at_any_step_of_parking_loses_nothing_and_repeats_nothing(faults: Faults) -> None:
    """A successor goes on from what Kafka and the directory have."""
    world = parking_world()
    try:
        lived(world, faults)
    except Crash:
        lived(world, Faults())
    assert sorted(world.keys()) == list("abcdefghi")
    assert (parked(world), world.log.segments) == ([], {})
    told = [(letter["segment"], letter["table_id"]) for letter in letters(world)]
    assert len(told) == len(set(told))


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    every_fault(partial(lived, parking_world()), lambda: ServiceError("down"), one_in=5),
    ids=lambda f: f"{f.step}-{f.nth}",
)
def test_a_failing_service_at_any_step_of_parking_is_retried(faults: Faults) -> None:
    """By the same agent."""
    world = parking_world()
    lived(world, faults)
    world.live(on_wait=hint(world))  # nothing comes behind a fault in the last step
    assert sorted(world.keys()) == list("abcdefghi")
    assert (parked(world), world.log.segments) == ([], {})
    assert world.health.now.degraded == {}


@pytest.mark.promise("agent.parked-then-published")
def test_a_definition_that_comes_for_another_table_lets_nothing_overtake_what_waits() -> None:
    """Read because of another table, in the midst of mutations that were read before."""
    world = world_with(
        [*entries("a", SECRET), *entries("x", OTHER), *entries("bc", SECRET)], final=False, limits=Limits(read=100)
    )

    world.live(Coming(world, 3, *world.tables, SECRET), idle_waits=6)
    assert world.keys() == list("abc")


@pytest.mark.promise("agent.why-no-definition")
def test_why_a_table_has_no_definition_is_told() -> None:
    """As the reason of what is parked, in health and in its dead letter; everything else goes on."""
    deep = CqlType("int")
    for level in range(MAX_DEPTH + 5):
        deep = CqlType("udt", (deep,), frozen=True, name=f"t{level}", fields=("f",))
    column = Column("v", b"v", ColumnKind.REGULAR, deep)
    world = World(limits=Limits(parked_seconds=3))
    world.tables.append(replace(SECRET, regular=(column,)))
    world.log.append(1, [*entries("a"), *entries("b", SECRET), *entries("c")])
    world.live(idle_waits=12)
    assert world.keys() == list("ac")
    (letter,) = letters(world)
    for words in (world.health.now.degraded["parked"], str(letter["reason"])):
        assert f"more than {MAX_DEPTH} types in one another" in words
