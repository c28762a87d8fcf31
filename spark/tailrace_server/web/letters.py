"""Dead letters of a subscription's sink: what it set aside, and another try for it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from tailrace_common.kafka import RecordFetcher
from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model.errors import ConflictError
from tailrace_server.model.subscription import Subscription
from tailrace_server.worker.settings import stream_settings
from tailrace_spark.batch.delivery import DeadLetter, RecordId
from tailrace_spark.job.replay import ReplayCounts, all_letters, replay_letters
from tailrace_spark.shaping import shape_of
from tailrace_spark.sinks.letters import LetterReader, LetterTopic
from tailrace_spark.sinks.registry import sink_of
from tailrace_spark.source.decode import pieces

MOST: Final = 200


@dataclass(frozen=True, slots=True)
class Letters:
    """The first letters of a sink. `replayable`: the page may replay them."""

    letters: tuple[DeadLetter, ...] = ()
    more: bool = False
    replayable: bool = True


class LetterBoxes:
    """The letters of subscriptions; sinks are opened in this process, and for the moment of a replay."""

    def __init__(self, settings: Settings, subscriptions: Subscriptions) -> None:
        self._settings = settings
        self._subscriptions = subscriptions

    def read(self, subscription: Subscription) -> Letters:
        """Raises ServiceError where Kafka does not answer. From then on so many are shown as are there."""
        counted = self._counted(subscription)
        with LetterReader(LetterTopic.of(self._settings, subscription.sink_name)) as box:
            letters = tuple(islice(all_letters(box), MOST + 1))
        if len(letters) <= MOST:
            self._subscriptions.count_letters(subscription.id, counted, len(letters))
        return Letters(letters[:MOST], len(letters) > MOST, _replayable(subscription))

    def replay(self, subscription: Subscription) -> ReplayCounts:
        """Write all again; the worker may write meanwhile. Raises ConflictError, SettingsError, ServiceError."""
        if not _replayable(subscription):
            raise ConflictError(
                f"{subscription.reference}: letters of log tables are not replayed here; "
                f"`tailrace subscriptions {subscription.reference} --letters --replay` does it"
            )
        counted, name = self._counted(subscription), subscription.sink_name
        settings = stream_settings(self._settings, subscription, "unused")
        with (
            LetterReader(LetterTopic.of(settings, name)) as box,
            closing(sink_of(settings, name)) as sink,
            SchemaReader(settings.kafka.reveal(), settings.topics.prefix) as schemas,
            RecordFetcher(settings.kafka.reveal()) as records,
        ):
            sink.reach()
            decoded = partial(pieces, schemas=schemas, early=settings.stream.accept_early)
            shape = shape_of(settings.stream, sink)
            shaped = decoded if shape is None else lambda batch: shape.shaped(decoded(batch))

            def fetch(record_id: RecordId) -> bytes | None:
                return records.value(*record_id.key)

            done = sum(replay_letters(box, sink, shaped, fetch), ReplayCounts())
        self._subscriptions.count_letters(subscription.id, counted, done.again + done.left)
        return done

    def _counted(self, subscription: Subscription) -> int:
        _, deliveries = self._subscriptions.deliveries([subscription.id])
        return deliveries[subscription.id].letters


def _replayable(subscription: Subscription) -> bool:
    return subscription.sink.type != "log-tables"
