"""The sink of another Cassandra cluster on a live node: what a node logged, into a second keyspace; then both answer
SELECT, WRITETIME and TTL alike."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import Session
from cassandra.query import BoundStatement

from tailrace.local import LocalCassandra, LocalKafka
from tailrace_common.settings import Settings
from tailrace_schemas.change import Bound
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.table import Column, Table
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId, Summary
from tailrace_spark.sinks.cassandra.cql import slices
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.protocol import ReachableSink, SweepingSink, write_here
from tailrace_spark.sinks.registry import open_sink
from tests.corpus.kinds import Kinds
from tests.held import Record, hold
from tests.integration.agents import (
    cql,
    create_keyspace,
)
from tests.oracle.comparison import Answer, Difference, Row, differ
from tests.oracle.direct import Recorded, deliver
from tests.oracle.program import Program
from tests.oracle.trial import Found, Ground, Trial
from tests.oracle.values import answered, key_of
from tests.support.letters import MemoryLetters
from tests.support.waiting import load_per_core, until
from tests.unit.spark.cassandra import Log, truncate
from tests.unit.spark.sinks.change_log_contract import as_read
from tests.unit.spark.sinks.in_tasks import InTasks
from tests.unit.tables import table

COPY = "_copy"
_SETTLED_SECONDS = 30.0
_TTL_SECONDS = 3
"""By so much a TTL may differ for each process that a core has to run: the clocks', and what a write takes."""


def opened(
    node: LocalCassandra,
    *,
    lists: str = "map",
    keyspace: str = "{keyspace}" + COPY,
    prefix: str = "t",
    letters: Letters = LOGGED,
    **more: object,
) -> ReachableSink:
    """The sink on this node, as a section makes it."""
    section = {
        "type": "cassandra", "contact_points": [node.address], "port": node.port, "request_timeout_seconds": 60,
        "keyspace": keyspace, "lists": lists, **more,
    }  # fmt: skip
    settings = Settings.model_validate({"sink": {"copy": section}})
    return open_sink("copy", settings.sink["copy"], prefix, letters=letters)


@pytest.fixture(autouse=True)
def _held(cassandra_version: str, record_property: Record) -> None:
    hold(record_property, "cassandra", "Cassandra", cassandra_version)


class _Clock:
    """Of `deliver`: the sink here goes by the node's own time."""

    now = 0.0

    def read(self) -> float:
        return time.time()


class _Unswept:
    """A sink in which the node itself lets expire what expires."""

    def __init__(self, sink: ReachableSink) -> None:
        self.batch_write, self.close = sink.batch_write, sink.close
        self.capabilities = sink.capabilities

    def sweep(self) -> int:
        return 0


def values_of(session: Session, of: Table, keyspace: str) -> Answer:
    """What SELECT answers of a table, or of the one that follows it; a list's map as its values."""
    columns = [*of.key, *of.columns]
    names = ", ".join(f'"{column.name}"' for column in columns)
    found = session.execute(f'SELECT {names} FROM {keyspace}."{of.name}"')
    return Answer(of, tuple(_row(of, columns, list(row)) for row in found))


def _row(of: Table, columns: Sequence[Column], values: list[Any]) -> Row:
    forms = []
    for at, (column, value) in enumerate(zip(columns, values, strict=True)):
        listed = list(value.values()) if column.type.kind == "list" and hasattr(value, "values") else value
        form = answered(listed, column.type)
        forms.append(key_of(form, column.type) if at < len(of.key) else form)
    return tuple(forms)


