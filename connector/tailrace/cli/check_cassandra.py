"""`tailrace check` of Cassandra: whether the node answers, and what follows for settings, tables, ring and mirror."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

from tailrace.cli.agent import contact_of
from tailrace.cli.check_node import check_node
from tailrace.cli.check_tables import check_tables
from tailrace.cli.node_settings import read_node_settings
from tailrace.cluster import LiveCluster, LocalNode
from tailrace_common.checks import Check
from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.ring import RingError

_EPOCHS: Final = (
    "each write names the epoch of its definition; DDL is read from the log, where the node tells of its epochs there "
    "(6.0-alpha2 does), else from this node, and then changes are marked schema_inferred, and /status says so"
)


def check_cassandra(settings: Settings) -> Iterator[Check]:
    """The node: it answers, computes tokens as we do, has CDC on, and tables that use it.

    What cannot be looked at is a row that fails, and hides no other one.
    """
    try:
        cluster = LiveCluster(contact_of(settings.cluster))
    except (ServiceError, SettingsError) as error:
        yield Check("cassandra", False, str(error), "see [cluster]; is the node up, and its native transport on?")
        return
    with closing(cluster):
        try:
            node = cluster.check()
        except (ServiceError, SettingsError) as error:
            yield Check("cassandra", False, str(error), "see [cluster]")
            return
        yield Check("cassandra", True, f"{node.release}, {node.cluster}, {node.datacenter}, host id {node.host}")
        for name, look in _parts(settings, cluster, node).items():
            try:
                yield from look()
            except (ServiceError, SettingsError, RingError) as error:
                yield Check(name, False, f"cannot be looked at: {error}", "docs/security.md 2 has the rights it takes")


def _parts(settings: Settings, cluster: LiveCluster, node: LocalNode) -> dict[str, Callable[[], Iterator[Check]]]:
    """What to look at, by the name of the row that says where that fails."""
    return {
        "node settings": lambda: check_node(settings, read_node_settings(cluster, node.release)),
        "tables": lambda: check_tables(settings, cluster.definitions().tables),
        "ring": lambda: _check_ring(cluster),
        "metadata epochs": lambda: _check_epochs(cluster),
    }


def _check_ring(cluster: LiveCluster) -> Iterator[Check]:
    ring = cluster.ring()
    moving = sorted(node.host for node in ring.nodes if not node.normal)
    detail = f"{len(ring.nodes)} nodes, {len(ring.tokens)} tokens"
    advice = f"{', '.join(moving)}: joins, leaves or moves; its generation is proposed once that is over"
    yield Check("ring", True, detail, advice if moving else "")


def _check_epochs(cluster: LiveCluster) -> Iterator[Check]:
    epoch = cluster.node_state().metadata
    if epoch is not None:
        yield Check("metadata epochs", True, f"epoch {epoch}: {_EPOCHS}")
