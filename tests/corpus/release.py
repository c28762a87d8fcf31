"""What the releases of Cassandra differ in, as far as random statements meet it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a node understands. `element_times`: WRITETIME and TTL of multi-cell columns (CASSANDRA-8877).

    `far_expiry`: what is written may expire behind January 2038 (CASSANDRA-14227), which a setting allows.
    """

    vectors: bool = True
    element_times: bool = True
    snake_case: bool = True
    compact: bool = True
    far_expiry: bool = False

    def from_blob(self, cql_type: str, literal: str) -> str:
        """The function that makes a value of bytes (blobAsInt until 4.1)."""
        return f"blob_as_{cql_type}({literal})" if self.snake_case else f"blobAs{cql_type.capitalize()}({literal})"


def dialect_of(release: str, *, far_expiry: bool = False) -> Dialect:
    """The dialect of a `release_version`."""
    if release.startswith("4."):
        return Dialect(vectors=False, element_times=False, snake_case=False)
    return Dialect(compact=release.startswith("5."), far_expiry=far_expiry)
