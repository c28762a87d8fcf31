"""Where partitions of Kafka end, for numbers that may be missing: one request, and no wait for what does not answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its __all__ forgets it

from tailrace_common.kafka.client import LOG, QUIET, ClientErrors, made, service_error
from tailrace_common.passthrough import Scalar

_SECONDS: Final = 3.0
_Place = tuple[str, int]


class PartitionEnds:
    """Asks for the ends of what is committed. It connects when it is first asked; any thread may ask."""

    def __init__(self, config: Mapping[str, Scalar], *, timeout: float = _SECONDS) -> None:
        """`config` is librdkafka's; `timeout` is how long an answer may take, in seconds."""
        self._config = config
        self._timeout = timeout
        self._errors = ClientErrors()
        self._client: AdminClient | None = None

    def of(self, places: Collection[_Place]) -> dict[_Place, int]:
        """The offset behind the last committed record of each topic and partition. Raises ServiceError."""
        if not places:
            return {}
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # theirs
        try:
            asked = self._admin().list_offsets(
                {TopicPartition(*place): latest for place in places},
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=self._timeout,
            )
            return {(where.topic, where.partition): int(found.result().offset) for where, found in asked.items()}
        except KafkaException as error:
            self._admin().poll(0)  # calls error_cb, which knows why
            raise service_error("asking where partitions end", error.args[0], self._errors) from error

    def _admin(self) -> AdminClient:
        if self._client is None:
            own: dict[str, Any] = {"error_cb": self._errors}
            self._client = made(lambda: AdminClient({**QUIET, **self._config, **own}, logger=LOG))
        return self._client
