"""Delta tables on a real S3 server: the contract of change logs, requests cut at every step, credentials."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.delta.store import DeltaStore
from tailrace_spark.sinks.protocol import Sink
from tests import s3
from tests.held import package
from tests.services.cutting import CuttingProxy
from tests.unit.spark.sinks.change_log_contract import (
    PLAIN,
    ChangeLogContract,
    Topic,
    batches,
    changes_of,
    deliver,
    delivered_by,
)
from tests.unit.spark.sinks.delta.stores import DeltaInTasks, DeltaStored, FollowedDelta, section_on_s3
from tests.unit.spark.sinks.lake.cutting_contract import CuttingContract
from tests.unit.spark.sinks.lake.history_contract import two_at_a_time
from tests.unit.spark.sinks.merging_contract import MergingContract
from tests.unit.spark.sinks.on_s3 import write_by_section

pytestmark = pytest.mark.integration


class Cut(DeltaStored):
    """A path on S3 that is reached through a proxy which dies."""

    def __init__(self, path: str, ends: ExitStack) -> None:
        super().__init__(section_on_s3(path))
        self._path = path
        self._ends = ends

    def open(self, dies_after: int | None = None, *, revives: bool = False) -> Sink:
        proxy = CuttingProxy(s3.endpoint(), dies_after, revives=revives)
        self._ends.enter_context(proxy)
        stored = DeltaStored(section_on_s3(self._path, endpoint=proxy.endpoint), patience={"max_retries": "0"})
        stored.letters = self.letters
        return stored.open()


@pytest.mark.long
class TestHistoryOnS3(ChangeLogContract):
    """Dead from the answer to a request on."""

    sink = "delta"

    server_name = f"{package('deltalake')}, S3 of {package('moto')}"

    @pytest.fixture
    def stores(self) -> Iterator[Callable[[], Cut]]:
        with ExitStack() as ends:
            yield lambda: Cut(f"s3://{s3.new_bucket()}/a lake", ends)


@pytest.mark.promise("tasks.attempts")
def test_tasks_write_to_s3() -> None:
    """What is in a batch twice, and in several, is there once."""
    stored, all_batches = DeltaInTasks(section_on_s3(f"s3://{s3.new_bucket()}/a lake")), batches(Topic())
    for batch in (*all_batches, *all_batches[1:]):
        deliver(stored, *batch)
    assert changes_of(stored.records(), PLAIN) == delivered_by(*(piece for batch in all_batches for piece in batch))
    assert len(stored.records()) == sum(len(piece.changes) for batch in all_batches for piece in batch)
    assert len(stored.letters.all) == 1


@pytest.mark.promise("delta.current")
@pytest.mark.long
class TestCurrentOnS3(MergingContract):
    sink = "delta"

    server_name = f"{package('deltalake')}, S3 of {package('moto')}"

    @pytest.fixture
    def another(self) -> Callable[[], FollowedDelta]:
        return lambda: FollowedDelta(section_on_s3(f"s3://{s3.new_bucket()}/lake", mode="current", buckets="2"))


@pytest.mark.promise("delta.once", "delta.current")
@pytest.mark.long
class TestCutRequests(CuttingContract):
    def new_place(self) -> dict[str, str]:
        return {"path": f"s3://{s3.new_bucket()}/lake"}

    def histories(self, **settings: str) -> DeltaStored:
        return DeltaStored(section_on_s3(**settings))

    def followed(self, **settings: str) -> FollowedDelta:
        return FollowedDelta(section_on_s3(**settings, mode="current", buckets="1"))


def test_a_section_opens_a_sink(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bucket = s3.new_bucket()
    write_by_section(tmp_path, caplog, "delta", f"{bucket}/a b/")
    [record] = DeltaStored(section_on_s3(f"s3://{bucket}/a b")).records()
    assert record["columns"] == {"v": "x"}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [({"path": "s3://no-such-bucket/x"}, "NoSuchBucket"), ({"endpoint": "http://127.0.0.1:1"}, "refused")],
)
def test_what_cannot_be_reached_is_told_in_one_line_without_credentials(wrong: dict[str, str], reason: str) -> None:
    store = DeltaStore(section_on_s3(**{"path": "s3://bucket/x", **wrong}), {"max_retries": "1"})
    with pytest.raises(ServiceError, match=reason) as raised:
        store.reach()
    said = str(raised.value)
    assert "\n" not in said
    assert "\x1b" not in said
    assert s3.SECRET_KEY not in said
    assert s3.ACCESS_KEY not in said


@pytest.mark.promise("delta.two-writers")
def test_of_two_that_write_at_a_time_one_fails_and_finds_its_batch_done() -> None:
    """By S3's conditional put."""
    two_at_a_time(DeltaStored(section_on_s3(f"s3://{s3.new_bucket()}/lake")))
