"""Recorded mutations, and what becomes of them, by way of objects and without."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from tailrace.changes.transcode import Transcoder
from tailrace.commitlog.descriptor import read_descriptor
from tailrace.commitlog.frames import frames
from tailrace.commitlog.mutation import decode_mutation
from tailrace.errors import UnknownTableError
from tailrace_schemas.avro import Encoder
from tailrace_schemas.change import Origin, Source
from tailrace_schemas.errors import CorruptError, DecodeError, TruncatedError
from tailrace_schemas.forms import PLAIN_FORMS, ValueForms
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tests.oracle.split import changes_of
from tests.unit.commitlog.recorded import recorded, sections_of

SOURCE = Source("host", "dc", Position(3, 1795271362996, 77), 0, 0, Origin.REPLAY, False, 1795271362997, 1)
Definitions = Callable[[UUID], Table | None]
Sent = list[tuple[str, int, bytes, bytes]]


def payloads(kind: str) -> Iterable[tuple[bytes, int]]:
    for data in recorded(kind).segments.values():
        version = read_descriptor(data).version
        for section in sections_of(data):
            for frame in frames(section):
                yield frame.payload, version


class ByObjects:
    """The reference: objects, then fastavro."""

    def __init__(self, forms: ValueForms = PLAIN_FORMS) -> None:
        self._forms = forms
        self._encoders: dict[UUID, Encoder] = {}

    def messages(self, payload: bytes, version: int, tables: Definitions, source: Source) -> Sent:
        found: Sent = []
        for change in changes_of(decode_mutation(payload, version, tables), source, lambda table: table.cdc):
            encoder = self._encoders.get(change.table.id)
            if encoder is None or encoder.table is not change.table:
                encoder = self._encoders[change.table.id] = Encoder(change.table, "app.cdc", forms=self._forms)
            found.append((str(change.table), change.token, encoder.key(change) or b"", encoder.value(change)))
        return found


class ByBytes:
    """The transcoder, with the same face."""

    def __init__(self, forms: ValueForms = PLAIN_FORMS) -> None:
        self._transcoder = Transcoder("app.cdc", forms)

    def messages(self, payload: bytes, version: int, tables: Definitions, source: Source) -> Sent:
        found = self._transcoder.messages(payload, version, lambda id: tables(UUID(bytes=id)), source)
        return [(str(one.table), one.token, one.key, one.value) for one in found]


def outcome(way: ByObjects | ByBytes, payload: bytes, version: int, tables: Definitions) -> Sent | type[Exception]:
    """The messages of a payload, or the class of its error; of two damages either may be met first."""
    try:
        return way.messages(payload, version, tables, SOURCE)
    except (DecodeError, UnknownTableError) as error:
        return CorruptError if isinstance(error, TruncatedError) else type(error)
