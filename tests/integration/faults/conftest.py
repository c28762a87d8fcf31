"""A trial on the run's own Cassandra and Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.local import LocalCassandra, LocalKafka
from tests.integration.faults.trial import Trial, trial_on


@pytest.fixture
def trial(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> Iterator[Trial]:
    """A keyspace, and the prefix's agents to begin at this instant."""
    with trial_on(cassandra, kafka, prefix, keyspace_name, tmp_path) as trial:
        yield trial
