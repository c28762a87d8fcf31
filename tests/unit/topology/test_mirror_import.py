"""What ScyllaDB's v1 table had, in the tables that followed it: its procedure, step by step, and whatever stops it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.topology.mirror import DEFAULT_TTL_SECONDS, Mirror, generations_to_copy, log_ttls
from tailrace.topology.mirror_plan import IdForm, MirrorOptions, MirrorTable, Write, timestamp_row
from tests.support.kafka import Crash
from tests.unit.topology.mirror_memory import MemoryStore, readable

NOW = 1_760_000_000_000
HOUR = 3_600_000
# Two ids of releases before the version nibble: we would not take them, and copy them as they are.
OLD = {-5: [(-7, 12), (-5, -1)], 9: [(1, 2)]}
MODERN = {0: [(0, 1)], 4: [(3, 17)], 8: [(8, 33)]}
SHOP = {"keyspace_name": "shop", "table_name": "orders", "cdc": True, "default_time_to_live": 0}


def log_of(ttl: int | None, keyspace: str = "shop") -> Mapping[str, Any]:
    """The row of a log table."""
    name = "orders_scylla_cdc_log"
    return {"keyspace_name": keyspace, "table_name": name, "cdc": None, "default_time_to_live": ttl}


def installation(
    generations: Mapping[int, Mapping[int, list[tuple[int, int]]] | None], *tables: Mapping[str, Any]
) -> MemoryStore:
    """A keyspace that an old ScyllaDB left: v1, and the descriptions of those that have some."""
    old = (MirrorTable.STREAMS_V1, MirrorTable.DESCRIPTIONS)
    store = MemoryStore(
        tables={str(table): dict(IdForm.TUPLE.types[table]) for table in old}, cluster_tables=list(tables or [SHOP])
    )
    for time, entries in generations.items():
        streams = [pair for pairs in (entries or {}).values() for pair in pairs]
        store.put(Write(MirrorTable.STREAMS_V1, ("time", "streams"), ((time, sorted(streams)),), 1))
        if entries is not None:
            description = [(str(end), pairs, 12) for end, pairs in entries.items()]
            store.put(Write(MirrorTable.DESCRIPTIONS, ("time", "description"), ((time, description),), 1))
    for table in (MirrorTable.LOCAL, MirrorTable.TIMESTAMPS, MirrorTable.STREAMS):
        store.create_table(table, IdForm.TUPLE)
    store.statements.clear()
    return store


def mirror(store: MemoryStore) -> Mirror:
    """A mirror of that keyspace."""
    return Mirror(store, MirrorOptions())


def test_step_1_without_a_v1_table_nothing_is_done() -> None:
    store = MemoryStore(tables={}, cluster_tables=[SHOP])
    assert mirror(store).import_v1(NOW) == ()
    assert MemoryStore().tables is None
    assert mirror(MemoryStore(cluster_tables=[SHOP])).import_v1(NOW) == ()
    assert store.statements == []


def test_step_2_behind_the_marker_nothing_is_done() -> None:
    store = installation({NOW - HOUR: MODERN})
    store.put(Write(MirrorTable.LOCAL, ("key", "streams_timestamp"), (("rewritten", None),), 1))
    assert mirror(store).import_v1(NOW) == ()
    assert store.statements == []


def test_step_3_without_a_table_with_cdc_the_marker_alone_is_written() -> None:
    store = installation({NOW - HOUR: MODERN}, {**SHOP, "cdc": False})
    assert mirror(store).import_v1(NOW) == ()
    assert len(store.statements) == 1
    assert store.local() == {"rewritten": None}


def test_all_steps() -> None:
    long_ago, before, late, known = (NOW - n * HOUR for n in (300, 200, 20, 10))
    store = installation({long_ago: OLD, before: OLD, late: MODERN, known: MODERN})
    store.put(timestamp_row(known))
    assert mirror(store).import_v1(NOW) == (before, late)
    assert readable(store) == {before: 2, late: 3, known: 0}
    assert store.rows(MirrorTable.STREAMS)[before, -5]["streams"] == sorted(OLD[-5])
    assert store.local() == {"rewritten": known}
    assert store.statements[-1] == Write(
        MirrorTable.LOCAL, ("key", "streams_timestamp"), (("rewritten", known),), NOW * 1000
    )


def test_a_generation_that_nothing_describes_keeps_no_other_back(caplog: pytest.LogCaptureFixture) -> None:
    store = installation({NOW - 2 * HOUR: None, NOW - HOUR: MODERN})
    assert mirror(store).import_v1(NOW) == (NOW - HOUR,)
    assert readable(store) == {NOW - HOUR: 3}
    assert store.local() == {"rewritten": NOW - HOUR}
    assert f"no description of generation {NOW - 2 * HOUR}" in caplog.text


STEPS = range(5)


@pytest.mark.promise("mirror.v1-import")
@pytest.mark.parametrize("step", STEPS)
def test_whoever_dies_another_goes_on_and_the_marker_comes_last(step: int) -> None:
    generations = {NOW - 2 * HOUR: OLD, NOW - HOUR: MODERN}
    complete = installation(generations)
    mirror(complete).import_v1(NOW)
    assert len(complete.statements) == len(STEPS)
    store = installation(generations)

    def die(count: int) -> None:
        if count == step:
            raise Crash

    store.before = die
    with pytest.raises(Crash):
        mirror(store).import_v1(NOW)
    assert "rewritten" not in store.local()
    store.before = lambda _: None
    mirror(store).import_v1(NOW)
    assert store.content() == complete.content()


@pytest.mark.promise("mirror.crash")
@pytest.mark.parametrize("step", STEPS)
def test_another_that_does_the_same_in_between_changes_nothing(step: int) -> None:
    generations = {NOW - 2 * HOUR: OLD, NOW - HOUR: MODERN}
    complete, store = installation(generations), installation(generations)
    mirror(complete).import_v1(NOW)

    def interrupt(count: int) -> None:
        if count == step:
            store.before = lambda _: None
            mirror(store).import_v1(NOW)

    store.before = interrupt
    mirror(store).import_v1(NOW)
    assert store.content() == complete.content()


@pytest.mark.parametrize(
    ("rows", "ttls"),
    [
        ([], ()),
        ([{**SHOP, "cdc": False}, {**SHOP, "cdc": None}], ()),
        ([SHOP], (DEFAULT_TTL_SECONDS,)),
        ([SHOP, log_of(60)], (60,)),
        ([log_of(60), SHOP], (60,)),
        ([log_of(0), SHOP], (0,)),
        ([log_of(None)], (0,)),
        ([SHOP, log_of(60, "other")], (DEFAULT_TTL_SECONDS, 60)),
    ],
)
def test_how_long_tables_have_their_changes(rows: list[Mapping[str, Any]], ttls: tuple[int, ...]) -> None:
    assert log_ttls(rows) == ttls


@pytest.mark.promise("mirror.v1-import")
@given(
    st.lists(st.integers(-200_000, 0), unique=True, max_size=12),
    st.lists(st.sampled_from([0, 1, 50, 100, 190]), max_size=3),
)
def test_step_5_skips_what_no_table_has_changes_of(ages: list[int], ttls: list[int]) -> None:
    times = [NOW + age for age in ages]

    def is_too_old(time: int) -> bool:
        """Whether every table's changes are younger; clocks may differ by 10 s."""
        return all(ttl != 0 and time < NOW - ttl * 1000 - 10_000 for ttl in ttls)

    kept = [time for time in sorted(times) if not any(later > time and is_too_old(later) for later in times)]
    assert list(generations_to_copy(times, ttls, NOW)) == (kept if ttls else [])
