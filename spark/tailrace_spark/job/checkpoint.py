"""Marks a checkpoint with its job, by a note beside Spark's files, so that another job cannot use it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import urlsplit

from tailrace_common.secrets import origin
from tailrace_common.sections.stream import StreamSettings
from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.formats import require_format
from tailrace_spark.job.checkpoint_files import Files

FORMAT: Final = 1
"""Of what is in `<checkpoint>/tailrace`, and of the query whose places Spark keeps. Before there was a note: 0."""

EARLIER_DEFAULT: Final = "tailrace-checkpoint"
"""The default of stream.checkpoint before it had the sink's name in it."""

_NOTE: Final = "stream.json"
_OF_SPARK: Final = "metadata"
log: Final = logging.getLogger("tailrace_spark")


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

    `files` are those of `<checkpoint>/tailrace`. Formats up to FORMAT are read, and rewritten in the present one.
    """
    text = require_not_anothers(files, checkpoint, job)
    fields = asdict(job)
    if not job.store:
        del fields["store"]
    if not job.transactions:
        del fields["transactions"]  # of which earlier versions knew nothing
    note = json.dumps({"format": FORMAT, **fields})
    if note != text:
        files.write(_NOTE, note)


def require_not_anothers(files: Files, checkpoint: str, job: Job) -> str | None:
    """The text of the note in `checkpoint`, None without one. Raises as `require_own`, and writes nothing."""
    text = files.read(_NOTE)
    if text is not None:
        _compare(_parsed(text, checkpoint), checkpoint, job)
    return text


def chosen_checkpoint(
    settings: StreamSettings, sink: str, store: str, open_files: Callable[[str], Files], *, only_sink: bool
) -> str:
    """The checkpoint of the sink of this name and store (`store_of`): by default the earlier default's, if it is its.

    `open_files` opens a folder; `only_sink` says whether the settings have no other. Raises SettingsError where nobody
    can say whose the earlier one is: another one would read the topics from their beginning again.
    """
    chosen = settings.checkpoint_of(sink)
    default = StreamSettings.model_fields["checkpoint"].default
    if settings.checkpoint != default or open_files(chosen).read(_OF_SPARK) is not None:
        return chosen
    text = open_files(f"{EARLIER_DEFAULT}/tailrace").read(_NOTE)
    if text is None:
        if open_files(EARLIER_DEFAULT).read(_OF_SPARK) is None:
            return chosen
        if only_sink:
            return EARLIER_DEFAULT
        raise SettingsError(
            f"stream.checkpoint: {EARLIER_DEFAULT}, the default before, does not say which sink it is of. If it is the "
            f'sink {sink}, rename it to {chosen}; else set stream.checkpoint = "{chosen}", which begins a new one'
        )
    note = _parsed(text, EARLIER_DEFAULT)
    if _store(note) == store:
        log.info("stream.checkpoint: using %s, the earlier default, which belongs to this sink", EARLIER_DEFAULT)
        return EARLIER_DEFAULT
    log.warning("stream.checkpoint: %s belongs to sink %s; this stream uses %s", EARLIER_DEFAULT, _shown(note), chosen)
    return chosen


def _parsed(text: str, checkpoint: str) -> dict[str, Any]:
    try:
        note = json.loads(text)
        if not isinstance(note, dict) or not isinstance(note["format"], int):
            raise ValueError("no format in it")
    except (ValueError, KeyError) as error:
        raise SettingsError(
            f"stream.checkpoint {checkpoint}: tailrace/{_NOTE} in it is damaged ({error}); remove that file if the "
            "checkpoint is this stream's, or set another stream.checkpoint"
        ) from None
    return note


def _store(note: dict[str, Any]) -> str:
    """The store of a note; in one of an earlier version the sink's name has it."""
    return str(note.get("store") or store_of(note["sink"]))


def _shown(note: dict[str, Any]) -> str:
    """A note's sink for people; what follows the host in one of an earlier version may be a secret."""
    sink = str(note["sink"])
    return origin(sink) if not note.get("store") and urlsplit(sink).hostname else sink


def _compare(note: dict[str, Any], checkpoint: str, job: Job) -> None:
    subject = f"stream.checkpoint {checkpoint}"
    remedy = "set another stream.checkpoint, which reads the topics from stream.starting_offsets on"
    otherwise = f", or {remedy}; a merging sink comes out the same"
    require_format(subject, note["format"], FORMAT, otherwise=otherwise)
    if note.get("prefix") != job.prefix:
        raise SettingsError(f"{subject} is of the topics of {note.get('prefix')}, not of {job.prefix}: {remedy}")
    if note.get("sink") and job.sink and _store(note) != (job.store or store_of(job.sink)):
        noted_sink = _shown(note)
        owner = f"the sink {noted_sink}, not of {job.sink}" if noted_sink != job.sink else f"another sink at {job.sink}"
        raise SettingsError(
            f"{subject} is of {owner}, which would lack everything before: {remedy}; "
            f"if it is the same store at another address, remove tailrace/{_NOTE} in the checkpoint"
        )
    if bool(note.get("one_copy")) != job.one_copy:
        noted_mode = "with" if note.get("one_copy") else "without"
        raise SettingsError(
            f"{subject} was written {noted_mode} stream.one_copy_seconds, and what Spark keeps differs: {remedy}"
        )
    if bool(note.get("transactions")) != job.transactions:
        noted_mode = "with" if note.get("transactions") else "without"
        raise SettingsError(
            f"{subject} was written {noted_mode} transactions of the sink, and a mutation at its end would lack "
            f"changes or have them twice: {remedy}"
        )
