"""What every client of Kafka here has in common: quiet logs, its first contact, its last error, plain words."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tailrace_common.properties.passthrough import Scalar
from tailrace_common.secrets import redact
from tailrace_common.unreachable import UnreachableError, connection_fault, start_or_fix
from tailrace_schemas.errors import ServiceError, SettingsError

Config = Mapping[str, Scalar]
Clock = Callable[[], float]
T = TypeVar("T")

LOG: Final = logging.getLogger("tailrace.publish")
# librdkafka's words for a fence, which it calls critical: its error reaches the caller, who says what to do.
# FATAL at a commit, TXNERR where the newer one started while partitions were added to the older one's transaction.
_FENCE: Final = re.compile(r"(FATAL|TXNERR) .*(fence|old epoch)", re.DOTALL)
# librdkafka logs every vain attempt to connect; what it says at last is in our own errors.
QUIET: Final[Config] = {"log_level": 2}
_ALL_DOWN: Final = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 - librdkafka's own codes are named so
_PATIENCE_SECONDS: Final = 3.0
# librdkafka's own error codes are documented, in spite of the underscore.
_NO_ANSWER: Final = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT)  # noqa: SLF001
_ADVICE: Final = "Is the broker up, and are bootstrap.servers, security.protocol and credentials right?"


def is_news(record: logging.LogRecord) -> bool:
    """Whether librdkafka says in a line of its log what no error of ours says."""
    return _FENCE.match(record.getMessage()) is None


LOG.addFilter(is_news)


class ClientErrors:
    """The last thing that librdkafka said of its connections: a wrong password shows nowhere else."""

    def __init__(self) -> None:
        self.last = ""
        self.all_down = False
        """Whether no broker could be connected to."""

    def __call__(self, error: KafkaError) -> None:
        if error.code() != _ALL_DOWN:
            self.last = redact(error.str())
            return
        self.all_down = True
        if not self.last:  # else the reason came before it
            self.last = f"{error.str()}: are bootstrap.servers and security.protocol right?"

    def __str__(self) -> str:
        return f"; the last error of its connections: {self.last}" if self.last else ""


def made(make: Callable[[], T]) -> T:
    """A client; librdkafka's complaint about one of [kafka]'s settings becomes ours."""
    try:
        return make()
    except KafkaException as exception:
        raise SettingsError(f"[kafka]: {redact(exception.args[0].str())}") from exception


def service_error(doing: str, error: KafkaError, errors: ClientErrors) -> ServiceError:
    """An error of Kafka's in our words: what was being done, what it says, and what its connections said last."""
    return ServiceError(f"Kafka: {doing}: {redact(error.str())}{errors}")


def offset_of(result: Any) -> int:
    """The offset in one partition's result of ListOffsets. Raises KafkaException where no broker has answered.

    librdkafka reports no error then, once the request's time is over, and OFFSET_INVALID in place of an offset.
    """
    if result.offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - librdkafka's own codes are named so
    return int(result.offset)


class AdminConnection:
    """An admin client for as long as a process lives, whatever its brokers do meanwhile.

    Connects when it is first used, and again after a fault; any thread may use it.
    """

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


class FirstContact:
    """The first request to a Kafka: a wrong address is an error within seconds, and a slow answer is said in the log.

    Asks until a client has its first answer; later requests have all of their time.

    A client whose brokers were there before waits longer: they may restart.
    """

    def __init__(self, config: Config, errors: ClientErrors, poll: Callable[[], object]) -> None:
        """`poll` has the client call `errors`."""
        self._servers = str(config.get("bootstrap.servers") or config.get("metadata.broker.list") or "no broker")
        self._errors = errors
        self._poll = poll
        self._answered = False

    def ask(self, request: Callable[[float], T], seconds: float) -> T:
        """The answer to `request`, which is given the seconds that it may take, and may be called twice.

        Raises UnreachableError where no broker can be connected to, or none answers in time, and what `request` does.
        Once there was an answer, one that does not come in time is a KafkaException, whichever way `request` says that.
        """
        if self._answered:
            return _asked(request, seconds)
        first = min(seconds, _PATIENCE_SECONDS)
        answer = self._try(request, first, last=first == seconds)
        if answer is None:
            answer = self._try(request, seconds - first, last=True)
        if answer is None:
            raise UnreachableError(f"Kafka at {self._servers}", f"no answer in {seconds:g} s{self._errors}", _ADVICE)
        self._answered = True
        return answer[0]

    def _try(self, request: Callable[[float], T], seconds: float, *, last: bool) -> tuple[T] | None:
        """The answer; None where there was none in time."""
        try:
            return (_asked(request, seconds),)
        except KafkaException as error:
            if error.args[0].code() not in _NO_ANSWER:
                raise
        self._poll()
        if self._errors.all_down:
            words = self._errors.last  # which names the broker
            remedy = start_or_fix("Kafka", "bootstrap.servers") if connection_fault(words) else _ADVICE
            raise UnreachableError(f"Kafka at {self._servers}", words, remedy)
        if not last:
            LOG.warning(
                "Kafka at %s (bootstrap.servers) has not answered for %g s; still waiting", self._servers, seconds
            )
        return None


def _asked(request: Callable[[float], T], seconds: float) -> T:
    """The answer. Raises KafkaException where none came in time: a future of librdkafka's has an error of Python's."""
    try:
        return request(seconds)
    except TimeoutError as error:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from error  # noqa: SLF001 - named so by librdkafka