def times_of(session: Session, of: Table, keyspace: str) -> list[tuple[Any, ...]]:
    """(key, cell, WRITETIME, TTL) of every plain cell, of fields of user types, and of some keys of maps; of other
    collections the write times of all elements: TTLs of some are what neither node nor driver can tell."""
    found: list[tuple[Any, ...]] = []
    columns = [*of.key, *of.columns]
    # All of them, whichever is asked for: Cassandra passes over cells of others below the time of the row's marker,
    # even of one that has expired, and so leaves out the row. In memory; not always in files.
    names = ", ".join(f'"{column.name}"' for column in columns)
    for index, column in enumerate(of.columns, len(of.key)):
        for cell, asked in _cells(column):
            for row in session.execute(f'SELECT {names}, {asked} FROM {keyspace}."{of.name}"'):
                values = list(row)
                if values[index] is not None:
                    found.append((_row(of, of.key, values[: len(of.key)]), cell, *values[len(columns) :]))
    return sorted(found, key=repr)


def _cells(column: Column) -> list[tuple[str, str]]:
    """Cells of a column, and what asks for their times."""
    name, kind = f'"{column.name}"', column.type
    if not kind.multicell:
        return [(name, f"WRITETIME({name}), TTL({name})")]
    if kind.kind == "udt":
        return [(field, f'WRITETIME({name}."{field}"), TTL({name}."{field}")') for field in kind.fields]
    parts: list[str] = []
    if kind.kind == "map" and kind.args[0].kind == "text":
        parts = [f"{name}['{key}']" for key in "abc"]
    return [(name, f"WRITETIME({name}), (int) null"), *((part, f"WRITETIME({part}), TTL({part})") for part in parts)]


def differing(session: Session, answers: Sequence[Answer], keyspace: str) -> list[Difference]:
    """How the tables of a keyspace differ from what was answered of the source, values and times."""
    found: list[Difference] = []
    for answer in answers:
        of = answer.table
        found += differ(values_of(session, of, of.keyspace), values_of(session, of, keyspace).rows)
        if not found:
            # What expires between the two has no partner: it has none of either when both are asked again.
            pairs = zip_longest(times_of(session, of, of.keyspace), times_of(session, of, keyspace))
            found += [Difference(str(of), (), f"{a} and {b}") for a, b in pairs if not _alike(a, b)]
    return found


def _alike(own: tuple[Any, ...] | None, copied: tuple[Any, ...] | None) -> bool:
    if own is None or copied is None:
        return False
    (*cell, ttl), (*other, left) = own, copied
    if cell != other:
        return False
    if ttl is None or left is None:
        return ttl is left
    return bool(abs(ttl - left) <= _TTL_SECONDS * max(1.0, load_per_core()))


class CopyTrial(Trial):
    """Programs from the node's segments into a second keyspace each, in any order and a part of it twice."""

    found: tuple[Difference, ...] = ()
    """Of the last program."""

    by_tasks = False
    """Whether each batch is written by a task for each partition of keys."""

    def _replay(self, one: Found, recorded: Recorded) -> None:
        session, [node] = self._ground.session, self._ground.nodes
        keyspace = one.keyspace + COPY
        create_keyspace(session, keyspace)
        letters = MemoryLetters()
        sink = opened(node, letters=letters)
        told: list[Difference] = []

        def equal() -> bool:
            nonlocal told
            told = differing(self._ground.reading, recorded.answers, keyspace)
            return not told

        with closing(sink):
            changes = [as_read(change) for change in recorded.changes]
            written: SweepingSink = InTasks(_Unswept(sink)) if self.by_tasks else _Unswept(sink)
            deliver(written, changes, Random(recorded.seed), _Clock(), time.time())  # type: ignore[arg-type]  # a clock is a clock
        with suppress(AssertionError):  # what differs is the result
            until(equal, "an equal copy", _SETTLED_SECONDS)
        told += [Difference(topic, (), reason) for topic, reason in letters.told()]
        one.differences["copy"] = told
        self.found = tuple(told)
        session.execute(f"DROP KEYSPACE {keyspace}")


