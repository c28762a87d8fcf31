"""Which tables, which topics, which partitions; what must be in Kafka before the first change."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from fastavro import parse_schema, schemaless_reader
from hypothesis import given
from hypothesis import strategies as st

from tailrace.changes.transcode import Message
from tailrace.errors import HeldError, TooLargeError
from tailrace.publish.kafka.topics import SchemaDestinations, last_definitions
from tailrace.publish.routing import Router
from tailrace_common.selection import Selection
from tailrace_schemas.avro import Encoder, SchemaEntry, SchemaIds, decode, entry_from_record, schema_records
from tailrace_schemas.avro.frames import body_at, message_schema_id, reframed
from tailrace_schemas.change import Change, Deletion, Op, Source
from tailrace_schemas.digest import change_digest
from tailrace_schemas.errors import RefusedError, ServiceError, SettingsError
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN, first_token, partition, token
from tests.support.clock import ManualClock
from tests.support.kafka import Faults, MemoryDestinations, MemoryKafka
from tests.unit.publish.registered import Registered
from tests.unit.spark.cassandra import Log as Written
from tests.unit.tables import table

EARLY, LATE = UUID("2be43760-e57f-11f1-8599-73518cff440e"), UUID("2be43760-e57f-11f2-8599-73518cff440e")


def of(name: str, table_id: UUID = EARLY, keyspace: str = "ks") -> Table:
    """A table with a text key."""
    return table({"id": "text"}, name=name, keyspace=keyspace, table_id=table_id)


def change(of_table: Table, key: bytes, at: int | None = None) -> Message:
    """A partition deletion."""
    change = Change(
        op=Op.DELETE_PARTITION,
        table=of_table,
        token=token(key) if at is None else at,
        key=key,
        deletion=Deletion(1, 1),
        digest=bytes(16),
        source=Source("h", "dc", Position(1, 1, 1), 0, 1),
    )
    encoder = Encoder(of_table, "p")
    return Message(of_table, change.token, encoder.key(change) or b"", encoder.value(change))


@pytest.mark.parametrize(
    ("include", "exclude", "wanted"),
    [
        (("*.*",), (), {"shop.orders", "shop.items", "log.orders"}),
        (("shop.*",), (), {"shop.orders", "shop.items"}),
        (("*.orders",), ("log.*",), {"shop.orders"}),
        (("shop.orders", "log.o?ders"), (), {"shop.orders", "log.orders"}),
        (("*.*",), ("*.*",), set()),
        ((), (), set()),
    ],
)
def test_selection(include: tuple[str, ...], exclude: tuple[str, ...], wanted: set[str]) -> None:
    """`exclude` wins."""
    tables = [of("orders", keyspace="shop"), of("items", keyspace="shop"), of("orders", keyspace="log")]
    assert {str(one) for one in tables if Selection(include, exclude).wants(one)} == wanted


@pytest.mark.parametrize(("at", "number"), [(MIN_TOKEN, 0), (MAX_TOKEN, 2), (0, 1), (-1, 1)])
def test_the_partition_comes_from_the_token(at: int, number: int) -> None:
    """Of three."""
    router = Router("p", MemoryDestinations(MemoryKafka(), Faults()), Selection().wants)
    (record,) = router.records([change(of("t"), b"k", at)])
    assert (record.topic, record.partition) == ("ks.t", number)


def test_everything_is_ready_before_the_first_record_of_a_shape() -> None:
    """Topic, schemas; again for a new shape, not for an equal one."""
    kafka, faults = MemoryKafka(), Faults()
    router = Router("p", MemoryDestinations(kafka, faults), Selection().wants)
    router.records([change(of("t"), b"a"), change(of("t"), b"b")])
    assert (faults.seen["topic"], faults.seen["announce"]) == (1, 1)
    wider = table({"id": "text"}, regular={"v": "int"}, name="t", table_id=EARLY)
    (record,) = router.records([change(wider, b"c")])
    assert faults.seen["announce"] == 2
    assert record.value[2:10] in kafka.announced
    assert record.key is not None
    assert record.key[2:10] in kafka.announced
    assert record.partition == partition(token(b"c"), 3)


def test_a_stores_ids_are_announced_and_frame_the_messages() -> None:
    """The body stays as it is."""
    kafka = MemoryKafka()
    router = Router("p", MemoryDestinations(kafka, Faults()), Selection().wants, Registered())
    message = change(of("t"), b"a")
    (record,) = router.records([message])
    assert record.value == b"\0ks.t" + message.value[10:]
    assert record.key == b"\0" + message.key[2:6] + message.key[10:]
    assert set(kafka.announced) == {record.value[1:5], record.key[1:5]}


def test_the_primary_key_on_request() -> None:
    """With clustering columns, null where the change has none; the partition is the token's all the same."""
    wide = table({"id": "text"}, {"n": "int"}, regular={"v": "int"}, name="t", table_id=EARLY)
    kafka, encoder = MemoryKafka(), Encoder(wide, "p")
    router = Router("p", MemoryDestinations(kafka, Faults()), Selection().wants, key="primary")
    changes = [Written(wide).insert(("a",), (7,), 5, v=1), Written(wide).delete_partition(("a",), 6)]
    found = router.records(Message(wide, one.token, encoder.key(one) or b"", encoder.value(one)) for one in changes)
    keys = [one.key or b"" for one in found]
    entries = {key: entry_from_record(key, value) for key, value in kafka.announced.items()}
    schema = parse_schema(json.loads(entries[message_schema_id(keys[0])].avro))
    read = [schemaless_reader(io.BytesIO(key[body_at(key) :]), schema, None) for key in keys]
    assert read == [{"id": "a", "n": 7}, {"id": "a", "n": None}]
    assert [one.partition for one in found] == [partition(changes[0].token, 3)] * 2
    assert [one.value for one in found] == [encoder.value(one) for one in changes]


