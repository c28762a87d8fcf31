"""Names that Kafka accepts and people can read back; plans that are the table of the contracts."""

from __future__ import annotations

import re
from functools import partial
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_common.settings import TopicSettings
from tailrace_schemas.avro import Encoder, SchemaEntry, announced_topics
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.tokens import partition, token
from tailrace_schemas.topics import (
    MAX_NAME,
    Internal,
    TopicPlan,
    check_prefix,
    chosen_topic,
    host_partition,
    internal_topic,
    table_of_topic,
    table_topic,
)
from tests.unit.tables import table

ID = UUID("5f2c8a40-9a3d-11ef-8b1a-000102030405")
OTHER = UUID("5f2c8a40-9a3d-11ef-8b1a-000102030406")
SUFFIX = re.compile(r"\.-[0-9a-f]{6}")
Options = partial(TopicSettings, prefix="shop")
LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")


NAMES = [
    ("ks", "orders", "p.ks.orders"),
    ("Ks", "Orders_2", "p.Ks.Orders_2"),
    ("a-b", "c", "p.a-2d-b.c"),
    ("a.b", "c", "p.a-2e-b.c"),
    ("a", "b.c", "p.a.b-2e-c"),
    ("größe", "表", "p.gr-f6--df-e.-8868-"),
]


@pytest.mark.parametrize(("keyspace", "table", "topic"), NAMES)
def test_names_of_tables(keyspace: str, table: str, topic: str) -> None:
    assert table_topic("p", keyspace, table, ID) == topic
    assert table_of_topic("p", topic) == (keyspace, table)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8) | st.from_regex(
    r"[a-z0-9_.~-]{1,20}", fullmatch=True
)


@pytest.mark.slow
@given(TEXT, TEXT, TEXT, TEXT)
def test_different_tables_have_different_topics(keyspace: str, table: str, keyspace2: str, table2: str) -> None:
    one, other = table_topic("p", keyspace, table, ID), table_topic("p", keyspace2, table2, ID)
    assert LEGAL.fullmatch(one)
    assert table_of_topic("p", one) == (keyspace, table)
    assert (one == other) == ((keyspace, table) == (keyspace2, table2))


@pytest.mark.slow
@given(TEXT, TEXT)
def test_a_suffixed_name_can_be_read_back_too(keyspace: str, table: str) -> None:
    plain = table_topic("p", keyspace, table, ID)
    suffixed = table_topic("p", keyspace, table, ID, [plain])
    assert suffixed.startswith(plain)
    assert SUFFIX.fullmatch(suffixed[len(plain) :])
    assert LEGAL.fullmatch(suffixed)
    assert table_of_topic("p", suffixed) == (keyspace, table)


def test_what_kafka_holds_for_equal_gets_a_suffix_by_table_id() -> None:
    first = table_topic("p", "a", "b_c", ID)
    assert (first, table_topic("p", "a_b", "c", OTHER)) == ("p.a.b_c", "p.a_b.c")
    later = table_topic("p", "a_b", "c", OTHER, [first])
    assert later != table_topic("p", "a_b", "c", ID, [first])
    assert SUFFIX.fullmatch(later.removeprefix("p.a_b.c"))
    assert table_topic("p", "a_b", "c", OTHER, ["p.a_b.d", "q.a_b.c"]) == "p.a_b.c"


def announced(table_id: UUID, name: str, *topics: str) -> dict[str, str]:
    """A table's definitions, those with the topics that come last announced first."""
    encoders = [Encoder(table({"id": kind}, name=name, table_id=table_id), "p") for kind in ("int", "text")]
    entries = [
        SchemaEntry(
            schema_id=encoder.schema_id, topic=topic, table=encoder.table, avro=encoder.schema_text, announced=-place
        )
        for place, (encoder, topic) in enumerate(zip(encoders, topics, strict=False))
    ]
    return announced_topics(entries)


def test_a_table_keeps_the_last_topic_of_its_name_when_it_is_dropped_and_made_again() -> None:
    again = table({"id": "int"}, name="t_u", table_id=OTHER)
    assert chosen_topic("p", again, announced(ID, "t_u", "p.ks.t_u")) == "p.ks.t_u"
    assert chosen_topic("p", again, announced(ID, "t_u", "p.ks.t_u.-0123ab", "p.ks.t_u")) == "p.ks.t_u.-0123ab"


def test_a_new_table_has_the_topic_of_no_other() -> None:
    new = table({"id": "int"}, name="t_u", table_id=OTHER)
    assert chosen_topic("p", new, {}) == "p.ks.t_u"
    assert chosen_topic("p", new, announced(ID, "u", "p.ks.t.u")).startswith("p.ks.t_u.-")


def test_a_name_too_long_is_cut_and_told_apart() -> None:
    one, other = (table_topic("p", "k" * 222, "t" * 222, table_id) for table_id in (ID, OTHER))
    assert len(one) == len(other) == MAX_NAME
    assert one != other
    assert table_of_topic("p", one) is None
    fits = MAX_NAME - len("p..") - 1
    assert table_topic("p", "k", "t" * fits, ID) == f"p.k.{'t' * fits}"


@pytest.mark.parametrize(
    "topic",
    [
        "p",
        "p.",
        "q.ks.t",
        "p.offsets",
        "p.schema-history",
        "p.ks.",
        "p..t",
        "p.a.b.c",
        "px.ks.t",
        "p.a-b.c",
        "p.a-zz-.c",
    ],
)
def test_topics_that_are_no_tables(topic: str) -> None:
    assert table_of_topic("p", topic) is None