@pytest.fixture
def trial(cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, tmp_path: Path) -> Iterator[CopyTrial]:
    """Trials on the run's node."""
    with ExitStack() as stack:
        session = stack.enter_context(cql(cassandra))
        reading = stack.enter_context(cql(cassandra, ConsistencyLevel.ALL, 60))
        ground = Ground(nodes=(cassandra,), kafka=kafka, session=session, reading=reading)
        yield stack.enter_context(CopyTrial(ground, prefix, tmp_path / "trial", str, Random(0)))


STATEMENTS = (
    "CREATE TABLE {k}.t (p int, c int, d text, s text STATIC, ss set<int> STATIC, v int, w text, m map<text, int>, "
    "e set<text>, u {k}.ut, l list<int>, f frozen<list<int>>, PRIMARY KEY (p, c, d)) "
    "WITH CLUSTERING ORDER BY (c DESC, d ASC) AND cdc = true AND default_time_to_live = 5000",
    "CREATE TABLE {k}.plain (k int PRIMARY KEY, v int, w int) WITH cdc = true",
    # markers: of INSERT, none of UPDATE
    "INSERT INTO {k}.plain (k, v) VALUES (1, 1) USING TIMESTAMP 1000 AND TTL 0",
    "UPDATE {k}.plain USING TIMESTAMP 1000 SET v = 1 WHERE k = 2",
    "DELETE v FROM {k}.plain USING TIMESTAMP 1001 WHERE k = 1",
    "DELETE v FROM {k}.plain USING TIMESTAMP 1001 WHERE k = 2",
    "INSERT INTO {k}.plain (k, v) VALUES (5, 1) USING TIMESTAMP 1000",
    "DELETE FROM {k}.plain USING TIMESTAMP 1000 WHERE k = 5",
    "INSERT INTO {k}.plain (k, v) VALUES (6, 1) USING TIMESTAMP 1000",
    "UPDATE {k}.plain USING TIMESTAMP 2000 AND TTL 3000 SET w = 6 WHERE k = 6",
    # cells of several times in one row, the table's own TTL among them
    "INSERT INTO {k}.t (p, c, d, v, w) VALUES (1, 1, 'a', 1, 'x') USING TIMESTAMP 1000",
    "UPDATE {k}.t USING TIMESTAMP 2000 AND TTL 4000 SET w = 'y', f = [1, 2] WHERE p = 1 AND c = 1 AND d = 'a'",
    "BEGIN UNLOGGED BATCH INSERT INTO {k}.t (p, c, d, v) VALUES (1, 2, 'a', 2) USING TIMESTAMP 3000 AND TTL 0; "
    "UPDATE {k}.t USING TIMESTAMP 3001 AND TTL 900 SET w = 'z', m = m + {'x': 1} WHERE p = 1 AND c = 2 AND d = 'a'; "
    "DELETE e FROM {k}.t USING TIMESTAMP 3002 WHERE p = 1 AND c = 2 AND d = 'a'; APPLY BATCH",
    # static columns, collections whole and by element, user types by field, lists
    "UPDATE {k}.t USING TIMESTAMP 1000 AND TTL 0 SET s = 'static', ss = ss + {3, 4} WHERE p = 1",
    "UPDATE {k}.t USING TIMESTAMP 1001 AND TTL 0 SET ss = ss - {3} WHERE p = 1",
    "UPDATE {k}.t USING TIMESTAMP 5000 AND TTL 0 SET m = {'a': 1, 'b': 2}, e = {'a', ''}, u = {a: 1, b: 'b'}, "
    "l = [1, 2, 1] WHERE p = 2 AND c = 1 AND d = ''",
    "UPDATE {k}.t USING TIMESTAMP 5001 AND TTL 800 SET m['a'] = 9, m['c'] = 3, e = e + {'b'}, u.a = 5, l = l + [7] "
    "WHERE p = 2 AND c = 1 AND d = ''",
    "DELETE m['b'], u.b FROM {k}.t USING TIMESTAMP 5002 WHERE p = 2 AND c = 1 AND d = ''",
    "DELETE l[1] FROM {k}.t WHERE p = 2 AND c = 1 AND d = ''",
    "UPDATE {k}.t USING TIMESTAMP 5003 AND TTL 0 SET e = e - {'a'} WHERE p = 2 AND c = 1 AND d = ''",
    # ranges in descending and ascending order, of several columns, one over the other
    *(
        f"INSERT INTO {{k}}.t (p, c, d, v) VALUES (3, {c}, '{d}', {c}) USING TIMESTAMP 1000 AND TTL 0"
        for c in range(1, 7)
        for d in "abc"
    ),
    "DELETE FROM {k}.t USING TIMESTAMP 1001 WHERE p = 3 AND c > 4 AND c <= 5",
    "DELETE FROM {k}.t USING TIMESTAMP 1001 WHERE p = 3 AND c = 3 AND d >= 'b'",
    "DELETE FROM {k}.t USING TIMESTAMP 1001 WHERE p = 3 AND c = 1",
    "DELETE FROM {k}.t USING TIMESTAMP 999 WHERE p = 3 AND c < 3",
    "BEGIN UNLOGGED BATCH DELETE FROM {k}.t USING TIMESTAMP 1002 WHERE p = 3 AND c >= 2 AND c < 6; "
    "DELETE FROM {k}.t USING TIMESTAMP 1003 WHERE p = 3 AND c = 4 AND d < 'b'; APPLY BATCH",
    "INSERT INTO {k}.t (p, c, d, v) VALUES (3, 4, 'a', 9) USING TIMESTAMP 1003 AND TTL 0",
    "INSERT INTO {k}.t (p, c, d, v) VALUES (3, 4, 'b', 9) USING TIMESTAMP 1003 AND TTL 0",
    "DELETE FROM {k}.t USING TIMESTAMP 1001 WHERE p = 4",
    "INSERT INTO {k}.t (p, c, d, v, s) VALUES (4, 1, 'a', 1, 'gone') USING TIMESTAMP 1001 AND TTL 0",
    "INSERT INTO {k}.t (p, c, d, v, s) VALUES (4, 2, 'a', 1, 'here') USING TIMESTAMP 1002 AND TTL 0",
    # all rows of a partition, and not its static row
    "INSERT INTO {k}.t (p, c, d, v, s) VALUES (7, 1, 'a', 1, 'stays') USING TIMESTAMP 1000 AND TTL 0",
    "BEGIN UNLOGGED BATCH DELETE FROM {k}.t USING TIMESTAMP 1001 WHERE p = 7 AND c < 4; "
    "DELETE FROM {k}.t USING TIMESTAMP 1001 WHERE p = 7 AND c >= 4; APPLY BATCH",
    "INSERT INTO {k}.t (p, c, d, v) VALUES (7, 2, 'a', 1) USING TIMESTAMP 1001 AND TTL 0",
    "INSERT INTO {k}.t (p, c, d, v) VALUES (7, 3, 'a', 1) USING TIMESTAMP 1002 AND TTL 0",
    "ALTER TABLE {k}.plain ADD later set<int>",
    "UPDATE {k}.plain USING TIMESTAMP 3000 SET later = later + {1} WHERE k = 6",
)


