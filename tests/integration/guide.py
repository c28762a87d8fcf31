"""The examples of ScyllaDB's user guide and of its tests, on a Cassandra: statements, and what the log table shows.

In statements and queries {t} is the example's table, {log} its log table. `cdc = true` is Cassandra's way to say
`cdc = {'enabled': true}`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_T = "CREATE TABLE {t} (pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH cdc = true"
_BATCH = 'SELECT "cdc$batch_seq_no", pk, ck, v, "cdc$operation", "cdc$end_of_batch" FROM {log}'


@dataclass(frozen=True, slots=True)
class Example:
    """One table's statements, in order, and the rows of one query in the order of its one stream."""

    name: str
    create: str
    statements: tuple[str, ...]
    query: str
    rows: list[tuple[object, ...]]


def _edits(name: str, cql_type: str, rows: list[tuple[object, ...]], *assignments: str) -> Example:
    """UPDATE ... SET v ... of one row; what is shown of v, and the operation."""
    return Example(
        name,
        f"CREATE TABLE {{t}} (pk int, ck int, v {cql_type}, PRIMARY KEY (pk, ck)) WITH cdc = true",
        tuple(f"UPDATE {{t}} SET {one} WHERE pk = 0 AND ck = 0" for one in assignments),
        'SELECT v, "cdc$deleted_v", "cdc$deleted_elements_v", "cdc$operation" FROM {log}',
        rows,
    )


TIME: Final = 1606390225588947

