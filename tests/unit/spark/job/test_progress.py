"""Which batches tasks write."""

from __future__ import annotations

import pytest

from tailrace_schemas.errors import SettingsError
from tailrace_spark.job.progress import ExecutionChoice


@pytest.mark.promise("stream.execution")
def test_auto_is_executors_from_a_large_batch_until_several_small_ones() -> None:
    choice = ExecutionChoice("auto", large=100, few=50, batches=2)
    sizes = [99, 100, 0, 50, 0, 49, 99, 100]
    expected = ["driver", "executors", "executors", "executors", "executors", "driver", "driver", "executors"]
    assert [choice.choose(size) for size in sizes] == expected


@pytest.mark.parametrize("setting", ["driver", "executors"])
def test_what_is_set_holds_for_all_sizes(setting: str) -> None:
    choice = ExecutionChoice("driver" if setting == "driver" else "executors", large=100, few=50, batches=1)
    assert {choice.choose(size) for size in (0, 1000, 0, 0)} == {setting}


def test_without_packages_on_executors_the_driver_writes_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    choice = ExecutionChoice("auto", large=100, few=50, batches=1)
    assert choice.choose(100) == "executors"
    choice.keep_to_driver("the executors' Python has no module tailrace_spark")
    assert {choice.choose(size) for size in (100, 1000)} == {"driver"}
    assert "has no module tailrace_spark. The driver writes all batches" in caplog.text
    with pytest.raises(SettingsError, match=r'^stream.execution = "executors": no module'):
        ExecutionChoice("executors").keep_to_driver("no module")
