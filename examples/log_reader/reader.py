"""Reads a log table generation by generation, window by window, and remembers how far it is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Session
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import ordered_dict_factory

from examples.log_reader.descriptions import Descriptions, Generation
from examples.log_reader.limits import Limit

_UUID_EPOCH = 0x01B21DD213814000
BEGINNING = -(_UUID_EPOCH // 10)
"""The least write time that a time UUID holds, in microseconds."""

LogRow = Mapping[str, Any]
Consumer = Callable[[Sequence[LogRow]], None]
"""Takes the rows of one write: they have one stream and one cdc$time, and are ordered by cdc$batch_seq_no."""


@dataclass(frozen=True)
class Progress:
    """Everything of `generation` (its start) that was written before `until` (microseconds) is done."""

    generation: int
    until: int


class ProgressFile:
    """Progress in a small file, replaced as a whole, so that a crash leaves the old one or the new one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Progress | None:
        """What was saved last; None before the first time."""
        return Progress(**json.loads(self._path.read_text())) if self._path.exists() else None

    def save(self, progress: Progress) -> None:
        """Keep this."""
        new = self._path.with_suffix(".new")
        with new.open("w") as file:
            json.dump({"generation": progress.generation, "until": progress.until}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)


class Reader:
    """Gives every write of a log table to a consumer: each stream's in the order of time.

    A window of `window` seconds is read once `limit` has passed its end (examples.log_reader.limits). What is written
    into the log behind that is missed: by the log's watermark only what is later than the stream's `lateness_seconds`,
    by a fixed time behind now all that comes after the stream stood still for longer. A generation is finished, up to
    the next one's start, before the next one is begun: a partition's changes go from a stream of the one into a stream
    of the other, and stay in order. After a crash the window that was being read is read again, so the consumer must
    bear to see a write twice.
    """

    def __init__(
        self,
        session: Session,
        log_table: str,
        descriptions: Descriptions,
        progress: ProgressFile,
        limit: Limit,
        *,
        window: float = 60,
    ) -> None:
        self._session = session
        self._descriptions = descriptions
        self._progress = progress
        self._window = round(window * 1_000_000)
        self._limit = limit
        self._select = session.prepare(
            f'SELECT * FROM {log_table} WHERE "cdc$stream_id" = ? AND "cdc$time" >= ? AND "cdc$time" < ?'
        )
        self._profile = session.execution_profile_clone_update(EXEC_PROFILE_DEFAULT, row_factory=ordered_dict_factory)
        self._streams: tuple[int, list[bytes]] | None = None

    def read(self, consumer: Consumer) -> bool:
        """Read the next window, if it is time for one: False where there is nothing to read yet."""
        found = self._next()
        if found is None:
            return False
        generation, since, until = found
        for write in self._writes(self._streams_of(generation), since, until):
            consumer(write)
        self._progress.save(Progress(generation.start, until))
        return True

    def read_all(self, consumer: Consumer) -> int:
        """Read until there is nothing to read yet; how many windows that were."""
        windows = 0
        while self.read(consumer):
            windows += 1
        return windows

    def _next(self) -> tuple[Generation, int, int] | None:
        """The generation and the window (microseconds, the end not included) that come next."""
        generations = self._descriptions.generations()
        limit = self._limit()
        done = self._progress.load()
        for generation in generations:
            if done is not None and generation.start < done.generation:
                continue
            first = done is None and generation is generations[0]
            since = BEGINNING if first else generation.start * 1000
            if done is not None and generation.start == done.generation:
                since = done.until
            if generation.end is not None and since >= generation.end * 1000:
                continue  # finished
            # What was written before the first generation is in its streams too: one window for all of that.
            until = max(since, generation.start * 1000) + self._window
            if generation.end is not None:
                until = min(until, generation.end * 1000)
            return (generation, since, until) if until <= limit else None
        return None

    def _streams_of(self, generation: Generation) -> list[bytes]:
        if self._streams is None or self._streams[0] != generation.start:
            self._streams = generation.start, self._descriptions.streams(generation)
        return self._streams[1]

    def _writes(self, streams: Sequence[bytes], since: int, until: int) -> Iterator[list[LogRow]]:
        """The writes of a window, stream by stream."""
        ends = lowest_time_uuid(since), lowest_time_uuid(until)
        asked = [(stream, *ends) for stream in streams]
        results = execute_concurrent_with_args(
            self._session, self._select, asked, concurrency=32, execution_profile=self._profile
        )
        for _, rows in results:
            for _, write in groupby(rows, key=lambda row: row["cdc$time"]):
                yield list(write)


def lowest_time_uuid(written: int) -> UUID:
    """The first of all time UUIDs of a microsecond, as Cassandra orders them: their last bytes are signed."""
    ticks = written * 10 + _UUID_EPOCH
    return UUID(
        fields=(ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, 0x1000 | ticks >> 48, 0x80, 0x80, 0x808080808080),
    )


def write_time(row: LogRow) -> int:
    """The write time of a log row, in microseconds."""
    ticks: int = row["cdc$time"].time
    return (ticks - _UUID_EPOCH) // 10
