"""Prints a table's changes as JSON lines: confluent-kafka reads, `tailrace_schemas.decode` decodes (docs/consuming.md).

    python examples/consume_with_tailrace.py localhost:9092 PREFIX TOPIC --max 10

Cassandra's exact bytes, tombstones, write times and TTLs are all there; see docs/change-json.md for the form.
"""

from __future__ import annotations

import argparse
import json

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tailrace_schemas import Schemas, UnknownSchemaError, decode
from tailrace_schemas.change_json import ChangeForms
from tailrace_schemas.errors import DecodeError


def consumer_of(bootstrap: str) -> Consumer:
    """What an aborted transaction left is not read."""
    own = {"group.id": "unused", "enable.auto.commit": False, "enable.partition.eof": True}
    return Consumer({"bootstrap.servers": bootstrap, "isolation.level": "read_committed", **own})


def follow_schemas(consumer: Consumer, schemas: Schemas) -> None:
    """Read `<prefix>.schemas` on to its end."""
    while True:
        message = consumer.poll(10)
        if message is None:
            raise TimeoutError("the topic of schemas has no end in 10 s")
        if message.error() is None:
            schemas.add(message.key(), message.value())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            return
        else:
            raise RuntimeError(message.error().str())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap", "prefix", "topic"):
        parser.add_argument(name)
    parser.add_argument("--max", type=int, default=None)
    asked = parser.parse_args()
    schemas, forms, shown = Schemas(), ChangeForms(), 0
    announced, changes = consumer_of(asked.bootstrap), consumer_of(asked.bootstrap)
    announced.assign([TopicPartition(f"{asked.prefix}.schemas", 0, OFFSET_BEGINNING)])
    follow_schemas(announced, schemas)
    partitions = changes.list_topics(asked.topic, timeout=10).topics[asked.topic].partitions
    changes.assign([TopicPartition(asked.topic, number, OFFSET_BEGINNING) for number in partitions])
    while asked.max is None or shown < asked.max:
        message = changes.poll(1)
        if message is None or message.error() is not None or message.value() is None:
            continue  # the end for now, or a record of a transaction's mark
        try:
            change = decode(message.value(), schemas)
        except UnknownSchemaError:  # a schema is announced before the first message that needs it
            follow_schemas(announced, schemas)
            change = decode(message.value(), schemas)
        except DecodeError as error:
            print(json.dumps({"offset": message.offset(), "error": str(error)}))
            continue
        print(json.dumps(forms.of(change.table).write(change)), flush=True)
        shown += 1


if __name__ == "__main__":
    main()