def test_a_change_without_a_key_has_none_in_kafka() -> None:
    """A truncate's is null."""
    wide = table({"id": "text"}, {"n": "int"}, name="t", table_id=EARLY)
    truncate = Change(
        op=Op.TRUNCATE,
        table=wide,
        token=0,
        key=None,
        deletion=Deletion(5, 1),
        digest=bytes(16),
        source=Source("h", "d", Position(1, 1, 1), 0, 1),
    )
    router = Router("p", MemoryDestinations(MemoryKafka(), Faults()), Selection().wants, key="primary")
    (record,) = router.records([Message(wide, 0, b"", Encoder(wide, "p").value(truncate))])
    assert record.key is None


def test_a_shape_that_is_refused_leaves_nothing_behind() -> None:
    """No topic, no schema."""

    class Refusing(Registered):
        def ids(self, encoder: Encoder, topic: str) -> SchemaIds:
            raise HeldError(f"{encoder.table} in {topic}")

    kafka, faults = MemoryKafka(), Faults()
    router = Router("p", MemoryDestinations(kafka, faults), Selection().wants, Refusing())
    with pytest.raises(HeldError):
        router.open(of("t"))
    assert not faults.seen


def test_a_refusal_stands_until_the_table_is_opened_again() -> None:
    """The registry is not asked for each change."""
    asked = list[str]()

    class Refusing(Registered):
        def ids(self, encoder: Encoder, topic: str) -> SchemaIds:
            asked.append(topic)
            if len(asked) < 3:
                raise HeldError("the rule is BACKWARD")
            return super().ids(encoder, topic)

    router = Router("p", MemoryDestinations(MemoryKafka(), Faults()), Selection().wants, Refusing())
    for _ in range(4):
        with pytest.raises(HeldError, match="BACKWARD") as caught:
            router.records([change(of("t"), b"a")])
        assert caught.value.table_id == of("t").id
    with pytest.raises(HeldError):
        router.open(of("t"))
    router.open(of("t"))
    assert len(router.records([change(of("t"), b"a")])) == 1
    assert asked == ["ks.t"] * 3


