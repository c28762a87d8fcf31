"""The mirror's keyspace in a live cluster: statements by name, results as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tailrace.cluster import LiveCluster
from tailrace.topology.mirror_plan import TIMESTAMPS_KEY, Step
from tailrace.topology.mirror_tables import IdForm, MirrorTable, Shapes, create_keyspace, create_table, quoted

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class CqlStore:
    """A MirrorStore (topology.mirror): reads and writes by QUORUM, so that who sees a timestamp sees the rows."""

    cluster: LiveCluster
    keyspace: str

    def shapes(self) -> Shapes | None:
        """Its tables, and their columns' types; None where there is no such keyspace."""
        name = (self.keyspace,)
        if not self.cluster.read("SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?", name):
            return None
        shapes: dict[str, dict[str, str]] = {}
        query = "SELECT table_name, column_name, type FROM system_schema.columns WHERE keyspace_name = ?"
        for row in self.cluster.read(query, name):
            shapes.setdefault(row["table_name"], {})[row["column_name"]] = row["type"]
        return shapes

    def create_keyspace(self, replication: Mapping[str, int]) -> None:
        """Make it, unless it is there by now."""
        self.cluster.define(create_keyspace(self.keyspace, replication))

    def create_table(self, table: MirrorTable, form: IdForm) -> None:
        """Make a table, unless it is there by now."""
        self.cluster.define(create_table(self.keyspace, table, form))

    def apply(self, step: Step) -> None:
        """Write or remove; done, on a majority of the replicas, when it returns."""
        self.cluster.write(step.cql(self.keyspace), step.parameters)

    def expirations(self, table: MirrorTable) -> Mapping[int, int | None]:
        """The generations of a table, each with its `expired`, in milliseconds."""
        condition, values = (" WHERE key = ?", (TIMESTAMPS_KEY,)) if table is MirrorTable.TIMESTAMPS else ("", ())
        rows = self._read(
            "toUnixTimestamp(time) AS time, toUnixTimestamp(expired) AS expired", table, condition, values
        )
        return {row["time"]: row["expired"] for row in rows}

    def partitions(self) -> Sequence[int]:
        """The generations of which cdc_streams_descriptions_v2 has rows."""
        rows = self._read("DISTINCT time", MirrorTable.STREAMS)
        return [(row["time"].replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND for row in rows]

    def range_ends(self, time: int) -> Sequence[int]:
        """Those of one generation."""
        rows = self._read("range_end", MirrorTable.STREAMS, " WHERE time = ?", (time,))
        return [row["range_end"] for row in rows]

    def local(self) -> Mapping[str, int | None]:
        """cdc_local."""
        rows = self._read("key, toUnixTimestamp(streams_timestamp) AS time", MirrorTable.LOCAL)
        return {row["key"]: row["time"] for row in rows}

    def description(self, time: int) -> Sequence[tuple[Any, Sequence[Any], int]] | None:
        """A generation's entries in cdc_generation_descriptions; None where it has none."""
        rows = self._read("description", MirrorTable.DESCRIPTIONS, " WHERE time = ?", (time,))
        return rows[0]["description"] if rows else None

    def tables_of_cluster(self) -> Sequence[Mapping[str, Any]]:
        """Rows of system_schema.tables."""
        return self.cluster.execute(
            "SELECT keyspace_name, table_name, cdc, default_time_to_live FROM system_schema.tables"
        )

    def _read(
        self, columns: str, table: MirrorTable, condition: str = "", values: Sequence[object] = ()
    ) -> Sequence[Mapping[str, Any]]:
        query = f"SELECT {columns} FROM {quoted(self.keyspace)}.{table}{condition}"  # noqa: S608 - our own names, quoted
        return self.cluster.read(query, values)
