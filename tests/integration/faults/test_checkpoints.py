"""A checkpoint is one stream's at a time."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from tailrace_schemas.errors import FencedError
from tests.integration.faults.followed import Followed


@pytest.mark.promise("stream.one-per-checkpoint")
def test_a_second_stream_with_one_checkpoint_is_refused_and_the_first_goes_on(followed: Followed) -> None:
    with followed.running() as errors:
        followed.insert(10)
        followed.until(set(range(11)))
        with pytest.raises((FencedError, PySparkException)) as refused:
            followed.drain()
        # Within one session Spark refuses the second query's name; between processes nobody but the lock refuses.
        assert isinstance(refused.value, FencedError)
        assert "another stream runs with it" in str(refused.value)
        followed.insert(11)
        followed.until(set(range(12)))
    assert errors == []
    followed.insert(12)
    followed.drain()
    assert followed.ids() == set(range(13))
