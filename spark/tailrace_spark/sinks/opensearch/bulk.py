"""Documents as requests and answers have them: lines of a bulk request, what was read, what became of operations.

This module is compiled.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import Any, Final

from tailrace_schemas.change_json import compact_json

STATE: Final = "__tailrace.state"
Version = tuple[int, int]
"""(sequence number, primary term): what names one version of a document to the concurrency check."""


@dataclass(slots=True, init=False)
class StoredDocument:
    """A document as it is there. `source` is what searches return of it, None where it was not asked for.

    The `__init__` is its own so that it is compiled.
    """

    id: str
    version: Version
    state: bytes
    source: Mapping[str, Any] | None

    def __init__(self, id: str, version: Version, state: bytes, source: Mapping[str, Any] | None) -> None:
        self.id = id
        self.version = version
        self.state = state
        self.source = source


@dataclass(slots=True, init=False)
class Op:
    """One document to be put in place of a version, or taken away; version None: there must be none yet.

    With `unchecked` it is put there whatever is. `document` None takes away.
    """

    id: str
    version: Version | None
    document: Mapping[str, Any] | None
    unchecked: bool

    def __init__(
        self, id: str, version: Version | None, document: Mapping[str, Any] | None, unchecked: bool = False
    ) -> None:
        self.id = id
        self.version = version
        self.document = document
        self.unchecked = unchecked


@dataclass(slots=True)
class BulkResult:
    """What became of operations, by id: the new versions, those that lost to another write, those refused and why.

    `unnamed`: why those were not taken that were sent to a name which is no write alias, or no index, any more.
    """

    done: dict[str, Version] = field(default_factory=dict)
    conflicts: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    unnamed: dict[str, str] = field(default_factory=dict)


def lines(op: Op) -> bytes:
    """The lines of an operation in a bulk request."""
    target = '{"_id":' + encode_basestring(op.id)
    version = op.version
    if version is not None:
        target += f',"if_seq_no":{version[0]},"if_primary_term":{version[1]}'
    document = op.document
    if document is None:
        return ('{"delete":' + target + "}}\n").encode()
    action = "index" if version is not None or op.unchecked else "create"
    return ('{"' + action + '":' + target + "}}\n" + compact_json(document) + "\n").encode()


def stored_document(hit: Mapping[str, Any]) -> StoredDocument:
    """A document of an answer that was asked for its `STATE`."""
    stored = hit.get("fields")
    state = b"" if stored is None or STATE not in stored else a2b_base64(stored[STATE][0])
    return StoredDocument(hit["_id"], (hit["_seq_no"], hit["_primary_term"]), state, hit.get("_source"))
