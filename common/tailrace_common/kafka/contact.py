"""The first request to a Kafka: a wrong address is an error within seconds, and a slow answer is said in the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from tailrace_common.kafka.client import LOG, ClientErrors, Config
from tailrace_common.unreachable import UnreachableError, connection_fault, start_or_fix

T = TypeVar("T")

_PATIENCE_SECONDS: Final = 3.0
# librdkafka's own error codes are documented, in spite of the underscore.
_NO_ANSWER: Final = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT)  # noqa: SLF001
_ADVICE: Final = "Is the broker up, and are bootstrap.servers, security.protocol and credentials right?"


class FirstContact:
    """Asks until a client has its first answer; later requests have all of their time.

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
        """
        if self._answered:
            return request(seconds)
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
            return (request(seconds),)
        except TimeoutError:
            pass
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
