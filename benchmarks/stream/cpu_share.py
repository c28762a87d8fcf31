"""A limit of CPU for a process and its later children, by the kernel's control groups (root only)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

_PERIOD_US: Final = 20_000
"""Short, so that a limited process is never stopped for longer than this."""

_FIRST_VERSION: Final = Path("/sys/fs/cgroup/cpu")
_SECOND_VERSION: Final = Path("/sys/fs/cgroup")


@contextmanager
def cpu_share(pid: int, cores: float) -> Iterator[None]:
    """Give process `pid`, and what it starts from now on, at most `cores` cores together.

    Raises OSError where this machine has no control groups for CPU, or this user may not make one.
    """
    name = f"tailrace-{uuid4().hex[:8]}"
    quota = int(cores * _PERIOD_US)
    if _FIRST_VERSION.is_dir():
        group = _FIRST_VERSION / name
        group.mkdir()
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US), encoding="ascii")
        (group / "cpu.cfs_quota_us").write_text(str(quota), encoding="ascii")
    else:
        group = _SECOND_VERSION / name
        group.mkdir()
        (group / "cpu.max").write_text(f"{quota} {_PERIOD_US}", encoding="ascii")
    (group / "cgroup.procs").write_text(str(pid), encoding="ascii")
    try:
        yield
    finally:
        parent = group.parent / "cgroup.procs"
        for member in (group / "cgroup.procs").read_text(encoding="ascii").split():
            parent.write_text(member, encoding="ascii")
        group.rmdir()
