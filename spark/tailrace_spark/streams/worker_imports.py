"""Keeps a task short in the Python worker that runs it."""

from __future__ import annotations

import gc
import sys
from zipimport import zipimporter


def begin_task() -> None:
    """Called first by all that runs in a worker.

    Forgets the importers of archives, which are made again where something is imported from them. PySpark invalidates
    the caches of all importers at the start of each task. Before Python 3.13 that makes an archive's importer read the
    archive's whole directory. A worker has a dozen of pyspark.zip: 0.1 s of each task (measured).

    Leaves what modules have made to itself. The collector of cycles would look through these 100,000 objects each time
    that a task has made many of its own.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]
    if not gc.get_freeze_count():
        gc.freeze()
