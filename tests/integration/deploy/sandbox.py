"""Namespaces of network, mounts and processes, in which podman makes bridges and opens ports unseen by others.

Podman's network has its rules of the firewall and its DNS server there, and fixed ports are free. All ends with the
first process of the namespaces.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PROGRAMS: Final = ("setpriv", "unshare", "nsenter", "ip", "catatonit", "netavark", "aardvark-dns")
# Where podman keeps what a reboot ends: containers that run, addresses, locks.
_OF_THE_BOOT: Final = ("/run/libpod", "/run/containers", "/run/lock")
_FIRST: Final = "ip link set lo up; {mounts}echo ready; exec sleep infinity"


@contextmanager
def sandbox() -> Iterator[tuple[str, ...]]:
    """What goes before a command so that it runs in there."""
    mounts = "".join(f"mkdir -p {folder} && mount -t tmpfs none {folder}; " for folder in _OF_THE_BOOT)
    first = ("catatonit", "--", "sh", "-ec", _FIRST.format(mounts=mounts))  # the first process reaps the others
    dying = ("setpriv", "--pdeathsig", "KILL", "--")  # with this process, however that ends
    unshared = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    with subprocess.Popen([*dying, *unshared, *first], stdout=subprocess.PIPE, text=True) as outside:
        try:
            assert outside.stdout is not None
            assert outside.stdout.readline() == "ready\n"
            [pid] = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split()
            yield ("nsenter", "--target", pid, "--net", "--mount", "--pid", "--")
        finally:
            outside.kill()
