"""Publishes what the outbox has, from one server at a time."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

from tailrace_common.closing import Closing
from tailrace_common.kafka import KafkaTransactions, Sizes
from tailrace_common.kafka.topics import TopicMaker
from tailrace_common.settings import Settings
from tailrace_common.unreachable import with_next_try
from tailrace_schemas.errors import FencedError, TailraceError
from tailrace_schemas.topics import Internal, internal_plan, internal_topic
from tailrace_server.meta.mirroring import Outbox
from tailrace_server.mirror.records import last_record, record_of

log = logging.getLogger("tailrace_server")

_MOST: Final = 200
_BEAT_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 10.0
_REFRESH_SECONDS: Final = 300.0


class Mirror(Closing):
    """The publisher of one server. `beat` is called every second or so, by one thread.

    Whoever publishes has a transactional id to itself, and reads the outbox after that. An earlier publisher that is
    still at work is fenced. So the last record of a subscription is its last state.
    """

    def __init__(self, outbox: Outbox, settings: Settings, owner: str, *, clock: Callable[[], float]) -> None:
        """`clock` is monotonic, in seconds. Nothing is connected yet."""
        self._outbox = outbox
        self._settings = settings
        self._owner = owner
        self._clock = clock
        self._topic = internal_topic(settings.topics.prefix, Internal.SUBSCRIPTIONS)
        self._producer: KafkaTransactions | None = None
        self._refreshed = clock()

    def beat(self) -> int:
        """Publish what has changed, where this server is the one that publishes; how many subscriptions.

        Raises ServiceError, SettingsError, and FencedError where another server began to publish.
        """
        if not self._outbox.claim(self._owner, self._settings.server.lease_seconds):
            self._leave()
            return 0
        try:
            return self._publish()
        except BaseException:
            self._leave()
            raise

    def _publish(self) -> int:
        if self._producer is None:
            self._producer = self._open()
            self._outbox.renew(all_=True)  # a topic that somebody made again is filled again
        elif self._clock() - self._refreshed >= _REFRESH_SECONDS:
            self._refreshed = self._clock()
            self._outbox.renew()
        count = 0
        while pending := self._outbox.pending(_MOST):
            for item in pending:
                self._producer.send(record_of(self._topic, item.identity, item.rows))
            self._producer.send(last_record(self._topic, self._outbox.last_id()))
            self._producer.end()
            self._outbox.confirm(pending)
            count += len(pending)
        return count

    def _open(self) -> KafkaTransactions:
        config, topics = self._settings.kafka.reveal(), self._settings.topics
        maker = TopicMaker(config)
        if topics.create:
            maker.ensure_planned(internal_plan(topics, Internal.SUBSCRIPTIONS))
        producer = KafkaTransactions(
            config,
            self._topic,
            self._topic,
            clock=self._clock,
            sizes=Sizes(largest=topics.max_message_bytes),
            fenced="another server publishes subscriptions; this one publishes none",
        )
        producer.open()
        log.info("this server publishes subscriptions in %s", self._topic)
        return producer

    def _leave(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def close(self) -> None:
        """End the connection, and let another server publish at once."""
        self._leave()
        self._outbox.release(self._owner)


@contextmanager
def mirroring(settings: Settings, outbox: Outbox) -> Iterator[None]:
    """While inside, a thread of this process publishes, or waits for its turn."""
    stop = threading.Event()
    owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
    mirror = Mirror(outbox, settings, owner, clock=time.monotonic)
    thread = threading.Thread(target=_run, args=(mirror, stop), name="mirror", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_PAUSE_SECONDS)


def _run(mirror: Mirror, stop: threading.Event) -> None:
    reported = ""
    pause = _BEAT_SECONDS
    while not stop.wait(pause):
        pause = _BEAT_SECONDS
        try:
            mirror.beat()
            reported = ""
        except FencedError as error:
            log.info("%s", error)
        except TailraceError as error:
            pause = _PAUSE_SECONDS
            if str(error) != reported:
                log.warning("%s", with_next_try(f"subscriptions are not mirrored, and run on: {error}", pause))
                reported = str(error)
    try:
        mirror.close()
    except TailraceError as error:
        log.info("%s; another server mirrors subscriptions when the lease has ended", error)
