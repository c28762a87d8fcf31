"""What a snapshot needs to know of Cassandra and of the topics, each asked for when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyspark.sql import SparkSession

from tailrace_common.closing import Closing
from tailrace_common.kafka import PartitionEnds
from tailrace_common.sections.stream import ReadLimits
from tailrace_common.settings import Settings
from tailrace_common.topics import GenerationReader, SchemaReader
from tailrace_schemas.avro import Encoder, SchemaEntry, announced_topics
from tailrace_schemas.table import Table
from tailrace_schemas.topics import Internal, chosen_topic, internal_topic
from tailrace_spark.batch.delivery import by_topic
from tailrace_spark.sinks.protocol import Sink
from tailrace_spark.snapshot.ranges import Split, tasks_of
from tailrace_spark.snapshot.read_back import ReadBack
from tailrace_spark.snapshot.session import ClusterView, Ring, TableReading
from tailrace_spark.snapshot.settings import SnapshotSettings, settings_at
from tailrace_spark.snapshot.stream_rows import RoundPosition, RoundReader
from tailrace_spark.streams.lookup import StreamTable, UnpackedGenerations


class SnapshotContext(Closing):
    """The cluster of [cluster], and the stream's topics. One thread at a time; nothing connects before it is asked."""

    def __init__(self, spark: SparkSession, settings: Settings, follows: Callable[[str], bool]) -> None:
        """`follows`: whether the stream reads a topic."""
        self._settings = settings
        self._follows = follows
        kafka, prefix = settings.kafka.reveal(), settings.topics.prefix
        self._prefix = prefix
        self._schemas = SchemaReader(kafka, prefix, ordered=True)
        self._reader = GenerationReader.open(kafka, internal_topic(prefix, Internal.GENERATIONS))
        self._ends = PartitionEnds(kafka)
        self._view: ClusterView | None = None
        self._unpacked = UnpackedGenerations()
        at_once = settings.snapshot.concurrent_ranges or max(1, spark.sparkContext.defaultParallelism // 2)
        self._reading = stream_settings(settings, concurrent_ranges=at_once)
        self.limits = self._reading.limits
        """How ranges are cut and read at once, to begin with."""

    def tables(self) -> list[Table]:
        """The tables with cdc = true whose topics the stream reads. Raises ServiceError."""
        topics = announced_topics(self._entries())
        selected = [
            table for table in self._cluster().tables_with_cdc() if self._settings.tables.selection.wants(table)
        ]
        return [table for table in selected if self._follows(chosen_topic(self._prefix, table, topics))]

    def find(self, name: str) -> Table | None:
        """The table of "keyspace.name" as it is now; None where there is none. Raises ServiceError."""
        keyspace, _, table = name.partition(".")
        return self._cluster().find(keyspace, table)

    def require_agreement(self) -> None:
        """Raise ServiceError while nodes have different schemas."""
        self._cluster().require_agreement()

    def require_readable(self, table: Table, where: str | None) -> None:
        """Raises UnreadableError where Cassandra masks some of it, SettingsError for the condition, ServiceError."""
        self._cluster().check(self._reading_of(table, where))

    def ring(self, table: Table) -> Ring:
        """The ring as it is now. Raises SettingsError."""
        return self._cluster().ring((table.keyspace, table.name))

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has, or will have once it exists. Raises ServiceError."""
        return len(self._ends.high_watermarks([topic])) or self._settings.topics.partitions

    def log_ends(self, topics: Collection[str]) -> dict[str, dict[str, int]]:
        """Where the partitions of topics end, in the form of Spark's offsets. Raises ServiceError."""
        return by_topic(self._ends.high_watermarks(topics))

    def generations(self) -> StreamTable:
        """The generations as they are now. Raises ServiceError, also where there is none yet."""
        return self._unpacked.table(self._reader.refresh_some(), self._reader.known_until)

    def entry(self, table: Table) -> SchemaEntry:
        """The schema of rows that are read of a table, and its topic; both need not exist yet. Raises ServiceError."""
        entries, encoder = self._entries(), Encoder(table, self._prefix)
        published = [entry for entry in entries if entry.table.id == table.id and entry.part == "value"]
        equal = [entry for entry in published if entry.table == table]
        # One that nobody has published is the newest: the log follows Cassandra's own definition. So is a table.
        following = max((entry.announced + 1 for entry in entries if str(entry.table) == str(table)), default=-1)
        announced = max((entry.announced for entry in equal or published), default=following)
        topic = chosen_topic(self._prefix, table, announced_topics(entries))
        return SchemaEntry(
            schema_id=encoder.schema_id, topic=topic, table=table, avro=encoder.schema_text, announced=announced
        )

    def reader(
        self,
        table: Table,
        where: str | None,
        slots: list[tuple[Split, ...]],
        position: RoundPosition,
        *,
        stays: bool,
    ) -> RoundReader:
        """What reads a round of a table in tasks. `stays`: where there is a limit for each node, it is kept strictly.

        A task whose node does not answer fails then: by the next attempt nobody counts on that node.
        """
        per_node = self.limits.at_once_per_node
        return RoundReader(
            self._reading_of(table, where),
            tuple(slots),
            position,
            tasks_of(slots, per_node),
            stays and per_node is not None,
        )

    def leave_cluster(self) -> None:
        """Close the connection to Cassandra; the next question opens another one."""
        if self._view is not None:
            self._view.close()
            self._view = None

    def close(self) -> None:
        """Leave Cassandra and Kafka."""
        self.leave_cluster()
        self._schemas.close()
        self._reader.close()

    def _entries(self) -> list[SchemaEntry]:
        """All that is published. Raises ServiceError."""
        self._schemas.refresh()
        return [*dict(self._schemas).values()]

    def _cluster(self) -> ClusterView:
        if self._view is None:
            self._view = ClusterView(self._reading)
        return self._view

    def _reading_of(self, table: Table, where: str | None) -> TableReading:
        return self._cluster().reading(settings_for(self._reading, str(table), where), table)


def read_back_of(settings: Settings, sink: Sink, tables: frozenset[str]) -> ReadBack | None:
    """What reads rows back that the log leaves open, of tables that were read; None where nothing has to be."""
    return ReadBack(stream_settings(settings), tables, takes_totals(sink)) if tables and _merges(sink) else None


def takes_totals(sink: Sink) -> bool:
    """Whether a sink takes the totals of counters, which are read back ever after."""
    return _merges(sink) and sink.capabilities.sweeping is not None


def _merges(sink: Sink) -> bool:
    """A sink that appends has each change as it was written, and no rows that are in doubt."""
    return sink.capabilities.whole_updates is None and not sink.capabilities.ordered


def settings_for(reading: SnapshotSettings, table: str, where: str | None) -> SnapshotSettings:
    """These settings for a table, "keyspace.table", and the rows of it that meet a condition, if there is one."""
    # Cassandra asks for ALLOW FILTERING wherever a condition stands beside a range of tokens.
    return reading.model_copy(update={"table": table, "filter": where, "allow_filtering": where is not None})


def stream_settings(settings: Settings, table: str = "system.local", *, concurrent_ranges: int = 1) -> SnapshotSettings:
    """Those of the data source, to read "keyspace.table" as changes. Secrets are in it, as values."""
    limits = {name: getattr(settings.snapshot, name) for name in ReadLimits.model_fields}
    options = {**limits, "table": table, "rows": "changes", "concurrent_ranges": concurrent_ranges}
    return settings_at(settings.cluster, prefix=settings.topics.prefix, **options)
