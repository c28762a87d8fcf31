"""The spool: where finished segments wait when cdc_raw nears its limit; read with cdc_raw as one sequence by id.

Cassandra counts cdc_raw alone against cdc_total_space, so what stands here stops no writes. One directory for each
host and log epoch, because ids are unique in a node's log only. Only final segments come here: all here is final.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Final

from tailrace.retention.release import DISK, Disk, copy_file, move_file, sweep
from tailrace.segments.files import Listing, SegmentFiles, list_cdc_raw, list_segments
from tailrace.segments.open_segment import header_checksum
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.formats import require_format

_LOG: Final = logging.getLogger("tailrace.capture")
_FIRST_EPOCH: Final = 1
_EPOCH_FILE: Final = "epoch"
EPOCH_FORMAT: Final = 2
"""Of the file that has the epoch."""


class SpoolError(Exception):
    """A segment cannot leave cdc_raw, for the spool or for good; the words say why, for people. Nothing was moved."""


class Spool:
    """A host's part of the spool directory: `<root>/<epoch>/`. Made when it is first needed.

    Raises SettingsError where another version wrote the file of the epoch.

    `limit` is in bytes. `lock` is held while a segment is moved: who lists, opens or deletes segments holds it too.
    """

    def __init__(self, root: Path, limit: int, disk: Disk = DISK) -> None:
        self.root = root
        self.limit = limit
        self.lock = threading.RLock()
        self._disk = disk
        self._epoch = _last_epoch(root)
        self._swept = False
        self._early: list[str] = []  # moved before the epoch was known

    @property
    def directory(self) -> Path:
        """Where segments of the present epoch go."""
        return self.root / str(self._epoch)

    def use(self, epoch: int) -> None:
        """The log epoch, as Kafka has it. Until then the last one known here counts: Kafka may be down.

        Raises ServiceError where what was moved until then cannot go to its place.
        """
        with self.lock:
            previous, self._epoch = self.directory, epoch
            try:
                while self.directory != previous and self._early:
                    self.directory.mkdir(parents=True, exist_ok=True)
                    move_file(previous / self._early[0], self.directory / self._early[0], self._disk)
                    del self._early[0]
            except OSError as error:
                self._epoch = int(previous.name)
                raise ServiceError(_words(self.directory, error)) from error
            self._early.clear()
            if os.path.isdir(self.root) and os.access(self.root, os.W_OK):
                try:
                    self._note_epoch()
                except OSError as error:  # only a start without Kafka needs it, and publishing must not wait for a disk
                    _LOG.warning(
                        "cannot note the log epoch in %s: %s; it is noted with the next segment that is spooled",
                        *(self.root, error.strerror),
                    )

    def listing(self) -> Listing:
        """What stands here; empty where there is no such directory, as far as this user may see. Raises OSError."""
        return list_segments(self.directory) if os.path.isdir(self.directory) else Listing((), ())

    def size(self) -> int:
        """Bytes of all segments here."""
        return sum(size_of(files) for files in self.listing().segments)

    def left_behind(self) -> tuple[Path, ...]:
        """Directories of earlier log epochs that still have segments: nobody reads them any more. None where this user
        may not look."""
        if not (os.path.isdir(self.root) and os.access(self.root, os.R_OK | os.X_OK)):
            return ()
        earlier = (path for path in sorted(self.root.iterdir()) if path.is_dir() and path != self.directory)
        return tuple(path for path in earlier if any(path.glob("CommitLog-*.log")))

    def take(self, files: SegmentFiles) -> None:
        """Move a final segment here out of cdc_raw: a copy of the index, the log, and then cdc_raw's index goes.

        In that order a log in cdc_raw is never without its index: Cassandra deletes such a one when it restarts. A
        segment that is here already is only deleted there. Raises SpoolError.
        """
        if files.log is None or files.index is None:
            return
        with self.lock:
            try:
                self._open()
                copy_file(files.index, self.directory / files.index.name, self._disk)
                self._early.append(files.index.name)
                move_file(files.log, self.directory / files.log.name, self._disk)
                self._early.append(files.log.name)
                self._disk.unlink(files.index)
            except FileNotFoundError as error:
                if error.filename not in (str(files.log), str(files.index)):  # else it was released meanwhile
                    raise SpoolError(_words(self.directory, error)) from error
            except OSError as error:
                raise SpoolError(_words(self.directory, error)) from error
        _LOG.info("spooled segment %d to %s", files.id, self.directory)

    def save(self, name: str, descriptor: int) -> Path:
        """Keep a final segment without an index here, by its open file: the path of its copy, which has one.

        Its last name may be gone already. Raises ServiceError.
        """
        log = self.directory / name
        with self.lock:
            try:
                if not log.exists():
                    self._open()
                    (self.directory / f"{log.stem}_cdc.idx").write_text("0\nCOMPLETED", "utf-8")
                    copy_file(Path(f"/dev/fd/{descriptor}"), log, self._disk)
                    _LOG.info("kept segment %s, which has no index, in %s", name, self.directory)
            except OSError as error:
                raise ServiceError(_words(self.directory, error)) from error
        return log

    def settle(self, files: SegmentFiles) -> int:
        """Delete what cdc_raw still has of a segment that is here: a move was cut off, or the node has linked it again.

        Bytes that cdc_raw has less; files of another log (by the header's checksum) stay, for their reader to judge.
        """
        size = size_in_raw(files)
        with self.lock:
            try:
                for path in files.doubles:
                    if path.suffix == ".log" and (
                        files.log is None or header_checksum(path) != header_checksum(files.log)
                    ):
                        return 0
                    self._disk.unlink(path)
            except OSError as error:
                _LOG.warning("cannot delete segment %d from the spool; trying again later: %s", files.id, error)
                return 0
        return size

    def problem(self) -> str | None:
        """Why nothing could be moved here, without making anything; None: it could."""
        refused = unwritable(self.directory)
        return None if refused is None else f"agent.spool_directory: {refused}"

    def _open(self) -> None:
        if os.path.isdir(self.directory) and self._swept:
            return
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o750)
        sweep(self.directory)
        self._note_epoch()
        self._swept = True

    def _note_epoch(self) -> None:
        file = self.root / _EPOCH_FILE
        if _last_epoch(self.root) != self._epoch or not file.exists():
            partial = self.root / f"{_EPOCH_FILE}.{os.getpid()}"
            partial.write_text(json.dumps({"epoch": self._epoch, "format": EPOCH_FORMAT}) + "\n", "utf-8")
            partial.replace(file)


def _last_epoch(root: Path) -> int:
    """The epoch that was noted last; the first one where none was, or half of it."""
    file = root / _EPOCH_FILE
    try:
        note = json.loads(file.read_bytes())
        require_format(str(file), note["format"], EPOCH_FORMAT)
        return int(note["epoch"])
    except (OSError, ValueError, LookupError, TypeError):
        return _FIRST_EPOCH


def _words(directory: Path, error: OSError) -> str:
    return f"agent.spool_directory: cannot move segments to {directory}: {error.strerror or error}"


def unwritable(directory: Path) -> str | None:
    """Why nothing could be put into a directory that may have to be made first; None: it could."""
    path = directory
    while not os.path.exists(path) and path != path.parent:
        path = path.parent
    if not os.path.isdir(path):
        return f"{path} is not a directory"
    if not os.access(path, os.W_OK | os.X_OK):
        return (
            f"this user may not write {path}" if path == directory else f"this user may not make {directory} in {path}"
        )
    return None


def size_of(files: SegmentFiles) -> int:
    """Bytes of a segment's files; those that just vanished count as nothing."""
    total = 0
    for path in (files.log, files.index):
        try:
            total += 0 if path is None else path.stat().st_size
        except OSError:
            continue
    return total


def size_in_raw(files: SegmentFiles) -> int:
    """The same, of what stands in cdc_raw."""
    if not files.spooled:
        return size_of(files)
    log, index = (next((path for path in files.doubles if path.suffix == end), None) for end in (".log", ".idx"))
    return size_of(SegmentFiles(files.id, log, index))


def list_both(directory: Path, spool: Spool | None) -> Listing:
    """cdc_raw and the spool as one sequence. Raises ServiceError.

    cdc_raw is listed first: what is moved meanwhile is then seen twice rather than not at all.
    """
    raw = list_cdc_raw(directory)
    if spool is None:
        return raw
    try:
        return merged(raw, spool.listing())
    except OSError as error:
        words = f"cannot list {spool.directory}: {error.strerror}; may this user read agent.spool_directory?"
        raise ServiceError(words) from error


def merged(raw: Listing, spool: Listing) -> Listing:
    """One sequence of two: a segment in both counts once, as the spool's, with cdc_raw's files as its `doubles`.

    The spool has a segment where it has its log; an index alone is half of a move.
    """
    raw_by_id = {files.id: files for files in raw.segments}
    spool_by_id = {files.id: files for files in spool.segments if files.log is not None}
    halves = {files.id: files for files in spool.segments if files.log is None}
    segments = []
    for id in sorted(raw_by_id.keys() | spool_by_id.keys()):
        raw_files, spooled = raw_by_id.get(id, SegmentFiles(id, None, None)), spool_by_id.get(id)
        if spooled is not None:
            doubles = tuple(path for path in (raw_files.log, raw_files.index) if path is not None)
            segments.append(SegmentFiles(id, spooled.log, spooled.index or raw_files.index, True, doubles))
        else:
            half = halves.get(id)
            doubles = () if half is None or half.index is None else (half.index,)
            segments.append(replace(raw_files, doubles=doubles))
    return Listing(tuple(segments), raw.foreign)
