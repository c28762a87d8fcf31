"""Records in transactions, all or nothing, for one user of a transactional id; or without, each at least once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from tailrace_common.kafka.client import LOG, Clock, Config
from tailrace_common.kafka.errors import Answer, answer_to
from tailrace_common.kafka.outgoing import Sizes
from tailrace_common.kafka.pace import Pace
from tailrace_common.kafka.producer import KafkaProducer
from tailrace_schemas.errors import FencedError, ServiceError, SettingsError

# The next start aborts it anyway; this only spares readers the wait where Kafka answers.
_ABORT_SECONDS: Final = 1.0
# A call that waits longer keeps signals waiting; the next one goes on with it.
_CALL_SECONDS: Final = 0.5


MARK: Final = b"mark"
"""The key of a tombstone that is there for its transaction's mark alone; it says nothing."""


class KafkaTransactions(KafkaProducer):
    """Records in transactions: all or nothing, and for one user of a transactional id at a time.

    `home` is a topic of the id's user, which has to exist. `pace` says Kafka's limit for an open transaction when the
    producer is opened; without one it is `timeout`.
    `another` tells, where Kafka calls us fenced, whether a newer user of the id has started. Kafka says the same of a
    transaction that it ended for its age. `fenced` says then who that is, and what to do.
    """

    def __init__(
        self,
        config: Config,
        id: str,
        home: str,
        *,
        clock: Clock,
        timeout: int = 10,
        fenced: str | Callable[[], str],
        sizes: Sizes | None = None,
        another: Callable[[], bool] = lambda: True,
        pace: Pace | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(config, clock=clock, timeout=timeout, sizes=sizes, pace=pace, stop=stop)
        self._id = id
        self._home = home
        self._another = another
        self._fenced_words = fenced

    def open(self) -> None:
        """Fence an older user of the id, and end its transaction. Raises FencedError, ServiceError, SettingsError."""
        seconds = self._seconds = self._pace.seconds
        options = {
            "transactional.id": self._id,
            "transaction.timeout.ms": seconds * 1000,
            # A record that waits longer than its transaction may live cannot be committed any more.
            "message.timeout.ms": seconds * 800,
        }
        self._connect(options)
        # Until it has a connection, the client looks for the coordinator every half second only.
        self.partitions(self._home)
        try:
            self._again("starting transactions", lambda p: p.init_transactions(_CALL_SECONDS), 3 * self._timeout)
        except SettingsError as error:
            if seconds == self._pace.normal:
                raise
            self._pace.refused()
            raise ServiceError(
                f"Kafka allows no transactions of {seconds} s, which a large mutation needs: raise the brokers' "
                f"transaction.max.timeout.ms, or lower agent.longest_transaction_seconds. {error}"
            ) from error

    def begin(self) -> None:
        """Begin a transaction where none is open."""
        if self._began is None:
            self._refusals.clear()
            self._failures.clear()
            self._unsettled.clear()
            self._begin_measuring()
            try:
                self.call("beginning a transaction", lambda p: p.begin_transaction())
            except BaseException:
                self._began = None
                raise

    def settle(self) -> None:
        """In a transaction there is no before: readers get all of it at once."""

    def end(self) -> None:
        """Commit everything sent since the last commit. All or nothing."""
        self.begin()
        seconds = self._seconds + self._timeout
        self._again("committing a transaction", lambda p: p.commit_transaction(_CALL_SECONDS), seconds)
        self._learn_of_success()

    def mark(self, partitions: Iterable[tuple[str, int]], *, commit: bool) -> None:
        """End what Kafka left without a mark in these places, topics and partitions, of a transaction of this id.

        What a producer writes next belongs, to the broker, to what it has open there. So a tombstone is written to each
        place, under MARK, and the transaction that it is in is committed or aborted.
        """
        self.begin()
        for topic, partition in partitions:
            self.send_tombstone(topic, partition, MARK)
        self.acknowledge()
        if commit:
            self.end()
            return
        self._again("aborting a transaction", lambda p: p.abort_transaction(_CALL_SECONDS), 2 * self._timeout)
        self._began = None

    def close(self) -> None:
        """Give up what is not committed. A second agent would end our transaction anyway, so errors do not matter."""
        producer, is_open = self._producer, self._began is not None
        self._learn_of_failure()
        try:
            if producer is not None and is_open:
                producer.abort_transaction(_ABORT_SECONDS)
            super().close()
        except KafkaException as error:
            if answer_to(error.args[0].code()) is not Answer.FENCED:
                LOG.info("could not abort the open transaction; the next start aborts it: %s", error.args[0].str())
        self._producer = None

    def _fenced(self, doing: str, error: KafkaError) -> Exception:
        if self._began is not None and self._clock() - self._began >= self._seconds:
            return ServiceError(
                f"Kafka: {doing}: a transaction was open for longer than {self._seconds} s, and Kafka ended it: "
                f"{error.str()}"
            )
        if not self._another():
            return ServiceError(
                f"Kafka: {doing}: it ended our transactions, and no newer user of the id is known: {error.str()}"
            )
        words = self._fenced_words
        return FencedError(words if isinstance(words, str) else words())


class KafkaAppends(KafkaProducer):
    """Records without transactions, for owners who forbid them: each at least once.

    Records as they are sent, by an idempotent producer; `settle` and `end` return when Kafka has all of them.

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
        self.settle()
        self._learn_of_success()
