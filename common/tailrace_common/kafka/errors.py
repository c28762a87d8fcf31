"""What Kafka's errors mean for a producer: one table from error codes to what is done."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from confluent_kafka import KafkaError


class Answer(Enum):
    """What is done about an error. Nothing is ever skipped: what was not committed is read from the log again."""

    RETRY = "make the same call again"
    RENEW = "end the transaction, and start over with a new producer from what Kafka has"
    FENCED = "find out whether another agent has started; else as RENEW"
    REFUSED = "Kafka takes nothing for that topic until somebody acts: its table alone waits"
    SETTINGS = "no new start can cure it: the settings have to be changed"


# librdkafka's own codes are documented, in spite of the underscore.
_TABLE: Final[Mapping[Answer, tuple[int, ...]]] = {
    Answer.FENCED: (
        KafkaError._FENCED,  # noqa: SLF001
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,  # Kafka's own end of a transaction that was open for too long, as well
    ),
    Answer.REFUSED: (
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError.UNKNOWN_TOPIC_OR_PART,  # deleted: a topic that is only not known yet was waited for before
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.INCONSISTENT_TOPIC_ID,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    ),
    Answer.SETTINGS: (
        KafkaError._INVALID_ARG,  # noqa: SLF001
        KafkaError._NOT_CONFIGURED,  # noqa: SLF001
        KafkaError._UNSUPPORTED_FEATURE,  # noqa: SLF001
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.UNSUPPORTED_VERSION,
    ),
    Answer.RETRY: (
        KafkaError.CONCURRENT_TRANSACTIONS,  # the one before is still being ended
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._CONFLICT,  # noqa: SLF001  # the same call is still under way
    ),
    Answer.RENEW: (
        KafkaError._FATAL,  # noqa: SLF001
        KafkaError._STATE,  # noqa: SLF001
        KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
        KafkaError._GAPLESS_GUARANTEE,  # noqa: SLF001
        KafkaError._INCONSISTENT,  # noqa: SLF001
        KafkaError._PURGE_QUEUE,  # noqa: SLF001
        KafkaError._PURGE_INFLIGHT,  # noqa: SLF001
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.DUPLICATE_SEQUENCE_NUMBER,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.TRANSACTION_ABORTABLE,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
        KafkaError.OPERATION_NOT_ATTEMPTED,
        KafkaError.INVALID_MSG,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.KAFKA_STORAGE_ERROR,
        # Rights and passwords come back without our doing, and the message says which are missing.
        KafkaError._AUTHENTICATION,  # noqa: SLF001
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    ),
}
ANSWERS: Final[Mapping[int, Answer]] = MappingProxyType(
    {code: answer for answer, codes in _TABLE.items() for code in codes}
)
"""Error code -> answer, for the codes whose meaning does not depend on what the client makes of them."""


def answer_to(code: int, *, retriable: bool = False, abort: bool = False, fatal: bool = False) -> Answer:
    """What to do about an error, by its code and by what librdkafka says of it (`txn_requires_abort` is `abort`).

    A call is made again only where librdkafka holds the producer and its transaction for sound.
    """
    answer = ANSWERS.get(code)
    if answer in (Answer.FENCED, Answer.REFUSED, Answer.SETTINGS):
        return answer
    if abort or fatal or answer is Answer.RENEW:
        return Answer.RENEW
    return Answer.RETRY if retriable or answer is Answer.RETRY else Answer.RENEW
