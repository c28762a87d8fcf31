"""`tailrace tail --schema-changes`, as far as it needs no Kafka: one line for each event, whoever tells of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tailrace.cli.cluster.event_lines import EventLines, event_words
from tailrace.cli.cluster.tail import tail
from tailrace.history.events import EventKind, SchemaEvent, Subject, encode_event
from tailrace_common.kafka import Record
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.position import Position
from tests.unit.tables import table

EVENT = SchemaEvent(
    position=Position(1, 7, 20),
    kind=EventKind.ALTERED,
    subject=Subject.TABLE,
    keyspace="ks",
    name="t",
    table=table({"id": "int"}),
    changed=("column w int added", "cdc off"),
    written=1_760_000_000_123_456,
)


def record(offset: int, value: bytes) -> Record:
    """One of the topic."""
    return Record(offset=offset, key=b"", value=value, timestamp=0)


def test_words() -> None:
    """When, what, where; nothing that a terminal would obey."""
    line = "2025-10-09 08:53:20.123456Z table ks.t altered: column w int added; cdc off [h 1/7:20]"
    assert event_words("h", EVENT) == line
    assert "(concluded, not read)" in event_words("h", replace(EVENT, inferred=True))
    assert "ks.?t?" in event_words("h", replace(EVENT, name="\x1bt\n"))
    assert event_words("h", replace(EVENT, written=1 << 62)).startswith(f"{1 << 62} us table")


def test_copies_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON where nobody looks; what is no event is named, and counted."""
    lines = EventLines()
    other = replace(EVENT, written=EVENT.written + 1)
    found = [encode_event("h1", EVENT), encode_event("h2", replace(EVENT, position=Position(1, 9, 9))), b"{}"]
    assert [lines.show(record(n, value)) for n, value in enumerate([*found, encode_event("h2", other)])] == [
        True,
        False,
        False,
        True,
    ]
    out, words = capsys.readouterr()
    assert [(row["offset"], row["host"], row["kind"]) for row in map(json.loads, out.splitlines())] == [
        (0, "h1", "altered"),
        (3, "h2", "altered"),
    ]
    assert "offset 2: not decoded" in words
    assert lines.left_out == 1


def test_copies_of_later_events_are_left_out_too_and_memory_has_an_end() -> None:
    lines = EventLines(most=3)
    events = [encode_event("h1", replace(EVENT, written=EVENT.written + number)) for number in range(9)]
    for number, event in enumerate(events):
        assert [lines.show(record(number, event)) for _ in range(2)] == [True, False]
    assert lines.show(record(9, events[0]))


@pytest.mark.parametrize(("name", "flag"), [(None, False), ("ks.t", True)])
def test_one_of_both(name: str | None, flag: bool) -> None:
    """A table, or the schema."""
    with pytest.raises(SettingsError, match="name one table, or give --schema-changes"):
        tail(name, None, schema_changes=flag)
