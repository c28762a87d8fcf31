"""Python's collector is off inside, and as it was before afterwards."""

from __future__ import annotations

import gc

import pytest

from tailrace_spark.batch.gc_pause import gc_paused


@pytest.mark.parametrize("enabled", [True, False])
def test_it_is_as_before_afterwards(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ConnectionError):
            fail_inside()
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


def fail_inside() -> None:
    with gc_paused():
        assert not gc.isenabled()
        raise ConnectionError