def test_a_topic_that_kafka_refuses_is_tried_again_after_a_while_then_less_often() -> None:
    """Its tables alone are held; what is no table's topic is nobody's."""
    clock = ManualClock()
    router = Router("p", MemoryDestinations(MemoryKafka(), Faults()), Selection().wants, clock=clock)
    router.records([change(of("t"), b"a"), change(of("u", LATE), b"a")])
    router.refuse("p.offsets", "no right")
    for seconds in (5, 10, 20, 40, 80, 160, 300, 300):
        router.refuse("ks.t", "no right to write")
        with pytest.raises(HeldError, match=r"changes of ks\.t are held: no right to write"):
            router.records([change(of("t"), b"a")])
        clock.wait(seconds - 0.1)
        with pytest.raises(HeldError, match="no right to write"):
            router.open(of("t"))
        assert len(router.records([change(of("u", LATE), b"a")])) == 1
        clock.wait(0.2)
        router.open(of("t"))
        assert len(router.records([change(of("t"), b"a")])) == 1


@pytest.mark.parametrize(
    "error", [RefusedError("ks.t", "it cannot be created"), SettingsError("topics.create is false")]
)
def test_a_topic_that_cannot_be_had_holds_its_table(error: Exception) -> None:
    """Not everything."""
    router = Router("p", MemoryDestinations(MemoryKafka(), Faults("topic", 1, error)), Selection().wants)
    with pytest.raises(HeldError, match="are held") as caught:
        router.open(of("t"))
    assert caught.value.table_id == of("t").id
    router.open(of("t"))


def test_a_change_beyond_the_topic_s_limit_is_refused_alone() -> None:
    """Key and value count, with some room for what a batch has around them; others go on."""
    message = change(of("t"), b"a" * 500)
    size = len(message.value) + len(message.key)
    for limit, fits in ((size + 128, True), (size + 127, False)):
        router = Router("p", MemoryDestinations(MemoryKafka(limits={"ks.t": limit}), Faults()), Selection().wants)
        if fits:
            assert len(router.records([message])) == 1
            continue
        with pytest.raises(TooLargeError, match=f"has {size} bytes, and topic ks.t takes {limit - 128}") as caught:
            router.records([message])
        assert caught.value.table_id == of("t").id
        assert len(router.records([change(of("t"), b"b")])) == 1


def test_a_shape_that_could_not_be_announced_is_tried_again() -> None:
    """No change goes out before."""
    kafka = MemoryKafka()
    router = Router("p", MemoryDestinations(kafka, Faults("announce", 1, ServiceError("down"))), Selection().wants)
    with pytest.raises(ServiceError):
        router.records([change(of("t"), b"a")])
    assert router.records([change(of("t"), b"a")])[0].value[2:10] in kafka.announced


def test_tables_not_wanted_need_nothing() -> None:
    """No topic, no schema, no record; their changes were numbered before."""
    faults = Faults()
    router = Router("p", MemoryDestinations(MemoryKafka(), faults), Selection(exclude=("ks.secret",)).wants)
    router.open(of("secret"))
    assert router.records([change(of("secret"), b"a")]) == []
    assert not faults.seen


class Topics:
    """Counts what is created."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def ensure_table(self, topic: str) -> int:
        self.made.append(topic)
        return 3

    def limit(self, topic: str) -> int:  # noqa: ARG002 - as the protocol has it
        return 1000


class Log:
    """Keeps what is appended."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes]] = []
        self.failing: Callable[[], bool] = lambda: False

    def append(self, key: bytes, value: bytes) -> None:
        if self.failing():
            raise ServiceError("down")
        self.records.append((key, value))


def test_schemas_that_are_published_already_are_not_published_again() -> None:
    """After a restart; a new shape is."""
    known = dict(schema_records(Encoder(of("t"), "p"), "p.ks.t"))
    entries = {key: entry_from_record(key, value) for key, value in known.items()}
    log, topics = Log(), Topics()
    destinations = SchemaDestinations("p", topics, log, entries)
    destinations.announce(of("t").id, schema_records(Encoder(of("t"), "p"), "p.ks.t"))
    assert log.records == []
    wider = table({"id": "text"}, regular={"v": "int"}, name="t", table_id=EARLY)
    announced = schema_records(Encoder(wider, "p"), "p.ks.t")
    destinations.announce(wider.id, announced)
    destinations.announce(wider.id, announced)
    assert len(log.records) == len({key for key, _ in announced} - known.keys())
    assert destinations.topic(wider) == "p.ks.t"
    assert destinations.partitions("p.ks.t") == 3


