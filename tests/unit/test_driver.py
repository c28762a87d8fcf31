"""What Cassandra's driver brings into a process, and what it is kept from bringing."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from tailrace.cluster import LiveCluster
from tailrace.driver import driver_of_node
from tailrace_common.cassandra_driver import driver
from tailrace_common.sections.cassandra import CassandraSettings
from tailrace_schemas.errors import ServiceError

AGENT = """
import sys
import tailrace.cli.agent
assert "cassandra.cluster" in sys.modules
assert "numpy" not in sys.modules
import numpy
assert numpy.int64(2) == 2
"""
AFTER = """
import sys
import numpy
import tailrace.driver
assert sys.modules["numpy"] is numpy
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [AGENT, AFTER], ids=["agent", "numpy first"])
def test_an_agent_does_without_numpy_and_keeps_it_from_nobody(program: str) -> None:
    """It takes 12 MB, in every agent of an installation that has Spark's half too."""
    pytest.importorskip("numpy")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.promise("agent.no-connection-at-start", "agent.no-connection")
def test_a_node_s_name_is_looked_up_for_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is not known yet is an outage; and later ones do not go to the address that it had at first."""
    asked = list[str]()

    def look_up(host: str, *_: object, **__: object) -> list[object]:
        asked.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(ServiceError, match=r"Cannot connect to Cassandra at node:9042 \(unknown host\)"):
        LiveCluster(CassandraSettings(contact_points=("node",)))
    cluster = driver_of_node(CassandraSettings(contact_points=("node",)), lambda _: None, lambda *_: None)
    with pytest.raises(ServiceError, match="unknown host"):
        driver(CassandraSettings(contact_points=("node", "other")), None, None)
    before = len(asked)
    with suppress(socket.gaierror):
        cluster.connection_factory(cluster.endpoints_resolved[0])
    assert asked[before:] == ["node"]
