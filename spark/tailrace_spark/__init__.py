"""The Spark half: changes from Kafka with their stream ids, merged into sinks; the same parts as a library.

Its names are loaded when they are asked for: row state and sinks need no Spark. A job of yours begins with
`load_settings(path, os.environ)` and `spark_session(settings.stream.spark.reveal())`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tailrace_common.settings import load_settings
    from tailrace_spark.job.session import spark_session
    from tailrace_spark.source.changes import changes
    from tailrace_spark.tasks.merged import merged, merging

__all__ = ["changes", "load_settings", "merged", "merging", "spark_session"]

_MODULES: Final = {
    "changes": "tailrace_spark.source.changes",
    "load_settings": "tailrace_common.settings",
    "merged": "tailrace_spark.tasks.merged",
    "merging": "tailrace_spark.tasks.merged",
    "spark_session": "tailrace_spark.job.session",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