EXPIRED = (
    # a marker and cells over older ones that do not expire
    "INSERT INTO {k}.plain (k) VALUES (3) USING TIMESTAMP 1000",
    "INSERT INTO {k}.plain (k) VALUES (3) USING TIMESTAMP 1001 AND TTL 1",
    "INSERT INTO {k}.plain (k, v, w) VALUES (4, 1, 1) USING TIMESTAMP 1000 AND TTL 1",
    "UPDATE {k}.plain USING TIMESTAMP 999 SET v = 7 WHERE k = 4",
)
"""What has expired when it is written."""


@pytest.mark.spine
@pytest.mark.promise("cassandra.select")
@pytest.mark.parametrize("by_tasks", [pytest.param(False, marks=pytest.mark.long), True], ids=["driver", "tasks"])
@pytest.mark.parametrize("more", [(), pytest.param(EXPIRED, marks=pytest.mark.long)], ids=["lasting", "expired"])
def test_a_second_keyspace_answers_as_the_source_does(
    trial: CopyTrial, more: tuple[str, ...], *, by_tasks: bool
) -> None:
    """Values, write times and TTLs, of every kind of statement, delivered in any order and partly twice."""
    trial.by_tasks = by_tasks
    made = (
        "CREATE KEYSPACE {k} WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TYPE {k}.ut (a int, b text)",
    )
    lines = [line.replace("{k}", "{keyspace}") for line in (*made, *STATEMENTS, *more)]
    [failed] = trial.fail([Program(len(more), tuple(lines))], short=True)
    assert not failed, "\n".join(map(str, trial.found))


