"""[generations] ring_delay_seconds reaches whatever tells by it what a truncation covers.

Hosts note the time of a truncation each by itself. One says 60 s, another one 58 s: a row of 59 s was written behind
it. Who takes the delay for 0 believes the first to speak, and takes the row away.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from tailrace_common.settings import Settings
from tailrace_schemas.change import Change
from tailrace_spark.sinks.files.reader import CommittedFiles
from tailrace_spark.sinks.files.store import FileStore
from tailrace_spark.sinks.registry import sink_of
from tests import opensearch
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, Topic
from tests.unit.spark.sinks.contract import Database
from tests.unit.spark.sinks.merging_contract import SECOND, truncate
from tests.unit.spark.sinks.opensearch.indexes import Searched

NEVER = 4_000_000_000_000
"""When the truncation was seen, in milliseconds: no clock says that the delay is over."""
LOG = Log(PLAIN)


def truncation(host: str, written: int) -> Change:
    """What a host says of it, in microseconds."""
    return replace(truncate(LOG, host, written, NEVER), digest=bytes(16))


def settings_of(section: dict[str, object], delay: float = 5) -> Settings:
    """As `tailrace stream` has them."""
    return Settings.model_validate({"generations": {"ring_delay_seconds": delay}, "sink": {"out": section}})


def write(settings: Settings) -> None:
    """Rows of 50, 57 and 59 s, then what the first host tells."""
    topic = Topic()
    with closing(sink_of(settings, "out")) as sink:
        sink.write([topic.piece(*[LOG.insert((at,), (), at * SECOND, v="x") for at in (50, 57, 59)])])
        sink.write([topic.piece(truncation("a", 60 * SECOND))])


@pytest.mark.promise("sinks.behind-truncation")
def test_a_sql_sink(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'sink.db'}"
    write(settings_of({"type": "sql", "url": url}))
    engine = sa.create_engine(url)
    assert Database(url, engine).select("SELECT id FROM shop_plain") == [(57,), (59,)]
    engine.dispose()


@pytest.mark.promise("sinks.behind-truncation")
def test_tables_of_a_lake_that_follow(tmp_path: Path) -> None:
    write(settings_of({"type": "delta", "path": str(tmp_path), "mode": "current"}))
    assert sorted(DeltaTable(tmp_path / "shop.plain").to_pyarrow_table()["id"].to_pylist()) == [57, 59]


@pytest.mark.long
def test_an_index() -> None:
    searched = Searched(opensearch.server().url)
    write(settings_of({"type": "opensearch", **searched.settings.model_dump(exclude={"type"}, exclude_none=True)}))
    assert searched.rows(PLAIN, "id") == [(57,), (59,)]


@pytest.mark.promise("sinks.behind-truncation")
def test_row_images(tmp_path: Path) -> None:
    """What another host says two seconds earlier shows the row again of which the first one took the image away."""
    section: dict[str, object] = {
        "type": "files", "path": str(tmp_path / "files"), "format": "jsonl", "images": f"sqlite:///{tmp_path}/images.db"
    }  # fmt: skip
    settings, topic = settings_of(section), Topic()
    with closing(sink_of(settings, "out")) as sink:
        sink.write([topic.piece(LOG.insert((59,), (), 59 * SECOND, v="x"))])
        sink.write([topic.piece(truncation("a", 60 * SECOND))])
        sink.write([topic.piece(truncation("b", 58 * SECOND))])
    store = FileStore.of(settings.sink["out"])  # type: ignore[arg-type]  # a files section
    found: list[dict[str, Any]] = [json.loads(json.dumps(one)) for one in CommittedFiles(store).records()]
    assert [[image["op"] for image in one["images"]] for one in found] == [["c"], ["d"], ["c"]]
