"""The script of changes: statements of every kind over a few rows, so that they meet; the same for the same seed.

Left out, because the sink does not follow them yet: counters, values that expire, TRUNCATE.
"""
# ruff: noqa: S608 - statements are what this module makes, out of its own literals

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from tailrace.demo.literals import LITERALS, address, decimal, word
from tailrace.demo.tables import KEYSPACE, NESTED, SCALARS

ORDERS: Final = f"{KEYSPACE}.orders"
READINGS: Final = f"{KEYSPACE}.readings"
_CUSTOMERS: Final = ("ada", "bob", "cyd", "dee", "eva", "fox")
_HOUR_MICROS: Final = 3_600_000_000
LAST_CUSTOMER: Final = "the end"
LAST_SITE: Final = "the end"


@dataclass(frozen=True, slots=True)
class Step:
    """One statement of the script; `kind` says in a few words what it does."""

    kind: str
    cql: str


def steps(seed: int, now_micros: int) -> Iterator[Step]:
    """Statements without end. Explicit write times lie around `now_micros`, microseconds since the epoch."""
    random = Random(seed)  # noqa: S311 - a script has to be repeatable, not secret
    script = _Script(random, now_micros)
    for _ in range(8):
        yield from script.insert_order()
        yield from script.insert_reading()
    kinds, weights = zip(*script.kinds(), strict=True)
    while True:
        yield from random.choices(kinds, weights)[0]()


def last_steps() -> tuple[Step, ...]:
    """What is written last, one row to each table: once these are in Kafka, everything before them is."""
    return (
        Step("the last order", f"INSERT INTO {ORDERS} (customer, number) VALUES ('{LAST_CUSTOMER}', 0)"),
        Step("the last reading", f"INSERT INTO {READINGS} (site, sensor, seq) VALUES ('{LAST_SITE}', 0, 0)"),
    )


