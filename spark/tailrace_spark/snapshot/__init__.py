"""Tables of Cassandra read by token ranges on Spark's executors: `spark.read.format("tailrace-snapshot")`.

`ranges` cuts the ring into pieces, `selection` has the statement, `page` takes pages apart, `rows` makes Arrow of them,
`pace` decides how fast. These compute only. `session` has the driver of Cassandra, and `source` is what Spark sees.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace_spark.snapshot.source import register

__all__ = ["register"]


def __getattr__(name: str) -> object:
    # Spark is imported when it is asked for: the rest needs none.
    if name == "register":
        return import_module("tailrace_spark.snapshot.source").register
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
