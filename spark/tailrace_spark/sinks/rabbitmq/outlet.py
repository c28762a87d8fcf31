"""Changes as messages of RabbitMQ: each confirmed, in order per key, those that are too large set aside."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tailrace_spark.batch.delivery import DeadLetter, MicroBatch, Summary
from tailrace_spark.sinks.changelog.routes import Route, word
from tailrace_spark.sinks.changelog.sink import Batch, OutgoingRecord
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.rabbitmq.client import RabbitmqClient, messages_of
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

    def begin(self, batch: MicroBatch) -> Batch:
        """As Outlet says. What was confirmed is remembered until all of its batch is out, or another one comes."""
        if self._confirmed_of != (batch.stream, batch.number):
            self._confirmed_of = batch.stream, batch.number
            self._client.forget()
        self._client.begin()
        return _Messages(self._client, self._settings, self._letters, all_of_batch=batch.here)

    def close(self) -> None:
        """Leave RabbitMQ."""
        self._client.drop()


class _Messages(Batch):
    """One share. A truncation is of all keys: behind what was before it, ahead of what comes, in every queue."""

    def __init__(
        self, client: RabbitmqClient, settings: RabbitmqSinkSettings, letters: Letters, *, all_of_batch: bool
    ) -> None:
        """`all_of_batch`: it is the whole batch, so that its messages are forgotten once they are confirmed."""
        super().__init__()
        self._client = client
        self._settings = settings
        self._queues = settings.queue_names
        self._route = None if settings.routing_key is None else Route(settings.routing_key, word, longest=LONGEST_NAME)
        self._letters = letters
        self._all_of_batch = all_of_batch
        self._rows = 0

    def put(self, record: OutgoingRecord) -> None:
        settings, images, size = self._settings, record.images, len(record.json)
        if size > settings.largest_message and images is not None and images != images.untold:
            self.put(replace(record, images=images.untold))
            return
        if size > settings.largest_message:
            words = f"{size} bytes as a message, more than the sink's largest_message, {settings.largest_message}"
            self.set_aside(DeadLetter(record.record_id, words, record.message))
            return
        messages = messages_of(record, settings.exchange, self._queues, self._route)
        self._rows += 1
        if record.change.key is None:
            self._client.settle()
        for message in messages:
            self._client.publish(message)
        if record.change.key is None:
            self._client.settle()

    def commit(self) -> Summary:
        self._client.settle()
        self._letters.put(self.aside)
        if self._all_of_batch:
            self._client.forget()
        return Summary(rows=self._rows, dead_letters=len(self.aside))

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
        """As Opener says."""
        return RabbitmqOutlet(RabbitmqClient(self.name, self.settings), self.settings, self.letters)
