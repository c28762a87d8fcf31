"""Where a micro-batch is decoded, merged and written: by the driver's own process, or in tasks on executors."""

from __future__ import annotations

import logging
from typing import Final, Literal

from tailrace_schemas.errors import SettingsError

log: Final = logging.getLogger("tailrace_spark")

Execution = Literal["driver", "executors"]

MANY_RECORDS: Final = 20_000
"""From so many records on tasks pay: starting them takes about a second, which the driver writes some 15,000 in."""
FEW_RECORDS: Final = 10_000
FEW_BATCHES: Final = 5


class ExecutionChoice:
    """Chooses by `stream.execution`: "auto" by the size of batches, and it does not change its mind at each of them.

    From the first batch of `many` records on it is executors, until `batches` in a row had less than `few`.
    """

    def __init__(
        self,
        setting: Literal["auto", "driver", "executors"],
        *,
        large: int = MANY_RECORDS,
        few: int = FEW_RECORDS,
        batches: int = FEW_BATCHES,
    ) -> None:
        self._setting: Literal["auto", "driver", "executors"] = setting
        self._large = large
        self._few = few
        self._batches = batches
        self._small_batches = 0
        self._current: Execution = "executors" if setting == "executors" else "driver"

    def choose(self, records: int) -> Execution:
        """The execution of the next batch, which has at most so many records."""
        if self._setting != "auto":
            return self._current
        self._small_batches = self._small_batches + 1 if records < self._few else 0
        if self._current == "driver" and records >= self._large:
            self._change("executors", records)
        elif self._current == "executors" and self._small_batches >= self._batches:
            self._change("driver", records)
        return self._current

    def keep_to_driver(self, reason: str) -> None:
        """Choose the driver from now on, since tasks cannot run. Raises SettingsError where it is to be executors."""
        if self._setting == "executors":
            raise SettingsError(f'stream.execution = "executors": {reason}')
        log.warning("%s. The driver writes all batches of this process", reason)
        self._setting = self._current = "driver"

    def _change(self, execution: Execution, records: int) -> None:
        self._current = execution
        log.info("batches are written by the %s from now on: this one has up to %d records", execution, records)


def execution_choice(setting: Literal["auto", "driver", "executors"], *, executors: bool) -> ExecutionChoice:
    """What a sink that `executors` can write, or cannot, leaves of stream.execution. Raises SettingsError."""
    if executors or setting == "driver":
        return ExecutionChoice(setting)
    if setting == "executors":
        raise SettingsError(
            'stream.execution = "executors": this sink is written by the driver alone; set "auto" or "driver"'
        )
    return ExecutionChoice("driver")
