"""An admin client for as long as a process lives, whatever its brokers do meanwhile."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tailrace_common.kafka.client import LOG, QUIET, ClientErrors, Config, made, service_error
from tailrace_schemas.errors import ServiceError


class AdminConnection:
    """Connects when it is first used, and again after a fault; any thread may use it."""

    def __init__(self, config: Config) -> None:
        """`config` is librdkafka's."""
        self._config = dict(config)
        self.errors: Final = ClientErrors()
        self._client: AdminClient | None = None

    def client(self) -> AdminClient:
        """The client. Raises SettingsError for a property that librdkafka refuses."""
        client = self._client
        if client is None:
            callbacks: dict[str, Any] = {"error_cb": self.errors}
            client = self._client = made(lambda: AdminClient({**QUIET, **self._config, **callbacks}, logger=LOG))
        return client

    def fault(self, doing: str, error: KafkaException) -> ServiceError:
        """An error in our words. The next request is a new client's.

        A client keeps what it knows of leaders for minutes, and a broker that restarted refuses that
        (FENCED_LEADER_EPOCH).
        """
        client, self._client = self._client, None
        if client is not None:
            client.poll(0)  # calls error_cb, which knows why
        return service_error(doing, error.args[0], self.errors)
