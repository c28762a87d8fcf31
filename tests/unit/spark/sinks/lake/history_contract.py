"""The contract of histories in a lake: that of change logs, and what its tables have, whatever writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import count
from typing import ClassVar
from uuid import UUID

import pytest

from tailrace_schemas.cql.types import UserTypeDefinition, parse_type
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.sinks.arrow.types import FIRST_DAY, FIRST_MOMENT, LAST_DAY, LAST_MOMENT
from tailrace_spark.sinks.protocol import write_here
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import (
    PLAIN,
    WIDE,
    ChangeLogContract,
    Topic,
    changes_of,
    deliver,
    delivered_by,
)
from tests.unit.spark.sinks.lake.stores import Histories
from tests.unit.spark.sinks.widest import WIDEST
from tests.unit.tables import table

DAY = 86_400_000_000

LARGEST: list[tuple[str, object, str]] = [
    *WIDEST,
    ("timestamp", FIRST_MOMENT, "timestamp[us, tz=UTC]"),
    ("timestamp", LAST_MOMENT + 1, "timestamp[us, tz=UTC]"),
    ("timestamp", -(2**63), "timestamp[us, tz=UTC]"),
    ("date", FIRST_DAY, "date32[day]"),
    ("date", LAST_DAY, "date32[day]"),
    ("date", -(2**31), "date32[day]"),
    ("date", 2**31 - 1, "date32[day]"),
    ("time", 86_399_999_999_999, "int64"),
]


def two_at_a_time(stored: Histories, of: Table = PLAIN) -> None:
    """Two processes have the same batch: whoever commits second fails; once more, and there is nothing left to do.

    First where the table is not there yet, then where it is.
    """
    topic, log = Topic(), Log(of)
    for number in range(2):
        piece = topic.piece(log.insert((0,), (), number, v="x"))

        def overtaken(piece: Piece = piece) -> Iterator[Piece]:
            yield piece
            deliver(stored, piece)

        with closing(stored.open()) as sink:
            with pytest.raises(ServiceError, match=r"another writer|already exists"):
                write_here(sink, overtaken())
            assert write_here(sink, [piece]).rows == 0
    assert stored.rows(str(of))["offset"].to_pylist() == [0, 1]


class LakeHistoryContract(ChangeLogContract):
    """As for change logs; `stores` makes Histories. `narrow`: what the lake has in place of Arrow's types."""

    narrow: ClassVar[Mapping[str, str]] = {}

    @pytest.mark.slow
    @pytest.mark.promise("delta.once")
    def test_a_step_that_fails_once_leaves_one_copy(self, stores: Callable[[], Histories]) -> None:
        """Also where a commit was made and the sink was told that it was not."""
        for step in count():
            stored, topic, log = stores(), Topic(), Log(PLAIN)
            batch = [topic.piece(*(log.insert((number,), (), DAY * number, v="x") for number in range(2)), letters=1)]
            failed = False
            with closing(stored.open(dies_after=step, revives=True)) as sink:
                try:
                    write_here(sink, batch)
                except ServiceError:
                    failed = True
                    write_here(sink, batch)
            assert len(stored.records()) == 2, f"step {step} failed"
            assert len(stored.letters.all) == 1
            if not failed:
                assert step >= 2  # before and behind the commit of a table
                return

    def test_days_are_partitions(self, stores: Callable[[], Histories]) -> None:
        """Those of the write times, UTC."""
        stored, topic, log = stores(), Topic(), Log(PLAIN)
        times = [0, DAY - 1, DAY, -1, 2**63 - 1, -(2**63)]
        deliver(stored, topic.piece(*(log.insert((0,), (), at, v="x") for at in times)))
        days = {0: "1970-01-01", DAY - 1: "1970-01-01", DAY: "1970-01-02", -1: "1969-12-31"}
        days |= {2**63 - 1: "9999-12-31", -(2**63): "0001-01-01"}
        found = stored.rows("shop.plain")
        assert {row["written"]: str(row["day"]) for row in found.select(["written", "day"]).to_pylist()} == days
        assert stored.days("shop.plain") == set(days.values())

    @pytest.mark.promise("delta.values")
    def test_columns_that_come_later_are_null_before_and_dropped_ones_stay(
        self, stores: Callable[[], Histories]
    ) -> None:
        stored, topic = stores(), Topic()
        other = table({"id": "int"}, regular={"a": "int", "w": "int"}, keyspace="shop", name="plain")
        deliver(stored, topic.piece(Log(PLAIN).insert((1,), (), 1, v="old")))
        deliver(stored, topic.piece(Log(WIDE).insert((1,), (), 2, v="new", x=1.5)))
        deliver(stored, topic.piece(Log(other).insert((1,), (), 3, a=7, w=8)))
        rows = stored.rows("shop.plain")
        assert [[row[name] for name in ("v", "w", "x", "a")] for row in rows["columns"].to_pylist()] == [
            ["old", None, None, None], ["new", None, 1.5, None], [None, 8, None, 7],
        ]  # fmt: skip

    def test_fields_that_a_user_type_gets_are_added(self, stores: Callable[[], Histories]) -> None:
        stored, topic = stores(), Topic()
        of = []
        for fields in (("street",), ("street", "zip")):
            types = {"addr": UserTypeDefinition("addr", fields, ("text", "int")[: len(fields)])}
            column = replace(PLAIN.regular[0], type=parse_type("frozen<list<frozen<addr>>>", types))
            of.append(replace(PLAIN, regular=(column,)))
        deliver(stored, topic.piece(Log(of[0]).insert((1,), (), 1, v=[{"street": "S"}])))
        deliver(stored, topic.piece(Log(of[1]).insert((1,), (), 2, v=[{"street": "T", "zip": 5}])))
        assert [row["v"] for row in stored.rows("shop.plain")["columns"].to_pylist()] == [
            [{"street": "S", "zip": None}], [{"street": "T", "zip": 5}],
        ]  # fmt: skip

    @pytest.mark.promise("lake.names")
    def test_names_that_differ_by_case_stay_what_they_are(self, stores: Callable[[], Histories]) -> None:
        """Whichever comes first has its own name, of columns, keys and fields; nothing later changes that."""
        stored, topic = stores(), Topic()
        of = [
            table({"id": "int", "ID": "int"}, regular=columns, keyspace="shop", name="plain")
            for columns in ({"val": "int"}, {"Val": "int", "val": "int"}, {"Val": "int", "VAL": "int"})
        ]
        pieces = [
            topic.piece(Log(of[0]).insert((1, 2), (), 1, val=3)),
            topic.piece(Log(of[1]).insert((1, 2), (), 2, val=4, Val=5)),
            topic.piece(Log(of[2]).insert((1, 2), (), 3, Val=6, VAL=7)),
        ]
        for piece in pieces:
            deliver(stored, piece)
        rows = stored.rows("shop.plain")
        assert rows["key"].to_pylist() == [{"id": 1, "_x49__x44_": 2}] * 3
        assert rows["columns"].to_pylist() == [
            {"val": 3, "_x56_al": None, "_x56__x41__x4c_": None},
            {"val": 4, "_x56_al": 5, "_x56__x41__x4c_": None},
            {"val": None, "_x56_al": 6, "_x56__x41__x4c_": 7},
        ]
        records = [(one["offset"], one["key"], one["columns"]) for one in stored.records()]
        assert records == [
            (0, {"id": 1, "ID": 2}, {"val": 3}),
            (1, {"id": 1, "ID": 2}, {"val": 4, "Val": 5}),
            (2, {"id": 1, "ID": 2}, {"Val": 6, "VAL": 7}),
        ]

    @pytest.mark.promise("delta.values")
    @pytest.mark.parametrize("whole", [True, False], ids=["in one batch", "in several"])
    def test_a_column_of_another_type_has_a_table_of_its_own(
        self, stores: Callable[[], Histories], whole: bool
    ) -> None:
        """As of a table that was dropped and made again; also when it comes again."""
        other = table({"id": "int"}, regular={"v": "int"}, keyspace="shop", name="plain", table_id=UUID(int=8))
        stored, topic = stores(), Topic()
        pieces = [
            topic.piece(Log(PLAIN).insert((1,), (), 1, v="5")),
            topic.piece(Log(other).insert((1,), (), 2, v=5)),
            topic.piece(Log(PLAIN).insert((1,), (), 3, v="6")),
        ]
        for batch in [pieces] if whole else [[piece] for piece in pieces]:
            deliver(stored, *batch)
            assert deliver(stored, *batch).rows == 0
        names = ("shop.plain", "shop.plain-2")
        assert [[row["v"] for row in stored.rows(name)["columns"].to_pylist()] for name in names] == [["5", "6"], [5]]

    def test_the_widest_value_of_each_type_fits(self, stores: Callable[[], Histories]) -> None:
        """In a row each, alone and in lists."""
        kinds = sorted({kind for kind, _, _ in LARGEST})
        columns = {f"c_{kind}": kind for kind in kinds} | {f"l_{kind}": f"frozen<list<{kind}>>" for kind in kinds}
        of = table({"id": "int"}, regular=columns, keyspace="shop", name="plain")
        log, stored, topic = Log(of), stores(), Topic()
        rows = [
            log.insert((number,), (), 5, **{f"c_{kind}": value, f"l_{kind}": [value, None]})
            for number, (kind, value, _) in enumerate(LARGEST)
        ]
        piece = topic.piece(*rows)
        assert deliver(stored, piece).rows == len(LARGEST)
        assert deliver(stored, piece) == Summary(changes=len(LARGEST))
        assert changes_of(stored.records(), of) == delivered_by(piece)
        found = stored.rows("shop.plain").schema.field("columns").type
        for kind, _, arrow in LARGEST:
            types = {str(found.field(f"c_{kind}").type), str(found.field(f"l_{kind}").type.value_type)}
            assert types == {self.narrow.get(arrow, arrow)}
