"""Which subscriptions may read together, and where partitions end, asked for once for all of them."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.topics import KafkaPartition
from tailrace_server.worker.keeping import SharedEnds
from tailrace_server.worker.readings import new_checkpoint, reading_key

A, B = ("topic", 0), ("topic", 1)


def key(**stream: object) -> str:
    return reading_key(Settings.model_validate({"kafka": {"bootstrap.servers": "b:1"}, "stream": stream}))


@pytest.mark.parametrize(
    "own",
    [
        {"where": {"shop.items": "id > 1"}},
        {"columns": {"shop.items.v": "drop"}},
        {"checkpoint": "elsewhere", "execution": "driver"},
        {"snapshot": "initial"},
    ],
)
def test_filters_masks_and_sinks_are_a_member_s_own(own: dict[str, object]) -> None:
    assert key(**own) == key()


@pytest.mark.parametrize(
    "other",
    [
        {"topics": "t\\.shop\\.items"},
        {"trigger_seconds": 7},
        {"accept_early": True},
        {"fail_on_data_loss": False},
        {"kafka": {"fetch.max.bytes": 5}},
    ],
)
def test_what_is_read_otherwise_is_read_apart(other: dict[str, object]) -> None:
    assert key(**other) != key()


def test_no_checkpoint_has_a_name_that_another_had() -> None:
    """A process id is given again in a container, and a token once the meta database is restored."""
    assert len({new_checkpoint("host-7") for _ in range(9)}) == 9


class Kafka:
    """Answers with ever larger ends, while it is up."""

    def __init__(self) -> None:
        self.asked = 0
        self.up = True

    def __call__(self, partitions: Collection[KafkaPartition]) -> dict[KafkaPartition, int]:
        self.asked += 1
        if not self.up:
            raise ServiceError("Kafka does not answer")
        return dict.fromkeys(set(partitions) - {("gone", 0)}, self.asked)


def test_ends_are_asked_for_once_a_second() -> None:
    kafka, now = Kafka(), [0.0]
    ends = SharedEnds(kafka, lambda: now[0])
    assert ends.of([A]) == {A: 1}
    assert ends.of([A]) == {A: 1}
    assert ends.of([A, B]) == {A: 2, B: 2}
    now[0] = 2.0
    assert ends.of([A]) == {A: 3}
    assert ends.of([("gone", 0)]) == {}


def test_a_broker_that_is_down_is_not_asked_for_each_subscription() -> None:
    kafka, now = Kafka(), [0.0]
    ends = SharedEnds(kafka, lambda: now[0])
    kafka.up = False
    for _ in range(3):
        with pytest.raises(ServiceError, match="does not answer"):
            ends.of([A])
    assert kafka.asked == 1
    kafka.up, now[0] = True, 2.0
    assert ends.of([A]) == {A: 2}
