"""Whose checkpoint it is: a note beside Spark's own, so that another job's is refused before anything is written."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import urlsplit

from tailrace_common.secrets import origin
from tailrace_schemas.errors import SettingsError
from tailrace_spark.files import Files

FORMAT: Final = 1
"""Of what is in `<checkpoint>/tailrace`, and of the query whose places Spark keeps. Before there was a note: 0."""

_NOTE: Final = "stream.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a checkpoint belongs to. `sink` is its store without secrets, empty where that is not known.

    `store` is a digest that tells it from others where its name for people does not (`store_of`).
    `one_copy`: whether copies are left out, which changes what Spark keeps; for how long may change.
    """

    prefix: str
    sink: str = ""
    one_copy: bool = False
    store: str = ""


def store_of(identity: str) -> str:
    """A digest of what tells a store from others, from which nobody has that again."""
    return blake2b(identity.encode(), digest_size=16, person=b"tailrace-store").hexdigest()


def require_own(files: Files, checkpoint: str, job: Job) -> None:
    """Note that `checkpoint` is this job's; raise SettingsError, and leave it alone, where it is not.

    `files` are those of `<checkpoint>/tailrace`. Formats up to FORMAT are read and noted anew.
    """
    text = files.read(_NOTE)
    known = None if text is None else _parsed(text, checkpoint)
    if known is not None:
        _compare(known, checkpoint, job)
    said = asdict(job)
    if not job.store:
        del said["store"]
    note = json.dumps({"format": FORMAT, **said})
    if note != text:
        files.write(_NOTE, note)


def _parsed(text: str, checkpoint: str) -> dict[str, Any]:
    try:
        known = json.loads(text)
        if not isinstance(known, dict) or not isinstance(known["format"], int):
            raise ValueError("no format in it")
    except (ValueError, KeyError) as error:
        raise SettingsError(
            f"stream.checkpoint {checkpoint}: tailrace/{_NOTE} in it is damaged ({error}); remove that file if the "
            "checkpoint is this stream's, or set another stream.checkpoint"
        ) from None
    return known


def _store(known: dict[str, Any]) -> str:
    """That of a note; one without has what tells it apart in the sink's name."""
    return str(known.get("store") or store_of(known["sink"]))


def _shown(known: dict[str, Any]) -> str:
    """A note's sink for people; what follows the host in one of an earlier version may be a secret."""
    sink = str(known["sink"])
    return origin(sink) if not known.get("store") and urlsplit(sink).hostname else sink


def _compare(known: dict[str, Any], checkpoint: str, job: Job) -> None:
    where = f"stream.checkpoint {checkpoint}"
    if known["format"] > FORMAT:
        raise SettingsError(
            f"{where} was written by a newer Tailrace (format {known['format']}; this one reads up to {FORMAT}): "
            "install that version, or set another stream.checkpoint, which reads the topics from "
            "stream.starting_offsets on; a sink that merges comes out the same"
        )
    again = "set another stream.checkpoint, which reads the topics from stream.starting_offsets on"
    if known.get("prefix") != job.prefix:
        raise SettingsError(f"{where} is of the topics of {known.get('prefix')}, not of {job.prefix}: {again}")
    if known.get("sink") and job.sink and _store(known) != (job.store or store_of(job.sink)):
        before = _shown(known)
        other = f"the sink {before}, not of {job.sink}" if before != job.sink else f"another sink at {job.sink}"
        raise SettingsError(
            f"{where} is of {other}, which would lack everything before: {again}; "
            f"if it is the same store at another address, remove tailrace/{_NOTE} in the checkpoint"
        )
    if bool(known.get("one_copy")) != job.one_copy:
        was = "with" if known.get("one_copy") else "without"
        raise SettingsError(f"{where} was written {was} stream.one_copy_seconds, and what Spark keeps differs: {again}")
