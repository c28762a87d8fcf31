"""Topics of a Kafka that does not answer: an error that the agent waits out, in the time that it was given."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tailrace.publish.kafka.topics import KafkaTopics
from tailrace_common.settings import TopicSettings
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.topics import Internal

pytestmark = pytest.mark.slow  # each waits for a second


@pytest.fixture
def topics() -> Iterator[KafkaTopics]:
    """Of a broker that takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        yield KafkaTopics({"bootstrap.servers": f"127.0.0.1:{port}"}, TopicSettings(prefix="p"), timeout=1)


def test_settings_that_are_not_told_are_an_error_of_the_service(topics: KafkaTopics) -> None:
    with pytest.raises(ServiceError, match=r"^Kafka: settings of topic p\.x: .*[Tt]imed out"):
        topics.in_sync(["p.x"])


def test_limits_that_are_not_told_stay_as_they_were(topics: KafkaTopics) -> None:
    topics.refresh_limits([Internal.OFFSETS])
    assert topics.limits == {}
