"""What a stream's sink writes, as its readers have it: a target of each kind, for tests that kill streams."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Protocol

from pydantic import BaseModel, SecretStr

from tailrace.local.cassandra import RELEASES, CassandraSettings
from tailrace_schemas.change_json import ChangeJson
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tailrace_spark.sinks.protocol import write_here
from tests import java_sources, opensearch, rabbitmq
from tests.held import jar_version, package
from tests.integration.cassandra_targets import LogTable, OtherKeyspace
from tests.integration.items import IDS, ITEMS
from tests.integration.topics import Topics
from tests.integration.ways import Ground, Way
from tests.oracle.comparison import Downstream, Followed, Row
from tests.oracle.stores import LakeTables, SearchIndexes
from tests.postgres import new_database
from tests.unit.spark.sinks.change_log_contract import Outside, once, place_of, require_order
from tests.unit.spark.sinks.contract import Database
from tests.unit.spark.sinks.delta.stores import DeltaStored, FollowedDelta
from tests.unit.spark.sinks.files.stores import local
from tests.unit.spark.sinks.http.posted import Posted
from tests.unit.spark.sinks.iceberg.stores import FollowedIceberg, IcebergHistory
from tests.unit.spark.sinks.rabbitmq.published import Published

Section = Mapping[str, object]


class Target(Protocol):
    """What a stream's sink writes, as its readers have it."""

    @property
    def section(self) -> Section:
        """The sink's settings."""

    def arrived(self, published: int) -> bool:
        """Whether so many changes may be there; cheaper to ask than the rows of a change log."""

    def rows(self, table: Table) -> list[Row]:
        """The rows of one of the source's tables that a reader has."""

    def require(self, published: int) -> None:
        """Of a change log: that it has so many changes, as its kind promises."""


class Merged:
    """A store that is read as a table."""

    def __init__(self, section: Section, store: Followed) -> None:
        self.section = section
        self._store = store

    def arrived(self, published: int) -> bool:  # noqa: ARG002 - it is a Target's
        return True

    def rows(self, table: Table) -> list[Row]:
        return self._store.rows(table)

    def require(self, published: int) -> None:
        """What its rows show is all."""


class _Sql(Merged):
    def require(self, published: int) -> None:  # noqa: ARG002 - it is a Target's
        """No change waits there any more."""
        with closing(Database(str(self.section["url"]))) as database:
            assert database.select("SELECT * FROM tailrace_deferred_changes") == []


class Logged:
    """A change log: its reader merges it into a table."""

    def __init__(self, section: Section, outside: Outside, place: Path) -> None:
        self.section = section
        self.outside = outside
        self._place = place
        self._made = 0

    def arrived(self, published: int) -> bool:
        return len(once(self.outside.records())) >= published

    def rows(self, table: Table) -> list[Row]:
        form = ChangeJson(table)
        self._made += 1
        url = f"sqlite:///{self._place / f'merged{self._made}.db'}"
        records = [record for record in once(self.outside.records()) if record["table"] == str(table)]
        delivered = tuple(Delivered(RecordId(*place_of(record)), form.read(record)) for record in records)
        with closing(Downstream(url)) as database:
            with closing(database.open(time.time)) as sink:
                write_here(sink, [Piece(delivered)])
                sink.sweep()
            return database.rows(table)

    def require(self, published: int) -> None:
        records = self.outside.records()
        assert len(once(records)) == published
        assert len(records) == published or not self.outside.exactly_once
        require_order(records)


class Imaged(Logged):
    """A change log with row images: the last image of each key is its row, and each begins where the last ended."""

    def rows(self, table: Table) -> list[Row]:
        [key_column] = table.key
        shown: dict[int, Mapping[str, Any]] = {}
        for record in once(self.outside.records()):
            assert record["images"] is not None, record
            for image in record["images"]:  # those in `expired` are of keys that other partitions may have
                key = image["key"][key_column.name]
                if IDS <= key < 2 * IDS:  # it expires
                    continue
                assert image["before"] == shown.get(key), record
                if image["after"] is None:
                    del shown[key]
                else:
                    shown[key] = image["after"]
        return [(key, *(row.get(column.name) for column in table.columns)) for key, row in shown.items()]


def section_of(settings: BaseModel, **more: object) -> Section:
    """What was set, as the settings' file has it."""
    values = {name: getattr(settings, name) for name in ("type", *sorted(settings.model_fields_set))}
    plain = {
        name: value.get_secret_value() if isinstance(value, SecretStr) else value for name, value in values.items()
    }
    return {**plain, **more}


