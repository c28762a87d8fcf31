"""A cluster that is read: its ring, estimates and definitions for the driver, and what tasks need to read a table."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from tailrace_common.cassandra_driver import failed, said
from tailrace_schemas.definitions import Definitions, tables_from_rows
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.snapshot.driver import (
    ADDRESS,
    connected,
    driver_of,
    page_source,
    release_of,
    require_unmasked,
    service_error,
)
from tailrace_spark.snapshot.pace import PageSize
from tailrace_spark.snapshot.ranges import (
    SAMPLE_ROWS,
    Estimates,
    Limits,
    Sample,
    Split,
    TokenRange,
    cut,
    ring_ranges,
    sample_of,
)
from tailrace_spark.snapshot.reading import PageReader, RangeReader, hosts_of
from tailrace_spark.snapshot.rows import RowColumns
from tailrace_spark.snapshot.selection import Release, columns_of, selection, statement, token_statement
from tailrace_spark.snapshot.settings import SnapshotSettings

log = logging.getLogger("tailrace_spark")
_MURMUR3: Final = "Murmur3Partitioner"
_AGREEMENT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Ring:
    """What a read is planned by: ranges with the ids of their replicas' hosts, those first that are up.

    Replicas are those of one datacenter.
    """

    owned: tuple[tuple[TokenRange, tuple[str, ...]], ...]
    estimates: Estimates


@dataclass(frozen=True, slots=True)
class TableReading:
    """How tasks read a table. It is pickled with them, with secrets.

    `release` is the oldest of the nodes, such as (5, 0, 9).
    """

    settings: SnapshotSettings = field(repr=False)
    table: Table
    release: Release
    datacenter: str

    @property
    def shape(self) -> RowColumns:
        """The columns that are read. Raises SettingsError."""
        settings = self.settings
        selected = selection(columns_of(self.table, settings.columns), self.release, times=settings.details)
        if settings.rows == "changes":  # its columns' names are its own
            return RowColumns(selected, details=False)
        return RowColumns(selected, settings.details, settings.detail_prefix)

    @property
    def statement(self) -> str:
        """The statement that reads a range. Raises SettingsError."""
        settings = self.settings
        return statement(self.table, self.shape.selected, settings.filter, allow_filtering=settings.allow_filtering)


class ClusterView:
    """The driver's connection to a cluster: what is to be read, and where it is. Closed by `close`."""

    def __init__(self, settings: SnapshotSettings) -> None:
        self._settings = settings
        self._cluster = driver_of(settings, metadata=True)
        self._session = connected(self._cluster, settings)

    def close(self) -> None:
        """End the driver's threads and connections."""
        self._cluster.shutdown()

    def table(self) -> Table:
        """The definition of the table that is read. Raises SettingsError where there is none, and as `find`."""
        table = self.find(*self._settings.name)
        if table is None:
            raise SettingsError(f"Cassandra at {self._settings.location} has no table {self._settings.table}")
        return table

    def find(self, keyspace: str, name: str) -> Table | None:
        """The definition of a table or view as it is now; None where there is none.

        Raises ServiceError, also for a definition that cannot be read.
        """
        return _found(self._definitions(keyspace), keyspace, name)

    def require_agreement(self) -> None:
        """Raise ServiceError while nodes have different schemas: a table that one of them lacks may be there."""
        try:
            agreed = self._cluster.control_connection.wait_for_schema_agreement(wait_time=_AGREEMENT_SECONDS)
        except Exception as error:
            raise failed(self._settings, error, ADDRESS) from error
        if not agreed:
            raise ServiceError("nodes have different schemas: `nodetool describecluster` lists them")

    def tables_with_cdc(self) -> list[Table]:
        """The definitions of all tables and views that have cdc = true now. Raises as `find`."""
        names = sorted(name for name, cdc in self.cdc_by_name().items() if cdc)
        definitions = {keyspace: self._definitions(keyspace) for keyspace in dict(names)}
        tables = [_found(definitions[keyspace], keyspace, name) for keyspace, name in names]
        return [table for table in tables if table is not None]

    def cdc_by_name(self) -> dict[tuple[str, str], bool]:
        """Whether each table and view has cdc = true now, by keyspace and name. Raises ServiceError."""
        rows = self._rows("SELECT keyspace_name, table_name, cdc FROM system_schema.tables")
        rows += self._rows("SELECT keyspace_name, view_name AS table_name, cdc FROM system_schema.views")
        return {(row["keyspace_name"], row["table_name"]): bool(row["cdc"]) for row in rows}

    def reading(self, settings: SnapshotSettings, table: Table) -> TableReading:
        """How tasks read a table of the cluster as it is now."""
        return TableReading(settings, table, self.release(), self._datacenter)

    def check(self, reading: TableReading) -> None:
        """Have the cluster look at what tasks will read. Raises SettingsError, and ServiceError where it refuses.

        UnreadableError, of these, is for columns of which it gives masked values.
        """
        statement = reading.statement
        try:
            prepared = self._session.prepare(statement)
            host = self._cluster.get_control_connection_host()
            require_unmasked(self._settings, prepared, host, self._values)
        except Exception as error:
            raise service_error(error) from error

    def ring(self, table: tuple[str, str] | None = None) -> Ring:
        """The ring as it is now, for a table: by default the one of the settings.

        Raises SettingsError where its tokens are not murmur3's, or nobody is up.
        """
        metadata = self._cluster.metadata
        if not str(metadata.partitioner).endswith(_MURMUR3):
            raise SettingsError(f"the cluster has {metadata.partitioner}; only tables of {_MURMUR3} are read")
        keyspace, name = table or self._settings.name
        token_map = metadata.token_map
        replicas = {token.value: token_map.get_replicas(keyspace, token) for token in token_map.ring}
        owned = [(token_range, self._ordered(replicas[token])) for token_range, token in ring_ranges(replicas)]
        return Ring(tuple(owned), self._estimates(keyspace, name))

    def release(self) -> Release:
        """The oldest release of any node, such as (5, 0, 9)."""
        return min(
            [release_of(host) for host in self._cluster.metadata.all_hosts() if host.release_version], default=(0, 0)
        )

    def _ordered(self, hosts: Sequence[Any]) -> tuple[str, ...]:
        """The ids of a range's replicas in the datacenter that is read, in the ring's order, those down last."""
        local = [host for host in hosts if host.datacenter == self._datacenter]
        return tuple([str(host.host_id) for host in sorted(local, key=lambda host: host.is_up is False)])

    @property
    def _datacenter(self) -> str:
        return self._settings.datacenter or str(self._cluster.get_control_connection_host().datacenter)

    def _estimates(self, keyspace: str, name: str) -> Estimates:
        query = (
            "SELECT range_start, range_end, mean_partition_size, partitions_count FROM system.size_estimates "
            "WHERE keyspace_name = %s AND table_name = %s"
        )
        sizes: list[tuple[int, int, int, int]] = []
        for host in self._cluster.metadata.all_hosts():
            if host.datacenter != self._datacenter or host.is_up is False:
                continue
            try:
                rows = self._session.execute(query, (keyspace, name), host=host)
            except Exception as error:
                log.warning(
                    "could not read the table's sizes from %s; its ranges count like those of other nodes: %s",
                    host.address,
                    said(error),
                )
                continue
            sizes += [
                (int(row["range_start"]), int(row["range_end"]), row["mean_partition_size"], row["partitions_count"])
                for row in rows
            ]
        return Estimates.of(sizes)

    def _definitions(self, keyspace: str) -> Definitions:
        rows = {
            table: self._rows(f"SELECT * FROM system_schema.{table} WHERE keyspace_name = %s", keyspace)  # noqa: S608
            for table in ("tables", "views", "columns", "dropped_columns", "types")
        }
        return tables_from_rows(**rows)

    def _values(self, query: str) -> list[tuple[object, ...]]:
        return [tuple(row.values()) for row in self._rows(query)]

    def _rows(self, query: str, *values: str) -> list[Any]:
        try:
            return list(self._session.execute(query, values))
        except Exception as error:
            raise failed(self._settings, error, ADDRESS) from error


