"""A task's ranges on their way into a topic: which one that is, and which errors end the task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tailrace_schemas.avro import SchemaIds
from tailrace_schemas.errors import CorruptError, FencedError, RefusedError, ServiceError, TailraceError
from tailrace_spark.snapshot.publishing import Destination, PublishedRange, PublishTask
from tailrace_spark.snapshot.ranges import Split, TokenRange
from tailrace_spark.snapshot.reading import UnreadableError
from tailrace_spark.snapshot.session import TableReading
from tailrace_spark.snapshot.settings import SnapshotSettings
from tests.unit.tables import table


class Publisher:
    """Publishes all ranges but the second one."""

    def __init__(self, error: TailraceError) -> None:
        self._error = error

    def publish(self, index: int, split: Split) -> None:
        del split
        if index == 1:
            raise self._error


@pytest.mark.promise("snapshot.unreadable")
@pytest.mark.parametrize(
    ("error", "published"),
    [
        (UnreadableError("too many tombstones"), [0, 2, 3]),
        (RefusedError("t.shop.orders", "Broker: Message size too large"), [0, 2, 3]),
        (CorruptError("a value cannot be"), [0, 2, 3]),
        (ServiceError("Kafka is away"), [0]),
        (FencedError("2"), [0]),
    ],
)
def test_a_range_that_cannot_be_published_leaves_the_others_to_be(
    monkeypatch: pytest.MonkeyPatch, error: TailraceError, published: list[int]
) -> None:
    @contextmanager
    def publisher(_: PublishTask) -> Iterator[Publisher]:
        yield Publisher(error)

    monkeypatch.setattr(PublishTask, "publisher", publisher)
    destination = Destination({}, "t", "t.shop.orders", 1, SchemaIds(b"", b""))
    reading = TableReading(SnapshotSettings(table="shop.orders"), table({"id": "int"}), (5, 0), "dc1")
    task = PublishTask(reading, destination, "s1", 1)
    splits = [(index, Split(TokenRange(index, index + 1), ())) for index in range(4)]
    outcomes = list(task([splits]))  # type: ignore[arg-type]  # any iterator does
    assert [outcome.index for outcome in outcomes if outcome.error is None] == published
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    assert failed == [PublishedRange(1, str(error), isinstance(error, FencedError))]