class Definitions:
    """`<prefix>.schemas`, and the routers of agents whose logs have come to the definition `newest`."""

    def __init__(self) -> None:
        self.log = Log()
        self._read: list[SchemaEntry] = []

    def _entries(self) -> Sequence[SchemaEntry]:
        """Of each record in the topic's order; each is read once."""
        self._read += [entry_from_record(key, value) for key, value in self.log.records[len(self._read) :]]
        return self._read

    @property
    def entries(self) -> dict[bytes, SchemaEntry]:
        """What a reader has of it: of a repeated record the later offset."""
        read = zip(self.log.records, self._entries(), strict=True)
        return {key: replace(entry, announced=offset) for offset, ((key, _), entry) in enumerate(read)}

    @property
    def names(self) -> list[str]:
        """The name of the clustering key in each record of a value's schema, in the topic's order."""
        return [entry.table.clustering[0].name for entry in self._entries() if entry.part == "value"]

    def agent(self, newest: list[Table]) -> Router:
        """One that starts now. The last of `newest` is the definition of its history."""
        destinations = SchemaDestinations("p", Topics(), self.log, self.entries)
        return Router("p", destinations, Selection().wants, newest=lambda _: newest[-1])


def clustered(name: str) -> Table:
    """The table with a clustering key of this name."""
    return table({"id": "text"}, {name: "int"}, regular={"v": "int"}, name="t", table_id=EARLY)


def test_a_definition_that_comes_back_is_announced_again() -> None:
    """Once for each time that it does: by the order in `.schemas` readers know which names are the newest."""
    topic, newest = Definitions(), [clustered("a")]
    router = topic.agent(newest)
    for name in ("a", "b", "a", "b", "a"):
        newest.append(clustered(name))
        router.open(newest[-1])
        router.open(newest[-1])
        router.records([change(newest[-1], b"k"), change(newest[-1], b"l")])
    assert topic.names == ["a", "b", "a", "b", "a"]


def test_an_older_definition_is_announced_before_the_newest() -> None:
    """An agent reads DDL ahead of changes: changes from before it come under definitions that are old by then."""
    topic = Definitions()
    newest = [clustered("a")]
    router = topic.agent(newest)
    router.open(newest[-1])
    for name in ("b", "c", "b", "a"):
        router.records([change(clustered(name), b"k"), change(clustered("a"), b"l")])
        assert topic.names[-1] == "a"
    assert topic.names == ["a", "b", "a", "c", "a"]


def test_a_start_announces_a_definition_that_came_back_while_no_agent_ran() -> None:
    """Before the table's first change, by an agent that never knew of the other one; the next start has nothing to."""
    topic, newest = Definitions(), [clustered("a")]
    topic.agent(newest).open(clustered("a"))
    topic.agent([clustered("b")]).open(clustered("b"))
    topic.agent(newest).records([change(clustered("a"), b"k")])
    topic.agent(newest).records([change(clustered("a"), b"k")])
    topic.agent(newest).open(clustered("a"))
    assert topic.names == ["a", "b", "a"]


def test_a_replay_under_an_older_definition_leaves_the_newest_last() -> None:
    """It has no history to tell which is the newest, and `.schemas` says so."""
    topic = Definitions()
    topic.agent([clustered("b")]).open(clustered("b"))
    destinations = SchemaDestinations("p", Topics(), topic.log, topic.entries)
    replay = Router("p", destinations, Selection().wants, newest=last_definitions(topic.entries).get)
    replay.records([change(clustered("a"), b"k"), change(clustered("b"), b"k")])
    assert topic.names == ["b", "a", "b"]


