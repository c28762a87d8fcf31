"""One ahead: what is computed here for the next step, while another program works on this one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

Item = TypeVar("Item")
_END: Final = object()


def prefetched(items: Iterable[Item]) -> Iterator[Item]:
    """The items, in order, each made in a thread of its own while the caller uses the one before.

    One at the most waits to be used. What making one raises is raised in its turn, behind all items before it. When
    the caller stops early the one that is being made is waited for, and forgotten.
    """
    iterator = iter(items)
    with ThreadPoolExecutor(1, "tailrace-ahead") as pool:
        coming = pool.submit(next, iterator, _END)
        while (item := coming.result()) is not _END:
            coming = pool.submit(next, iterator, _END)
            yield item  # type: ignore[misc]  # all but _END are items
