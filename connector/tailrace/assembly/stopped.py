"""Whether a host's agent has stopped, before something of its is changed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tailrace.agent.notes import IDLE
from tailrace.capture.owner import Owner, is_running, read_owner
from tailrace.errors import AgentRunsError
from tailrace.publish.hosts import HostRecord
from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError

_BUSY_SECONDS: Final = 15.0
"""An agent with anything to commit does so every 10 s at least."""
_LATE_SECONDS: Final = 15.0
"""How much later than its time an agent's record may come."""


def require_stopped(
    settings: Settings, record: HostRecord, now: float, *, fence: bool, directory: Path | None = None
) -> None:
    """Raise AgentRunsError where the host's agent runs, or may run; not for `fence`.

    The lock of cdc_raw says it where that is at hand, and owned by the host's agent. Else the age of its last record
    has to: an idle agent repeats that every 6 times agent.progress_seconds. `directory` is cdc_raw where it is not the
    settings'.
    """
    if fence:
        return
    owner = _owner(directory or settings.agent.cdc_raw_directory, settings.topics.prefix, record.host)
    if owner is not None and owner[1]:
        raise AgentRunsError(
            f"host {record.host}: {owner[0]} runs. Stop it, and try again; or give --fence, then it is shut out and "
            "ends with exit code 5"
        )
    quiet_seconds = _BUSY_SECONDS if owner is not None else IDLE * settings.agent.progress_seconds + _LATE_SECONDS
    age = record.age(now)
    if age < quiet_seconds:
        raise AgentRunsError(
            f"host {record.host} committed {age:.0f} s ago: its agent seems to run. Stop it, and try again in "
            f"{quiet_seconds - age:.0f} s; or give --fence, then it is shut out and ends with exit code 5"
        )


def _owner(directory: Path, prefix: str, host: str) -> tuple[Owner, bool] | None:
    """The host's agent that owns a directory, and whether it runs; None where the directory is not its own."""
    try:
        owner = read_owner(directory)
        if owner is None or (owner.prefix, owner.host) != (prefix, host):
            return None
        return owner, is_running(directory)
    except (OSError, SettingsError):
        return None
