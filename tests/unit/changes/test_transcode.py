"""The transcoder against changes made as objects: the same messages, byte for byte."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from tailrace.changes.transcode import Transcoder
from tailrace.commitlog.model import Mutation, PartitionUpdate, Row
from tailrace.commitlog.mutation import decode_mutation
from tailrace.errors import UnknownTableError
from tailrace_schemas.avro import Encoder
from tailrace_schemas.change import Cell, Source
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.forms import PLAIN_FORMS, ValueForms
from tests.oracle.split import changes_of
from tests.unit.changes.transcoding import SOURCE, Definitions, Sent, payloads
from tests.unit.commitlog.recorded import KINDS, recorded
from tests.unit.commitlog.written import Stats, encode
from tests.unit.mutations import EPOCH
from tests.unit.schemas.avro.expected import ALL_FORMS
from tests.unit.tables import table


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


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_table_as_if_it_had_cdc(kind: str) -> None:
    """Cassandra's own tables have what the others lack: dropped columns, deep collections, empty keys."""
    tables = {id: replace(table, cdc=True) for id, table in recorded(kind).tables().items()}
    by_objects, by_bytes, count = ByObjects(), ByBytes(), 0
    for place, (payload, version) in enumerate(payloads(kind)):
        source = replace(SOURCE, position=replace(SOURCE.position, offset=place))
        expected = by_objects.messages(payload, version, tables.get, source)
        assert by_bytes.messages(payload, version, tables.get, source) == expected
        count += len(expected)
    assert count


@pytest.mark.slow
@pytest.mark.parametrize("forms", [form for form in ALL_FORMS if form != PLAIN_FORMS], ids=str)
def test_every_form_of_values(forms: ValueForms) -> None:
    """In keys, clustering columns, bounds, cells and elements."""
    tables = {id: replace(table, cdc=True) for id, table in recorded("5.0.1/uncompressed").tables().items()}
    by_objects, by_bytes = ByObjects(forms), ByBytes(forms)
    for payload, version in payloads("5.0.1/uncompressed"):
        expected = by_objects.messages(payload, version, tables.get, SOURCE)
        assert by_bytes.messages(payload, version, tables.get, SOURCE) == expected


def test_the_first_by_name_counts_though_cassandra_has_names_that_are_not_ascii_first() -> None:
    """Of two cells of one time: its ttl and expiry are the record's."""
    one = table({"k": "int"}, {}, {}, {"a": "int", "é": "int"})
    a, e = one.regular
    cells = (Cell(e, None, EPOCH, 10, 99, bytes(4)), Cell(a, None, EPOCH, 20, 98, bytes(4)))
    update = PartitionUpdate(table=one, key=bytes(4), items=(Row(clustering=(), cells=cells),))
    payload = encode(Mutation(updates=(update,)), Stats(), [((), (e, a))])
    tables = {one.id: one}
    expected = ByObjects().messages(payload, 7, tables.get, SOURCE)
    assert ByBytes().messages(payload, 7, tables.get, SOURCE) == expected


def outcome(way: ByObjects | ByBytes, payload: bytes, version: int, tables: Definitions) -> Sent | type[Exception]:
    try:
        return way.messages(payload, version, tables, SOURCE)
    except (DecodeError, UnknownTableError) as error:
        return type(error)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["5.0.1/uncompressed", "6.0-alpha2/uncompressed"])
def test_damaged_payloads_end_alike(kind: str) -> None:
    """Whatever the bytes: both ways give the same messages, or the same kind of error."""
    tables = recorded(kind).tables()
    by_objects, by_bytes = ByObjects(), ByBytes()
    for place, (payload, version) in enumerate(payloads(kind)):
        damaged = bytearray(payload)
        at = (place * 7919) % (len(payload) - 17) + 17
        damaged[at] ^= 1 << place % 8
        for data in (bytes(damaged), payload[:at]):
            expected = outcome(by_objects, data, version, tables.get)
            assert outcome(by_bytes, data, version, tables.get) == expected
