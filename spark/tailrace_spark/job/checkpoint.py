"""A checkpoint is one job's, by a note beside Spark's files, and one process's at a time; the form of such notes."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from tailrace_common.locks import lock_soon
from tailrace_common.settings import Settings
from tailrace_schemas.errors import FencedError, SettingsError
from tailrace_schemas.formats import require_format
from tailrace_spark.job.checkpoint_files import Folder, LocalFiles
from tailrace_spark.job.progress import SinkInfo

_NOTE: Final = "stream.json"
_REMEDY: Final = "set another stream.checkpoint, which reads the topics from stream.starting_offsets on"
FORMAT: Final = 1
log = logging.getLogger("tailrace_spark")

_MARK: Final = "owner.json"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The owner of a checkpoint. `sink` is its store without secrets, empty where that is not known.

    `store` is a digest that tells it from others where its name for people does not (`store_of`).
    `one_copy`: whether copies are left out, which changes what Spark keeps; for how long may change.
    `transactions`: whether updates go whole, so that a batch has changes from behind its end.
    """

    prefix: str
    sink: str = ""
    one_copy: bool = False
    store: str = ""
    transactions: bool = False


def job_of(settings: Settings, sink: SinkInfo, *, transactions: bool) -> Job:
    """The job that these settings are of, into this sink."""
    return Job(
        prefix=settings.topics.prefix, sink=sink.location, store=sink.store, transactions=transactions,
        one_copy=settings.stream.one_copy_seconds is not None,
    )  # fmt: skip


def store_of(identity: str) -> str:
    """A digest of what tells a store from others, from which nobody has that again."""
    return blake2b(identity.encode(), digest_size=16, person=b"tailrace-store").hexdigest()


def require_own(files: Folder, checkpoint: str, job: Job) -> None:
    """Note that `checkpoint` is this job's; raise SettingsError, and leave it alone, where it is not.

    `files` are those of `<checkpoint>/tailrace`.
    """
    text = files.read(_NOTE)
    if text is not None:
        _compare(_noted(text, checkpoint), checkpoint, job)
    note = json.dumps({"format": FORMAT, **asdict(job)})
    if note != text:
        files.write(_NOTE, note)


def _noted(text: str, checkpoint: str) -> Job:
    subject = f"stream.checkpoint {checkpoint}"
    try:
        note = json.loads(text)
        otherwise = f", or {_REMEDY}; a merging sink comes out the same"
        require_format(subject, note.pop("format"), FORMAT, otherwise=otherwise)
        return Job(**note)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"{subject}: tailrace/{_NOTE} in it is damaged ({error}); remove that file if the "
            "checkpoint is this stream's, or set another stream.checkpoint"
        ) from None


def _compare(noted: Job, checkpoint: str, job: Job) -> None:
    subject = f"stream.checkpoint {checkpoint}"
    if noted.prefix != job.prefix:
        raise SettingsError(f"{subject} is of the topics of {noted.prefix}, not of {job.prefix}: {_REMEDY}")
    if noted.sink and job.sink and (noted.store or noted.sink) != (job.store or job.sink):
        owner = f"the sink {noted.sink}, not of {job.sink}" if noted.sink != job.sink else f"another sink at {job.sink}"
        raise SettingsError(
            f"{subject} is of {owner}, which would lack everything before: {_REMEDY}; "
            f"if it is the same store at another address, remove tailrace/{_NOTE} in the checkpoint"
        )
    if noted.one_copy != job.one_copy:
        noted_mode = "with" if noted.one_copy else "without"
        raise SettingsError(
            f"{subject} was written {noted_mode} stream.one_copy_seconds, and what Spark keeps differs: {_REMEDY}"
        )
    if noted.transactions != job.transactions:
        noted_mode = "with" if noted.transactions else "without"
        raise SettingsError(
            f"{subject} was written {noted_mode} transactions of the sink, and a mutation at its end would lack "
            f"changes or have them twice: {_REMEDY}"
        )


def encode_note(**members: object) -> str:
    """The text of a note."""
    return json.dumps({"format": FORMAT, **members}, sort_keys=True)


def decode_note(text: str, name: str) -> dict[str, Any]:
    """The members of a note. Raises SettingsError for another format, and ValueError for what is no note."""
    note = json.loads(text)
    if not isinstance(note, dict):
        raise ValueError(f"tailrace/{name} in the checkpoint is no JSON object")
    record = f"tailrace/{name} in stream.checkpoint"
    require_format(record, note.get("format"), FORMAT, otherwise=", or set another stream.checkpoint")
    return note


def read_note(files: Folder, name: str) -> dict[str, Any] | None:
    """The members of a note that a stream cannot do without; None where there is none. Raises SettingsError.

    `files` are those of `<checkpoint>/tailrace`. On file systems of Hadoop's a crash may cut one off.
    """
    text = files.read(name)
    try:
        return None if text is None else decode_note(text, name)
    except ValueError as error:
        raise SettingsError(
            f"tailrace/{name} in stream.checkpoint is damaged ({error}): restore that file, or {_REMEDY}"
        ) from None


def lock_checkpoint(
    folder: Path, checkpoint: str, *, now: float, wait: Callable[[float], object] = time.sleep
) -> ExitStack | None:
    """Lock `<checkpoint>/tailrace`, a folder of this machine, which is made where it is missing.

    The lock lasts until what is returned is closed, or the process ends; the mark stays.
    `now` is the wall clock in seconds. None where its file system has no locks, which the log says. Raises FencedError
    while another stream has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not lock_soon(descriptor, wait):
            raise FencedError(_busy(folder, checkpoint))
        since = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
        owner = {"hostname": os.uname().nodename, "pid": os.getpid(), "since": since, "version": _VERSION}
        LocalFiles(folder).write(_MARK, json.dumps(owner))
    except FencedError:
        os.close(descriptor)
        raise
    except OSError as error:
        os.close(descriptor)
        log.warning("stream.checkpoint %s cannot be locked (%s): start no second stream with it", checkpoint, error)
        return None
    lock = ExitStack()
    lock.callback(os.close, descriptor)
    return lock


def _busy(folder: Path, checkpoint: str) -> str:
    try:
        mark = json.loads(LocalFiles(folder).read(_MARK) or "{}")
        owner = f" (started {mark['since']} on {mark['hostname']}, pid {mark['pid']})"
    except (OSError, ValueError, KeyError, TypeError):
        owner = ""
    return (
        f"stream.checkpoint {checkpoint}: another stream runs with it{owner}. Two streams with one checkpoint lose "
        "changes: stop that one first, or set another stream.checkpoint for this one"
    )
