"""A sink and its server, and what new stores are made on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar
from uuid import uuid4

from tailrace.local import LocalCassandra, LocalKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Ground:
    """What stores are made on."""

    place: Path
    kafka: LocalKafka
    stack: ExitStack
    spark: Callable[[], SparkSession]
    cassandra: Callable[[], LocalCassandra]

    def directory(self) -> Path:
        """A new one."""
        made = self.place / uuid4().hex
        made.mkdir()
        return made


Store = TypeVar("Store")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way(Generic[Store]):
    """A sink and its server, of which version it is, and what makes a new store there; `missing`: why there is none."""

    sink: str
    server: Callable[[], str]
    new: Callable[[Ground], Store]
    missing: Callable[[], str | None] = lambda: None
    long: bool = True
