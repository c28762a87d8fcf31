"""A history of one table that says everything CQL can say, for a copy to be compared with."""

from __future__ import annotations

import random
from collections.abc import Iterator

PARTITIONS = 3


def statements(seed: int, count: int, table: str) -> Iterator[str]:
    """Statements on a table like `a` of `test_log_tables.py`; no two of them have the same write time."""
    chance = random.Random(seed)
    for number in range(count):
        yield _statement(chance, table, number)


def _statement(chance: random.Random, table: str, number: int) -> str:
    pk, ck, ck2 = chance.randrange(PARTITIONS), chance.randrange(2), chance.choice("xyz")
    row = f"pk = {pk} AND ck = {ck} AND ck2 = '{ck2}'"
    key = f"{pk}, {ck}, '{ck2}'"
    element = chance.randrange(5)
    choices = (
        f"INSERT INTO {table} (pk, ck, ck2, v, w) VALUES ({key}, {number}, 'w{number}')",
        f"INSERT INTO {table} (pk, ck, ck2) VALUES ({key})",
        f"INSERT INTO {table} (pk, ck, ck2, s, m, f) VALUES ({key}, {number}, {{{element}: 'm'}}, [1, {number}])",
        f"INSERT INTO {table} (pk, ck, ck2, v, m) VALUES ({key}, null, {{{element}: 'm'}}) USING TTL 50000",
        f"UPDATE {table} SET v = {number}, w = null, s = {element} WHERE {row}",
        f"UPDATE {table} SET m[{element}] = 'e{number}', c = c + {{'c{element}'}} WHERE {row}",
        f"UPDATE {table} SET m = m - {{{element}}}, c = c - {{'c{element}'}}, v = {number} WHERE {row}",
        f"UPDATE {table} SET m = {{7: 'seven'}}, c = {{'one'}} WHERE {row}",
        f"UPDATE {table} SET u = {{a: {number}, c: 3}} WHERE {row}",
        f"UPDATE {table} SET u.a = {number}, u.b = null WHERE {row}",
        f"DELETE m, u FROM {table} WHERE {row}",
        f"DELETE FROM {table} WHERE {row}",
        f"DELETE FROM {table} WHERE pk = {pk} AND ck = {ck}",
        f"DELETE FROM {table} WHERE pk = {pk} AND ck = {ck} AND ck2 > 'x'",
        f"DELETE FROM {table} WHERE pk = {pk} AND ck >= {ck} AND ck < {ck + 2}",
        f"DELETE FROM {table} WHERE pk = {pk} AND ck > {ck} AND ck <= {ck + 1}",
        f"UPDATE {table} SET s = null WHERE pk = {pk}",
        f"BEGIN UNLOGGED BATCH UPDATE {table} SET v = {number} WHERE {row}; "
        f"DELETE FROM {table} WHERE pk = {pk} AND ck = {ck + 1}; APPLY BATCH",
        f"BEGIN UNLOGGED BATCH UPDATE {table} USING TIMESTAMP {number + 9} SET w = 'old' WHERE {row}; "
        f"UPDATE {table} SET w = 'new', v = 1 WHERE {row}; APPLY BATCH",
    )
    if number % 60 == 29:
        return f"DELETE FROM {table} WHERE pk = {pk}"
    # Data is more often written than deleted, else there would be little to compare.
    return chance.choice(choices + 6 * choices[:10])
