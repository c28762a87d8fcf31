"""What a sink lacks of what a checkpoint counts as written, and how progress is written down."""

from __future__ import annotations

import pytest

from tailrace_spark.batch.delivery import (
    NO_BATCH,
    SinkProgress,
    missing_from_sink,
    offsets_from_json,
    offsets_to_json,
    progress_from_json,
    progress_to_json,
)

COMMITTED = SinkProgress("s", 7, {("a", 0): 10, ("a", 1): 20, ("b", 0): 0})


@pytest.mark.parametrize("kept", [SinkProgress("s", 7, {}), SinkProgress("s", 8, {("a", 0): 99})])
def test_a_sink_that_is_as_far_or_ahead_lacks_nothing(kept: SinkProgress) -> None:
    """The offsets may differ: those of a checkpoint are moved past what Kafka has lost."""
    assert missing_from_sink(COMMITTED, kept) is None


def test_a_stream_that_wrote_nothing_lacks_nothing() -> None:
    assert missing_from_sink(SinkProgress("s", NO_BATCH, {("a", 0): 5}), None) is None


def test_an_empty_sink_lacks_all() -> None:
    words = missing_from_sink(COMMITTED, None)
    assert words == "the sink has nothing of this stream; missing: a partition 0 up to 9, a partition 1 up to 19"


def test_an_older_sink_lacks_the_offsets_between() -> None:
    words = missing_from_sink(COMMITTED, SinkProgress("s", 3, {("a", 0): 4, ("a", 1): 20}))
    assert words == "the sink has this stream up to batch 3 only; missing: a partition 0 offsets 4 to 9"


def test_a_batch_of_no_offsets_is_missing_too() -> None:
    words = missing_from_sink(SinkProgress("s", 7, {}), SinkProgress("s", 3, {}))
    assert words == "the sink has this stream up to batch 3 only; missing: no offsets"


def test_many_partitions_are_counted() -> None:
    many = SinkProgress("s", 7, {("a", number): 1 for number in range(100)})
    words = missing_from_sink(many, None)
    assert words is not None
    assert words.endswith("a partition 4 up to 0 and 95 more partitions")


def test_progress_comes_back_from_its_text() -> None:
    assert progress_from_json(progress_to_json(COMMITTED)) == COMMITTED
    assert offsets_from_json(offsets_to_json(COMMITTED.offsets)) == COMMITTED.offsets
    assert offsets_to_json(COMMITTED.offsets) == '{"a":{"0":10,"1":20},"b":{"0":0}}'


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"stream": "s"}', '{"stream": "s", "batch": 1, "offsets": {"a": 1}, "format": 1}']
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        progress_from_json(text)
