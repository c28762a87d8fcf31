"""What stands before the body of a message, with and without a registry; and the subjects of a registry."""

from __future__ import annotations

import pytest

from tailrace_schemas.avro import Encoder
from tailrace_schemas.avro.frames import body_at, frame, message_schema_id
from tailrace_schemas.avro.names import Subjects, subject_of
from tailrace_schemas.errors import CorruptError, TruncatedError
from tests.unit.tables import table

OWN, REGISTERED = bytes(range(8)), b"\x00\x00\x01\x02"


@pytest.mark.parametrize(("schema_id", "header"), [(OWN, b"\xc3\x01" + OWN), (REGISTERED, b"\x00" + REGISTERED)])
def test_both_frames(schema_id: bytes, header: bytes) -> None:
    message = frame(schema_id) + b"body"
    assert message == header + b"body"
    assert message_schema_id(message) == schema_id
    assert message[body_at(message) :] == b"body"
    for cut in range(1, len(header)):
        with pytest.raises(TruncatedError):
            message_schema_id(message[:cut])


@pytest.mark.parametrize("message", [b"\xc3\x02" + OWN, b"\x01" + REGISTERED, b"no frame at all"])
def test_other_heads_are_refused(message: bytes) -> None:
    with pytest.raises(CorruptError, match=message[:2].hex()):
        body_at(message)


def test_no_bytes_at_all() -> None:
    with pytest.raises(TruncatedError):
        body_at(b"")


@pytest.mark.parametrize("size", [0, 3, 5, 16])
def test_ids_of_other_sizes(size: int) -> None:
    with pytest.raises(ValueError, match=str(size)):
        frame(bytes(size))


@pytest.mark.parametrize(
    ("subjects", "value", "key"),
    [
        ("TopicName", "p.shop.orders-value", "p.shop.orders-key"),
        ("RecordName", "p.shop.orders.Change", "p.shop.orders.PartitionKey"),
        ("TopicRecordName", "p.shop.orders-p.shop.orders.Change", "p.shop.orders-p.shop.orders.PartitionKey"),
    ],
)
def test_subjects(subjects: Subjects, value: str, key: str) -> None:
    encoder = Encoder(table({"id": "int"}, keyspace="shop", name="orders"), "p")
    assert subject_of(subjects, "p.shop.orders", "value", encoder.schema_text) == value
    assert subject_of(subjects, "p.shop.orders", "key", encoder.key_schema_text) == key
