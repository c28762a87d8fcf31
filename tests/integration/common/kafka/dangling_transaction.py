"""A producer that opens a transaction, has its record in the log, says so, and then waits to be killed."""

from __future__ import annotations

import sys
import threading

from confluent_kafka import Producer

bootstrap, topic, partition = sys.argv[1:]
producer = Producer(
    {
        "bootstrap.servers": bootstrap,
        "transactional.id": f"{topic}.killed",
        "transaction.timeout.ms": 1_000,
        "message.timeout.ms": 900,
    }
)
producer.init_transactions(30)
producer.begin_transaction()
producer.produce(topic, value="never committed", partition=int(partition))
producer.flush(60)
sys.stdout.write("open\n")
sys.stdout.flush()
threading.Event().wait()
