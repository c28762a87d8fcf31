"""Kafka loses the marks of a transaction where partitions have no leader (KAFKA-20734): readers get it all the same,
once, if it was committed, and not at all if it was not."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from tailrace.local import LocalKafka
from tailrace.local.kafka import KafkaSettings
from tailrace.local.ports import free_port
from tailrace.publish.kafka import KafkaPublisher, KafkaTopics, Tenure
from tailrace.publish.record import Record
from tailrace.state import Resume
from tailrace_common.kafka import Sizes, TopicReader
from tailrace_common.settings import TopicSettings
from tailrace_schemas.avro import Encoder, decode, entry_from_record, schema_records
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.position import Position
from tailrace_schemas.topics import Internal
from tests.integration.feed import Feed
from tests.services.proxy import Proxy
from tests.support.waiting import let_pass
from tests.unit.spark.cassandra import Log, source
from tests.unit.tables import table

PLAIN = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="plain")
LOG = Log(PLAIN)
TIMEOUT = 3
ROWS = 12
ATTEMPTS = 8
INTERNAL = (Internal.OFFSETS, Internal.SCHEMA_HISTORY, Internal.SCHEMA_CHANGES, Internal.PROGRESS)


class Desk:
    """A broker that sends marks by way of a proxy, and one host's publisher."""

    def __init__(self, directory: Path) -> None:
        address, internal = "127.0.0.1", free_port("127.0.0.1")
        port, controller = free_port(address), free_port(address)
        self.proxy = Proxy((address, internal))
        self.proxy.__enter__()
        listeners = f"PLAINTEXT://{address}:{port},CONTROLLER://{address}:{controller},INTERNAL://{address}:"
        self.kafka = LocalKafka(
            directory,
            KafkaSettings(
                port=port,
                controller_port=controller,
                properties={
                    "listeners": f"{listeners}{internal}",
                    "advertised.listeners": f"PLAINTEXT://{address}:{port},INTERNAL://{address}:{self.proxy.port}",
                    # It would ask the coordinator the same way, and hold the records.
                    "transaction.partition.verification.enable": "false",
                    "inter.broker.listener.name": "INTERNAL",
                    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
                },
            ),
        )
        self.kafka.start()
        self.prefix = "p"
        self.config: dict[str, bool | int | float | str] = {"bootstrap.servers": self.kafka.bootstrap}
        self.topics = KafkaTopics(self.config, TopicSettings(prefix=self.prefix))
        feed = Feed(self.kafka.bootstrap, self.prefix)
        self.topics.ensure_internal(INTERNAL)
        self.encoder: Encoder = feed.add(PLAIN)
        self.topic = feed.topic(PLAIN)
        feed.close()
        self.host = source().host

    def publisher(self) -> KafkaPublisher:
        """One for the host; not started."""
        return KafkaPublisher(
            self.config,
            prefix=self.prefix,
            cluster="c",
            host=self.host,
            clock=time.monotonic,
            timeout=TIMEOUT,
            tenure=Tenure(uuid4().hex),
            sizes=Sizes(limits=self.topics.limits),
        )

    def records(self, offset: int) -> list[Record]:
        """Changes of one mutation each, in both partitions, from an offset of segment 5 on."""
        at = source()
        made = (
            (n, replace(LOG.insert((n,), (), 7, v="a"), source=replace(at, position=Position(1, 5, n))))
            for n in range(offset, offset + ROWS)
        )
        return [Record(self.topic, n % 2, None, self.encoder.value(change)) for n, change in made]

    def crash(self) -> None:
        """kill -9, and a start in which no mark arrives before the broker's partitions have a leader again."""
        self.proxy.refuse()
        self.kafka.kill()
        let_pass(TIMEOUT, "the time after which the broker aborts by itself what is open")
        self.kafka.start()
        self.proxy.flow()

    def seen(self) -> Counter[int]:
        """How often readers have the change at each offset."""
        known = {key: entry_from_record(key, value) for key, value in schema_records(self.encoder, self.topic)}
        with TopicReader(self.config, self.topic, beginning=True) as reader:
            try:
                values = [record.value for _, record in reader.read_to_end() if record.value is not None]
            except ServiceError as error:
                pytest.fail(f"held up: {error}")
        changes = (decode(value, known) for value in values)
        return Counter(change.source.position.offset for change in changes if change.source is not None)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path / "kafka")
    try:
        yield desk
    finally:
        desk.kafka.stop()
        desk.proxy.__exit__(None, None, None)


def resume(offset: int) -> Resume:
    """Published up to there."""
    return Resume(position=Position(1, 5, offset))


def started(publisher: KafkaPublisher) -> Resume:
    """What it found. Where a mark is missing, nobody can read on: neither it nor other readers."""
    try:
        return publisher.start()
    except ServiceError as error:
        pytest.fail(f"held up: {error}")


def flush(publisher: KafkaPublisher) -> None:
    """Wait until Kafka has what was sent; so the transaction before is over, too."""
    publisher._producer.call("flushing", lambda producer: producer.flush(TIMEOUT))


@pytest.mark.promise("agent.lost-marks")
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("was_committed", [True, False])
def test_what_was_committed_is_read_and_what_was_not_is_not(
    desk: Desk, caplog: pytest.LogCaptureFixture, was_committed: bool
) -> None:
    """Kafka says that a transaction is committed, or it never was, and loses every mark of it. Whether it does is a
    matter of milliseconds within its start: it is crashed until it did."""
    published, end = 0, resume(-1)
    for _ in range(ATTEMPTS):
        with closing(desk.publisher()) as before:
            before.start()
            before.send_all(desk.records(published))
            flush(before)
            desk.proxy.refuse()
            if was_committed:
                end = resume(published + ROWS - 1)
                before.commit(end)
                published += ROWS
            desk.crash()
        with closing(desk.publisher()) as after:
            found = started(after)
            assert found == end or (found == Resume() and not published)
            assert desk.seen() == Counter(range(published))
            after.send_all(desk.records(published))
            published += ROWS
            end = resume(published - 1)
            after.commit(end)
        assert desk.seen() == Counter(range(published))
        if "writing them now" in caplog.text:
            break
    outcome = "committed" if was_committed else "not committed"
    assert f"the outcome was: {outcome}" in caplog.text, "Kafka lost no mark: this shows nothing"
    caplog.clear()
    with closing(desk.publisher()) as last:
        assert started(last) == end
    assert "writing them now" not in caplog.text
