"""Random tables and random mutations of them, from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from uuid import UUID

from tailrace.commitlog.model import Mutation, PartitionUpdate, RangeMarker, Row
from tailrace_schemas.change import Cell, ColumnDeletion, Deletion, Marker
from tailrace_schemas.cql.types import UserTypeDefinition, parse_type
from tailrace_schemas.table import Column, ColumnKind, Table

_UDT = {"addr": UserTypeDefinition("addr", ("a", "b"), ("int", "text"))}
_NATIVE = (
    "ascii bigint blob boolean counter date decimal double duration float inet int smallint text time timestamp "
    "timeuuid tinyint uuid varint"
)
_SIMPLE = (
    *_NATIVE.split(),
    "frozen<list<int>>",
    "frozen<tuple<int, text>>",
    "frozen<addr>",
    "vector<float, 3>",
    "vector<text, 2>",
    "'com.example.Type'",
)
_COMPLEX = ("list<int>", "set<text>", "map<text, int>", "addr")

Header = tuple[Sequence[Column], Sequence[Column]]


class Inventor:
    """Draws from one random source; `unsigned` says which local deletion times exist, `epochs` if updates have them."""

    def __init__(self, seed: int, *, unsigned: bool, epochs: bool = False) -> None:
        self.random = Random(seed)
        self.unsigned = unsigned
        self.epochs = epochs

    def table(self) -> Table:
        """Mostly small, now and then past 64 columns and past 32 clustering columns."""
        clustering = self.random.choice((0, 1, 2, 3, 31, 33, 65))
        return Table(
            keyspace="ks",
            name="t",
            id=UUID(bytes=self.random.randbytes(16)),
            partition_key=(self._column(ColumnKind.PARTITION_KEY, 0, _SIMPLE),),
            clustering=tuple(self._column(ColumnKind.CLUSTERING, place, _SIMPLE) for place in range(clustering)),
            static=self._columns(ColumnKind.STATIC, self.random.choice((1, 2, 5))),
            regular=self._columns(ColumnKind.REGULAR, self.random.choice((0, 1, 3, 8, 63, 64, 65, 90))),
        )

    def mutation(self, tables: Sequence[Table]) -> tuple[Mutation, list[Header]]:
        """A mutation with an update of each table, and the header columns of each update."""
        made = [self._update(table) for table in tables]
        return Mutation(updates=tuple(update for update, _ in made)), [header for _, header in made]

    def _columns(self, kind: ColumnKind, count: int) -> tuple[Column, ...]:
        return tuple(self._column(kind, place, _SIMPLE + _COMPLEX * 4) for place in range(count))

    def _column(self, kind: ColumnKind, place: int, types: Sequence[str]) -> Column:
        text = self.random.choice(types)
        name = f"{kind.value[0]}{place:03d}é"
        return Column(name, name.encode(), kind, parse_type(text, _UDT), place)

    def _update(self, table: Table) -> tuple[PartitionUpdate, Header]:
        random = self.random
        static, regular = self._some(table.static), self._some(table.regular)
        items: list[Row | RangeMarker] = [
            self._range_marker(table) if random.random() < 0.2 else self._row(table.clustering, regular)
            for _ in range(random.choice((0, 1, 1, 4)))
        ]
        update = PartitionUpdate(
            table=table,
            key=random.randbytes(random.choice((0, 4, 200))),
            deletion=self._deletion() if random.random() < 0.3 else None,
            static=self._row((), static, static=True) if random.random() < 0.4 else None,
            items=tuple(items),
            metadata_epoch=random.choice((-1, 0, 1, 300, 2**63 - 1)) if self.epochs else None,
        )
        return update, (static, regular)

    def _some(self, columns: Sequence[Column]) -> Sequence[Column]:
        """A header's columns: some, in any order, as decoding takes the order of the wire."""
        return self.random.sample(columns, self.random.choice((len(columns), self.random.randint(0, len(columns)))))

    def _row(self, clustering: Sequence[Column], columns: Sequence[Column], static: bool = False) -> Row:
        random = self.random
        marker = Marker(self._written(), *((self._ttl(), self._local()) if random.random() < 0.5 else ()))
        cells: list[Cell] = []
        deletions: list[ColumnDeletion] = []
        share = random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        for column in columns:
            if random.random() >= share:
                continue
            if not column.type.multicell:
                cells.append(self._cell(column, marker, None))
                continue
            if random.random() < 0.4:
                deletions.append(ColumnDeletion(column, self._deletion()))
            least = 0 if deletions and deletions[-1].column is column else 1
            paths = [random.randbytes(random.choice((0, 2, 16, 130))) for _ in range(random.randint(least, 3))]
            if column.type.kind == "udt":
                paths = sorted(set(paths))  # the only ones that are held to an order
            cells.extend(self._cell(column, marker, path) for path in paths)
        used = random.random() < 0.7
        return Row(
            clustering=tuple(self._value(column, absent=True) for column in clustering),
            static=static,
            marker=marker if used else None,
            deletion=self._deletion() if random.random() < 0.2 or not (used or cells or deletions) else None,
            cells=tuple(cells),
            column_deletions=tuple(deletions),
        )

    def _cell(self, column: Column, marker: Marker, path: bytes | None) -> Cell:
        random = self.random
        written = random.choice((marker.written, self._written()))
        kind = random.choice(("plain", "tombstone", "expiring", "with the row"))
        if kind == "tombstone":
            return Cell(column, path, written, None, self._local(), None)
        value = self._value(column) if path is None else random.randbytes(random.choice((0, 1, 300)))
        if kind == "with the row":
            return Cell(column, path, written, marker.ttl, marker.expires, value)
        if kind == "expiring":
            return Cell(column, path, written, self._ttl(), self._local(), value)
        return Cell(column, path, written, None, None, value)

    def _value(self, column: Column, *, absent: bool = False) -> bytes | None:
        size = column.type.fixed_size
        if absent and self.random.random() < 0.2:
            return None
        sizes = (0, 1, 3, 127, 128, 20_000) if size is None else (0, size, size, size)
        return self.random.randbytes(self.random.choice(sizes))

    def _range_marker(self, table: Table) -> RangeMarker:
        kind = self.random.choice((0, 1, 2, 5, 6, 7))
        columns = table.clustering[: self.random.randint(0, len(table.clustering))]
        return RangeMarker(
            kind=kind,
            values=tuple(self._value(column, absent=True) for column in columns),
            close=self._deletion() if kind in (0, 2, 5, 6) else None,
            open=self._deletion() if kind in (1, 2, 5, 7) else None,
        )

    def _deletion(self) -> Deletion:
        return Deletion(self._written(), self._local())

    def _written(self) -> int:
        return self.random.choice((0, -1, 5, 1_700_000_000_000_000, 2**63 - 1, 1 - 2**63, self.random.getrandbits(50)))

    def _local(self) -> int:
        low, high = (0, 2**32 - 1) if self.unsigned else (-(2**31), 2**31 - 1)
        return self.random.choice((low, high, 1_795_246_963, self.random.randint(low, high)))

    def _ttl(self) -> int:
        return self.random.choice((1, 86_400, 2**31 - 1))

    def least(self) -> tuple[int, int, int]:
        """Least values to count from; any do, as differences wrap around."""
        local = self.random.choice((0, 1_442_880_000, 1_795_246_963, 2**31 - 1))
        return self._written(), local, self.random.choice((0, 0, 86_400))
