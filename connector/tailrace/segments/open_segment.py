"""One segment of cdc_raw, read while Cassandra writes it: its released frames, each once, in order."""

from __future__ import annotations

import mmap
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

from tailrace.commitlog.blocks import NO_KEYS, Keys
from tailrace.commitlog.descriptor import VERSIONS, Descriptor, read_descriptor
from tailrace.commitlog.frames import Entry, Stretch, frames, frames_of
from tailrace.commitlog.mutation import oldest_write
from tailrace.commitlog.sections import Cursor, Section, first_cursor, read_section
from tailrace.errors import MissingKeyError, WrongKeyError
from tailrace.segments.files import Index, SegmentFiles, pair, parse_index, require_end
from tailrace_schemas.errors import DecodeError, SettingsError
from tailrace_schemas.position import Position

_HEADER_BYTES: Final = 1 << 16
# A mutation can have half a segment; what is read ahead is bounded in bytes too.
_READ_BYTES: Final = 8 << 20
_FIRST_MUTATIONS: Final = 64
_REREAD: Final = 256


def header_checksum(path: Path) -> int:
    """The checksum of a segment's header, 0 where what stands there is none. Raises OSError, which names the file."""
    with path.open("rb") as file:
        try:
            return read_descriptor(file.read(_HEADER_BYTES)).checksum
        except DecodeError:
            return 0
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error


def is_genuine(files: SegmentFiles) -> bool:
    """Whether a log stands there that Cassandra may have written under this name: its header is whole, and says the
    same id. What anybody put there must not make an older segment look finished."""
    if files.log is None:
        return False
    try:
        with files.log.open("rb") as file:
            return read_descriptor(file.read(_HEADER_BYTES)).id == files.id
    except (DecodeError, OSError):
        return False


