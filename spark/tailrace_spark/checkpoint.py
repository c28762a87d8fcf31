"""Whose checkpoint it is: a note beside Spark's own, so that another job's is refused before anything is written."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from tailrace_schemas.errors import SettingsError
from tailrace_spark.files import Files

FORMAT: Final = 1
"""Of what is in `<checkpoint>/tailrace`, and of the query whose places Spark keeps. Before there was a note: 0."""

_NOTE: Final = "stream.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a checkpoint belongs to. `sink` is its store without secrets, empty where that is not known.

    `one_copy`: whether copies are left out, which changes what Spark keeps; for how long may change.
    """

    prefix: str
    sink: str = ""
    one_copy: bool = False


def require_own(files: Files, checkpoint: str, job: Job) -> None:
    """Note that `checkpoint` is this job's; raise SettingsError, and leave it alone, where it is not.

    `files` are those of `<checkpoint>/tailrace`. Formats up to FORMAT are read and noted anew.
    """
    text = files.read(_NOTE)
    known = None if text is None else _parsed(text, checkpoint)
    if known is not None:
        _compare(known, checkpoint, job)
    note = json.dumps({"format": FORMAT, **asdict(job)})
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
    if known.get("sink") and job.sink and known["sink"] != job.sink:
        raise SettingsError(
            f"{where} is of the sink {known['sink']}, not of {job.sink}, which would lack everything before: {again}; "
            f"if it is the same store at another address, remove tailrace/{_NOTE} in the checkpoint"
        )
    if bool(known.get("one_copy")) != job.one_copy:
        was = "with" if known.get("one_copy") else "without"
        raise SettingsError(f"{where} was written {was} stream.one_copy_seconds, and what Spark keeps differs: {again}")
