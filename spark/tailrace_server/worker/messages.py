"""What a worker and a Spark application of a subscription's own tell each other: one line of JSON for each message."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Self

from tailrace_server.worker.failures import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    def to_line(self) -> bytes:
        """As JSON, with the end of its line."""
        return json.dumps(asdict(self)).encode() + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(_Message):
    """What the application is to run: the claim of a worker, by its subscription's id, its owner and its token.

    `config` is the settings file that the worker was given; without one both look at the same places. No secret is
    among it: the application opens the sealed settings itself.
    """

    subscription: int
    owner: str
    token: int
    config: str | None
    log_level: str
    log_format: str

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Out of `to_line`."""
        return cls(**json.loads(line))


@dataclass(frozen=True, slots=True, kw_only=True)
class Status(_Message):
    """How a run is, as `Running` says."""

    works: bool = False
    failure: Failure | None = None
    note: Failure | None = None
    finished: str | None = None

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Out of `to_line`."""
        values = json.loads(line)
        for name in ("failure", "note"):
            values[name] = None if values[name] is None else Failure(**values[name])
        return cls(**values)