class OpenSegment:
    """A segment's open file. Stays readable when the name is deleted. Not thread-safe; close it.

    Reading starts behind the logical position `offset`: 0, or the end of a frame. Raises OSError when it cannot be
    opened; FileNotFoundError is normal, as Cassandra deletes segments without cdc data itself. `keys` open encrypted
    segments. `file` is the segment where somebody has it open already; it is closed here.
    """

    def __init__(
        self,
        path: Path,
        segment: int,
        epoch: int,
        offset: int = 0,
        keys: Keys = NO_KEYS,
        file: BinaryIO | None = None,
    ) -> None:
        self.path = path
        self.id = segment
        self._keys = keys
        self._epoch = epoch
        self._after = offset
        self._file = file or path.open("rb")
        self._data: mmap.mmap | bytes = b""
        self._descriptor: Descriptor | None = None
        self._cursor = Cursor(0, 0)
        self._section: Section | None = None
        self._stretch: Stretch | None = None
        self.ended = False
        """Whether the last read came to the end of everything that stands in the file now."""

    @property
    def position(self) -> Position:
        """Up to where entries were handed out."""
        return Position(self._epoch, self.id, self._after)

    @property
    def logical(self) -> int:
        """The logical position of the sync marker that is read next."""
        return self._cursor.logical

    @property
    def encrypted(self) -> bool:
        """Whether its header, once read, says that it is encrypted."""
        return self._descriptor is not None and self._descriptor.cipher is not None

    @property
    def unlinked_by_cassandra(self) -> bool:
        """Whether the commit log's own link is gone while ours stands: Cassandra writes no more into this file.

        False when our name was deleted too: the one link left would then be the commit log's.
        """
        try:
            named = self.path.stat()
        except OSError:
            return False
        opened = os.fstat(self._file.fileno())
        return opened.st_nlink == 1 and (named.st_ino, named.st_dev) == (opened.st_ino, opened.st_dev)

    @property
    def unlinked(self) -> bool:
        """Whether its last name is gone, ours and Cassandra's: nobody writes into it."""
        return os.fstat(self._file.fileno()).st_nlink == 0

    @property
    def begun(self) -> bool:
        """Whether a section stands there by now. Cassandra allocates segments ahead: those are zeros at first."""
        try:
            self._remap()
            if self._descriptor is None:
                self._open_header()
            descriptor = self._descriptor
            return descriptor is not None and read_section(descriptor, self._data, self._cursor, self._keys) is not None
        except DecodeError:
            return False

    def began(self) -> int | None:
        """About when the segment began, by the write times of its first mutations (microseconds); None where they say
        nothing. Their middle counts, as a writer may choose any time."""
        if self._descriptor is None:
            return None
        try:
            section = read_section(self._descriptor, self._data, first_cursor(self._descriptor), self._keys)
            first = [] if section is None else islice(frames(section), _FIRST_MUTATIONS)
            times = [oldest_write(frame.payload, self._descriptor.version) for frame in first]
        except DecodeError:
            return None
        write_times = sorted(time for time in times if time is not None)
        return write_times[len(write_times) // 2] if write_times else None

    def missing_end(self, index: Index | None) -> DecodeError | None:
        """What says, once all was read, that the file ends before what its index released; None where it does not."""
        if not self.ended:
            return None
        try:
            require_end(index, self._cursor.logical, os.fstat(self._file.fileno()).st_size)
        except DecodeError as error:
            error.file = self.path.name
            return error
        return None

    def read(self, limit: int, released: int | None) -> tuple[list[Entry], DecodeError | None]:
        """The next entries, at most `limit` and about 8 MiB, and what broke behind them.

        Only whole sections that end at or below the logical position `released` are read; None releases everything.
        After an error the next read tries that section again, behind the last entry handed out.
        """
        entries: list[Entry] = []
        self.ended = False
        size = 0
        try:
            while len(entries) < limit and size < _READ_BYTES:
                if self._stretch is not None and not self._stretch.ended:
                    size += self._take(self._stretch, entries, limit, _READ_BYTES - size)
                elif not self._next_section(released):
                    break
        except DecodeError as error:
            self._section, self._stretch = None, None
            error.file = self.path.name
            return entries, error
        return entries, None

    def _take(self, stretch: Stretch, entries: list[Entry], limit: int, most_bytes: int) -> int:
        try:
            return stretch.take(entries, limit, most_bytes)
        finally:
            self._after = stretch.after

    def select(self, tables: frozenset[bytes], size: int) -> tuple[list[Entry], DecodeError | None]:
        """The mutations of the next sections that begin with an update of one of `tables`, and the error behind them.

        `tables` are the bytes of table ids. It reads sections of about `size` bytes in all.

        Every section that stands there is read, up to the last valid marker, released or not. After an error the next
        call tries that section again, behind the last mutation that was given.
        """
        entries: list[Entry] = []
        self.ended = False
        try:
            while size > 0 and self._next_section(None) and (section := self._section) is not None:
                for frame in frames_of(section, tables, self._id_at(), self._after):
                    self._after = frame.end
                    entries.append(Entry(self._epoch, self.id, frame.end, frame.payload, self._version, self.path.name))
                self._after = max(self._after, section.end.logical)
                size -= len(section.data)
        except DecodeError as error:
            self._section, self._stretch = None, None
            error.file = self.path.name
            return entries, error
        return entries, None

    def _id_at(self) -> int:
        """Where a mutation's first table id stands: behind the number of updates, and from version 9 on, flags."""
        return 2 if self._descriptor is not None and VERSIONS[self._descriptor.version].metadata_epochs else 1

    @property
    def _version(self) -> int:
        return 0 if self._descriptor is None else self._descriptor.version

    def _next_section(self, released: int | None) -> bool:
        if self._section is not None:
            self._cursor, self._section = self._section.end, None
        self._remap()
        if self._descriptor is None:
            self._open_header()
        descriptor = self._descriptor
        if descriptor is None or (released is not None and self._cursor.logical >= released):
            return False
        section = read_section(descriptor, self._data, self._cursor, self._keys)
        self._let_go()
        if section is None:
            self.ended = True
            return False
        if released is not None and section.end.logical > released:
            return False
        self._section = section
        self._stretch = None
        if section.end.logical > self._after:
            self._stretch = Stretch(self._epoch, self.id, self._version, self.path.name, section, self._after)
        return True

    def _open_header(self) -> None:
        descriptor = read_descriptor(self._data)
        if descriptor.id != self.id:
            raise DecodeError(f"the header's segment id is {descriptor.id}, the name's {self.id}", offset=4)
        self._descriptor = descriptor
        self._cursor = first_cursor(descriptor)

    def _remap(self) -> None:
        """Map the file at its present size: compressed and encrypted segments grow, others have their full size."""
        size = os.fstat(self._file.fileno()).st_size
        if size == len(self._data):
            return
        self._unmap()
        if size:
            self._data = mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_READ)

    def _let_go(self) -> None:
        """A section is a copy: the pages that it came from need not stay in memory beside it."""
        if isinstance(self._data, mmap.mmap):
            self._data.madvise(mmap.MADV_DONTNEED)

    def _unmap(self) -> None:
        if isinstance(self._data, mmap.mmap):
            self._data.close()
        self._data = b""

    def close(self) -> None:
        """Close file and map."""
        self._unmap()
        self._file.close()


