"""What people had in public, on the real services of tests/integration: each input as given, with the right outcome."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import cassandra, feed, kafka, keyspace_name, means, prefix, service_directory, spark

__all__ = ["cassandra", "feed", "kafka", "keyspace_name", "means", "prefix", "service_directory", "spark"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Their services live with py4j's habit of dropping sockets unclosed."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning"))
