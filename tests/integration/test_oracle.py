"""Random programs on a live node, agent and stream killed meanwhile: the databases show what SELECT answers."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tailrace.local import LocalCassandra, LocalKafka
from tests.integration.agents import cql
from tests.oracle.following import HereFollower, Sections
from tests.oracle.kinds import kinds_of
from tests.oracle.stream_trial import StreamTrial
from tests.oracle.trial import Ground
from tests.postgres import new_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def ground(cassandra: LocalCassandra, kafka: LocalKafka) -> Iterator[Ground]:
    """The run's services."""
    with cql(cassandra, seconds=60) as session:
        yield Ground(nodes=(cassandra,), kafka=kafka, session=session, reading=session)


def check(ground: Ground, spark: SparkSession, place: Path, name: str, *, programs: int, statements: int) -> None:
    """So many programs of fresh seeds in one trial."""
    seed = secrets.randbits(32)
    sys.stderr.write(f"seeds {seed} to {seed + programs - 1}, {statements} statements each\n")
    urls = [f"sqlite:///{place / 'sink.db'}", new_database()]

    def follow(sections: Sections) -> HereFollower:
        return HereFollower(spark, sections, urls)

    def direct(program: str) -> str:
        return f"sqlite:///{place / program}.db"

    with StreamTrial(ground, name, place / "trial", urls, direct, follow, Random(seed)) as trial:
        found = trial.random_programs(range(seed, seed + programs), kinds_of, statements)
    assert all(one.equal for one in found), "\n".join(str(one) for one in found if not one.equal)
    assert trial.kills


def test_a_few_programs(ground: Ground, spark: SparkSession, tmp_path: Path, prefix: str) -> None:
    check(ground, spark, tmp_path, prefix, programs=3, statements=200)