def entries_at(segment: OpenSegment, offsets: Collection[int], *, opened: bool) -> Iterator[Entry]:
    """The mutations of a segment, just opened, that end at these offsets, in order; fewer where it is damaged. It is
    closed at the end. Raises OSError, and SettingsError as `require_keys` does with `opened`."""
    remaining = set(offsets)
    with closing(segment):
        while remaining:
            entries, error = segment.read(_REREAD, None)
            if not entries:
                require_keys(error, opened=opened)
                return
            opened |= segment.encrypted
            for entry in entries:
                if entry.offset in remaining:
                    remaining.discard(entry.offset)
                    yield entry


def holds_table(segment: OpenSegment, id: bytes, after: Position, until: Position) -> bool:
    """Whether a mutation of a segment, just opened, that ends between two places names a table by its id, or may: it is
    damaged. It is closed at the end. Raises OSError."""
    with closing(segment):
        while True:
            entries, error = segment.read(_REREAD, None)
            if error is not None or any(after < entry.position <= until and id in entry.payload for entry in entries):
                return True
            if not entries:
                return False


def require_keys(error: DecodeError | None, *, opened: bool) -> None:
    """Raise SettingsError for keys that cannot be right, as far as is known: `opened` says whether they have opened a
    segment."""
    if isinstance(error, MissingKeyError):
        raise SettingsError(f"{error}: set agent.keystore, or agent.segment_key")
    if isinstance(error, WrongKeyError) and not opened:
        raise SettingsError(
            f"{error}. Nothing was read yet that says which: see agent.keystore and agent.segment_key. If they "
            "are right, move this file and its index away: the rest can be published then"
        )


def is_final(
    segment: OpenSegment, index: Index | None, segments: Mapping[int, SegmentFiles], keys: Keys, *, early: bool
) -> bool:
    """Whether all of an open segment stands in its file: `segments` are those of cdc_raw and its spool, `index` is what
    its own says. In early mode a file without a name says so too, and any later segment that has begun.

    By then Cassandra's sync thread has written the last marker of every earlier segment, not only of the one before.
    """
    own_files = segments.get(segment.id)
    if own_files is not None and own_files.spooled:
        return True
    later = [files for id, files in sorted(segments.items()) if id > segment.id]
    if any(files.index is not None and is_genuine(files) for files in later):
        return True
    if index is not None and index.completed:
        return True
    if segment.unlinked_by_cassandra:
        return True
    successors = (has_begun(files.log, keys) for files in later if files.log is not None)
    return early and (segment.unlinked or any(successors))


def has_begun(path: Path, keys: Keys) -> bool:
    """Whether a section stands in a segment's file."""
    (files,) = pair(path.parent, [path.name]).segments
    try:
        with closing(OpenSegment(path, files.id, 0, 0, keys)) as segment:
            return segment.begun
    except OSError:
        return False


def index_of(files: SegmentFiles) -> Index | None:
    """What a segment's index says now; None where it is gone, or says nothing. Raises OSError, which names it."""
    if files.index is None:
        return None
    try:
        return parse_index(files.index.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(files.index)) from error
