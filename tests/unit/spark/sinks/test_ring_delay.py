"""[generations] ring_delay_seconds reaches whatever tells by it what a truncation took.

One host says that it truncated at 60 s. Another one has said nothing: what it wrote at 63 s may have been truncated on
it a moment later, what it wrote at 66 s not any more. Who takes the delay for 0 keeps both.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tailrace_common.settings import Settings
from tailrace_schemas.change import Change
from tailrace_schemas.position import Position
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.registry import sink_of
from tests import opensearch
from tests.support.expiry import SECOND
from tests.unit.spark.cassandra import Log, truncate
from tests.unit.spark.sinks.change_log_contract import PLAIN, Topic
from tests.unit.spark.sinks.contract import Database
from tests.unit.spark.sinks.files.stores import local
from tests.unit.spark.sinks.opensearch.indexes import Searched

LOG = Log(PLAIN)


def settings_of(section: dict[str, object], delay: float = 5) -> Settings:
    """As `tailrace stream` has them."""
    return Settings.model_validate({"generations": {"ring_delay_seconds": delay}, "sink": {"out": section}})


def truncation() -> Change:
    return truncate(PLAIN, "a", 60 * SECOND, Position(1, 5, 9))


def write(settings: Settings) -> None:
    """A row of 50 s, what one host tells, and rows of another host behind it."""
    topic = Topic()
    with closing(sink_of(settings, "out")) as sink:
        write_here(sink, [topic.piece(LOG.insert((50,), (), 50 * SECOND, v="x"))])
        write_here(sink, [topic.piece(truncation())])
        write_here(sink, [topic.piece(*[LOG.insert((at,), (), at * SECOND, v="x") for at in (57, 63, 66)])])


@pytest.mark.promise("sinks.behind-truncation")
def test_a_sql_sink(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'sink.db'}"
    write(settings_of({"type": "sql", "url": url}))
    with closing(Database(url)) as database:
        assert database.select("SELECT id FROM shop_plain") == [(66,)]


@pytest.mark.promise("sinks.behind-truncation")
def test_tables_of_a_lake_that_follow(tmp_path: Path) -> None:
    write(settings_of({"type": "delta", "path": str(tmp_path), "mode": "current"}))
    assert sorted(DeltaTable(tmp_path / "shop.plain").to_pyarrow_table()["id"].to_pylist()) == [66]


@pytest.mark.long
def test_an_index() -> None:
    searched = Searched(opensearch.server().url)
    write(settings_of({"type": "opensearch", **searched.settings.model_dump(exclude={"type"}, exclude_none=True)}))
    assert searched.rows(PLAIN, "id") == [(66,)]


@pytest.mark.promise("sinks.behind-truncation")
def test_row_images(tmp_path: Path) -> None:
    section: dict[str, object] = {
        "type": "files", "path": str(tmp_path / "files"), "format": "jsonl", "images": f"sqlite:///{tmp_path}/images.db"
    }  # fmt: skip
    settings = settings_of(section)
    write(settings)
    records = local(tmp_path / "files", format="jsonl").records()
    images = {(record["op"], str(record["key"])): [image["op"] for image in record["images"]] for record in records}
    assert images == {
        ("insert", "{'id': 50}"): ["c"], ("truncate", "None"): ["d"], ("insert", "{'id': 57}"): [],
        ("insert", "{'id': 63}"): [], ("insert", "{'id': 66}"): ["c"],
    }  # fmt: skip
