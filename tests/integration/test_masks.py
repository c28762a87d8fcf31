"""Masks in a running stream: what a sink is given, and what is refused before anything is written."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.local import LocalKafka
from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.registry import open_sink
from tests.integration.feed import Feed
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PEOPLE = table({"id": "int"}, {}, {}, {"email": "text", "age": "int", "name": "text"}, keyspace="shop", name="people")
LOG = Log(PEOPLE)


Follow = Callable[[object], None]


@pytest.fixture
def follow(spark: SparkSession, kafka: LocalKafka, prefix: str, tmp_path: Path) -> Follow:
    """Prints what the topics have, two changes and a record that is none, with the columns as it is told."""
    with closing(Feed(kafka.bootstrap, prefix)) as feed:
        feed.announce()
        insert = LOG.insert((1,), (), 10, email="ann@shop", age=5, name="Ann")
        feed.publish([insert, LOG.update((1,), (), 11, name="An")])
        feed.poison(PEOPLE, b"ann@shop")

    def run(columns: object) -> None:
        settings = Settings.model_validate(
            {
                "kafka": {"bootstrap.servers": kafka.bootstrap},
                "topics": {"prefix": prefix},
                "stream": {
                    "snapshot": "never",
                    "checkpoint": str(tmp_path / "checkpoint"),
                    "columns": columns,
                    "hash_key": "secret",
                },
                "sink": {"console": {"type": "console", "format": "json"}},
            }
        )
        with closing(open_sink("console", settings.sink["console"], prefix)) as sink:
            Stream(spark, settings, sink).run(availableNow=True)

    return run


def test_a_sink_is_given_what_the_settings_let_it_see(follow: Follow, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    rules = {"shop": {"people": {"email": "hash", "age": "rename years"}}, "*.*.na?e": "drop"}
    follow(rules)
    printed = capsys.readouterr().out
    letter, change = sorted(
        (json.loads(line) for line in printed.splitlines() if line.startswith("{")), key=lambda one: "op" in one
    )
    assert change["key"] == {"id": 1}
    assert change["columns"] == {
        "email": hmac.new(b"secret", b"ann@shop", "sha256").hexdigest(),
        "years": 5,
    }
    assert letter["message"] is None
    assert "ann@shop" not in printed
    assert b"ann@shop".hex() not in printed


def test_what_cannot_be_is_refused_before_anything_is_written(
    follow: Follow, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    with pytest.raises(SettingsError, match=r"drop of shop\.people\.id: it identifies rows"):
        follow({"shop.*.id": "drop"})
    assert "{" not in capsys.readouterr().out


def test_log_tables_repeat_what_was_written(spark: SparkSession, prefix: str) -> None:
    settings = Settings.model_validate(
        {"topics": {"prefix": prefix}, "stream": {"columns": {"a.b.c": "drop"}}, "sink": {"l": {"type": "log-tables"}}}
    )
    with (
        closing(open_sink("l", settings.sink["l"], prefix)) as sink,
        pytest.raises(SettingsError, match=r"stream\.columns is not for log tables"),
    ):
        Stream(spark, settings, sink)
