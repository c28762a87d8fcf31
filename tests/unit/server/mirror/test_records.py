"""The records of `<prefix>.subscriptions`: what is read of them is what was written last."""

from __future__ import annotations

import pytest

from tailrace_schemas.errors import CorruptError
from tailrace_server.mirror.records import last_record, mirrored, record_of

TOPIC = "tailrace.subscriptions"


def test_the_last_record_of_each_counts() -> None:
    rows = [("subscribe", {"id": 1, "name": "Straße"}), ("progress", {"subscription": 1})]
    records = [
        record_of(TOPIC, 1, [("subscribe", {"id": 1})]),
        record_of(TOPIC, 2, [("subscribe", {"id": 2})]),
        last_record(TOPIC, 2),
        record_of(TOPIC, 1, rows),
        record_of(TOPIC, 2, []),
    ]
    assert records[-1].value is None
    content = mirrored([(record.key, record.value) for record in records])
    assert (content.rows, content.last) == ({b"1": rows}, 2)


@pytest.mark.parametrize("value", [b"{", b"[]", b'{"format": 2, "rows": []}', b'{"format": 1}', b"\xff"])
def test_what_cannot_be_read_is_not_passed_over(value: bytes) -> None:
    with pytest.raises(CorruptError, match="a record of subscriptions, key b'1'"):
        mirrored([(b"1", value)])
