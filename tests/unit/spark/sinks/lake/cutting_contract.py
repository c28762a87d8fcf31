"""The contract of a lake on S3: nothing is lost or doubled with any answer, by whichever process it is made again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import closing
from itertools import count
from typing import Any

from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import Piece
from tailrace_spark.sinks.protocol import Sink, write_here
from tests import s3
from tests.services.cutting import CuttingProxy
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, Topic, batches
from tests.unit.spark.sinks.contract import piece
from tests.unit.spark.sinks.lake.stores import FollowedLake, Histories
from tests.unit.spark.sinks.merging_contract import write


class CuttingContract(ABC):
    """One answer is lost: the client retries, or the batch is redelivered."""

    @abstractmethod
    def new_place(self) -> dict[str, Any]:
        """The settings of a new, empty lake."""

    @abstractmethod
    def histories(self, **settings: Any) -> Histories:
        """Histories there."""

    @abstractmethod
    def followed(self, **settings: Any) -> FollowedLake:
        """Tables there that follow."""

    def test_a_history_loses_and_doubles_nothing_with_any_answer(self) -> None:
        for step in count():
            place, [_, batch, _] = self.new_place(), batches(Topic())
            proxy = CuttingProxy(s3.endpoint(), step, revives=True)
            through = self.histories(**place, endpoint=proxy.endpoint)
            with proxy, closing(through.open()) as sink:
                write_twice(sink, *batch)
            assert len(self.histories(**place).records()) == 9, f"answer {step} was lost"
            assert len(through.letters.all) == 1
            if proxy.written < step:
                assert step > 1
                return

    def test_tables_that_follow_lose_nothing_with_any_answer(self) -> None:
        for step in count():
            place, log = self.new_place(), Log(PLAIN)
            followed = self.followed(**place)
            write(followed, *(log.insert((number,), (), 1, v=f"{number}") for number in range(3)))
            proxy = CuttingProxy(s3.endpoint(), step, revives=True)
            changes = [log.update((0,), (), 2, w=5), log.delete((1,), (), 2), log.insert((4,), (), 2, v="new")]
            with proxy, closing(self.followed(**place, endpoint=proxy.endpoint).open()) as sink:
                write_twice(sink, piece(changes))
            rows = followed.rows(PLAIN, "id", "v", "w")
            assert rows == [(0, "0", 5), (2, "2", None), (4, "new", None)], f"answer {step} was lost"
            if proxy.written < step:
                assert step > 1
                return


def write_twice(sink: Sink, *pieces: Piece) -> None:
    """A micro-batch, that comes again where it failed."""
    try:
        write_here(sink, pieces)
    except ServiceError:
        write_here(sink, pieces)