@pytest.mark.promise("cassandra.unwritable")
def test_what_cql_cannot_say_is_set_aside_and_said(cassandra: LocalCassandra, keyspace_name: str) -> None:
    """Counters, lists, truncations, other types and keys; the other tables go on."""
    keyspace, copy = keyspace_name, keyspace_name + COPY
    plain = table({"k": "int"}, regular={"v": "int"}, keyspace=keyspace, name="plain", table_id=UUID(int=1))
    counted = replace(
        table({"k": "int"}, regular={"v": "counter"}, keyspace=keyspace, name="counted"), flags=frozenset({"counter"})
    )
    listed = table({"k": "int"}, regular={"v": "list<int>"}, keyspace=keyspace, name="listed")
    other = table({"k": "int"}, regular={"v": "text"}, keyspace=keyspace, name="other")
    keyed = table({"k": "int"}, {"c": "int desc"}, keyspace=keyspace, name="keyed")
    again = replace(plain, id=UUID(int=2))
    truncation = truncate(plain, "a", 5)
    changes = [
        Log(plain).insert((1,), (), 10, v=1),
        Log(counted).update((1,), (), 10),
        Log(listed).update((1,), (), 10, v={"1": 1}),
        Log(other).insert((1,), (), 10, v="x"),
        Log(keyed).insert((1,), (1,), 10),
        truncation,
        Log(again).insert((1,), (), 10, v=1),
    ]
    piece = Piece(tuple(Delivered(RecordId(f"t.{one.table}", 0, at), one) for at, one in enumerate(changes)))
    letters = MemoryLetters()
    with cql(cassandra) as session, closing(opened(cassandra, lists="refuse", letters=letters)) as sink:
        sink.reach()
        with pytest.raises(ServiceError, match="the keyspace must exist"):
            write_here(sink, [piece])
        create_keyspace(session, copy)
        session.execute(f"CREATE TABLE {copy}.other (k int PRIMARY KEY, v int)")
        session.execute(f"CREATE TABLE {copy}.keyed (k int, c int, PRIMARY KEY (k, c))")
        assert write_here(sink, [piece]) == Summary(changes=1, rows=1, dead_letters=6)
        reasons = sorted((topic.rpartition(".")[2], reason) for topic, reason in letters.told())
        for (name, reason), words in zip(
            reasons,
            (
                ("counted", "counters cannot be written with a time"),
                ("keyed", "has another primary key than"),
                ("listed", 'lists = "map"'),
                ("other", "column v is int there, and text is to be written"),
                ("plain", "truncate the table there by hand"),
                ("plain", "was dropped and made again since"),
            ),
            strict=True,
        ):
            assert name == words[0]
            assert words[1] in reason
        session.execute(f"DROP KEYSPACE {copy}")


