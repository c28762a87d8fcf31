"""Run every benchmark, one after the other: `make bench`."""

from __future__ import annotations

import importlib
import os
import platform

BENCHMARKS = ("decode", "assign", "rowstate", "generations", "transactions", "sql", "delta", "sinks")


def main() -> None:
    """Each benchmark prints a table of its own; absolute times mean little on a shared machine, ratios do."""
    print(f"# {os.cpu_count()} cores, Python {platform.python_version()}, {platform.machine()}")
    for name in BENCHMARKS:
        print(f"\n## {name}\n", flush=True)
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
