"""From segment bytes to frames, mutations, changes and Avro: CPU seconds per million mutations of each stage."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

from benchmarks.corpus import events
from tailrace.changes.split import changes_of
from tailrace.changes.transcode import Transcoder
from tailrace.commitlog.descriptor import read_descriptor
from tailrace.commitlog.frames import Frame, frames
from tailrace.commitlog.mutation import decode_mutation, first_table
from tailrace.commitlog.sections import first_cursor, read_section
from tailrace_common.build import describe
from tailrace_schemas.avro import Encoder
from tailrace_schemas.change import Source
from tailrace_schemas.table import Table

_ROUNDS = 3


def main() -> None:
    """Print a line per stage; each stage includes those above it."""
    place, definitions = events()
    tables = {table.id: table for table in definitions.tables}
    tracked = {table.id for table in definitions.tables if table.cdc}
    segments = sorted(place.glob("*.log"))
    size = sum(path.stat().st_size for path in segments)
    print(f"{len(segments)} segments, {size / 1e6:.0f} MB, {describe()}, best of {_ROUNDS}\n")
    print(f"{'stage':<10}{'mutations':>12}{'per second':>12}{'CPU s per million':>20}")
    for name, stage in _stages(tables).items():
        best, count = float("inf"), 0
        for _ in range(_ROUNDS):
            began, count = time.process_time(), 0
            for version, frame in _frames(segments):
                if first_table(frame.payload, version)[1] in tracked:
                    count += 1
                    stage(version, frame)
            best = min(best, time.process_time() - began)
        print(f"{name:<10}{count:>12,}{count / best:>12,.0f}{best / count * 1e6:>20.2f}", flush=True)


def _stages(tables: dict[UUID, Table]) -> dict[str, Callable[[int, Frame], None]]:
    source = Source(host="h", datacenter="dc", epoch=1, segment=1, offset=0, index=0, count=0)
    encoders: dict[UUID, Encoder] = {}

    def encode(version: int, frame: Frame) -> None:
        mutation = decode_mutation(frame.payload, version, tables.get)
        for change in changes_of(mutation, source, lambda table: table.cdc):
            encoder = encoders.get(change.table.id)
            if encoder is None:
                encoder = encoders[change.table.id] = Encoder(change.table, "bench")
            encoder.value(change)

    by_bytes = {table_id.bytes: table for table_id, table in tables.items()}
    transcoder = Transcoder("bench")
    return {
        "frames": lambda _version, _frame: None,
        "mutations": lambda version, frame: _drop(decode_mutation(frame.payload, version, tables.get)),
        "changes": lambda version, frame: _drop(
            changes_of(decode_mutation(frame.payload, version, tables.get), source, lambda table: table.cdc)
        ),
        "avro": encode,
        "transcode": lambda version, frame: _drop(transcoder.messages(frame.payload, version, by_bytes.get, source)),
    }


def _drop(value: object) -> None:
    del value


def _frames(segments: list[Path]) -> Iterator[tuple[int, Frame]]:
    for path in segments:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            descriptor = read_descriptor(data)
            cursor = first_cursor(descriptor)
            while section := read_section(descriptor, data, cursor):
                for frame in frames(section):
                    yield descriptor.version, frame
                cursor = section.end


if __name__ == "__main__":
    main()