class _Script:
    """Makes the statements; every method yields one or more that belong together."""

    def __init__(self, random: Random, now_micros: int) -> None:
        self._random = random
        self._now = now_micros

    def kinds(self) -> tuple[tuple[Callable[[], Iterator[Step]], int], ...]:
        """What there is, and how often."""
        return (
            (self.insert_order, 6),
            (self.update_order, 6),
            (self.static, 3),
            (self.list_edit, 4),
            (self.map_edit, 4),
            (self.set_edit, 4),
            (self.type_edit, 4),
            (self.delete_cells, 2),
            (self.delete_row, 2),
            (self.delete_range, 2),
            (self.delete_partition, 1),
            (self.conditional, 4),
            (self.batch, 4),
            (self.insert_reading, 6),
            (self.update_reading, 6),
            (self.delete_reading, 3),
        )

    def insert_order(self) -> Iterator[Step]:
        values = {
            "status": word(self._random),
            "total": decimal(self._random),
            "notes": f"[{word(self._random)}, {word(self._random)}]",
            "items": f"{{'tea': {self._random.randrange(9)}, 'salt': 1}}",
            "tags": "{'new', 'gift'}",
            "ship_to": address(self._random),
        }
        chosen = self._some(values)
        if self._random.random() < 0.2:
            chosen["status"] = "null"
        customer, order_number = self._customer(), self._number()
        yield Step("insert", _insert(ORDERS, {"customer": customer, "number": order_number, **chosen}) + self._time())

    def update_order(self) -> Iterator[Step]:
        assignments = {"status": word(self._random), "total": decimal(self._random)}
        sets = ", ".join(f"{name} = {value}" for name, value in self._some(assignments).items())
        yield Step("update", f"UPDATE {ORDERS}{self._time()} SET {sets} WHERE {self._order()}")

    def static(self) -> Iterator[Step]:
        condition = f"WHERE customer = {self._customer()}"
        change = self._random.choice(("vip = true", "vip = false", f"credit = {decimal(self._random)}", None))
        if change is None:
            yield Step("delete a static column", f"DELETE vip FROM {ORDERS} {condition}")
        else:
            yield Step("update a static column", f"UPDATE {ORDERS}{self._time()} SET {change} {condition}")

    def list_edit(self) -> Iterator[Step]:
        condition = self._order()
        if self._random.random() < 0.4:  # by index: the list has to have one
            yield Step("overwrite a list", f"UPDATE {ORDERS} SET notes = ['a', 'b', 'c'] WHERE {condition}")
            index = self._random.randrange(3)
            edit = self._random.choice(
                (f"UPDATE {ORDERS} SET notes[{index}] = 'B'", f"DELETE notes[{index}] FROM {ORDERS}")
            )
            yield Step("edit a list by index", f"{edit} WHERE {condition}")
            return
        value = f"[{word(self._random)}]"
        edit = self._random.choice((f"notes = notes + {value}", f"notes = {value} + notes", f"notes = notes - {value}"))
        yield Step("edit a list", f"UPDATE {ORDERS} SET {edit} WHERE {condition}")

    def map_edit(self) -> Iterator[Step]:
        edit = self._random.choice(
            ("items['tea'] = 7", "items = items + {'rice': 2}", "items = items - {'salt'}", "items = {'new': 1}", None)
        )
        yield self._edit("a map", edit, "items['tea']")

    def set_edit(self) -> Iterator[Step]:
        edit = self._random.choice(("tags = tags + {'late'}", "tags = tags - {'new'}", "tags = {'only'}", None))
        yield self._edit("a set", edit, "tags['gift']")

    def type_edit(self) -> Iterator[Step]:
        edit = self._random.choice(("ship_to.city = 'York'", f"ship_to = {address(self._random)}", None))
        yield self._edit("a user type", edit, "ship_to.code")

    def _edit(self, subject: str, assignment: str | None, deleted: str) -> Step:
        if assignment is None:
            return Step(f"delete from {subject}", f"DELETE {deleted} FROM {ORDERS} WHERE {self._order()}")
        return Step(f"edit {subject}", f"UPDATE {ORDERS}{self._time()} SET {assignment} WHERE {self._order()}")

    def delete_cells(self) -> Iterator[Step]:
        column = self._random.choice(("total", "status", "notes", "tags", "ship_to"))
        yield Step("delete a column", f"DELETE {column} FROM {ORDERS}{self._time()} WHERE {self._order()}")

    def delete_row(self) -> Iterator[Step]:
        yield Step("delete a row", f"DELETE FROM {ORDERS}{self._time()} WHERE {self._order()}")

    def delete_range(self) -> Iterator[Step]:
        low = self._random.randrange(1, 8)
        bounds = self._random.choice((f"number > {low} AND number <= {low + 3}", f"number >= {low}", f"number < {low}"))
        condition = f"customer = {self._customer()} AND {bounds}"
        yield Step("delete a range", f"DELETE FROM {ORDERS}{self._time()} WHERE {condition}")

    def delete_partition(self) -> Iterator[Step]:
        yield Step("delete a partition", f"DELETE FROM {ORDERS}{self._time()} WHERE customer = {self._customer()}")

    def conditional(self) -> Iterator[Step]:
        if self._random.random() < 0.5:
            values = {"customer": self._customer(), "number": self._number(), "total": decimal(self._random)}
            yield Step("insert if not exists", f"{_insert(ORDERS, values)} IF NOT EXISTS")
        elif self._random.random() < 0.7:
            yield Step("update if", f"UPDATE {ORDERS} SET total = 1.50 WHERE {self._order()} IF total != 1.50")
        else:
            yield Step("delete if exists", f"DELETE FROM {READINGS} WHERE {self._reading()} IF EXISTS")

    def batch(self) -> Iterator[Step]:
        customer, order_number = self._customer(), self._number()
        order = f"customer = {customer} AND number = {order_number}"
        key = {"customer": customer, "number": order_number}
        if self._random.random() < 0.5:  # one partition, so one mutation: a deletion, a newer row, a static column
            older, newer = self._now - 2 * _HOUR_MICROS, self._now - _HOUR_MICROS
            parts = (
                f"DELETE FROM {ORDERS} USING TIMESTAMP {older} WHERE {order}",
                f"{_insert(ORDERS, {**key, 'total': decimal(self._random)})} USING TIMESTAMP {newer}",
                f"UPDATE {ORDERS} USING TIMESTAMP {newer + 1} SET credit = 2.50 WHERE customer = {customer}",
            )
            yield Step("batch with write times", f"BEGIN UNLOGGED BATCH {'; '.join(parts)}; APPLY BATCH")
        else:
            parts = (
                f"UPDATE {ORDERS} SET status = 'batched', tags = tags + {{'batch'}} WHERE {order}",
                f"DELETE FROM {ORDERS} WHERE customer = {customer} AND number > 10",
                f"UPDATE {READINGS} SET a_text = 'batched' WHERE {self._reading()}",
            )
            yield Step("batch over two tables", f"BEGIN BATCH {'; '.join(parts)}; APPLY BATCH")

    def insert_reading(self) -> Iterator[Step]:
        values = {"site": self._site(), "sensor": self._sensor(), "seq": self._seq(), **self._reading_values()}
        yield Step("insert", _insert(READINGS, values) + self._time(future=True))

    def update_reading(self) -> Iterator[Step]:
        sets = ", ".join(f"{name} = {value}" for name, value in self._reading_values(limit=4).items())
        yield Step("update", f"UPDATE {READINGS}{self._time(future=True)} SET {sets} WHERE {self._reading()}")

    def delete_reading(self) -> Iterator[Step]:
        partition = f"site = {self._site()} AND sensor = {self._sensor()}"
        columns, kind, condition = self._random.choice(
            (
                ("a_text, an_int ", "delete columns", self._reading()),
                ("", "delete a row", self._reading()),
                ("", "delete a range", f"{partition} AND seq > 3 AND seq < 6"),
                ("", "delete a partition", partition),
            )
        )
        yield Step(kind, f"DELETE {columns}FROM {READINGS}{self._time()} WHERE {condition}")

    def _reading_values(self, limit: int | None = None) -> dict[str, str]:
        columns = list({**SCALARS, **NESTED}.items())
        count = self._random.randrange(1, (limit or len(columns)) + 1)
        chosen = self._random.sample(columns, count)
        return {
            name: "null" if self._random.random() < 0.1 else LITERALS[cql_type](self._random)
            for name, cql_type in chosen
        }

    def _time(self, *, future: bool = False) -> str:
        """For one statement in five a write time of its own: in the last hour, or `future`, up to a minute from now."""
        if self._random.random() < 0.8:
            return ""
        offset = -self._random.randrange(_HOUR_MICROS)
        if future and self._random.random() < 0.3:
            offset = self._random.randrange(_HOUR_MICROS // 60)
        return f" USING TIMESTAMP {self._now + offset}"

    def _some(self, values: dict[str, str]) -> dict[str, str]:
        names = self._random.sample(list(values), self._random.randrange(1, len(values) + 1))
        return {name: values[name] for name in names}

    def _customer(self) -> str:
        return f"'{self._random.choice(_CUSTOMERS)}'"

    def _number(self) -> str:
        return str(self._random.randrange(1, 13))

    def _order(self) -> str:
        return f"customer = {self._customer()} AND number = {self._number()}"

    def _site(self) -> str:
        return self._random.choice(("'north'", "'south'"))

    def _sensor(self) -> str:
        return str(self._random.randrange(1, 4))

    def _seq(self) -> str:
        return str(self._random.randrange(1, 9))

    def _reading(self) -> str:
        return f"site = {self._site()} AND sensor = {self._sensor()} AND seq = {self._seq()}"


def _insert(table: str, values: dict[str, str]) -> str:
    return f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join(values.values())})"
