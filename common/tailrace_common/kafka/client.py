"""What every client of Kafka here has in common: quiet logs, the last error of its connections, plain words."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from tailrace_common.properties.passthrough import Scalar
from tailrace_common.secrets import redact
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
