"""Copies of a change that another replica's agent has published too, left out of a task before they are decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow.compute as pc

from tailrace_schemas.change import Change
from tailrace_schemas.table import Table

_MOST: Final = 500_000
"""Digests that are kept, some 60 MB: copies come soon after each other."""


class Copies:
    """The changes of a share so far, of which no more copies are needed.

    A copy has the digest of its change. It has its schema too: a record of another schema may tell of a newer
    definition. A record counts as long as no copy of it was decoded: its bytes may be damaged where theirs are not.
    """

    def __init__(self, truncated: Callable[[Table], bool], is_asked: Callable[[Change], bool] | None) -> None:
        """Of tables that are `truncated` all copies count, and of changes whose rows are asked for.

        A replica may have a change from before a truncation, and another one from behind it (merge.truncation).
        """
        self._truncated = truncated
        self._is_asked = is_asked
        self._tables: dict[int, bool] = {}
        self._seen: set[bytes] = set()

    def identities(self, batch: Any) -> Sequence[bytes | None]:
        """What names the change of each record of a batch of tailrace_spark.streams.assign; None: it has no head."""
        names: list[bytes | None] = pc.binary_join_element_wise(
            batch.column("digest"), batch.column("schema_id"), b""
        ).to_pylist()
        return names

    def has(self, identity: bytes | None) -> bool:
        """Whether a copy of this change was decoded, and is enough."""
        return identity in self._seen

    def add(self, identity: bytes | None, change: Change) -> None:
        """Take note of a change that was decoded."""
        truncated = self._tables.get(id(change.table))
        if truncated is None:
            truncated = self._tables[id(change.table)] = self._truncated(change.table)
        if truncated or identity is None or (self._is_asked is not None and self._is_asked(change)):
            return
        if len(self._seen) == _MOST:
            self._seen.clear()
        self._seen.add(identity)
