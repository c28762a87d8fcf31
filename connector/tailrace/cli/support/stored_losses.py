"""The losses that `<prefix>.progress` has, for the commands that show or acknowledge them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tailrace.publish.kafka import KafkaTopics
from tailrace.publish.losses import ReportedLoss, decode_loss
from tailrace_common.cli.console import say
from tailrace_common.kafka import Record, TopicReader
from tailrace_common.settings import Settings
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.topics import Internal, internal_topic


@dataclass(frozen=True, slots=True)
class StoredLoss:
    """A loss, and the record that has it."""

    loss: ReportedLoss
    key: bytes
    value: bytes


def stored_losses(settings: Settings) -> tuple[StoredLoss, ...]:
    """The losses of the settings' prefix, the oldest first. Raises ServiceError."""
    topic, kafka = progress_topic(settings), settings.kafka.reveal()
    if topic not in known_topics(settings):
        return ()
    with TopicReader(kafka, topic, beginning=True) as reader:
        return losses_in(record for _, record in reader.read_to_end())


def losses_in(records: Iterable[Record]) -> tuple[StoredLoss, ...]:
    """The losses of `.progress`' records, the oldest first; the last record of a key counts."""
    newest = {record.key: record.value for record in records if record.key is not None}
    losses = []
    for key, value in newest.items():
        try:
            loss = None if value is None else decode_loss(key, value)
        except CorruptError as error:
            say(f"{error}; it is left out")
            continue
        if loss is not None and value is not None:
            losses.append(StoredLoss(loss, key, value))
    return tuple(sorted(losses, key=lambda stored_loss: (stored_loss.loss.seen, stored_loss.key)))


def chosen_losses(losses: Iterable[StoredLoss], host: str | None, *, all_: bool = False) -> tuple[StoredLoss, ...]:
    """Those of a host, where one is given; without `all_` those that nobody has acknowledged."""
    return tuple(
        stored for stored in losses if host in (None, stored.loss.host) and (all_ or stored.loss.acknowledged is None)
    )


def known_topics(settings: Settings) -> Mapping[str, int]:
    """Kafka's topics with their partitions. Raises ServiceError."""
    topics, _ = KafkaTopics(settings.kafka.reveal(), settings.topics, create=False).survey()
    return topics


def progress_topic(settings: Settings) -> str:
    """The topic that has losses."""
    return internal_topic(settings.topics.prefix, Internal.PROGRESS)
