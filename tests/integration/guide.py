"""The examples of ScyllaDB's user guide and of its tests, on a Cassandra: statements, and what the log table shows.

`cdc = true` is Cassandra's way to say `cdc = {'enabled': true}`. The guide makes a table for each example; here those
of one shape share a table, and each has a partition of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TABLES: Final = {
    "t": "CREATE TABLE {ks}.t (pk int, ck int, v int, w int, s int static, m map<int, text>, c set<int>, l list<int>, "
    "u {ks}.ut, PRIMARY KEY (pk, ck)) WITH cdc = true",
    "o": "CREATE TABLE {ks}.o (pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH cdc = true",
    "p": "CREATE TABLE {ks}.p (pk int, pk2 text, ck int, ck2 int, v int, PRIMARY KEY ((pk, pk2), ck, ck2)) "
    "WITH CLUSTERING ORDER BY (ck DESC, ck2 ASC) AND cdc = true",
    "a": "CREATE TABLE {ks}.a (pk int, ck int, ck2 text, v int, w text, s int static, m map<int, text>, c set<text>, "
    "u {ks}.ut, f frozen<list<int>>, PRIMARY KEY (pk, ck, ck2)) WITH CLUSTERING ORDER BY (ck ASC, ck2 DESC) "
    "AND cdc = true",
}
TIME: Final = 1606390225588947
MANY: Final = 150


@dataclass(frozen=True, slots=True)
class Example:
    """Statements on one partition, in order, and what columns of the log table show, in the order of its stream.

    In a statement `T` is the table, and `$` the example's value of pk.
    """

    name: str
    statements: tuple[str, ...]
    columns: str
    rows: list[tuple[object, ...]]
    table: str = "t"


def _edits(name: str, column: str, rows: list[tuple[object, ...]], *assignments: str) -> Example:
    """UPDATEs of a multi-cell column of one row."""
    return Example(
        name,
        tuple(f"UPDATE T SET {one} WHERE pk = $ AND ck = 0" for one in assignments),
        f'{column}, "cdc$deleted_{column}", "cdc$deleted_elements_{column}", "cdc$operation"',
        rows,
    )


_BATCH = '"cdc$batch_seq_no", ck, v, "cdc$operation", "cdc$end_of_batch"'

EXAMPLES: Final = (
    Example(
        "updates",
        (
            "UPDATE T SET v = 0 WHERE pk = $ AND ck = 0",
            "UPDATE T SET w = null WHERE pk = $ AND ck = 0",
            "DELETE v FROM T WHERE pk = $ AND ck = 0",
        ),
        '"cdc$batch_seq_no", ck, v, "cdc$deleted_v", w, "cdc$deleted_w", "cdc$operation"',
        [(0, 0, 0, None, None, None, 1), (0, 0, None, None, None, True, 1), (0, 0, None, True, None, None, 1)],
    ),
    Example(
        "statics",
        (
            "UPDATE T SET s = 0, v = 0 WHERE pk = $ AND ck = 0",
            "INSERT INTO T (pk, s) VALUES ($, 1)",
            "INSERT INTO T (pk, ck, s, v) VALUES ($, 1, 2, 3)",
        ),
        '"cdc$batch_seq_no", ck, s, v, "cdc$operation"',
        [(0, None, 0, None, 1), (1, 0, None, 0, 1), (0, None, 1, None, 1), (0, None, 2, None, 1), (1, 1, None, 3, 2)],
    ),
    Example(
        "operations",
        (
            "INSERT INTO T (pk, ck, v) VALUES ($, 0, 0)",
            "INSERT INTO T (pk, ck) VALUES ($, 1)",
            "UPDATE T SET v = 1 WHERE pk = $ AND ck = 0",
            "DELETE v FROM T WHERE pk = $ AND ck = 0",
            "DELETE FROM T WHERE pk = $ AND ck = 0",
            "DELETE FROM T WHERE pk = $",
        ),
        'ck, v, "cdc$deleted_v", "cdc$operation"',
        [(0, 0, None, 2), (1, None, None, 2), (0, 1, None, 1), (0, None, True, 1), (0, None, None, 3),
         (None, None, None, 4)],
    ),
    Example(
        "ranges",
        (
            "DELETE FROM T WHERE pk = $ AND ck <= 2 AND ck > 0",
            "DELETE FROM T WHERE pk = $ AND ck < 3",
            "DELETE FROM T WHERE pk = $ AND ck > 1 AND ck < 23",
            "DELETE FROM T WHERE pk = $ AND ck >= 4 AND ck <= 56",
            "DELETE FROM T WHERE pk = $ AND ck < 1 AND ck > 2",
        ),
        _BATCH,
        [(0, 0, None, 6, None), (1, 2, None, 7, True), (0, None, None, 5, None), (1, 3, None, 8, True),
         (0, 1, None, 6, None), (1, 23, None, 8, True), (0, 4, None, 5, None), (1, 56, None, 7, True)],
    ),
    Example(
        "ranges of several columns, one of them descending",
        (
            "DELETE FROM T WHERE pk = $ AND pk2 = 'é' AND ck = 0 AND ck2 > 0 AND ck2 < 3",
            "DELETE FROM T WHERE pk = $ AND pk2 = 'é' AND ck > 222 AND ck <= 444",
            "DELETE FROM T WHERE pk = $ AND pk2 = 'é' AND ck > 2",
        ),
        '"cdc$batch_seq_no", pk2, ck, ck2, v, "cdc$operation"',
        [(0, "é", 0, 0, None, 6), (1, "é", 0, 3, None, 8), (0, "é", 444, None, None, 5), (1, "é", 222, None, None, 8),
         (0, "é", None, None, None, 5), (1, "é", 2, None, None, 8)],
        "p",
    ),
    _edits(
        "maps", "m",
        [({1: "v1", 2: "v2"}, None, None, 1), (None, None, {1, 2, 3}, 1), (None, True, None, 1), (None, True, None, 1),
         ({1: "v1", 2: "v2"}, True, None, 1), ({3: "c"}, None, {1}, 1)],
        "m = m + {1: 'v1', 2: 'v2'}", "m = m - {1, 2, 3}", "m = null", "m = {}", "m = {1: 'v1', 2: 'v2'}",
        "m[1] = null, m[3] = 'c'",
    ),
    _edits(
        "sets", "c",
        [({1, 2}, None, None, 1), (None, None, {1, 2, 3}, 1), (None, True, None, 1), ({1, 2}, True, None, 1)],
        "c = c + {1, 2}", "c = c - {1, 2, 3}", "c = {}", "c = {1, 2}",
    ),
    _edits(
        "user types", "u",
        [((0, 1, None), None, None, 1), ((None, None, None), None, {1}, 1), ((7, None, 9), True, None, 1),
         ((None, None, None), True, None, 1)],
        "u.a = 0, u.b = 1", "u.b = null", "u = {a: 7, c: 9}", "u = null",
    ),
    Example(
        "insertion of a collection",
        (
            "INSERT INTO T (pk, ck, m) VALUES ($, 0, {1: 'v1'})",
            "INSERT INTO T (pk, ck, m) VALUES ($, 0, {1: 'v1'}) USING TTL 5000",
        ),
        '"cdc$batch_seq_no", "cdc$operation", "cdc$ttl", m, "cdc$deleted_m", "cdc$end_of_batch"',
        [(0, 2, None, {1: "v1"}, True, True), (0, 2, 5000, None, None, None), (1, 1, None, None, True, None),
         (2, 1, 5000, {1: "v1"}, None, True)],
    ),
    Example(
        "times of tombstones",
        (
            f"UPDATE T USING TIMESTAMP {TIME} SET m = {{1: 'v1'}} WHERE pk = $ AND ck = 0",
            f"DELETE m FROM T USING TIMESTAMP {TIME + 10} WHERE pk = $ AND ck = 1",
            f"BEGIN UNLOGGED BATCH DELETE m FROM T USING TIMESTAMP {TIME + 19} WHERE pk = $ AND ck = 2; "
            f"UPDATE T USING TIMESTAMP {TIME + 20} SET m = m + {{2: 'v2'}} WHERE pk = $ AND ck = 2; APPLY BATCH",
        ),
        'ck, m, "cdc$deleted_m", writetime("cdc$operation")',
        [(0, {1: "v1"}, True, TIME), (1, None, True, TIME + 11), (2, {2: "v2"}, True, TIME + 20)],
    ),
    Example(
        "time to live",
        (
            "UPDATE T SET v = 0 WHERE pk = $ AND ck = 0",
            "UPDATE T USING TTL 5000 SET v = 0 WHERE pk = $ AND ck = 0",
            "UPDATE T USING TTL 5000 SET v = null WHERE pk = $ AND ck = 0",
            "UPDATE T USING TTL 5000 SET v = 0, w = null WHERE pk = $ AND ck = 0",
        ),
        '"cdc$batch_seq_no", "cdc$ttl", v, "cdc$deleted_v", "cdc$deleted_w", "cdc$end_of_batch"',
        [(0, None, 0, None, None, True), (0, 5000, 0, None, None, True), (0, None, None, True, None, True),
         (0, None, None, None, True, None), (1, 5000, 0, None, None, True)],
    ),
    Example(
        "batches",
        (
            "BEGIN UNLOGGED BATCH UPDATE T SET v = 0 WHERE pk = $ AND ck = 0; "
            "UPDATE T SET v = 0 WHERE pk = $ AND ck = 1; APPLY BATCH",
            "BEGIN BATCH INSERT INTO T (pk, ck, v) VALUES ($, 1, 100); "
            "DELETE FROM T WHERE pk = $ AND ck >= 2 AND ck <= 3; APPLY BATCH",
        ),
        _BATCH,
        [(0, 0, 0, 1, None), (1, 1, 0, 1, True), (0, 1, 100, 2, None), (1, 2, None, 5, None), (2, 3, None, 7, True)],
    ),
    Example(
        "times of one batch",
        (
            f"BEGIN UNLOGGED BATCH UPDATE T USING TIMESTAMP {TIME} SET s = 5 WHERE pk = $; "
            f"UPDATE T USING TIMESTAMP {TIME + 1} SET v = 1 WHERE pk = $ AND ck = 0; "
            f"UPDATE T USING TIMESTAMP {TIME + 2} SET w = 2 WHERE pk = $ AND ck = 0; APPLY BATCH",
        ),
        '"cdc$batch_seq_no", ck, s, v, w, writetime("cdc$operation"), "cdc$end_of_batch"',
        [(0, None, 5, None, None, TIME, True), (0, 0, None, 1, None, TIME + 1, True),
         (0, 0, None, None, 2, TIME + 2, True)],
    ),
    Example(
        "conditions",
        (
            "INSERT INTO T (pk, ck, v) VALUES ($, 0, 0) IF NOT EXISTS",
            "INSERT INTO T (pk, ck, v) VALUES ($, 0, 1) IF NOT EXISTS",
            "UPDATE T SET v = 2 WHERE pk = $ AND ck = 0 IF v = 0",
            "UPDATE T SET v = 3 WHERE pk = $ AND ck = 0 IF v = 0",
            "DELETE FROM T WHERE pk = $ AND ck = 0 IF v = 2",
            "DELETE FROM T WHERE pk = $ AND ck = 0 IF v = 2",
        ),
        'v, "cdc$operation"',
        [(0, 2), (2, 1), (None, 3)],
    ),
    Example(
        "more than a micro-batch takes",
        (
            "BEGIN UNLOGGED BATCH "
            + " ".join(f"UPDATE T SET v = {number} WHERE pk = $ AND ck = {number};" for number in range(MANY))
            + " APPLY BATCH",
        ),
        _BATCH,
        [(number, number, number, 1, True if number == MANY - 1 else None) for number in range(MANY)],
    ),
)  # fmt: skip
