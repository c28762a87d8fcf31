"""Python's collector of cycles, held off while many objects without any are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Inside, the collector looks at nothing: what has no cycles goes without it, and looking at it all costs a third.

    Use it around a bounded amount of work. Where the collector is off anyway it stays so.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
