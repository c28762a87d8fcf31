"""An exchange of a test's own in a real RabbitMQ, a sink that publishes to it, and what its consumers have."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from itertools import count
from typing import Any

from tailrace_schemas.change import Change
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.sinks.changelog.sink import ChangeLogSink, OpenedShares
from tailrace_spark.sinks.protocol import Sink, write_here
from tailrace_spark.sinks.rabbitmq.client import RabbitmqClient
from tailrace_spark.sinks.rabbitmq.outlet import RabbitmqOpener, RabbitmqOutlet
from tailrace_spark.sinks.rabbitmq.settings import RabbitmqSinkSettings
from tests import rabbitmq
from tests.support.letters import MemoryLetters
from tests.unit.spark.cassandra import Log, truncate
from tests.unit.spark.sinks.change_log_contract import PLAIN, once, place_of
from tests.unit.spark.sinks.in_tasks import LogInTasks
from tests.unit.spark.sinks.rabbitmq.amqp_proxy import FrameProxy

LOG = Log(PLAIN)
_numbers = count()
_openings = count()


class Published:
    """An exchange of its own with its queues, and what their consumers have had."""

    exactly_once = False

    def __init__(self, server: rabbitmq.Rabbitmq, *, by_tasks: bool = False, **settings: object) -> None:
        """`by_tasks`: each Kafka partition is published by a task; each opening's workers are new."""
        self._by_tasks = by_tasks
        self.server = server
        self.letters = MemoryLetters()
        self._had: dict[str, list[dict[str, Any]]] = {}
        self._proxies: list[FrameProxy] = []
        given = {"exchange": f"e{next(_numbers)}", "username": rabbitmq.USER, "password": rabbitmq.PASSWORD, **settings}
        self.settings = RabbitmqSinkSettings.model_validate({"url": server.url, **given})

    def open(self, dies_after: int | None = None) -> Sink:
        sink: Sink = self.sink() if dies_after is None else self.behind(dies_after)[1]
        return sink

    def sink(self, **more: object) -> Any:
        settings = self.settings.model_copy(update=more)
        client = RabbitmqClient("there", settings)
        opener = RabbitmqOpener(f"there {next(_openings)}", settings, self.letters)
        sink = ChangeLogSink(RabbitmqOutlet(client, settings, self.letters), shares=OpenedShares(opener))
        return LogInTasks(sink) if self._by_tasks else sink

    def behind(self, dies_after: int | None = None, **more: object) -> tuple[FrameProxy, Any]:
        """A sink behind a proxy."""
        proxy = FrameProxy(("127.0.0.1", self.server.port), dies_after)
        proxy.__enter__()
        self._proxies.append(proxy)
        return proxy, self.sink(url=f"amqp://127.0.0.1:{proxy.port}", **more)

    def by_queue(self) -> list[list[dict[str, Any]]]:
        """What every queue has had, in its order."""
        connection = self.server.connect()
        channel = connection.channel()
        for queue in self.settings.queue_names:
            had = self._had.setdefault(queue, [])
            with suppress(Exception):  # a queue that nobody made yet
                while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
                    had.append(json.loads(got[2]))
            channel = channel if channel.is_open else connection.channel()
        connection.close()
        return list(self._had.values())

    def records(self) -> Sequence[Mapping[str, Any]]:
        """As one who reads all queues, and goes on behind a truncation when every queue has come to it."""
        found: list[Mapping[str, Any]] = []
        left: list[list[Mapping[str, Any]]] = [list(queue) for queue in self.by_queue()]
        firsts: list[list[Mapping[str, Any]]] = [once(queue) for queue in left]
        truncations = [place_of(one) for one in firsts[0] if one["op"] == "truncate"]
        for place in truncations:
            ends = [next(at for at, one in enumerate(queue) if place_of(one) == place) for queue in firsts]
            for end, queue in zip(ends, firsts, strict=True):
                found += queue[:end]
            found.append(firsts[0][ends[0]])
            firsts = [queue[end + 1 :] for end, queue in zip(ends, firsts, strict=True)]
        for queue in firsts if truncations else left:
            found += queue
        return found

    def own(
        self, kind: str = "x-consistent-hash", arguments: Mapping[str, object] | None = None, *, bind: bool = True
    ) -> None:
        """Its owner makes exchange and queues."""
        connection = self.server.connect()
        channel = connection.channel()
        channel.exchange_declare(self.settings.exchange, exchange_type=kind, durable=True)
        for queue in self.settings.queue_names:
            channel.queue_declare(
                queue, durable=True, arguments={"x-queue-type": self.settings.queue_type, **(arguments or {})}
            )
            if bind:
                channel.queue_bind(queue, self.settings.exchange, routing_key="1")
        connection.close()

    def close(self) -> None:
        for proxy in self._proxies:
            proxy.__exit__(None, None, None)
        connection = self.server.connect()
        channel = connection.channel()
        channel.exchange_delete(self.settings.exchange)
        for queue in self.settings.queue_names:
            channel.queue_delete(queue)
        connection.close()


def changes(number: int, keys: int = 3) -> list[Change]:
    return [LOG.update((at % keys,), (), at, w=at) for at in range(number)]


def truncation() -> Change:
    return truncate(PLAIN, "a", 5)


def write(one: Published, piece: Piece) -> Summary:
    with closing(one.sink()) as sink:
        summary: Summary = write_here(sink, [piece])
    return summary
