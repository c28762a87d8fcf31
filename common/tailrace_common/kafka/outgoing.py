"""What a producer sends: records, tombstones, and the sizes that bound its memory and its requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

LARGEST_BATCH: Final = 1_000_000
_MIB: Final = 1 << 20
# What a batch of one record has around key and value: 61 bytes, and a few of lengths and times.
_AROUND: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What bounds a producer's memory and requests, in bytes. `buffer`: keys and values not acknowledged yet.

    `largest`: the largest record that there may be. `limits`: max.message.bytes by topic, as far as they are known, to
    which a broker holds a whole batch. The mapping may grow while the producer is open.
    """

    buffer: int = 32 * _MIB
    largest: int = 16 * _MIB
    limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def batch(self) -> int:
        """The largest batch that every topic takes."""
        return min((LARGEST_BATCH, *self.limits.values()))

    def settings(self) -> dict[str, int]:
        """librdkafka's names for them. Its buffer has to take the largest record, its own overhead is per record."""
        message = self.largest + _AROUND
        buffer = max(self.buffer, message) // 1024 + 1
        return {
            "queue.buffering.max.kbytes": buffer,
            "queue.buffering.max.messages": max(1000, buffer),
            "message.max.bytes": min(message, 1_000_000_000),
            "batch.size": max(1, self.batch),
        }


class Outgoing(Protocol):
    """A record on its way to a partition that is ours to choose. Without a value: a tombstone of its key.

    It may have `headers`, pairs of a name and its value (bytes): see `headers_of`.
    """

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The end of a key in a compacted topic."""

    topic: str
    partition: int
    key: bytes
    value: None = None


@dataclass(frozen=True, slots=True)
class WithHeaders:
    """A record with headers, names and values."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]


def headers_of(record: Outgoing) -> list[tuple[str, str | bytes | None]] | None:
    """The headers of a record that has any, as librdkafka's client takes them."""
    # Not isinstance of a protocol that has `headers`: that takes longer than sending the record.
    headers = getattr(record, "headers", None)
    return list(headers) if headers else None
