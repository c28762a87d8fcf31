"""HTTP with `transactions`: a request has mutations whole, and so have dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace_common.settings import Settings
from tailrace_spark.batch.delivery import Delivered, Piece
from tailrace_spark.sinks.protocol import AGAIN, write_here
from tailrace_spark.sinks.registry import sink_of
from tests.properties import examples
from tests.unit.spark.sinks.http.endpoint import TAKEN, Answer, Endpoint, Request
from tests.unit.spark.sinks.http.posted import Posted
from tests.unit.spark.sinks.transactions_contract import (
    POISON,
    batch,
    marks_of,
    mutation,
    records_of,
    require_whole,
    topics,
)


@pytest.fixture
def posted() -> Iterator[Posted]:
    made = Posted(transactions=True, batch_records=3, lanes=2)
    yield made
    made.endpoint.close()


def refuses(request: Request) -> Answer:
    bad = any(change["columns"].get("v") == POISON for change in request.changes)
    return (422, {}, b"no") if bad else TAKEN


@pytest.mark.slow
@pytest.mark.promise("transactions.together")
@given(topics(poison=True), st.integers(0, 40), st.integers(1, 6))
@settings(max_examples=examples(16))
def test_requests_and_dead_letters_have_mutations_whole(log: Sequence[Delivered], end: int, size: int) -> None:
    posted = Posted(transactions=True, batch_records=size, lanes=2)
    marks = marks_of(log)
    bad = {
        marks[one.record_id.offset].id for one in log if any(cell.value == b"\0\0\0\x0d" for cell in one.change.cells)
    }
    try:
        posted.endpoint.answer = refuses
        middle = min(end, len(log))
        for begin, last in ((0, middle), (middle, len(log))):
            with closing(posted.sink()) as sink:
                write_here(sink, batch(log, begin, last))
        for request in posted.endpoint.requests:
            require_whole(request.changes, marks)
        taken = {record["offset"] for record in posted.records()}
        letters = {letter.record_id.offset for letter in posted.letters.all}
    finally:
        posted.endpoint.close()
    assert letters == {offset for offset, mark in marks.items() if mark.id in bad}
    assert taken == marks.keys() - letters


def test_a_request_is_as_large_as_its_largest_mutation(posted: Posted) -> None:
    log = records_of([*mutation("a", 0, 2), *mutation("a", 3, 7), *mutation("a", 6, 1)])
    with closing(posted.sink()) as sink:
        write_here(sink, batch(log, 0, len(log)))
    assert [len(request.changes) for request in posted.endpoint.requests] == [9, 1]


def test_what_is_replayed_comes_alone_and_unmarked(posted: Posted) -> None:
    log = records_of(mutation("a", 0, 2, poisoned=1))
    posted.endpoint.answer = refuses
    with closing(posted.sink()) as sink:
        assert write_here(sink, batch(log, 0, 2)).dead_letters == 2
        posted.endpoint.answer = lambda _: TAKEN
        write_here(sink, [Piece(tuple(log))], AGAIN)
    assert ["transaction" in record for record in posted.records()] == [False, False]


def test_without_the_setting_changes_have_no_transaction() -> None:
    endpoint = Endpoint()
    try:
        section = {"type": "http", "url": endpoint.url}
        given_settings = Settings.model_validate({"sink": {"x": section, "y": {**section, "transactions": True}}})
        for name, expected in (("x", False), ("y", True)):
            with closing(sink_of(given_settings, name)) as sink:
                assert sink.capabilities.transactions is expected
    finally:
        endpoint.close()
