"""What must be in Kafka by the log's own word, decoded apart from the agent, and the comparison with what is there."""

from __future__ import annotations

import mmap
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from uuid import UUID

from tailrace.commitlog.descriptor import parse_name, read_descriptor
from tailrace.commitlog.frames import frames
from tailrace.commitlog.mutation import decode_mutation, first_table
from tailrace.commitlog.sections import sections
from tailrace_schemas.change import Change, Source
from tailrace_schemas.digest import change_digest
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import partition
from tests.integration.agents import Published
from tests.oracle.split import changes_of
from tests.support.background import Background
from tests.unit.changes.published import published as without_dropped

Definitions = Mapping[UUID, Table]

_LOOK_SECONDS: Final = 0.02
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Fact:
    """A change: its table, its place in the log (segment, offset, index), the number of its mutation's changes, its
    partition in the topic, and its own digest with one of what it holds, taken anew."""

    table: str
    place: tuple[int, int, int]
    count: int
    partition: int
    digest: bytes

    @property
    def name(self) -> tuple[str, tuple[int, int, int]]:
        """What is the same of a change however it was spoiled."""
        return self.table, self.place


class Links(Background):
    """Hard links of every segment of a commit log, made in `folder` as soon as it appears, whoever deletes it later.

    They are made from the commit log's own directory: a segment has its link in cdc_raw from there, and not always.
    Both directories are on one file system. Closing it ends the thread and leaves the links.
    """

    def __init__(self, commitlog: Path, folder: Path) -> None:
        super().__init__(self._look, _LOOK_SECONDS)
        self._commitlog = commitlog
        self._folder = folder
        self._made: set[str] = set()

    def paths(self) -> list[Path]:
        """The links, by segment id."""
        self._look()
        return sorted(self._folder.iterdir(), key=_segment)

    def __enter__(self) -> Self:
        self._folder.mkdir()
        self._look()
        return super().__enter__()

    def _look(self) -> None:
        for name in os.listdir(self._commitlog):
            if name.endswith(".log") and name not in self._made:
                # Gone already, or made by the other thread.
                with suppress(FileNotFoundError, FileExistsError):
                    (self._folder / name).hardlink_to(self._commitlog / name)
                self._made.add(name)


def _segment(path: Path) -> int:
    parsed = parse_name(path.name)
    assert parsed is not None, path
    return parsed[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What the test knows of the schema, as it made it: behind the row `n` of the table `marks`, in the log's order,
    the definitions `eras[n]` hold; before any, `eras[0]`. Of the topics, the number of partitions."""

    marks: UUID
    eras: Mapping[int, Definitions]
    partitions: int = 3


def logged(paths: Iterable[Path], script: Script, last: int) -> list[Fact]:
    """Every change of the script's tables in these segments, in the log's order, up to the mark `last` with it.

    Asserts that the mark is there.
    """
    definitions, facts = script.eras[0], list[Fact]()
    known = {id for era in script.eras.values() for id in era}
    for path in paths:
        for payload, version, source in _mutations(path, known):
            mutation = decode_mutation(payload, version, definitions.get)
            changes = changes_of(mutation, source, lambda table: table.cdc)
            facts += [fact_of(change, partition(change.token, script.partitions)) for change in changes]
            for mark in [int.from_bytes(one.key or b"", "big") for one in changes if one.table.id == script.marks]:
                definitions = script.eras.get(mark, definitions)
                if mark == last:
                    return facts
    raise AssertionError(f"the mark {last} is not in the log")


def _mutations(path: Path, known: set[UUID]) -> Iterator[tuple[bytes, int, Source]]:
    """Those that begin with one of these tables: payload, version, source."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if not any(data[:8]):  # allocated, not begun
                return
            descriptor = read_descriptor(data)
            for section in sections(descriptor, data):
                for frame in frames(section):
                    if first_table(frame.payload, descriptor.version)[1] in known:
                        yield (
                            frame.payload,
                            descriptor.version,
                            Source("", "", Position(1, descriptor.id, frame.end), 0, 0),
                        )


def fact_of(change: Change, where: int) -> Fact:
    """The fact that a change is, in a partition. Cells of dropped columns count in its own digest alone."""
    source = change.source
    assert source is not None
    place = (source.position.segment, source.position.offset, source.index)
    held = change_digest(without_dropped(change))
    return Fact(str(change.table), place, source.count, where, change.digest + held)


def facts_in(records: Iterable[Published]) -> list[Fact]:
    """What was published, in the order of each partition."""
    return [fact_of(record.change, record.partition) for record in records]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How what was published differs from the log: nothing anywhere when all is well."""

    changes: int
    lost: tuple[Fact, ...] = ()
    doubled: tuple[Fact, ...] = ()
    altered: tuple[Fact, ...] = ()
    invented: tuple[Fact, ...] = ()
    reordered: tuple[Fact, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether each change is there once, as the log has it, in its order."""
        return not (self.lost or self.doubled or self.altered or self.invented or self.reordered)

    def __str__(self) -> str:
        kinds = ("lost", "doubled", "altered", "invented", "reordered")
        counts = ", ".join(f"{len(getattr(self, kind))} {kind}" for kind in kinds)
        shown = [f"\n  {kind}: {fact}" for kind in kinds for fact in getattr(self, kind)[:_SHOWN]]
        return f"{self.changes} changes in the log: {counts}{''.join(shown)}"


def compare(expected: Iterable[Fact], found: Iterable[Fact]) -> Verdict:
    """The verdict. `found` is in the order of each partition; the same fact again is doubled, not reordered too."""
    wanted = {fact.name: fact for fact in expected}
    there = list(found)
    times = Counter(fact.name for fact in there)
    altered, invented = list[Fact](), list[Fact]()
    for fact in there:
        if fact.name not in wanted:
            invented.append(fact)
        elif fact != wanted[fact.name]:
            altered.append(fact)
    return Verdict(
        changes=len(wanted),
        lost=tuple(fact for name, fact in wanted.items() if name not in times),
        doubled=tuple(fact for name, fact in wanted.items() if times[name] > 1),
        altered=tuple(altered),
        invented=tuple(invented),
        reordered=tuple(_out_of_order(there)),
    )


def _out_of_order(found: Iterable[Fact]) -> Iterator[Fact]:
    """Facts behind a later one of their partition."""
    latest: dict[tuple[str, int], tuple[int, int, int]] = defaultdict(lambda: (-1, -1, -1))
    for fact in found:
        where = fact.table, fact.partition
        if fact.place < latest[where]:
            yield fact
        latest[where] = max(latest[where], fact.place)
