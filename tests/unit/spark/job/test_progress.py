"""Which batches tasks write."""

from __future__ import annotations

import pytest

from tailrace_schemas.errors import SettingsError
from tailrace_spark.job.progress import FEW_BATCHES, FEW_RECORDS, MANY_RECORDS, ExecutionChoice


@pytest.mark.promise("stream.execution")
def test_auto_is_executors_from_a_large_batch_until_several_small_ones() -> None:
    choice, small = ExecutionChoice("auto"), [FEW_RECORDS - 1] * (FEW_BATCHES - 1)
    sizes = [MANY_RECORDS - 1, MANY_RECORDS, *small, FEW_RECORDS, *small, 0, MANY_RECORDS - 1, MANY_RECORDS]
    expected = ["driver", *["executors"] * (2 * FEW_BATCHES), "driver", "driver", "executors"]
    assert [choice.choose(size) for size in sizes] == expected


@pytest.mark.parametrize("setting", ["driver", "executors"])
def test_what_is_set_holds_for_all_sizes(setting: str) -> None:
    choice = ExecutionChoice("driver" if setting == "driver" else "executors")
    assert {choice.choose(size) for size in (0, MANY_RECORDS, *[0] * FEW_BATCHES)} == {setting}


def test_without_packages_on_executors_the_driver_writes_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    choice = ExecutionChoice("auto")
    assert choice.choose(MANY_RECORDS) == "executors"
    choice.keep_to_driver("the executors' Python has no module tailrace_spark")
    assert {choice.choose(size) for size in (0, MANY_RECORDS)} == {"driver"}
    assert "has no module tailrace_spark. The driver writes all batches" in caplog.text
    with pytest.raises(SettingsError, match=r'^stream.execution = "executors": no module'):
        ExecutionChoice("executors").keep_to_driver("no module")