EXAMPLES: Final = (
    Example(
        "updates",
        "CREATE TABLE {t} (pk int, ck int, v1 int, v2 int, PRIMARY KEY (pk, ck)) WITH cdc = true",
        (
            "UPDATE {t} SET v1 = 0 WHERE pk = 0 AND ck = 0",
            "UPDATE {t} SET v2 = null WHERE pk = 0 AND ck = 0",
            "DELETE v1 FROM {t} WHERE pk = 0 AND ck = 0",
        ),
        'SELECT "cdc$batch_seq_no", pk, ck, v1, "cdc$deleted_v1", v2, "cdc$deleted_v2", "cdc$operation" FROM {log}',
        [(0, 0, 0, 0, None, None, None, 1), (0, 0, 0, None, None, None, True, 1), (0, 0, 0, None, True, None, None, 1)],
    ),
    Example(
        "statics",
        "CREATE TABLE {t} (pk int, ck int, s int static, c int, PRIMARY KEY (pk, ck)) WITH cdc = true",
        (
            "UPDATE {t} SET s = 0, c = 0 WHERE pk = 0 AND ck = 0",
            "INSERT INTO {t} (pk, s) VALUES (0, 1)",
            "INSERT INTO {t} (pk, ck, s, c) VALUES (0, 1, 2, 3)",
        ),
        'SELECT "cdc$batch_seq_no", pk, ck, s, c, "cdc$operation" FROM {log}',
        [(0, 0, None, 0, None, 1), (1, 0, 0, None, 0, 1), (0, 0, None, 1, None, 1),
         (0, 0, None, 2, None, 1), (1, 0, 1, None, 3, 2)],
    ),
    Example(
        "operations",
        _T,
        (
            "INSERT INTO {t} (pk, ck, v) VALUES (0, 0, 0)",
            "INSERT INTO {t} (pk, ck) VALUES (0, 1)",
            "UPDATE {t} SET v = 1 WHERE pk = 0 AND ck = 0",
            "DELETE v FROM {t} WHERE pk = 0 AND ck = 0",
            "DELETE FROM {t} WHERE pk = 0 AND ck = 0",
            "DELETE FROM {t} WHERE pk = 0",
        ),
        'SELECT pk, ck, v, "cdc$deleted_v", "cdc$operation" FROM {log}',
        [(0, 0, 0, None, 2), (0, 1, None, None, 2), (0, 0, 1, None, 1), (0, 0, None, True, 1), (0, 0, None, None, 3),
         (0, None, None, None, 4)],
    ),
    Example(
        "ranges",
        _T,
        (
            "DELETE FROM {t} WHERE pk = 0 AND ck <= 2 AND ck > 0",
            "DELETE FROM {t} WHERE pk = 0 AND ck < 3",
            "DELETE FROM {t} WHERE pk = 0 AND ck > 1 AND ck < 23",
            "DELETE FROM {t} WHERE pk = 0 AND ck >= 4 AND ck <= 56",
            "DELETE FROM {t} WHERE pk = 0 AND ck < 1 AND ck > 2",
        ),
        _BATCH,
        [(0, 0, 0, None, 6, None), (1, 0, 2, None, 7, True), (0, 0, None, None, 5, None), (1, 0, 3, None, 8, True),
         (0, 0, 1, None, 6, None), (1, 0, 23, None, 8, True), (0, 0, 4, None, 5, None), (1, 0, 56, None, 7, True)],
    ),
    Example(
        "prefixes",
        "CREATE TABLE {t} (pk int, ck1 int, ck2 int, ck3 int, v int, PRIMARY KEY (pk, ck1, ck2, ck3)) WITH cdc = true",
        ("DELETE FROM {t} WHERE pk = 0 AND ck1 = 0 AND ck2 > 0 AND ck2 < 3",),
        'SELECT "cdc$batch_seq_no", pk, ck1, ck2, ck3, v, "cdc$operation" FROM {log}',
        [(0, 0, 0, 0, None, None, 6), (1, 0, 0, 3, None, None, 8)],
    ),
    _edits(
        "maps",
        "map<int, text>",
        [({1: "v1", 2: "v2"}, None, None, 1), (None, None, {1, 2, 3}, 1), (None, True, None, 1), (None, True, None, 1),
         ({1: "v1", 2: "v2"}, True, None, 1), ({3: "c"}, None, {1}, 1)],
        "v = v + {{1: 'v1', 2: 'v2'}}", "v = v - {{1, 2, 3}}", "v = null", "v = {{}}", "v = {{1: 'v1', 2: 'v2'}}",
        "v[1] = null, v[3] = 'c'",
    ),
    _edits(
        "sets",
        "set<int>",
        [({1, 2}, None, None, 1), (None, None, {1, 2, 3}, 1), (None, True, None, 1), ({1, 2}, True, None, 1)],
        "v = v + {{1, 2}}", "v = v - {{1, 2, 3}}", "v = {{}}", "v = {{1, 2}}",
    ),
    _edits(
        "user_types",
        "ut",
        [((0, 1, None), None, None, 1), (None, None, {1}, 1), ((7, None, 9), True, None, 1), (None, True, None, 1)],
        "v.a = 0, v.b = 1", "v.b = null", "v = {{a: 7, c: 9}}", "v = null",
    ),
    Example(
        "inserted_map",
        "CREATE TABLE {t} (pk int, ck int, v map<int, text>, PRIMARY KEY (pk, ck)) WITH cdc = true",
        (
            "INSERT INTO {t} (pk, ck, v) VALUES (0, 0, {{1: 'v1'}})",
            "INSERT INTO {t} (pk, ck, v) VALUES (0, 0, {{1: 'v1'}}) USING TTL 5000",
        ),
        'SELECT "cdc$batch_seq_no", "cdc$operation", "cdc$ttl", v, "cdc$deleted_v", "cdc$end_of_batch" FROM {log}',
        [(0, 2, None, {1: "v1"}, True, True), (0, 2, 5000, None, None, None), (1, 1, None, None, True, None),
         (2, 1, 5000, {1: "v1"}, None, True)],
    ),
    Example(
        "times_of_tombstones",
        "CREATE TABLE {t} (pk int, ck int, v map<int, text>, PRIMARY KEY (pk, ck)) WITH cdc = true",
        (
            f"UPDATE {{t}} USING TIMESTAMP {TIME} SET v = {{{{1: 'v1'}}}} WHERE pk = 0 AND ck = 0",
            f"DELETE v FROM {{t}} USING TIMESTAMP {TIME + 10} WHERE pk = 0 AND ck = 1",
            f"BEGIN UNLOGGED BATCH DELETE v FROM {{t}} USING TIMESTAMP {TIME + 19} WHERE pk = 0 AND ck = 2; "
            f"UPDATE {{t}} USING TIMESTAMP {TIME + 20} SET v = v + {{{{2: 'v2'}}}} WHERE pk = 0 AND ck = 2; APPLY BATCH",
        ),
        'SELECT ck, v, "cdc$deleted_v", writetime("cdc$operation") FROM {log}',
        [(0, {1: "v1"}, True, TIME), (1, None, True, TIME + 11), (2, {2: "v2"}, True, TIME + 20)],
    ),
    Example(
        "time_to_live",
        "CREATE TABLE {t} (pk int, ck int, a int, b int, PRIMARY KEY (pk, ck)) WITH cdc = true",
        (
            "UPDATE {t} SET a = 0 WHERE pk = 0 AND ck = 0",
            "UPDATE {t} USING TTL 5000 SET a = 0 WHERE pk = 0 AND ck = 0",
            "UPDATE {t} USING TTL 5000 SET a = null WHERE pk = 0 AND ck = 0",
            "UPDATE {t} USING TTL 5000 SET a = 0, b = null WHERE pk = 0 AND ck = 0",
        ),
        'SELECT "cdc$batch_seq_no", "cdc$ttl", a, "cdc$deleted_a", "cdc$deleted_b", "cdc$end_of_batch" FROM {log}',
        [(0, None, 0, None, None, True), (0, 5000, 0, None, None, True), (0, None, None, True, None, True),
         (0, None, None, None, True, None), (1, 5000, 0, None, None, True)],
    ),
    Example(
        "batches",
        _T,
        (
            "BEGIN UNLOGGED BATCH UPDATE {t} SET v = 0 WHERE pk = 0 AND ck = 0; "
            "UPDATE {t} SET v = 0 WHERE pk = 0 AND ck = 1; APPLY BATCH",
            "BEGIN BATCH INSERT INTO {t} (pk, ck, v) VALUES (0, 1, 100); "
            "DELETE FROM {t} WHERE pk = 0 AND ck >= 2 AND ck <= 3; APPLY BATCH",
        ),
        _BATCH,
        [(0, 0, 0, 0, 1, None), (1, 0, 1, 0, 1, True),
         (0, 0, 1, 100, 2, None), (1, 0, 2, None, 5, None), (2, 0, 3, None, 7, True)],
    ),
    Example(
        "times_of_one_batch",
        "CREATE TABLE {t} (pk int, ck int, s int static, v1 int, v2 int, PRIMARY KEY (pk, ck)) WITH cdc = true",
        (
            f"BEGIN UNLOGGED BATCH UPDATE {{t}} USING TIMESTAMP {TIME} SET s = 5 WHERE pk = 0; "
            f"UPDATE {{t}} USING TIMESTAMP {TIME + 1} SET v1 = 1 WHERE pk = 0 AND ck = 0; "
            f"UPDATE {{t}} USING TIMESTAMP {TIME + 2} SET v2 = 2 WHERE pk = 0 AND ck = 0; APPLY BATCH",
        ),
        'SELECT "cdc$batch_seq_no", ck, s, v1, v2, writetime("cdc$operation"), "cdc$end_of_batch" FROM {log}',
        [(0, None, 5, None, None, TIME, True), (0, 0, None, 1, None, TIME + 1, True),
         (0, 0, None, None, 2, TIME + 2, True)],
    ),
    Example(
        "conditions",
        _T,
        (
            "INSERT INTO {t} (pk, ck, v) VALUES (0, 0, 0) IF NOT EXISTS",
            "INSERT INTO {t} (pk, ck, v) VALUES (0, 0, 1) IF NOT EXISTS",
            "UPDATE {t} SET v = 2 WHERE pk = 0 AND ck = 0 IF v = 0",
            "UPDATE {t} SET v = 3 WHERE pk = 0 AND ck = 0 IF v = 0",
            "DELETE FROM {t} WHERE pk = 0 AND ck = 0 IF v = 2",
            "DELETE FROM {t} WHERE pk = 0 AND ck = 0 IF v = 2",
        ),
        'SELECT v, "cdc$operation" FROM {log}',
        [(0, 2), (2, 1), (None, 3)],
    ),
    Example(
        "descending",
        "CREATE TABLE {t} (pk text, pk2 blob, ck int, v int, PRIMARY KEY ((pk, pk2), ck)) "
        "WITH CLUSTERING ORDER BY (ck DESC) AND cdc = true",
        ("DELETE FROM {t} WHERE pk = 'é' AND pk2 = 0xff AND ck > 2",),
        'SELECT pk, pk2, ck, "cdc$operation" FROM {log}',
        [("é", b"\xff", None, 5), ("é", b"\xff", 2, 8)],
    ),
)  # fmt: skip