def _delta(ground: Ground) -> Target:
    settings = DeltaSinkSettings(path=str(ground.directory()), mode="current", buckets=4)
    return Merged(section_of(settings), LakeTables(FollowedDelta(settings)))


def _iceberg(ground: Ground) -> Target:
    settings = IcebergSinkSettings(path=str(ground.directory()), mode="current", buckets=2)
    return Merged(section_of(settings), LakeTables(FollowedIceberg(settings)))


def _opensearch(_: Ground) -> Target:
    store = SearchIndexes(opensearch.server().url)
    return Merged(section_of(store.settings), store)


def _history(ground: Ground) -> Target:
    settings = DeltaSinkSettings(path=str(ground.directory()))
    return Logged(section_of(settings), DeltaStored(settings), ground.place)


def _iceberg_history(ground: Ground) -> Target:
    settings = IcebergSinkSettings(path=str(ground.directory()))
    return Logged(section_of(settings), IcebergHistory(settings), ground.place)


def _files(ground: Ground) -> Target:
    stored = local(ground.directory())
    return Logged(section_of(stored.settings), stored, ground.place)


def _kafka(ground: Ground, kind: type[Logged] = Logged, **more: object) -> Target:
    topics = Topics(ground.kafka)
    section = {"type": "kafka", "topic": f"{topics.prefix}-out.{{table}}", "kafka": dict(topics.config), **more}
    return kind(section, topics, ground.place)


def _images(ground: Ground) -> Target:
    """A Kafka sink whose rows before each change are in PostgreSQL, where tasks make images."""
    return _kafka(ground, Imaged, images=new_database())


def _http(ground: Ground) -> Target:
    posted = Posted(batch_records=20)
    ground.stack.callback(posted.endpoint.close)
    return Logged(section_of(posted.settings), posted, ground.place)


def _rabbitmq(ground: Ground) -> Target:
    published = ground.stack.enter_context(closing(Published(rabbitmq.server(), queues=3)))
    return Logged(section_of(published.settings), published, ground.place)


def sql_target(url: str, ground: Ground) -> Target:
    """A SQL database."""
    return _Sql({"url": url}, ground.stack.enter_context(closing(Downstream(url))))


def _postgresql(ground: Ground) -> Target:
    return sql_target(new_database(), ground)


def _cassandra(ground: Ground) -> Target:
    return OtherKeyspace(ground.cassandra(), ground.stack)


def _log_tables(ground: Ground) -> Target:
    return LogTable(ground.cassandra(), ground.stack, ITEMS.name)


def _cassandra_version() -> str:
    return f"Cassandra {jar_version(RELEASES[CassandraSettings().release], 'cassandra-all')}"


POSTGRESQL: Final[Way[Target]] = Way(sink="sql", server=lambda: "postgresql", new=_postgresql)
TARGETS: Final[Mapping[str, Way[Target]]] = {
    "delta, current": Way(sink="delta", server=lambda: package("deltalake"), new=_delta),
    "delta, history": Way(sink="delta", server=lambda: package("deltalake"), new=_history),
    "iceberg, current": Way(sink="iceberg", server=lambda: package("pyiceberg"), new=_iceberg),
    "iceberg, history": Way(sink="iceberg", server=lambda: package("pyiceberg"), new=_iceberg_history),
    "files": Way(sink="files", server=lambda: package("pyarrow"), new=_files),
    "kafka": Way(sink="kafka", server=lambda: f"Kafka {jar_version('kafka', 'kafka-server')}", new=_kafka),
    "images": Way(sink="kafka", server=lambda: f"Kafka {jar_version('kafka', 'kafka-server')}", new=_images),
    "http": Way(sink="http", server=lambda: "http.server", new=_http),
    "rabbitmq": Way(
        sink="rabbitmq",
        server=lambda: f"RabbitMQ {rabbitmq.server().version}",
        new=_rabbitmq,
        missing=rabbitmq.missing,
    ),
    "opensearch": Way(
        sink="opensearch",
        server=lambda: SearchIndexes(opensearch.server().url).version,
        new=_opensearch,
        missing=java_sources.missing,
    ),
    "cassandra": Way(sink="cassandra", server=_cassandra_version, new=_cassandra),
    "log-tables": Way(sink="log-tables", server=_cassandra_version, new=_log_tables),
}
