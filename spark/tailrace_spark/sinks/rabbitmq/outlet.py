"""Changes as messages of RabbitMQ: each confirmed, in order per key, those that are too large set aside."""

from __future__ import annotations

from dataclasses import replace

from tailrace_spark.batch.delivery import DeadLetter, Summary
from tailrace_spark.batch.row_image import Imaged
from tailrace_spark.sinks.changelog.dead_letter_file import DeadLetterFile
from tailrace_spark.sinks.changelog.sink import Batch, OutgoingRecord
from tailrace_spark.sinks.rabbitmq.client import RabbitmqClient
from tailrace_spark.sinks.rabbitmq.messages import messages_of
from tailrace_spark.sinks.rabbitmq.settings import RabbitmqSinkSettings


class RabbitmqOutlet:
    """Publishes each batch; it is out when RabbitMQ has confirmed every message of it.

    What was confirmed of a batch that failed is not published again by this process.
    """

    def __init__(self, client: RabbitmqClient, settings: RabbitmqSinkSettings, letters: DeadLetterFile) -> None:
        self._client = client
        self._settings = settings
        self._letters = letters

    def reach(self) -> None:
        """Connect; with declare = false, see that exchange and queues are there."""
        self._client.reach()

    def begin(self) -> Batch:
        self._client.begin()
        return _Messages(self._client, self._settings, self._letters)

    def close(self) -> None:
        """Leave RabbitMQ."""
        self._client.drop()


class _Messages(Batch):
    """One batch. A truncation is of all keys: behind what was before it, ahead of what comes, in every queue."""

    def __init__(self, client: RabbitmqClient, settings: RabbitmqSinkSettings, letters: DeadLetterFile) -> None:
        self._client = client
        self._settings = settings
        self._file = letters
        self._letters: list[DeadLetter] = []
        self._rows = 0

    def put(self, record: OutgoingRecord) -> None:
        settings, images, size = self._settings, record.images, len(record.json)
        if size > settings.largest_message and images is not None and images.images is not None:
            self.put(replace(record, images=Imaged(images.table, None)))
            return
        if size > settings.largest_message:
            words = f"{size} bytes as a message, more than the sink's largest_message, {settings.largest_message}"
            self._letters.append(DeadLetter(record.record_id, words, record.message, record.value))
            return
        self._rows += 1
        if record.change.key is None:
            self._client.settle()
        for message in messages_of(record, settings.exchange, settings.queue_names):
            self._client.publish(message)
        if record.change.key is None:
            self._client.settle()

    def set_aside(self, letter: DeadLetter) -> None:
        self._letters.append(letter)

    def commit(self) -> Summary:
        self._client.settle()
        self._file.put(self._letters)
        self._client.forget()
        return Summary(rows=self._rows, dead_letters=len(self._letters))

    def abandon(self) -> None:
        """Leave: of what is under way nothing may arrive behind the next attempt."""
        self._client.drop()
