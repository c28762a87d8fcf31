"""Run as a program between the parent and its child: ties the child's life to the parent's, then becomes the child.

`python guard.py PARENT_PID PROGRAM ARGUMENT...`. Standard library only: it runs isolated from every package.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_DROP = 24
_CAP_IPC_LOCK = 14
_LOCKABLE_BYTES = 64 * 1024


def main(parent: int, command: list[str]) -> None:
    """Ask the kernel for SIGTERM at the parent's death, then exec. The process id stays the same."""
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        # Cassandra locks all of its memory where it may, twice what it needs; refused, it goes on without.
        prctl(_PR_CAPBSET_DROP, _CAP_IPC_LOCK, 0, 0, 0)
    _, maximum = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = _LOCKABLE_BYTES if maximum == resource.RLIM_INFINITY else min(_LOCKABLE_BYTES, maximum)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
    if os.getppid() != parent:  # it died before the kernel was asked
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - no shell is the point


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
