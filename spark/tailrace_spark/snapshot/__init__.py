"""Tables of Cassandra read by token ranges on Spark's executors: `spark.read.format("tailrace-snapshot")`.

`ranges` cuts the ring into splits, `selection` has the statement, `page` takes pages apart. `rows` makes Arrow of them,
`changes` makes changes, and `pace` decides how fast. These compute only. `driver` has Cassandra's driver, `session`
what it says of a cluster, and `source` is what Spark sees.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace_spark.snapshot.source import change_schemas, register

__all__ = ["change_schemas", "register"]


def __getattr__(name: str) -> object:
    # Spark is imported when it is asked for: the rest needs none.
    if name in __all__:
        return getattr(import_module("tailrace_spark.snapshot.source"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
