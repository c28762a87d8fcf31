"""The copies of a schema change that the nodes of a ring tell of: one digest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.capture.cdcraw import Signal, Watch
from tailrace.cluster import LiveCluster
from tailrace.history.events import EventKind
from tailrace.local import CassandraSettings, LocalCassandra
from tailrace.schema.ddl_log import SchemaLog
from tailrace.schema.live import LiveSchema
from tailrace.segments.kept import KeptSegments
from tailrace.state import Resume
from tests.integration.agents import contact_of_node, cql, create_keyspace
from tests.services.choice import Means
from tests.support.waiting import until

pytestmark = pytest.mark.long

STATEMENTS = (
    "CREATE TYPE ks.u (a int)",
    "CREATE TABLE ks.t (k int, c int, v text, home frozen<u>, PRIMARY KEY (k, c)) WITH cdc = true",
    "ALTER TABLE ks.t ADD w int",
    "ALTER TABLE ks.t WITH cdc = false",
    "ALTER TABLE ks.t WITH cdc = true",
    "ALTER TYPE ks.u ADD b int",
    "ALTER TABLE ks.t RENAME c TO d",
    "ALTER TABLE ks.t DROP w",
    "DROP TABLE ks.t",
    "DROP KEYSPACE ks",
)


@contextmanager
def schema_of(node: LocalCassandra) -> Iterator[LiveSchema]:
    """What an agent beside the node would know, from now on."""
    contact, kept = contact_of_node(node), KeptSegments()
    with (
        closing(LiveCluster(contact)) as cluster,
        closing(SchemaLog(node.cdc_raw, kept)) as log,
        Watch(node.cdc_raw, Signal(), kept.keep),
    ):
        schema = LiveSchema(cluster, log)
        schema.learn()
        schema.begin((), Resume(), 1)
        schema.follow(None)  # holds the present segment open, DROP ends it
        yield schema


@pytest.mark.parametrize("release", ["5.0", "6.0"])
def test_copies_have_one_digest(means: Means, tmp_path: Path, release: str) -> None:
    """Of keyspaces, types and tables, whatever each node had read before."""
    if means is Means.CONTAINERS:
        pytest.skip("the versions are run as child processes")
    small = CassandraSettings(release=release, heap_mib=384)
    with ExitStack() as stack:
        one = stack.enter_context(LocalCassandra(tmp_path / "one", small))
        other = replace(
            small, address="127.0.0.2", storage_port=one.storage_port, seeds=(one.address,), ring_delay_ms=5000
        )
        two = stack.enter_context(LocalCassandra(tmp_path / "two", other))
        schemas = [stack.enter_context(schema_of(node)) for node in (one, two)]
        with cql(one) as session:
            create_keyspace(session, "ks")
            for statement in STATEMENTS:
                session.execute(statement, timeout=60)

        def told() -> list[list[str]]:
            for schema in schemas:
                schema.follow(None)
            return [[event.digest.hex() for event in schema.events if event.keyspace == "ks"] for schema in schemas]

        until(lambda: all(len(found) == 13 for found in told()), "13 events from each", state=told)
        first, second = told()
        assert first == second, [[(str(one), one.written, one.inferred) for one in s.events] for s in schemas]
        assert len(set(first)) == len(first)
        assert [one.kind for one in schemas[0].events if one.keyspace == "ks"][-1] is EventKind.DROPPED
