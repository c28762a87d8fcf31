"""Shares of a change log that executors write: each in its order, by the outlet of a worker process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import CommitMessage, MicroBatch, Piece
from tailrace_spark.sinks.changelog.sink import LogShares, Outlet, RecordForms, ShareImaging, emit
from tailrace_spark.sinks.protocol import Needed
from tailrace_spark.sinks.worker_cache import WorkerCache

Opened = TypeVar("Opened", bound=Outlet)
OpenedHere = TypeVar("OpenedHere", bound=Outlet, covariant=True)


class Opener(Protocol[OpenedHere]):
    """Makes the outlet of a worker process; equal ones share it. It is pickled, and may have secrets."""

    def open(self) -> OpenedHere: ...


@dataclass(frozen=True, slots=True)
class LogWriter:
    """Writes a share to where a change log goes."""

    opener: Opener[Outlet] = field(repr=False)
    batch: MicroBatch
    imaging: ShareImaging | None = None

    def write(self, share: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        """As DataWriter says."""
        imaged = pieces if self.imaging is None else self.imaging.imaged(share, pieces)
        with _OUTLETS.borrowed(self.opener) as opened:
            return CommitMessage(share, emit(opened.outlet.begin(self.batch), imaged, opened.forms))


class OpenedOutlet(Generic[Opened]):
    """A worker process's outlet, and the forms of its records."""

    def __init__(self, opener: Opener[Opened]) -> None:
        self.outlet = opener.open()
        self.forms = RecordForms()

    def close(self) -> None:
        """End its connections."""
        self.outlet.close()


_OUTLETS: Final = WorkerCache[Opener[Outlet], OpenedOutlet[Outlet]](OpenedOutlet)


@dataclass(frozen=True, slots=True)
class OpenedShares(LogShares):
    """As LogShares, by outlets that an opener makes.

    Readers leave out by its place what comes twice. Every attempt at a share writes each key in order, from the batch's
    beginning on. So the first copies are in order, whatever other attempts do. There is nothing to fence: what a late
    writer writes is a copy of what is written already.
    """

    opener: Opener[Outlet] = field(repr=False)

    def writer(self, batch: MicroBatch, needed: Needed, imaging: ShareImaging | None) -> LogWriter:
        """As LogShares says."""
        del needed  # changes say their own definitions
        return LogWriter(self.opener, batch, imaging)
