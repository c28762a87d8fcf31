"""A record as it goes to Kafka."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Record:
    """One record; the partition is ours to choose, never the client's (docs/contracts.md section 4)."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes
