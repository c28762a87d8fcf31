"""Micro-batches of more bytes than the driver may collect: written in parts, in order, each once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.local import LocalKafka
from tailrace_schemas.change import Change
from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import Piece, RecordKey, Summary
from tailrace_spark.sinks.protocol import Capabilities
from tests.integration.feed import Feed
from tests.integration.stream_settings import stream_settings
from tests.integration.streams import followed
from tests.support.here_sink import HereSink
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITTEN = 5_000_000
PLAIN = table({"id": "int"}, regular={"v": "blob"}, keyspace="shop", name="plain")
LOG = Log(PLAIN)
LIMIT = 1 << 20
LARGE = 100_000
ROWS = 94
"""As 1,200 rows of 1 MB are to a part of 128 MiB, which a driver of 1 GiB has."""


def rows(count: int = ROWS, size: int = LARGE) -> list[Change]:
    """Large rows, and after each a small one."""
    large = [LOG.insert((number,), (), WRITTEN, v=bytes([number % 256]) * size) for number in range(count)]
    small = [LOG.insert((number,), (), WRITTEN, v=b"small") for number in range(count, 2 * count)]
    return [change for pair in zip(large, small, strict=True) for change in pair]


class Parts(HereSink):
    """A sink that notes what it is given: the places of each part, and its bytes. It dies at the part `dies_at`."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities()

    def __init__(self, dies_at: int | None = None) -> None:
        self.parts: list[list[RecordKey]] = []
        self.sizes: list[int] = []
        self._dies_at = dies_at

    def take(self, pieces: Iterable[Piece]) -> Summary:
        changes = [delivered for piece in pieces for delivered in piece.changes]
        if len(self.parts) == self._dies_at:
            raise RuntimeError("killed between two parts")
        if changes:  # Spark ends what keeps state with a batch of nothing
            self.parts.append([delivered.record_id.key for delivered in changes])
            self.sizes.append(sum(len(delivered.message) for delivered in changes))
        return Summary(changes=len(changes))

    def close(self) -> None:
        """There is nothing to give back."""


class OrderedParts(Parts):
    """That wants order."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(ordered=True)


class UpdateParts(Parts):
    """That wants whole updates."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(whole_updates=self)

    def write_times(self, change: Change) -> Iterable[int]:  # noqa: ARG002 - none is asked for
        return ()


@pytest.mark.promise("stream.parts")
@pytest.mark.parametrize(("kind", "copies"), [(Parts, None), (OrderedParts, 3600), (UpdateParts, None)])
def test_a_batch_too_large_for_memory_is_written_in_parts_and_comes_again_in_the_same(
    spark: SparkSession,
    feed: Feed,
    kafka: LocalKafka,
    prefix: str,
    tmp_path: Path,
    kind: type[Parts],
    copies: int | None,
) -> None:
    own = {"checkpoint": str(tmp_path / "checkpoint"), "max_bytes_per_part": LIMIT, "one_copy_seconds": copies}
    settings = stream_settings(kafka, prefix, own)
    changes = rows()
    feed.publish([*changes, *(changes if copies else ())])
    committed = feed.committed(PLAIN)
    assert len(committed) == (4 if copies else 2) * ROWS
    first, second = kind(dies_at=4), kind()
    with pytest.raises(ServiceError, match="killed between two parts"):
        followed(spark, settings, first)
    [batch] = [one for one in followed(spark, settings, second) if one.records]
    places = [place for part in second.parts for place in part]
    assert places == sorted(set(places))
    assert copies or places == committed
    assert (batch.records, batch.summary.changes) == (2 * ROWS, 2 * ROWS)
    assert second.parts[:4] == first.parts
    assert max(second.sizes) <= LIMIT
    assert len(second.parts) == 10
    assert len(places) == 2 * ROWS
