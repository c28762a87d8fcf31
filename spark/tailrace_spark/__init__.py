"""The Spark half: changes from Kafka with their stream ids, merged into sinks; the same parts as a library.

`tailrace_spark.changes` is loaded when it is asked for: row state and sinks need no Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace_spark.source.changes import changes

__all__ = ["changes"]


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(import_module("tailrace_spark.source.changes"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