@pytest.mark.parametrize(
    ("there", "column", "value", "words"),
    [
        (
            ("CREATE TABLE {k}.t (k int, c int, v int, PRIMARY KEY (k, c))", "ALTER TABLE {k}.t DROP v"),
            "text",
            "x",
            "Cassandra refuses to make or widen it as",
        ),
        (
            ("CREATE TABLE {k}.t (k int, c int, v int STATIC, PRIMARY KEY (k, c))",),
            "int",
            1,
            "column v is static there, and not in",
        ),
        (
            ("CREATE TYPE {k}.addr (road text, zip int)",),
            "frozen<addr>",
            {"street": "Main", "zip": 5},
            "type addr has the fields road text, zip int there, and street text, zip int, ",
        ),
        (
            ("CREATE TYPE {k}.addr (street text, zip text)",),
            "frozen<addr>",
            {"street": "Main", "zip": 5},
            "type addr has the fields street text, zip text there, and street text, zip int, ",
        ),
    ],
    ids=["refused", "static", "fields", "types of fields"],
)
def test_a_table_that_cannot_be_followed_there_holds_up_no_other(
    cassandra: LocalCassandra, keyspace_name: str, there: tuple[str, ...], column: str, value: object, words: str
) -> None:
    keyspace, copy = keyspace_name, keyspace_name + COPY
    plain = table({"k": "int"}, regular={"v": "int"}, keyspace=keyspace, name="plain")
    other = table({"k": "int"}, {"c": "int"}, regular={"v": column}, keyspace=keyspace, name="t")
    changes = (Log(other).insert((1,), (1,), 10, v=value), Log(plain).insert((1,), (), 10, v=1))
    piece = Piece(tuple(Delivered(RecordId(f"t.{one.table}", 0, at), one) for at, one in enumerate(changes)))
    letters = MemoryLetters()
    with cql(cassandra) as session, closing(opened(cassandra, letters=letters)) as sink:
        create_keyspace(session, copy)
        for statement in there:
            session.execute(statement.replace("{k}", copy))
        assert write_here(sink, [piece]) == Summary(changes=1, rows=1, dead_letters=1)
        [letter] = letters.all
        assert letter.record_id.topic == f"t.{keyspace}.t"
        assert words in letter.reason
        session.execute(f"DROP KEYSPACE {copy}")


def test_a_change_that_the_cluster_takes_in_no_request_is_set_aside(
    cassandra: LocalCassandra, keyspace_name: str
) -> None:
    """Larger than its commit log takes, as the source's is larger; and of more statements than the protocol counts."""
    keyspace, copy = keyspace_name, keyspace_name + COPY
    plain = table({"k": "int"}, regular={"v": "text", "m": "map<int, int>"}, keyspace=keyspace, name="plain")
    log = Log(plain)
    edited = log.update((2,), (), 10, m={number: number for number in range(65_537)})
    cells = tuple(replace(cell, written=10 + number) for number, cell in enumerate(edited.cells))
    changes = (
        log.insert((0,), (), 10, v="before"),
        log.insert((1,), (), 10, v="x" * (700 << 10)),
        replace(edited, cells=cells),
        log.insert((3,), (), 10, v="x" * (2_500 << 10)),
        log.insert((4,), (), 10, v="behind"),
    )
    piece = Piece(tuple(Delivered(RecordId(f"t.{plain}", 0, at), one) for at, one in enumerate(changes)))
    letters = MemoryLetters()
    sized = opened(cassandra, letters=letters, largest_mutation_kibibytes=2_400)
    with cql(cassandra) as session, closing(sized) as sink:
        create_keyspace(session, copy)
        assert write_here(sink, [piece]) == Summary(changes=2, rows=2, dead_letters=3)
        large, wide, larger = letters.all
        assert [letter.record_id.offset for letter in letters.all] == [1, 2, 3]
        assert "2560016 bytes are more than largest_mutation_kibibytes, 2400" in larger.reason
        assert "exceeds allowed maximum of 524288 bytes" in large.reason
        assert "these are 65537 statements" in wide.reason
        session.execute(f"DROP KEYSPACE {copy}")


