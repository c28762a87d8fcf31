"""Marks a checkpoint with its job, by a note beside Spark's files, so that another job cannot use it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Final

from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.formats import require_format
from tailrace_spark.job.checkpoint_files import Files

FORMAT: Final = 1
"""Of what is in `<checkpoint>/tailrace`, and of the query whose places Spark keeps."""

_NOTE: Final = "stream.json"
_REMEDY: Final = "set another stream.checkpoint, which reads the topics from stream.starting_offsets on"


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


def job_of(settings: Settings, sink: str, store: str, *, transactions: bool = False) -> Job:
    """The job that these settings are of, into the store that `sink` and `store` name as for Job."""
    one_copy = settings.stream.one_copy_seconds is not None
    return Job(prefix=settings.topics.prefix, sink=sink, store=store, one_copy=one_copy, transactions=transactions)


def store_of(identity: str) -> str:
    """A digest of what tells a store from others, from which nobody has that again."""
    return blake2b(identity.encode(), digest_size=16, person=b"tailrace-store").hexdigest()


def require_own(files: Files, checkpoint: str, job: Job) -> None:
    """Note that `checkpoint` is this job's; raise SettingsError, and leave it alone, where it is not.

    `files` are those of `<checkpoint>/tailrace`.
    """
    text = require_not_anothers(files, checkpoint, job)
    note = json.dumps({"format": FORMAT, **asdict(job)})
    if note != text:
        files.write(_NOTE, note)


def require_not_anothers(files: Files, checkpoint: str, job: Job) -> str | None:
    """The text of the note in `checkpoint`, None without one. Raises as `require_own`, and writes nothing."""
    text = files.read(_NOTE)
    if text is not None:
        _compare(_noted(text, checkpoint), checkpoint, job)
    return text


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
