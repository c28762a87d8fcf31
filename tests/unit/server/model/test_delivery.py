"""Since when a sink lacks something: never earlier than it does, and a busy topic is no lag."""

from __future__ import annotations

from tailrace_server.model.delivery import Completeness

A, B = ("t", 0), ("t", 1)


def test_a_sink_is_complete_to_the_last_time_whose_ends_it_has() -> None:
    completeness = Completeness()
    assert completeness.at(1.0, {A: 0, B: 0}, {A: 5, B: 2}) is None
    assert completeness.at(2.0, {A: 0, B: 0}, {A: 9, B: 2}) is None
    assert completeness.at(3.0, {A: 5, B: 1}, {A: 12, B: 2}) is None
    assert completeness.at(4.0, {A: 7, B: 2}, {A: 15, B: 2}) == 1.0
    assert completeness.at(5.0, {A: 15, B: 2}, {A: 20, B: 2}) == 4.0


def test_a_topic_that_always_has_more_is_no_lag() -> None:
    completeness = Completeness()
    ages = [time - (completeness.at(time, {A: 10 * time}, {A: 10 * time + 3}) or 0.0) for time in range(1, 500)]
    assert set(ages[1:]) == {1}


def test_without_records_it_stays_complete_and_a_silent_kafka_does_not_make_it_so() -> None:
    completeness = Completeness()
    assert [completeness.at(time, {A: 4}, {A: 4}) for time in (1.0, 2.0, 3.0)] == [1.0, 2.0, 3.0]
    assert [completeness.at(time, {A: 4}, {}) for time in (4.0, 5.0)] == [3.0, 3.0]


def test_a_partition_that_is_gone_holds_nothing_up() -> None:
    completeness = Completeness()
    assert completeness.at(1.0, {A: 4, B: 0}, {A: 4, B: 9}) is None
    assert completeness.at(2.0, {A: 4}, {A: 4}) == 2.0


def test_hours_behind_cost_no_more_memory_and_are_told_in_order() -> None:
    completeness = Completeness()
    for time in range(10_000):
        assert completeness.at(float(time), {A: 0}, {A: time + 1}) is None
    assert len(completeness._seen) <= 101
    complete = completeness.at(10_000.0, {A: 5_001}, {A: 10_001})
    assert complete is not None
    assert 0 < 5_000 - complete < 5_000
    assert completeness.at(10_001.0, {A: 10_001}, {A: 10_001}) == 10_001.0