@pytest.mark.promise("cassandra.unwritable")
def test_its_own_source_is_never_written(cassandra: LocalCassandra, keyspace_name: str) -> None:
    with cql(cassandra) as session, closing(opened(cassandra, keyspace="{keyspace}")) as sink:
        create_keyspace(session, keyspace_name)
        session.execute(f"CREATE TABLE {keyspace_name}.t (k int PRIMARY KEY)")
        query = "SELECT id FROM system_schema.tables WHERE keyspace_name = %s"
        [row] = session.execute(query, (keyspace_name,))
        own = Log(table({"k": "int"}, keyspace=keyspace_name, table_id=row.id))
        piece = Piece((Delivered(RecordId("t.x", 0, 0), own.insert((1,), (), 10)),))
        with pytest.raises(SettingsError, match="is the source's own table"):
            write_here(sink, [piece])


NATIVE_TYPES = (
    "ascii", "bigint", "blob", "boolean", "date", "decimal", "double", "float", "inet", "int", "smallint", "text",
    "time", "timestamp", "timeuuid", "tinyint", "uuid", "varint",
)  # fmt: skip


@pytest.mark.promise("cassandra.select")
def test_all_rows_of_a_partition_are_deleted_by_whatever_type(cassandra: LocalCassandra, keyspace_name: str) -> None:
    """Those before some value of it, and those behind: Cassandra takes the bytes of each."""
    pair = (CqlType("int"), CqlType("text"))
    nested = {
        "list<int>": CqlType("list", pair[:1]), "set<int>": CqlType("set", pair[:1]),
        "map<int, text>": CqlType("map", pair), "tuple<int, text>": CqlType("tuple", pair),
        f"{keyspace_name}.pair": CqlType("udt", pair),
    }  # fmt: skip
    types = {**{name: CqlType(name) for name in NATIVE_TYPES}, **{f"frozen<{name}>": of for name, of in nested.items()}}
    with cql(cassandra) as session:
        create_keyspace(session, keyspace_name)
        session.execute(f"CREATE TYPE {keyspace_name}.pair (a int, b text)")
        for number, (name, of) in enumerate(types.items()):
            at = f"{keyspace_name}.t{number}"
            session.execute(f"CREATE TABLE {at} (p int, c {name}, s int STATIC, PRIMARY KEY (p, c))")
            known = table({"p": "int"}, {"c": "int"}, {"s": "int"}, {})
            known = replace(known, clustering=(replace(known.clustering[0], type=of),))
            first, second = slices(known, Bound((), True), Bound((), True))
            for sign, bound in (("<", first.upper), (">=", second.lower)):
                assert bound is not None
                delete = BoundStatement(session.prepare(f"DELETE FROM {at} WHERE p = ? AND c {sign} ?"))
                delete.values = [bytes(4), bound[0]]
                session.execute(delete)


@pytest.mark.promise("cassandra.select")
@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("by_tasks", [False, True], ids=["driver", "tasks"])
@pytest.mark.parametrize("kinds", [{"lasting": True}, {"apart": True}], ids=["times that meet", "what expires"])
def test_random_programs(trial: CopyTrial, kinds: dict[str, bool], *, by_tasks: bool) -> None:
    """Not both at once: of one cell with several TTLs at one microsecond the sink does not promise which one holds."""
    trial.by_tasks = by_tasks
    seed = secrets.randbits(32)
    sys.stderr.write(f"seeds {seed} to {seed + 2}\n")
    chosen = Kinds(counters=False, alterations=False, long_keys=False, **kinds)
    found = trial.random_programs(range(seed, seed + 3), lambda _: chosen, 300)
    assert all(one.equal for one in found), "\n".join(str(one) for one in found if not one.equal)
    assert sum(one.counts["rows"] for one in found) > 10
