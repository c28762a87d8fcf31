"""What limits of a store do to a stream: thousands of rows that PostgreSQL refuses."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

import pytest
from cassandra.concurrent import execute_concurrent_with_args

from tailrace.local import LocalCassandra, LocalKafka
from tests import postgres
from tests.field.following import following
from tests.integration.letters import letters_in

pytestmark = [pytest.mark.integration, pytest.mark.long]

REFUSED: Final = 4_136


def test_thousands_of_refused_rows_are_dead_letters(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    """Of one batch; keys that are too long for an index, beside rows that are not."""
    options = {"max_offsets_per_trigger": 20_000, "execution": '"driver"'}
    url = postgres.new_database()
    with following(cassandra, kafka, prefix, keyspace_name, tmp_path, sink=url, stream=options) as followed:
        followed.run(
            "CREATE TABLE #.t (id text PRIMARY KEY, name text) WITH cdc = true",
            "INSERT INTO #.t (id, name) VALUES ('first', 'a')",
        )
        followed.until("t", [("first",)], "id")  # what has only begun to start ends by the signal itself
        assert followed.stream.stop() == 0
        insert = followed.session.prepare(f"INSERT INTO {keyspace_name}.t (id, name) VALUES (?, ?)")
        keys = [_long(number) if number % 50 else f"short {number}" for number in range(REFUSED * 50 // 49 + 1)]
        execute_concurrent_with_args(followed.session, insert, [(key, "a") for key in keys], concurrency=64)
        short = sum(len(key) < 100 for key in keys)
        followed.agent.until(lambda: followed.agent.count("changes") > len(keys), 120)
        followed.stream.start()
        followed.stream.until(lambda: len(followed.rows("t", "id")) == 1 + short, 1000)
        assert len(letters_in(kafka, prefix)) == len(keys) - short
        assert "out of shared memory" not in followed.stream.log.read_text()


def _long(number: int) -> str:
    """Text that PostgreSQL cannot make short enough for its index."""
    return Random(number).randbytes(3_000).hex()
