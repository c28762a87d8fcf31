"""Changes as messages of RabbitMQ: each confirmed, in order per key, those that are too large set aside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tailrace_spark.batch.delivery import DeadLetter, Summary
from tailrace_spark.batch.row_image import Imaged
from tailrace_spark.batch.task_batch import TaskBatch
from tailrace_spark.sinks.changelog.routes import Route, word
from tailrace_spark.sinks.changelog.sink import Batch, OutgoingRecord
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.rabbitmq.client import RabbitmqClient
from tailrace_spark.sinks.rabbitmq.messages import messages_of
from tailrace_spark.sinks.rabbitmq.settings import LONGEST_NAME, RabbitmqSinkSettings


class RabbitmqOutlet:
    """Publishes each batch; it is out when RabbitMQ has confirmed every message of it.

    What was confirmed of a batch that failed is not published again by this process.
    """

    def __init__(self, client: RabbitmqClient, settings: RabbitmqSinkSettings, letters: Letters = LOGGED) -> None:
        self._client = client
        self._settings = settings
        self._letters = letters
        self._confirmed_of: tuple[str, int] | None = None

    def reach(self) -> None:
        """Connect; with declare = false, see that exchange and queues are there."""
        self._client.reach()

    def begin(self, *, again: bool = False) -> Batch:
        del again  # each message says in its headers where it stands
        self._client.begin()
        return _Messages(self._client, self._settings, self._settle)

    def begin_partition(self, batch: TaskBatch) -> Batch:
        """As PartitionOutlet says. What was confirmed is remembered until another batch comes."""
        if self._confirmed_of != (batch.stream, batch.number):
            self._confirmed_of = batch.stream, batch.number
            self._client.forget()
        self._client.begin()
        return _Messages(self._client, self._settings, self._letters.put)

    def _settle(self, letters: Sequence[DeadLetter]) -> None:
        """A batch is out: keep its dead letters, forget its messages."""
        self._letters.put(letters)
        self._client.forget()

    def close(self) -> None:
        """Leave RabbitMQ."""
        self._client.drop()


class _Messages(Batch):
    """One batch. A truncation is of all keys: behind what was before it, ahead of what comes, in every queue."""

    def __init__(
        self, client: RabbitmqClient, settings: RabbitmqSinkSettings, settle: Callable[[Sequence[DeadLetter]], None]
    ) -> None:
        """`settle` is called with the dead letters once all is confirmed."""
        self._client = client
        self._settings = settings
        self._queues = settings.queue_names
        self._route = None if settings.routing_key is None else Route(settings.routing_key, word, longest=LONGEST_NAME)
        self._settle = settle
        self._letters: list[DeadLetter] = []
        self._rows = 0

    def put(self, record: OutgoingRecord) -> None:
        settings, images, size = self._settings, record.images, len(record.json)
        if size > settings.largest_message and images is not None and images.images is not None:
            self.put(replace(record, images=Imaged(images.table, None)))
            return
        if size > settings.largest_message:
            words = f"{size} bytes as a message, more than the sink's largest_message, {settings.largest_message}"
            self._letters.append(DeadLetter(record.record_id, words, record.message))
            return
        messages = messages_of(record, settings.exchange, self._queues, self._route)
        self._rows += 1
        if record.change.key is None:
            self._client.settle()
        for message in messages:
            self._client.publish(message)
        if record.change.key is None:
            self._client.settle()

    def set_aside(self, letter: DeadLetter) -> None:
        self._letters.append(letter)

    def commit(self) -> Summary:
        self._client.settle()
        self._settle(self._letters)
        return Summary(rows=self._rows, dead_letters=len(self._letters))

    def abandon(self) -> None:
        """Leave: of what is under way nothing may arrive behind the next attempt."""
        self._client.drop()


@dataclass(frozen=True, slots=True)
class RabbitmqOpener:
    """Makes the outlet of a worker process, with a connection of its own."""

    name: str
    settings: RabbitmqSinkSettings = field(repr=False)
    letters: Letters = LOGGED

    def open(self) -> RabbitmqOutlet:
        """As PartitionOpener says."""
        return RabbitmqOutlet(RabbitmqClient(self.name, self.settings), self.settings, self.letters)
