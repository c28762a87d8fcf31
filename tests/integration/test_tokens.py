"""The token function against `SELECT token(...)` of a live node: keys of many lengths."""

from __future__ import annotations

import random

from cassandra.concurrent import execute_concurrent_with_args

from tailrace.local import LocalCassandra
from tailrace_schemas.cql.types import parse_type
from tailrace_schemas.cql.values import codec, join_key
from tailrace_schemas.tokens import token
from tests.integration.agents import cql, create_keyspace

COMPOSITE = [parse_type(name) for name in ("blob", "text", "int")]


def test_cassandra_gives_every_key_the_same_token(cassandra: LocalCassandra, keyspace_name: str) -> None:
    drawn = random.Random(20)
    keys = {drawn.randbytes(length) for length in (*range(1, 68), 255, 4_099) for _ in range(6)}
    keys |= {bytes([0x80]) * length for length in range(1, 34)}
    parts = {
        (drawn.randbytes(drawn.randint(0, 40)), "é" * drawn.randint(0, 9), drawn.randint(-(2**31), 2**31 - 1))
        for _ in range(150)
    }
    with cql(cassandra) as session:
        create_keyspace(session, keyspace_name)
        session.execute(f"CREATE TABLE {keyspace_name}.one (k blob PRIMARY KEY)")
        session.execute(f"CREATE TABLE {keyspace_name}.many (a blob, b text, c int, PRIMARY KEY ((a, b, c)))")
        one = session.prepare(f"INSERT INTO {keyspace_name}.one (k) VALUES (?)")
        many = session.prepare(f"INSERT INTO {keyspace_name}.many (a, b, c) VALUES (?, ?, ?)")
        execute_concurrent_with_args(session, one, [(key,) for key in keys])
        execute_concurrent_with_args(session, many, list(parts))
        single = list(session.execute(f"SELECT k, token(k) AS t FROM {keyspace_name}.one"))
        composite = list(session.execute(f"SELECT a, b, c, token(a, b, c) AS t FROM {keyspace_name}.many"))
    assert {row.k for row in single} == keys
    assert len(composite) == len(parts)
    said = {row.k: row.t for row in single}
    for row in composite:
        values = (row.a, row.b, row.c)
        encoded = [codec(kind).encode(value) for kind, value in zip(COMPOSITE, values, strict=True)]
        said[join_key(COMPOSITE, encoded)] = row.t
    assert {key: token(key) for key in said} == said
