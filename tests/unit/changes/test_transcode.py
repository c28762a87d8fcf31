"""The transcoder against changes made as objects: the same messages, byte for byte."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace.commitlog.model import Mutation, PartitionUpdate, Row
from tailrace_schemas.change import Cell
from tailrace_schemas.forms import PLAIN_FORMS, ValueForms
from tests.unit.changes.transcoding import SOURCE, ByBytes, ByObjects, payloads
from tests.unit.commitlog.recorded import KINDS, recorded
from tests.unit.commitlog.written import Stats, encode
from tests.unit.mutations import EPOCH
from tests.unit.schemas.avro.expected import ALL_FORMS
from tests.unit.tables import table


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
