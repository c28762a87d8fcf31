"""A node's keyspace whose agent runs, for streams that read snapshots. A module's tests have tables of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tailrace.cluster import Contact, LiveCluster
from tailrace.local import LocalCassandra, LocalKafka
from tests.integration.agents import AgentProcess, cql, create_keyspace, settings_for, start_here
from tests.integration.snapshot.following import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def place(
    cassandra: LocalCassandra, kafka: LocalKafka, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    prefix, keyspace, directory = f"t{uuid4().hex[:12]}", f"ks_{uuid4().hex[:12]}", tmp_path_factory.mktemp("place")
    contact = Contact(hosts=(cassandra.address,), port=cassandra.port)
    with closing(LiveCluster(contact)) as live, cql(cassandra, seconds=60) as session:
        create_keyspace(session, keyspace)
        start_here(session, cassandra, kafka, prefix, keyspace)
        settings = settings_for(cassandra, kafka, prefix, keyspace)
        settings["tables"]["include"] = [f"{keyspace}*.*"]  # random programs have keyspaces of their own
        with AgentProcess(directory, settings) as agent:
            agent.until_ready(180).until_covered(180)
            yield Place(session, cassandra, kafka, live, prefix, keyspace, spark, directory)
        session.execute(f"DROP KEYSPACE {keyspace}")
