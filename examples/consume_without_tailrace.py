"""Prints a table's changes as JSON lines, by confluent-kafka and fastavro alone (docs/consuming.md).

    python examples/consume_without_tailrace.py localhost:9092 PREFIX TOPIC --max 10

Both framings are read: C3 01 and 8 bytes, and a schema registry's 00 and 4 bytes. `PREFIX.schemas` has the schemas of
both, so that no registry is asked.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from fastavro import parse_schema, schemaless_reader


def split(message: bytes) -> tuple[bytes, bytes]:
    """The schema's id and the Avro body of a message."""
    if message[:1] == b"\x00":
        return message[1:5], message[5:]
    if message[:2] == b"\xc3\x01":
        return message[2:10], message[10:]
    raise ValueError(f"a message that begins with {message[:2].hex()}")


def schema_of(value: bytes) -> Any:
    """The Avro schema in a record of `PREFIX.schemas`: JSON, above 64 KiB as gzip."""
    text = gzip.decompress(value) if value.startswith(b"\x1f\x8b") else value
    return parse_schema(json.loads(text)["avro"])


class Schemas:
    """Schemas by id, read on from the topic when one is missing: it is announced before the first message."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        self._schemas: dict[bytes, Any] = {}
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def find(self, schema_id: bytes) -> Any:
        """The parsed schema; KeyError where nobody announced it."""
        if schema_id not in self._schemas:
            self._read_on()
        return self._schemas[schema_id]

    def _read_on(self) -> None:
        while True:
            message = self._consumer.poll(10)
            if message is None:
                raise TimeoutError("the topic of schemas has no end in 10 s")
            if message.error() is not None:
                if message.error().code() == KafkaError._PARTITION_EOF:
                    return
                raise RuntimeError(message.error().str())
            try:
                self._schemas.setdefault(message.key(), schema_of(message.value()))
            except Exception as error:  # whoever wrote it: only messages that name it are lost
                print(json.dumps({"schemas offset": message.offset(), "error": repr(error)[:200]}))


def shown_as(value: Any) -> str:
    """Bytes, and the calendar values that fastavro makes of logical types, as JSON has them (docs/consuming.md)."""
    return value.hex() if isinstance(value, bytes) else str(value)


def consumer_of(bootstrap: str) -> Consumer:
    """What an aborted transaction left is not read."""
    own = {"group.id": "unused", "enable.auto.commit": False, "enable.partition.eof": True}
    return Consumer({"bootstrap.servers": bootstrap, "isolation.level": "read_committed", **own})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap", "prefix", "topic"):
        parser.add_argument(name)
    parser.add_argument("--max", type=int, default=None)
    asked = parser.parse_args()
    schemas, shown = Schemas(consumer_of(asked.bootstrap), f"{asked.prefix}.schemas"), 0
    changes = consumer_of(asked.bootstrap)
    partitions = changes.list_topics(asked.topic, timeout=10).topics[asked.topic].partitions
    changes.assign([TopicPartition(asked.topic, number, OFFSET_BEGINNING) for number in partitions])
    while asked.max is None or shown < asked.max:
        message = changes.poll(1)
        if message is None or message.error() is not None or message.value() is None:
            continue  # the end for now, or a record of a transaction's mark
        schema_id, body = split(message.value())
        record = schemaless_reader(io.BytesIO(body), schemas.find(schema_id), None)
        print(json.dumps(record, default=shown_as), flush=True)
        shown += 1


if __name__ == "__main__":
    main()
