"""Records without transactions, for owners who forbid them: each at least once."""

from __future__ import annotations

from tailrace_common.kafka.producer import KafkaProducer


class KafkaAppends(KafkaProducer):
    """Records as they are sent, by an idempotent producer; `settle` and `end` return when Kafka has all of them.

    Readers see each record at once, also those whose offsets record never comes: these are sent again after a crash.
    """

    def open(self) -> None:
        """Set up the client; it connects by itself. Raises SettingsError."""
        self._seconds = self._pace.seconds
        self._connect({"enable.idempotence": True, "message.timeout.ms": self._seconds * 1000})

    def begin(self) -> None:
        """Nothing begins for readers; only how long it takes is measured from here on."""
        if self._began is None:
            self._begin_measuring()

    def settle(self) -> None:
        """Wait until Kafka has everything sent. Raises ServiceError, RefusedError where it has not."""
        self.acknowledge()
        self._unsettled.clear()

    def end(self) -> None:
        """As `settle`."""
        self.settle()
        self._learn_of_success()
