"""The mirror in CQL: what is written in which order, by how many agents, and whatever stops them."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count

import pytest

from tailrace.ops.health import HealthBoard
from tailrace.topology.mirror import Mirror, MirrorThread, copy_steps
from tailrace.topology.mirror_plan import (
    MOST_TURN_MS,
    TURN_MS,
    IdForm,
    MirrorOptions,
    MirrorTable,
    Removal,
    Write,
    create_keyspace,
    create_table,
    default_replication,
    timestamp_row,
    turn_ms,
)
from tailrace_common.backoff import Waits
from tailrace_common.kafka import Record
from tailrace_common.topics import GenerationReader
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.generation_records import PublishedGeneration, encode_proposal
from tailrace_schemas.ring import Node, Ring
from tests.support.kafka import Crash
from tests.unit.topology.mirror_memory import MemoryStore, published, readable
from tests.unit.topology.rings import proposal

BEGIN = 1_760_000_000_000
APART = 100_000
DAY = 86_400_000
RING = Ring((Node("a", "dc1", (10, 30)), Node("b", "dc2", (-20,))))
GROWN = Ring((*RING.nodes, Node("c", "dc2", (0,))))
THREE = published(RING, GROWN, RING, begin=BEGIN, apart=APART, streams=3)
FIRST, SECOND, THIRD = (one.timestamp for one in THREE)
# So many rows that they take several writes.
TOKENS = tuple(random.Random(0).sample(range(2**62), 100))
LARGE = published(Ring((Node("a", "dc1", TOKENS),)), begin=BEGIN, apart=APART)
V1 = MirrorOptions(v1=True, batch_bytes=2_000)
KEPT = replace(V1, keep_ms=DAY)


def mirrored(
    generations: Sequence[PublishedGeneration],
    options: MirrorOptions = V1,
    now: int = BEGIN,
    form: IdForm | None = None,
) -> MemoryStore:
    """A store up to date with these generations."""
    store = MemoryStore()
    Mirror(store, options, form=form).update(generations, now)
    return store


def test_a_generation_is_written_in_the_shapes_of_tuples() -> None:
    content = mirrored(THREE[:1], form=IdForm.TUPLE).content()
    generation = THREE[0].unpack().generation
    ids = {
        entry.token_range_end: [
            (stream.token, int.from_bytes(stream.value[8:], "big", signed=True)) for stream in entry.streams
        ]
        for entry in generation.entries
    }
    assert content == {
        MirrorTable.TIMESTAMPS: {("timestamps", FIRST): {"key": "timestamps", "time": FIRST}},
        MirrorTable.STREAMS: {
            (FIRST, end): {"time": FIRST, "range_end": end, "streams": sorted(ids[end])} for end in (-20, 10, 30)
        },
        MirrorTable.DESCRIPTIONS: {
            (FIRST,): {"time": FIRST, "description": [(str(end), ids[end], 0) for end in (-20, 10, 30)]}
        },
        MirrorTable.STREAMS_V1: {
            (FIRST,): {
                "time": FIRST,
                # Sorted as ids, unsigned: tokens from 0 up stand before negative ones.
                "streams": sorted(
                    (pair for pairs in ids.values() for pair in pairs), key=lambda pair: [n % 2**64 for n in pair]
                ),
            }
        },
        MirrorTable.LOCAL: {
            ("cdc_local",): {"key": "cdc_local", "streams_timestamp": FIRST},
            ("rewritten",): {"key": "rewritten", "streams_timestamp": None},
        },
    }


@pytest.mark.promise("mirror.stream-ids")
def test_a_new_mirror_has_the_stream_ids_that_scylladbs_clients_read() -> None:
    store = mirrored(THREE[:1])
    assert store.tables is not None
    assert store.tables[MirrorTable.STREAMS]["streams"] == "frozen<set<blob>>"
    content = store.content()
    generation = THREE[0].unpack().generation
    entry = generation.entries[0]
    row = content[MirrorTable.STREAMS][FIRST, entry.token_range_end]
    assert row["streams"] == sorted(stream.value for stream in entry.streams)
    ((_, described),) = content[MirrorTable.DESCRIPTIONS].items()
    assert described["description"][0] == (entry.token_range_end, [stream.value for stream in entry.streams], 0)
    ((_, v1),) = content[MirrorTable.STREAMS_V1].items()
    assert v1["streams"] == sorted(stream.value for stream in generation.streams())


def test_a_low_word_above_the_middle_is_negative_as_bigint_has_it() -> None:
    found = [(stream, IdForm.TUPLE.value_of(stream)) for one in LARGE for stream in one.unpack().generation.streams()]
    assert any(pair[1] < 0 for _, pair in found if isinstance(pair, tuple))
    for stream, pair in found:
        assert isinstance(pair, tuple)
        assert b"".join(number.to_bytes(8, "big", signed=True) for number in pair) == stream.value


@pytest.mark.promise("mirror.whole-generations")
@pytest.mark.parametrize("generations", [THREE, LARGE], ids=["three", "large"])
def test_a_timestamp_is_seen_only_with_all_of_its_rows(generations: Sequence[PublishedGeneration]) -> None:
    store = MemoryStore()
    sizes = {one.timestamp: len(one.unpack().generation.entries) for one in generations}
    seen: set[int] = set()

    def look(_: int) -> None:
        found = readable(store)
        assert found == {time: sizes[time] for time in found}
        for time in found:
            assert (time,) in store.rows(MirrorTable.DESCRIPTIONS)
            assert (time,) in store.rows(MirrorTable.STREAMS_V1)
        seen.add(len(found))

    store.before = look
    Mirror(store, V1).update(generations, BEGIN)
    assert readable(store) == sizes
    assert seen == set(range(len(generations) + 1))


def test_what_is_there_is_not_written_again() -> None:
    store = mirrored(THREE)
    before = len(store.statements)
    assert Mirror(store, V1).update(THREE, BEGIN) == 0
    assert len(store.statements) == before


def test_nothing_is_made_before_there_is_a_generation() -> None:
    store = MemoryStore()
    assert Mirror(store, V1).update((), BEGIN) == 0
    assert store.statements == []


def statements_of(generations: Sequence[PublishedGeneration]) -> int:
    return len(mirrored(generations).statements)


CRASHES = [(THREE, step) for step in range(statements_of(THREE))] + [
    (LARGE, step) for step in range(statements_of(LARGE))
]


@pytest.mark.slow
@pytest.mark.promise("mirror.crash")
@pytest.mark.parametrize(("generations", "step"), CRASHES)
def test_whoever_dies_before_a_statement_another_goes_on(generations: Sequence[PublishedGeneration], step: int) -> None:
    store = MemoryStore()

    def die(count: int) -> None:
        if count == step:
            raise Crash

    store.before = die
    with pytest.raises(Crash):
        Mirror(store, V1).update(generations, BEGIN)
    store.before = lambda _: None
    Mirror(store, V1).update(generations, BEGIN)
    assert store.content() == mirrored(generations).content()
    rows = [one for one in store.statements if isinstance(one, Write) and one.table is MirrorTable.STREAMS]
    keys = [row[:2] for write in rows for row in write.rows]
    assert len(keys) == len(set(keys)), "a row that was there was written again"


@pytest.mark.slow
@pytest.mark.promise("mirror.crash")
@pytest.mark.parametrize(("generations", "step"), CRASHES)
def test_another_that_does_the_same_in_between_changes_nothing(
    generations: Sequence[PublishedGeneration], step: int
) -> None:
    store = MemoryStore()

    def interrupt(count: int) -> None:
        if count == step:
            store.before = lambda _: None
            Mirror(store, V1).update(generations, BEGIN)

    store.before = interrupt
    Mirror(store, V1).update(generations, BEGIN)
    assert store.content() == mirrored(generations).content()


def test_one_who_knows_less_takes_nothing_back() -> None:
    store = mirrored(THREE)
    Mirror(store, V1).update(THREE[:1], BEGIN)
    assert store.content() == mirrored(THREE).content()
    late = MemoryStore(tables=store.tables)
    for behind in (THREE, THREE[:1]):
        for one in mirrored(behind).statements:
            if isinstance(one, Write):
                late.put(one)
    assert late.local()["cdc_local"] == THIRD


# -- v1 on request


def test_the_v1_table_is_made_only_on_request_and_filled_when_it_is_asked_for_later() -> None:
    store = mirrored(THREE, MirrorOptions())
    assert MirrorTable.STREAMS_V1 not in (store.shapes() or {})
    Mirror(store, V1).update(THREE, BEGIN)
    assert store.content() == mirrored(THREE).content()


def test_a_generation_too_large_for_one_row_has_its_streams_in_v2_alone() -> None:
    store = MemoryStore()
    mirror = Mirror(store, replace(V1, largest_row=5_000))
    both = (*THREE[:1], replace(LARGE[0], timestamp=SECOND, predecessor=FIRST))
    mirror.update(both, BEGIN)
    assert readable(store) == {FIRST: 3, SECOND: len(TOKENS)}
    assert list(store.rows(MirrorTable.DESCRIPTIONS)) == [(FIRST,)]
    assert list(store.rows(MirrorTable.STREAMS_V1)) == [(FIRST,)]
    assert mirror.update(both, BEGIN) == 0


# -- what expires


def test_without_a_limit_nothing_expires() -> None:
    store = mirrored(THREE)
    assert Mirror(store, V1).update(THREE, THIRD + 10_000 * DAY) == 0
    assert set(store.expirations(MirrorTable.TIMESTAMPS).values()) == {None}


def test_a_superseded_generation_expires_and_then_goes() -> None:
    store = mirrored(THREE, KEPT)
    mirror = Mirror(store, KEPT)
    mirror.update(THREE, SECOND - 1)
    assert set(store.expirations(MirrorTable.TIMESTAMPS).values()) == {None}
    for now, expired in (
        (SECOND, {FIRST: SECOND, SECOND: None, THIRD: None}),
        (THIRD, {FIRST: SECOND, SECOND: THIRD, THIRD: None}),
        (SECOND + DAY - 1, {FIRST: SECOND, SECOND: THIRD, THIRD: None}),
        (SECOND + DAY, {SECOND: THIRD, THIRD: None}),
        (THIRD + 10_000 * DAY, {THIRD: None}),
    ):
        mirror.update(THREE, now)
        for table in (MirrorTable.TIMESTAMPS, MirrorTable.DESCRIPTIONS, MirrorTable.STREAMS_V1):
            assert store.expirations(table) == expired, (now, table)
        assert store.partitions() == sorted(expired)
        assert mirror.update(THREE, now) == 0
    assert store.local()["cdc_local"] == THIRD


@pytest.mark.parametrize("step", [None, *range(8)])
def test_what_the_topic_let_go_goes_from_the_tables(step: int | None) -> None:
    """Also where whoever removed it died, and by then the topic does not have it either."""
    complete = mirrored(THREE, KEPT)
    Mirror(complete, KEPT).update(THREE, THIRD + DAY)
    store = mirrored(THREE, KEPT)
    begun = len(store.statements)

    def die(count: int) -> None:
        if step is not None and count == begun + step:
            raise Crash

    store.before = die
    with suppress(Crash):
        Mirror(store, KEPT).update(THREE if step is not None else THREE[2:], THIRD + DAY)
    store.before = lambda _: None
    Mirror(store, KEPT).update(THREE[2:], THIRD + DAY)
    assert store.content() == complete.content()
    assert readable(store) == {THIRD: 3}
    assert Mirror(store, KEPT).update(THREE[2:], THIRD + DAY) == 0


def test_imported_generations_expire_like_any_other_once_the_import_is_done() -> None:
    store = mirrored(THREE[:1], KEPT)
    imported = [BEGIN - 5 * DAY, BEGIN - 4 * DAY, BEGIN - DAY // 2]
    for time in imported:
        for step in copy_steps(time, [("5", [(1, 1)], 0)]):
            store.put(step)
    unfinished = MemoryStore(tables=store.tables)
    for one in store.statements:
        if isinstance(one, Write) and one.rows[0][0] != "rewritten":
            unfinished.put(one)
    for time in imported:
        for step in copy_steps(time, [("5", [(1, 1)], 0)]):
            unfinished.put(step)
    mirror = Mirror(store, KEPT)
    mirror.update(THREE[:1], BEGIN)
    assert store.expirations(MirrorTable.TIMESTAMPS) == {imported[1]: imported[2], imported[2]: BEGIN, BEGIN: None}
    # Those that an old ScyllaDB announced in its v1 table; the import comes next.
    unfinished.tables = {**(store.tables or {})}
    Mirror(unfinished, KEPT).update(THREE[:1], BEGIN)
    assert set(unfinished.expirations(MirrorTable.TIMESTAMPS)) == {*imported, BEGIN}


def test_what_need_not_be_there_any_more_is_never_written() -> None:
    store = mirrored(THREE, KEPT, SECOND + DAY)
    assert readable(store) == {SECOND: 4, THIRD: 3}


@pytest.mark.promise("mirror.whole-generations")
def test_who_removes_and_dies_leaves_no_timestamp_without_its_rows() -> None:
    now = THIRD + 2 * DAY
    complete = mirrored(THREE, KEPT)
    Mirror(complete, KEPT).update(THREE, now)
    removals = sum(isinstance(one, Removal) for one in complete.statements)
    assert removals == 8
    for step in range(removals):
        store = mirrored(THREE, KEPT)
        begun = len(store.statements)

        def die(count: int, at: int = begun + step) -> None:
            if count == at:
                raise Crash

        store.before = die
        with pytest.raises(Crash):
            Mirror(store, KEPT).update(THREE, now)
        assert all(count in (3, 4) for count in readable(store).values())
        store.before = lambda _: None
        Mirror(store, KEPT).update(THREE, now)
        assert store.content() == complete.content()


@pytest.mark.promise("mirror.crash")
def test_a_straggler_brings_nothing_back() -> None:
    store = mirrored(THREE, KEPT)
    late = list(store.statements)
    Mirror(store, KEPT).update(THREE, THIRD)
    late += store.statements[len(late) :]
    Mirror(store, KEPT).update(THREE, THIRD + 2 * DAY)
    content = store.content()
    for one in late:
        if isinstance(one, Write):
            store.put(one)
    assert store.content() == content


# -- keyspace and tables


def test_a_new_installation_writes_the_marker_before_its_own_v1_table() -> None:
    store = mirrored(THREE)
    kinds = [one.rows[0][0] if isinstance(one, Write) else one for one in store.statements]
    assert kinds[:3] == ["keyspace", MirrorTable.LOCAL, "rewritten"]
    assert kinds.index(MirrorTable.STREAMS_V1) > kinds.index("rewritten")
    assert store.replication == {"dc1": 1, "dc2": 1}


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        (None, "there is no keyspace mirror; make it"),
        ({}, "keyspace mirror has no table cdc_local; make it"),
    ],
)
def test_what_may_not_be_made_is_named(tables: dict[str, dict[str, str]] | None, words: str) -> None:
    store = MemoryStore(tables=tables)
    with pytest.raises(SettingsError, match=words):
        Mirror(store, V1, create=False).update(THREE, BEGIN)
    assert store.statements == []


@pytest.mark.parametrize("form", IdForm)
@pytest.mark.parametrize("setting", [None, "the same"])
def test_tables_that_their_owner_made_are_used(form: IdForm, setting: str | None) -> None:
    tables = {str(table): dict(form.types[table]) for table in MirrorTable}
    store = MemoryStore(tables=tables)
    Mirror(store, V1, create=False, form=form if setting else None).update(THREE, BEGIN)
    for table in (MirrorTable.STREAMS, MirrorTable.DESCRIPTIONS, MirrorTable.STREAMS_V1):
        assert store.content()[table] == mirrored(THREE, form=form).content()[table]


@pytest.mark.promise("mirror.stream-ids")
@pytest.mark.parametrize("table", [MirrorTable.STREAMS, MirrorTable.DESCRIPTIONS, MirrorTable.STREAMS_V1])
def test_a_mirror_of_tuples_goes_on_with_them_and_says_once_what_that_means(
    table: MirrorTable, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore(tables={table: dict(IdForm.TUPLE.types[table])})
    mirror = Mirror(store, V1)
    mirror.update(THREE[:2], BEGIN)
    mirror.update(THREE, BEGIN)
    assert store.content()[MirrorTable.STREAMS] == mirrored(THREE, form=IdForm.TUPLE).content()[MirrorTable.STREAMS]
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        "mirror: the tables in keyspace mirror have stream ids as tuples, which ScyllaDB's own clients cannot read; "
        "going on in this form. For blobs, drop these tables, or name another keyspace (mirror.keyspace)"
    ]


@pytest.mark.promise("mirror.stream-ids")
@pytest.mark.parametrize(
    ("column", "kind", "words"),
    [
        (
            "streams",
            "frozen<set<blob>>",
            "cdc_streams_descriptions_v2 has streams frozen<set<blob>>, the mirror writes",
        ),
        ("range_end", None, "has range_end not at all, the mirror writes bigint"),
        ("time", "text", "has time text"),
    ],
)
def test_a_table_of_another_shape_is_named(column: str, kind: str | None, words: str) -> None:
    columns: dict[str, str | None] = {**IdForm.TUPLE.types[MirrorTable.STREAMS], column: kind}
    shape = {name: kind for name, kind in columns.items() if kind is not None}
    store = MemoryStore(tables={MirrorTable.STREAMS: shape})
    with pytest.raises(SettingsError, match=words):
        Mirror(store, V1, form=IdForm.TUPLE).update(THREE, BEGIN)
    assert store.statements == []


def test_types_are_compared_as_releases_write_them() -> None:
    tables = {str(table): dict(IdForm.TUPLE.types[table]) for table in MirrorTable}
    tables[MirrorTable.STREAMS]["streams"] = "frozen<set<tuple<bigint,bigint>>>"
    store = MemoryStore(tables=tables)
    Mirror(store, V1).update(THREE, BEGIN)
    assert set(readable(store)) == {FIRST, SECOND, THIRD}


def test_copies_are_three_in_each_datacenter_or_as_many_as_it_has_nodes() -> None:
    nodes = [Node(f"a{n}", "dc1", (n,)) for n in range(5)]
    ring = Ring((*nodes, Node("b", "it's", (9,)), Node("c", "dc3", ())))
    copies = default_replication(ring)
    assert copies == {"dc1": 3, "it's": 1}
    assert create_keyspace("my", copies) == (
        'CREATE KEYSPACE IF NOT EXISTS "my" WITH replication = '
        "{'class': 'NetworkTopologyStrategy', 'dc1': 3, 'it''s': 1}"
    )


def test_two_agents_make_one_table() -> None:
    first, again, other = (
        create_table(keyspace, MirrorTable.TIMESTAMPS, IdForm.TUPLE) for keyspace in ("one", "one", "two")
    )
    assert first == again
    assert first.split(" ID = ")[1] != other.split(" ID = ")[1]
    assert "(key text, time timestamp, expired timestamp, PRIMARY KEY (key, time))" in first
    assert "CLUSTERING ORDER BY (time DESC)" in first


# -- statements


def test_statements_have_a_place_for_each_parameter() -> None:
    row = timestamp_row(BEGIN)
    assert row.cql("My") == ('INSERT INTO "My".cdc_generation_timestamps (key, time) VALUES (?, ?) USING TIMESTAMP ?')
    assert row.parameters == (("timestamps", BEGIN, BEGIN * 1000),)
    gone = Removal(MirrorTable.TIMESTAMPS, ("key", "time"), ("timestamps", BEGIN), 7)
    assert gone.cql("My") == 'DELETE FROM "My".cdc_generation_timestamps USING TIMESTAMP ? WHERE key = ? AND time = ?'
    assert gone.parameters == ((7, "timestamps", BEGIN),)


# -- the thread


class Source:
    """A topic that grows."""

    def __init__(self, rings: Sequence[Ring]) -> None:
        self._rings = list(rings)
        self._predecessor: int | None = None
        self._records: list[Record] = []
        self._read = 0

    def opened(self) -> GenerationReader:
        """One that reads it from its beginning."""
        self._read = 0
        return GenerationReader(self, now=lambda: BEGIN / 1000)

    def read_to_end(self) -> Iterator[Record]:
        """One generation more at each reading, while there are any."""
        if self._rings:
            timestamp = BEGIN if self._predecessor is None else self._predecessor + APART
            for key, value in encode_proposal(proposal(self._rings.pop(0), self._predecessor, timestamp)):
                self._records.append(Record(0, 0, key, value))
            self._predecessor = timestamp
        unread, self._read = self._records[self._read :], len(self._records)
        return iter(unread)

    def close(self) -> None:
        """Nothing to close."""


class Awaited(MemoryStore):
    """Says when it is up to date; fails in the ways of `failures` first."""

    def __init__(self, generations: int, failures: Sequence[Exception] = ()) -> None:
        super().__init__()
        self.failures = list(failures)
        self.complete = threading.Event()
        self.generations = generations

    def shapes(self) -> Mapping[str, Mapping[str, str]] | None:
        """Fail, as long as there is a failure left."""
        if self.failures:
            raise self.failures.pop(0)
        return super().shapes()


def run(store: Awaited, rings: Sequence[Ring], health: HealthBoard, unopened: Sequence[Exception] = ()) -> None:
    """Run the thread until the mirror has all generations; `unopened` are the first failures to open its reader."""
    done = threading.Event()
    failures = list(unopened)

    class Watched(HealthBoard):
        def gauge(self, **levels: float) -> None:
            """Note when all is mirrored."""
            health.gauge(**levels)
            if levels.get("mirrored_generations") == len(rings):
                done.set()

        def degrade(self, cause: str, words: str, *, blocking: bool = False) -> bool:
            return health.degrade(cause, words, blocking=blocking)

        def recover(self, cause: str) -> bool:
            return health.recover(cause)

    def open_reader() -> GenerationReader:
        if failures:
            raise failures.pop(0)
        return source.opened()

    source = Source(rings)
    clock = count(BEGIN, MOST_TURN_MS)  # its turn has come at the next look
    with MirrorThread(
        Mirror(store, V1),
        "host",
        open_reader,
        Watched(lambda: 0.0),
        lambda: next(clock),
        poll_seconds=0.001,
        waits=Waits(0.001, 0.001),
    ):
        assert done.wait(60)


def test_the_thread_follows_the_topic() -> None:
    store, health = Awaited(3), HealthBoard(lambda: 0.0)
    run(store, [RING, GROWN, RING], health)
    assert list(readable(store).values()) == [3, 4, 3]
    assert health.now.gauges == {"mirrored_generations": 3}
    assert health.now.degraded == {}


def test_one_host_begins_at_once_and_the_others_hold_back_one_after_the_other() -> None:
    ring = Ring(tuple(Node(f"host-{n}", "dc1", (n,)) for n in range(100)))
    waits = {node.host: turn_ms(ring, BEGIN, node.host) for node in ring.nodes}
    assert sorted(waits.values()) == [min(n * TURN_MS, MOST_TURN_MS) for n in range(100)]
    assert waits != {node.host: turn_ms(ring, BEGIN + 1, node.host) for node in ring.nodes}
    assert turn_ms(RING, BEGIN, "a stranger") == 2 * TURN_MS


def test_a_host_whose_turn_is_later_writes_when_nobody_did() -> None:
    """Its clock says when."""
    late = max(("a", "b"), key=lambda host: turn_ms(RING, BEGIN, host))
    store, health, done = MemoryStore(), HealthBoard(lambda: 0.0), threading.Event()
    times = iter([BEGIN, BEGIN + TURN_MS - 1, BEGIN + TURN_MS])
    written: list[int] = []

    def now() -> int:
        written.append(len(store.statements))
        found = next(times, None)
        if found is None:
            done.set()
            return BEGIN + TURN_MS
        return found

    source = Source([RING])
    with MirrorThread(
        Mirror(store, V1),
        late,
        source.opened,
        health,
        now,
        0.001,
        Waits(0.001, 0.001),
    ):
        assert done.wait(60)
    assert written[:3] == [0, 0, 0]
    assert written[3] == len(store.statements) > 0
    assert list(readable(store)) == [BEGIN]


@pytest.mark.promise("mirror.stops-nothing")
def test_a_failure_is_told_and_tried_again() -> None:
    told: list[str] = []

    class Telling(HealthBoard):
        def degrade(self, cause: str, words: str, *, blocking: bool = False) -> bool:
            told.append(f"{cause}: {words}")
            return super().degrade(cause, words, blocking=blocking)

    health = Telling(lambda: 0.0)
    run(Awaited(1, [ServiceError("Cassandra is away")]), [RING], health)
    assert told == ["mirror: the mirror in CQL is behind: Cassandra is away"]
    run(Awaited(1, [ZeroDivisionError("a bug of ours")]), [RING], health)
    assert told[1:] == ["mirror: the mirror in CQL is behind: a bug of ours"]
    run(Awaited(1), [RING], health, [ServiceError("Kafka is away")])
    assert told[2:] == ["mirror: the mirror in CQL is behind: Kafka is away"]
    assert health.now.degraded == {}


def test_the_thread_ends_before_the_next_statement() -> None:
    store, begun, go = Awaited(1), threading.Event(), threading.Event()

    def hold(number: int) -> None:
        if number == 8:
            begun.set()
            assert go.wait(60)

    store.before = hold
    source, clock = Source([RING]), count(BEGIN, MOST_TURN_MS)
    thread = MirrorThread(
        Mirror(store, V1),
        "host",
        source.opened,
        HealthBoard(lambda: 0.0),
        lambda: next(clock),
        poll_seconds=0.001,
    )
    assert begun.wait(60)
    closing = threading.Thread(target=thread.close)
    closing.start()
    assert thread.ended.wait(60)
    go.set()
    closing.join(60)
    assert len(store.statements) == 9
