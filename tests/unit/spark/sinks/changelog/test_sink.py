"""What all change logs have in common: the collector of cycles rests while a batch goes out, and works afterwards."""

from __future__ import annotations

import gc

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, RecordId, Summary
from tailrace_spark.sinks.changelog.sink import Batch, ChangeLogSink, OutgoingRecord
from tailrace_spark.sinks.protocol import write_here
from tests.support.every_type import INSERT


class Noting(Batch):
    """Notes whether the collector is on; says that its store does not answer where it is to."""

    def __init__(self, answers: bool) -> None:
        self.collected: list[bool] = []
        self._answers = answers

    def put(self, record: OutgoingRecord) -> None:
        assert record.change is INSERT
        self.collected.append(gc.isenabled())

    def set_aside(self, letter: DeadLetter) -> None:
        raise AssertionError(letter)

    def commit(self) -> Summary:
        self.collected.append(gc.isenabled())
        if not self._answers:
            raise ServiceError("no answer")
        return Summary()

    def abandon(self) -> None:
        """Nothing is out."""


class Outlet:
    """Gives one batch."""

    def __init__(self, answers: bool) -> None:
        self.batch = Noting(answers)

    def reach(self) -> None:
        """It is here."""

    def begin(self, batch: object) -> Batch:
        del batch
        return self.batch

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("answers", [True, False])
def test_the_collector_rests_while_a_batch_goes_out(answers: bool) -> None:
    outlet = Outlet(answers)
    piece = Piece((Delivered(RecordId("t", 0, 1), INSERT),))
    try:
        write_here(ChangeLogSink(outlet), [piece])
    except ServiceError:
        assert not answers
    assert outlet.batch.collected == [False, False]
    assert gc.isenabled()