@pytest.mark.parametrize("prefix", ["", ".", ".a", "a b", "a/b", "ä", "a" * 101])
def test_prefixes_that_kafka_would_refuse(prefix: str) -> None:
    with pytest.raises(SettingsError, match=r"topics\.prefix"):
        check_prefix(prefix)


PLANS = [
    (Internal.OFFSETS, "shop.offsets", 16, {"cleanup.policy": "compact", "segment.ms": "600000"}),
    (Internal.SCHEMAS, "shop.schemas", 1, {"cleanup.policy": "compact"}),
    (Internal.SCHEMA_HISTORY, "shop.schema-history", 16, {"cleanup.policy": "compact"}),
    (Internal.SCHEMA_CHANGES, "shop.schema-changes", 1, {"cleanup.policy": "delete", "retention.ms": "-1"}),
    (Internal.PROGRESS, "shop.progress", 16, {"cleanup.policy": "compact"}),
    (Internal.GENERATIONS, "shop.generations", 1, {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"}),
    (Internal.DEAD_LETTER, "shop.dead-letter", 3, {"cleanup.policy": "delete", "max.message.bytes": "16777216"}),
    (Internal.SNAPSHOTS, "shop.snapshots", 1, {"cleanup.policy": "compact", "segment.ms": "600000"}),
    (Internal.SINK_LETTERS, "shop.sink-letters", 1, {"cleanup.policy": "compact", "segment.ms": "600000"}),
]


def test_every_internal_topic_is_in_the_table() -> None:
    assert {which for which, *_ in PLANS} == set(Internal)


@pytest.mark.parametrize(("which", "name", "partitions", "config"), PLANS)
def test_internal_plans(which: Internal, name: str, partitions: int, config: dict[str, str]) -> None:
    plan = Options().internal_plan(which)
    assert (plan.name, plan.partitions) == (name, partitions)
    assert internal_topic("shop", which) == name
    assert config.items() <= plan.config.items()
    assert all(isinstance(value, str) for value in plan.config.values())
    assert plan.problems(partitions, plan.settings(1)) == ()


def test_offsets_are_compacted_as_often_as_the_contract_says() -> None:
    assert Options().internal_plan(Internal.OFFSETS).config == {
        "cleanup.policy": "compact",
        "segment.ms": str(10 * 60_000),
        "segment.bytes": str(16 * 1024**2),
        "max.compaction.lag.ms": str(10 * 60_000),
        "max.message.bytes": str(Options().max_message_bytes),
    }


def test_a_tables_plan() -> None:
    plan = Options(partitions=6).table_plan("shop.ks.t")
    assert plan == TopicPlan(
        name="shop.ks.t", partitions=6, config={"cleanup.policy": "delete", "max.message.bytes": "16777216"}
    )


REPLICATION = [
    # brokers, factor asked, in sync asked, factor, in sync
    (0, None, None, 1, 1),
    (1, None, None, 1, 1),
    (2, None, None, 2, 1),
    (3, None, None, 3, 2),
    (9, None, None, 3, 2),
    (9, 5, None, 5, 4),
    (3, 3, 1, 3, 1),
]


@pytest.mark.parametrize(("brokers", "factor", "in_sync", "replicas", "min_in_sync"), REPLICATION)
def test_replication(brokers: int, factor: int | None, in_sync: int | None, replicas: int, min_in_sync: int) -> None:
    plan = Options(replication_factor=factor, min_insync_replicas=in_sync).table_plan("shop.ks.t")
    assert plan.replication(brokers) == replicas
    assert plan.settings(brokers)["min.insync.replicas"] == str(min_in_sync)


PROBLEMS = [
    # topic, its partitions, its settings, what is said
    (None, 12, {}, None),
    (None, 3, {"cleanup.policy": "compact"}, "cleanup.policy=compact; it needs delete"),
    (None, 3, {"cleanup.policy": "compact,delete"}, "cleanup.policy=compact,delete; it needs delete"),
    (None, 3, {"max.message.bytes": "1048588"}, "max.message.bytes=1048588; it needs 16777216"),
    (None, 3, {"max.message.bytes": "99999999", "compression.type": "zstd"}, None),
    (Internal.OFFSETS, 16, {"cleanup.policy": "delete"}, "cleanup.policy=delete; it needs compact"),
    (Internal.OFFSETS, 4, {"cleanup.policy": "compact", "segment.bytes": "1073741824"}, None),
    (Internal.GENERATIONS, 2, {}, "shop.generations has 2 partitions; it must have 1"),
    (Internal.GENERATIONS, 1, {"message.timestamp.type": "CreateTime"}, "CreateTime; it needs LogAppendTime"),
    (Internal.GENERATIONS, 1, {"retention.ms": "604800000"}, "retention.ms=604800000; it needs -1"),
    (Internal.DEAD_LETTER, 3, {"retention.ms": "604800000"}, None),
]


@pytest.mark.parametrize(("which", "partitions", "config", "problem"), PROBLEMS)
def test_topics_that_exist_already(
    which: Internal | None, partitions: int, config: dict[str, str], problem: str | None
) -> None:
    plan = Options().table_plan("shop.ks.t") if which is None else Options().internal_plan(which)
    found = plan.problems(partitions, config)
    if problem is None:
        assert found == ()
    else:
        assert [problem in text and plan.name in text for text in found] == [True]


@pytest.mark.parametrize("n", [1, 4, 16])
def test_a_hosts_partition_is_by_the_token_of_its_text(n: int) -> None:
    host = UUID("550e8400-e29b-41d4-a716-446655440000")
    expected = partition(token(b"550e8400-e29b-41d4-a716-446655440000"), n)
    assert host_partition(host, n) == host_partition(str(host), n) == expected
    assert {host_partition(f"host-{i}", n) for i in range(500)} == set(range(n))
