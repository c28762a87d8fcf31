"""Random programs on live nodes, agent and stream killed meanwhile: the databases show what SELECT answers."""

from __future__ import annotations

import secrets
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from cassandra import ConsistencyLevel

from tailrace.local import LocalCassandra, LocalKafka
from tests import mariadb, postgres
from tests.corpus.kinds import Kinds
from tests.integration.agents import cql
from tests.integration.rings import LiveRing
from tests.oracle.following import HereFollower, Sections
from tests.oracle.kinds import finite_kinds_of, kinds_of, lasting_kinds_of
from tests.oracle.stream_trial import StreamTrial
from tests.oracle.trial import Ground
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Check = Callable[[Sequence[LocalCassandra], type[StreamTrial], int, int, Sequence[str]], StreamTrial]


@pytest.fixture
def check(spark: SparkSession, kafka: LocalKafka, prefix: str, tmp_path: Path) -> Check:
    """Runs so many programs of so many statements, of fresh seeds, into SQLite and other databases; what ran them."""

    def run(
        nodes: Sequence[LocalCassandra], kind: type[StreamTrial], programs: int, statements: int, others: Sequence[str]
    ) -> StreamTrial:
        seed = secrets.randbits(32)
        sys.stderr.write(f"seeds {seed} to {seed + programs - 1}, {statements} statements each\n")
        urls = [f"sqlite:///{tmp_path / 'sink.db'}", *others]
        kinds: Callable[[int], Kinds] = finite_kinds_of if any("mysql" in url for url in others) else kinds_of
        if len(nodes) > 1:
            kinds = lasting_kinds_of

        def follow(sections: Sections) -> HereFollower:
            return HereFollower(spark, sections, urls)

        def direct(program: str) -> str:
            return f"sqlite:///{tmp_path / program}.db"

        with ExitStack() as stack:
            session = stack.enter_context(cql(nodes[0]))
            reading = stack.enter_context(cql(nodes[0], ConsistencyLevel.ALL, 60))
            ground = Ground(nodes=tuple(nodes), kafka=kafka, session=session, reading=reading)
            made = kind(ground, prefix, tmp_path / "trial", urls, direct, follow, Random(seed))
            trial = stack.enter_context(made)
            found = trial.random_programs(range(seed, seed + programs), kinds, statements)
        assert all(one.equal for one in found), "\n".join(str(one) for one in found if not one.equal)
        assert sum(one.counts["rows"] for one in found) > statements * programs / 50
        return trial

    return run


def test_a_few_programs(check: Check, cassandra: LocalCassandra) -> None:
    trial = check([cassandra], StreamTrial, 3, 150, [postgres.new_database()])
    assert trial.kills.total()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_more_programs_into_every_database(check: Check, cassandra: LocalCassandra) -> None:
    others = [postgres.new_database()]
    if not mariadb.missing():
        others.append(mariadb.new_database())
    trial = check([cassandra], StreamTrial, 10, 500, others)
    assert trial.kills.total()


class _NodeDown(StreamTrial):
    """The last node is killed, comes back when others have hints for it, and has them before the last mark."""

    def _disturb(self, over: threading.Event) -> None:
        first, last = self._ground.nodes[0], self._ground.nodes[-1]
        over.wait(5)
        last.kill()
        until(lambda: bool(_hints(first)), "hints")
        self._kill_one()
        last.start()
        self.kills["node"] += 1
        assert over.wait(600)
        until(lambda: not any(map(_hints, self._ground.nodes)), "the hints to be taken", 120)
        self.mark()


def _hints(node: LocalCassandra) -> list[Path]:
    return [path for path in (node.directory / "data" / "hints").glob("*.hints") if path.stat().st_size]


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("as_processes")
def test_three_nodes_one_of_them_down_for_a_while(check: Check, kafka: LocalKafka, prefix: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        ring = LiveRing(tmp_path, kafka, prefix, {}, stack)
        nodes = [ring.add_node() for _ in range(3)]
        trial = check(nodes, _NodeDown, 4, 250, [postgres.new_database()])
    assert trial.kills["node"] == 1