def test_a_crash_between_an_older_definition_and_the_newest() -> None:
    """The next start finds the older one last."""
    topic, newest = Definitions(), [clustered("a")]
    topic.agent(newest).open(clustered("a"))
    topic.log.failing = lambda: topic.names[-1] == "b"
    with pytest.raises(ServiceError):
        topic.agent(newest).records([change(clustered("b"), b"k")])
    assert topic.names == ["a", "b"]
    topic.log.failing = lambda: False
    topic.agent(newest).records([change(clustered("b"), b"k")])
    assert topic.names == ["a", "b", "a"]


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["learn", "publish", "restart"])), max_size=40))
def test_agents_that_lag_do_not_contend_for_the_newest_definition(steps: list[tuple[int, str]]) -> None:
    """Each announces as often as its own newest definition changes, or it starts; at last all agree with the log."""
    history = [clustered(name) for name in "abacab"]
    topic = Definitions()
    learned = [history[:1] for _ in range(3)]
    published = [0, 0, 0]
    agents = [topic.agent(newest) for newest in learned]

    def step(index: int, action: str) -> None:
        newest, records = learned[index], len(topic.names)
        if action == "restart":
            agents[index] = topic.agent(newest)
        elif action == "learn" and len(newest) < len(history):
            newest.append(history[len(newest)])
            agents[index].open(newest[-1])
        elif action == "publish":
            agents[index].records([change(newest[published[index]], b"k")])
            published[index] = min(published[index] + 1, len(newest) - 1)
        assert len(topic.names) <= records + 2  # an older definition, and behind it the newest

    for index, action in steps:
        step(index, action)
    for index in range(3):
        for _ in history:
            step(index, "learn")
            step(index, "publish")
    assert topic.names[-1] == "b"
    records = len(topic.log.records)
    for _ in range(3):
        for index in range(3):
            step(index, "publish")
            agents[index].open(history[-1])
    assert len(topic.log.records) == records


def test_topics_recorded_in_schemas_are_not_given_to_another_table() -> None:
    """The name that the first got stays its own."""
    taken = dict(schema_records(Encoder(of("c", keyspace="a_b"), "p"), "p.a_b.c"))
    entries = {key: entry_from_record(key, value) for key, value in taken.items()}
    destinations = SchemaDestinations("p", Topics(), Log(), entries)
    other = of("b_c", LATE, "a")
    name = destinations.topic(other)
    assert name.startswith("p.a.b_c.-")
    assert destinations.topic(replace(other, id=EARLY)) == name


@pytest.mark.promise("agent.truncation-everywhere")
@pytest.mark.parametrize("store", [None, Registered()], ids=["own", "registry"])
def test_a_truncation_goes_to_every_partition(store: Registered | None) -> None:
    """One record each, without a key, with one digest; of a table that is not selected none."""
    kafka = MemoryKafka()
    router = Router("p", MemoryDestinations(kafka, Faults()), Selection(exclude=("ks.hidden",)).wants, store)
    table, source = of("t"), Source("h", "dc", Position(1, 7, 20), 0, 1)
    upto = Position(1, 7, 12)
    records = router.truncation(table, 1_700_000_000_123_000, source, upto)
    assert [(record.topic, record.partition, record.key) for record in records] == [("ks.t", n, None) for n in range(3)]
    encoder = Encoder(table, "p")
    entries = [entry_from_record(key, value) for key, value in schema_records(encoder, "ks.t")]
    schemas = {entry.schema_id: entry for entry in entries}
    values = [reframed(record.value, encoder.schema_id) for record in records]
    changes = [decode(value, schemas) for value in values]
    for number, found in enumerate(changes):
        assert (found.op, found.key, found.source, found.upto) == (Op.TRUNCATE, None, source, upto)
        assert found.deletion == Deletion(1_700_000_000_123_000, 1_700_000_000)
        assert partition(found.token, 3) == number
        assert found.digest == change_digest(found) == changes[0].digest
    other = router.truncation(table, 1_700_000_000_124_000, source, None)
    later = decode(reframed(other[0].value, encoder.schema_id), schemas)
    assert later.upto is None
    assert later.digest != changes[0].digest
    assert router.truncation(of("hidden", LATE), 1, source, upto) == []


@pytest.mark.slow
@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n))))
def test_the_first_token_of_a_partition(place: tuple[int, int]) -> None:
    """It is there, and the one before is not."""
    number, n = place
    first = first_token(number, n)
    assert partition(first, n) == number
    assert first == MIN_TOKEN or partition(first - 1, n) == number - 1
