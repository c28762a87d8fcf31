"""`tailrace compare`: what differs is found, in flight is told apart, and repair makes the copy what SELECT answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
import sqlalchemy as sa
from cassandra.cluster import Session

from tailrace.cluster import LiveCluster
from tailrace.local import LocalCassandra
from tailrace_common.backoff import Timing
from tailrace_common.settings import Settings
from tailrace_schemas.change import Change
from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.cli.support import read_settings
from tailrace_spark.comparison.rows import Kind
from tailrace_spark.comparison.run import Comparison, Granularity, repair
from tailrace_spark.comparison.source import source_rows
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.corpus.kinds import Kinds
from tests.corpus.release import dialect_of
from tests.integration.agents import contact_of_node, cql, create_keyspace
from tests.integration.processes import PROGRAM
from tests.integration.snapshot.comparing import UNSEEN, require_repaired, run_here, told, write_source, write_unseen
from tests.oracle.comparison import Downstream, ask, differences
from tests.oracle.writing import Source, Writer
from tests.services.class_archive import quick_java_lines

KINDS = Kinds(counters=False, tied=True, sparing=True, ahead=False, expiries=False, long_keys=False)
DEFAULT = Granularity()
Waiting = Callable[[float], None]


@dataclass
class Copy:
    """A table of a node, a SQL sink, and ways to compare them."""

    node: LocalCassandra
    session: Session
    keyspace: str
    url: str
    sink: SqlSink
    waits: list[float] = field(default_factory=list)

    def run(self, statement: str) -> None:
        self.session.execute(statement.replace("KS.", f"{self.keyspace}."))

    def comparison(
        self,
        table: str = "t",
        waiting: Waiting | None = None,
        grace: float = 5.0,
        granularity: Granularity = DEFAULT,
        **options: object,
    ) -> Comparison:
        settings = Settings.model_validate({"cluster": {"contact_points": [self.node.address], "port": self.node.port}})
        asked = {"consistency": "ONE", "concurrent_ranges": 2, "ranges": 4, "page_rows": 50, **options}
        reading = read_settings(settings, table=f"{self.keyspace}.{table}", rows="changes", **asked)
        wait = waiting or self.waits.append
        return Comparison(reading, self.sink, run_here, Timing(time.time, wait), grace, granularity)

    def changes(self, table: str = "t") -> list[Change]:
        """What a snapshot of the table would give a sink."""
        comparison = self.comparison(table)
        splits = comparison._survey.splits()
        return [row.change for row in source_rows(comparison.source, splits, 1)]

    def deliver(self, changes: Sequence[Change]) -> None:
        delivered = [Delivered(RecordId("t", 0, offset), change) for offset, change in enumerate(changes)]
        write_here(self.sink, [Piece(tuple(delivered))])

    def execute(self, statement: str) -> int:
        engine = sa.create_engine(self.url)
        with engine.begin() as connection:
            count = connection.exec_driver_sql(statement.replace("KS_", f"{self.keyspace}_")).rowcount
        engine.dispose()
        return count


@pytest.fixture
def copy(cassandra: LocalCassandra, keyspace_name: str, tmp_path: Path) -> Iterator[Copy]:
    url = f"sqlite:///{tmp_path / 'copy.db'}"
    with ExitStack() as stack:
        session = stack.enter_context(cql(cassandra))
        create_keyspace(session, keyspace_name)
        stack.callback(session.execute, f"DROP KEYSPACE IF EXISTS {keyspace_name}")
        sink = stack.enter_context(closing(SqlSink(url)))
        yield Copy(cassandra, session, keyspace_name, url, sink)


def filled(copy: Copy) -> Copy:
    """A table with static columns and collections, and its copy."""
    write_source(copy.run)
    copy.deliver(copy.changes())
    return copy


@pytest.mark.promise("compare.finds", "compare.repairs")
def test_each_kind_of_difference_is_told_with_key_and_columns_and_repaired(copy: Copy) -> None:
    filled(copy)
    # The stream has lost these; the times are older than the grace.
    write_unseen(copy.run)
    # Somebody has changed what readers see.
    assert copy.execute("DELETE FROM KS_t__rows WHERE k = 6 AND c = 1") == 1
    comparison = copy.comparison()
    compared = comparison.compare()
    assert told(compared.differences) == {*UNSEEN, (6, 1, Kind.MISSING, ())}
    assert copy.waits == [5.0]
    require_repaired(comparison, compared, copy.comparison)
    store = Downstream(copy.url)
    with closing(store):
        assert differences(ask(copy.session, [comparison.table]), store) == []


def test_ranges_that_differ_are_narrowed_until_the_driver_can_hold_their_rows(copy: Copy) -> None:
    write_unseen(filled(copy).run)
    assert told(copy.comparison(granularity=Granularity(16, 21)).compare().differences) == UNSEEN
    with pytest.raises(ServiceError, match=r"rows are in ranges that differ, .* at most 20 .*--range"):
        copy.comparison(granularity=Granularity(16, 20)).compare()


@pytest.mark.promise("compare.in-flight")
def test_what_comes_within_the_grace_is_no_difference(copy: Copy) -> None:
    filled(copy)
    copy.run("UPDATE KS.t USING TIMESTAMP 2000 SET v = 'late' WHERE k = 1 AND c = 0")
    copy.run("DELETE FROM KS.t USING TIMESTAMP 2000 WHERE k = 3 AND c = 2")
    copy.run("UPDATE KS.t SET v = 'now' WHERE k = 7 AND c = 0")

    def arrive(seconds: float) -> None:
        assert seconds == 5.0
        copy.deliver([change for change in copy.changes() if change.key == (1).to_bytes(4, "big")])

    compared = copy.comparison(waiting=arrive).compare()
    assert {item.shown for item in compared.differences.values()} == {(3, 2)}
    assert compared.in_flight == 1


@pytest.mark.long
@pytest.mark.promise("compare.finds", "compare.repairs")
@pytest.mark.parametrize("seed", [1, 4])
def test_random_programs_differ_where_changes_were_lost_and_are_equal_again(
    node: LocalCassandra, keyspace_name: str, tmp_path: Path, seed: int
) -> None:
    contact = contact_of_node(node)
    url, random = f"sqlite:///{tmp_path / 'copy.db'}", Random(seed)
    store = Downstream(url)
    with (
        closing(LiveCluster(contact)) as live,
        cql(node) as session,
        closing(SqlSink(url)) as sink,
        closing(store),
    ):
        writer = Writer(Source(session, live), keyspace_name, dialect_of(node.settings.release))
        writer.write(seed, KINDS, 300)
        copy = Copy(node, session, keyspace_name, url, sink)
        for table in writer.present:
            changes = copy.changes(table.name)
            copy.deliver([change for change in changes if random.random() < 0.6])
            comparison = copy.comparison(table.name, grace=0.0)  # what was written a moment ago counts too
            compared = comparison.compare()
            lost = differences(ask(session, [table]), store)
            assert bool(compared.differences) is bool(lost)
            assert repair(comparison, compared, remove=True, now=int(time.time())) == {}
        assert differences(ask(session, writer.present), store) == []
        session.execute(f"DROP KEYSPACE {keyspace_name}")


def test_the_command_lists_what_differs_and_ends_with_4(copy: Copy, tmp_path: Path) -> None:
    filled(copy)
    copy.run("UPDATE KS.t USING TIMESTAMP 2000 SET v = 'new' WHERE k = 1 AND c = 0")
    copy.run("CREATE TABLE KS.equal (k int PRIMARY KEY)")
    copy.run("INSERT INTO KS.equal (k) VALUES (1)")
    copy.deliver(copy.changes("equal"))
    config = tmp_path / "tailrace.toml"
    config.write_text(
        f'[cluster]\ncontact_points = ["{copy.node.address}"]\nport = {copy.node.port}\n'
        f'[sink.local]\nurl = "{copy.url}"\n[stream.spark]\n"spark.master" = "local[2]"\n'
        f"{quick_java_lines()}"
    )

    tables = (f"{copy.keyspace}.t", f"{copy.keyspace}.equal")

    def command(*options: str) -> tuple[int, list[dict[str, object]], str]:
        words = ("compare", *tables, "-c", str(config), "--grace", "0", "--consistency", "one", *options)
        ended = subprocess.run(
            [sys.executable, *PROGRAM, *words], capture_output=True, text=True, timeout=600, check=False,
            env={**os.environ},
        )  # fmt: skip
        return ended.returncode, [json.loads(line) for line in ended.stdout.splitlines()], ended.stderr

    row = {"table": f"{copy.keyspace}.t", "key": {"k": 1, "c": 0}, "static": False}
    code, lines, words = command()
    assert (code, lines) == (4, [{**row, "difference": "different", "columns": ["v"]}]), words
    assert f"{tables[1]}: 1 rows and static rows read, 0 differ" in words
    code, lines, words = command("--repair")
    assert (code, [line["repaired"] for line in lines]) == (0, [True]), words
    assert "1 repaired, 0 differ still" in words
