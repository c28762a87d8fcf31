"""The contract of stores of dead letters (batch/dead_letters.py): of all that put and remove by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa

from tailrace_schemas.topics import table_topic
from tailrace_spark.batch.dead_letters import DeadLetterStore
from tailrace_spark.batch.delivery import DeadLetter, RecordId
from tailrace_spark.sinks.cassandra.dead_letters import CassandraDeadLetters
from tailrace_spark.sinks.changelog.dead_letter_file import DeadLetterFile
from tailrace_spark.sinks.sql.dead_letters import SqlDeadLetters
from tailrace_spark.sinks.state_store.tables import CATALOG
from tests.unit.spark.sinks.cassandra.log.cluster import Cluster

LONG = "k" * 48


def letter(partition: int, offset: int, reason: str = "why", message: bytes = b"\x00\xffa") -> DeadLetter:
    return DeadLetter(RecordId("t.shop.orders", partition, offset, b"\x01\x02"), reason, message)


LETTERS = (letter(1, 4), letter(0, 10), letter(0, 9), letter(2, 0, message=b""), letter(1, 3))
IN_ORDER = sorted(LETTERS, key=lambda one: one.record_id.key)


@pytest.fixture(params=["sql", "file", "cassandra"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DeadLetterStore]:
    if request.param == "file":
        yield DeadLetterFile(tmp_path / "letters.jsonl")
    elif request.param == "cassandra":
        yield CassandraDeadLetters(Cluster(frozenset({"shop", LONG})), "t", lambda keyspace: keyspace)
    else:
        engine = sa.create_engine("sqlite://")
        with engine.begin() as connection:
            CATALOG.create_all(connection)
            yield SqlDeadLetters(connection)
        engine.dispose()


def test_they_are_listed_by_place_whatever_the_order_they_came_in(store: DeadLetterStore) -> None:
    assert list(store.list(None, 9)) == []
    store.put(LETTERS[:3])
    store.put(LETTERS[3:])
    store.put([])
    listed = store.list(None, 9)
    assert list(listed) == IN_ORDER
    assert [(one.message, one.record_id.schema_id) for one in listed] == [
        (one.message, one.record_id.schema_id) for one in IN_ORDER
    ]


def test_those_of_the_longest_names_are_kept(store: DeadLetterStore) -> None:
    """Kafka has no topic of such a name, so its end is cut off."""
    topic = table_topic("t", LONG, "t" * 222, UUID(int=1))
    letters = [DeadLetter(RecordId(topic, 0, 7, b"\1"), "why", b"a")]
    store.put(letters)
    assert list(store.list(None, 9)) == letters


def test_the_log_says_how_many_where_the_first_is_and_what_to_do(
    store: DeadLetterStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.put(LETTERS)
    [line] = caplog.messages
    assert line.startswith("5 records are dead letters in ")
    assert "all others go on. After the cause is fixed: tailrace sink-letters replay, or of a subscription: " in line
    assert line.endswith("First: t.shop.orders, partition 1, offset 4: why")


def test_pages_follow_each_other_over_partitions(store: DeadLetterStore) -> None:
    store.put(LETTERS)
    for limit in (1, 2, 3):
        pages, after = list[DeadLetter](), None
        while listed := store.list(after, limit):
            assert len(listed) <= limit
            pages += listed
            after = listed[-1].record_id
        assert pages == IN_ORDER
    assert [one.record_id.key[1:] for one in store.list(RecordId("t.shop.orders", 0, 9), 2)] == [(0, 10), (1, 3)]


def test_a_record_has_one(store: DeadLetterStore) -> None:
    store.put(LETTERS)
    store.put([letter(0, 9, "another reason")])
    assert [one.record_id for one in store.list(None, 9)] == [one.record_id for one in IN_ORDER]


def test_what_is_removed_goes_and_what_is_not_there_is_no_error(store: DeadLetterStore) -> None:
    store.put(LETTERS)
    store.remove([])
    store.remove([letter(0, 9, "another reason", b""), letter(2, 0)])
    left = [one for one in IN_ORDER if one.record_id.key[1:] not in ((0, 9), (2, 0))]
    assert list(store.list(None, 9)) == left
    store.remove([letter(0, 9)])
    assert list(store.list(None, 9)) == left
