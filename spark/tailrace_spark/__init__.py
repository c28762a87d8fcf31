"""The Spark half: changes from Kafka with their stream ids, merged into sinks; the same parts as a library.

`tailrace_spark.changes`, `merged` and `merging` are loaded when they are asked for: row state and sinks need no Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tailrace_spark.source.changes import changes
    from tailrace_spark.tasks.merged import merged, merging

__all__ = ["changes", "merged", "merging"]

_MODULES: Final = {
    "changes": "tailrace_spark.source.changes",
    "merged": "tailrace_spark.tasks.merged",
    "merging": "tailrace_spark.tasks.merged",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
