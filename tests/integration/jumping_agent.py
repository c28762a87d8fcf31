"""`tailrace agent` under a wall clock that jumps: by turns right, a day ahead and a day behind, for a second each.

Run with the program's own arguments.
"""

from __future__ import annotations

import time

from tailrace.cli.main import run

DAY = 86_400

_nanoseconds, _seconds = time.time_ns, time.time


def _wrong() -> int:
    """Seconds that the clock is ahead."""
    return (0, DAY, -DAY)[int(time.monotonic()) % 3]


if __name__ == "__main__":
    time.time_ns = lambda: _nanoseconds() + _wrong() * 10**9
    time.time = lambda: _seconds() + _wrong()
    run()