def _found(definitions: Definitions, keyspace: str, name: str) -> Table | None:
    for table in definitions.tables:
        if (table.keyspace, table.name) == (keyspace, name):
            return table
    for problem in definitions.problems:
        if problem.table == f"{keyspace}.{name}":
            # Its rows are of several answers, perhaps of several nodes: a table may be altered or dropped in between.
            raise ServiceError(f"the definition of {problem}")
    return None


@dataclass(frozen=True, slots=True)
class Survey:
    """The table that is read, as the cluster has it now, and how tasks read it."""

    table: Table
    reading: TableReading
    ring: Ring

    def splits(self) -> list[Split]:
        """The ranges to read, with their estimates."""
        settings = self.reading.settings
        return cut(self.ring.owned, self.ring.estimates, settings.limits, settings.within)

    def split_of(self, token_range: TokenRange) -> Split:
        """A range that was cut earlier, with the replicas that its first part has now."""
        cuts = cut(self.ring.owned, self.ring.estimates, Limits(1 << 62), (token_range,))
        return Split(token_range, cuts[0].replicas, sum([split.octets for split in cuts]))


def survey(settings: SnapshotSettings) -> Survey:
    """Look at the table and the ring. Raises SettingsError where it cannot be read as it is asked for, ServiceError.

    UnreadableError, of these, is for masked values.
    """
    with closing(ClusterView(settings)) as view:
        table = view.table()
        if table.is_counter and settings.rows == "changes":
            raise SettingsError(f"{table} has counters: CQL shows totals, and changes have shards")
        reading = view.reading(settings, table)
        view.check(reading)
        return Survey(table, reading, view.ring())


def take_samples(settings: SnapshotSettings, table: Table, splits: Iterable[Split]) -> list[Sample]:
    """How many rows the begins of splits have. Raises ServiceError."""
    query, size = token_statement(table), PageSize(SAMPLE_ROWS, settings.page_octets)
    reader = PageReader(size, settings.attempts, settings.retry_seconds)
    samples: list[Sample] = []
    with page_source(settings) as source:
        for split in splits:
            ask = partial(source.select, query, split.range.bounds)
            page = reader.page(f"a sample of {table}", ask, hosts_of(split.replicas))
            tokens = [int.from_bytes(token or b"", "big", signed=True) for token in page.columns[0]]
            samples.append(sample_of(split.range, tokens, is_whole=page.next_page is None))
    return samples


@contextmanager
def range_reader(reading: TableReading, tasks: int, *, stays: bool = False) -> Iterator[RangeReader]:
    """A reader of one of so many tasks, over this process's connection: it has its share of the rows a second.

    `stays`: of a range it asks the first replica alone.

    Raises ServiceError, SettingsError.
    """
    settings, query = reading.settings, reading.statement
    rate = settings.rows_per_second and settings.rows_per_second / tasks
    most_rows = settings.page_rows if rate is None else min(settings.page_rows, max(1, int(rate)))
    size = PageSize(most_rows, settings.page_octets)
    with page_source(settings) as source:
        reader = PageReader(size, settings.attempts, settings.retry_seconds, rate=rate, stays=stays)
        yield RangeReader(source.select, settings.table, query, reader)
