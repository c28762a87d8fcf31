"""Dead letters in memory under their contract, and that every type of sink puts into what it was given."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from contextlib import closing
from types import FunctionType, ModuleType
from typing import Any

import pytest

from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError
from tailrace_spark.batch.delivery import DeadLetter, RecordId
from tailrace_spark.sinks.registry import SINKS, open_sink
from tests.support.letters import MemoryLetters
from tests.unit.spark.sinks.letters_contract import LETTERS, LettersContract, Room

SECTIONS: dict[str, dict[str, object]] = {
    "sql": {"url": "sqlite:///x.db"},
    "log-tables": {"contact_points": ["h"]},
    "cassandra": {"contact_points": ["h"]},
    "http": {"url": "http://h"},
    "rabbitmq": {"url": "amqp://h"},
    "files": {"path": "x"},
    "delta": {"path": "x"},
    "iceberg": {"path": "x"},
    "opensearch": {"url": "http://h"},
}


class TestInMemory(LettersContract):
    @pytest.fixture
    def room(self) -> Callable[[str], Room]:
        def new(_: str) -> Room:
            letters = MemoryLetters()
            return Room(letters, lambda: MemoryLetters(letters.name))

        return new


@pytest.mark.promise("sinks.dead-letters")
@pytest.mark.parametrize(
    ("kind", "more"),
    [*((kind, {}) for kind in sorted(SINKS)), *((kind, {"mode": "current"}) for kind in ("delta", "iceberg"))],
)
def test_every_sink_puts_into_what_it_was_given(kind: str, more: dict[str, object]) -> None:
    settings = Settings.model_validate({"sink": {"x": {"type": kind, **SECTIONS.get(kind, {}), **more}}})
    letters = MemoryLetters()
    with closing(open_sink("x", settings.sink["x"], "t", kafka={"bootstrap.servers": "h:1"}, letters=letters)) as sink:
        assert refers_to(sink, letters)


def refers_to(root: object, wanted: object) -> bool:
    """Whether an object has another one, in whatever it has."""
    seen, waiting = set[int](), [root]
    while waiting:
        item: Any = waiting.pop()
        if item is wanted:
            return True
        if id(item) not in seen and not isinstance(item, (type, ModuleType, FunctionType)):
            seen.add(id(item))
            waiting += gc.get_referents(item)
    return False


def test_a_dead_letter_is_read_back_from_its_json() -> None:
    """docs/reference/merging.md has the form."""
    letter = DeadLetter(RecordId("t", 1, 1, b"\x01\xff"), "why", b"\x00a")
    text = json.dumps(letter.to_json())
    record_id = '"topic": "t", "partition": 1, "offset": 1'
    assert text == f'{{{record_id}, "schema": "01ff", "reason": "why", "message": "0061", "format": 1}}'
    assert DeadLetter.from_json(json.loads(text)) == letter
    bare = DeadLetter(RecordId("t", 0, 7), "no frame")
    assert bare.to_json()["schema"] is bare.to_json()["message"] is None
    assert DeadLetter.from_json(bare.to_json()) == bare


@pytest.mark.promise("upgrade.later-records")
def test_a_dead_letter_of_another_version_is_refused() -> None:
    value = {**LETTERS[0].to_json(), "format": 2}
    with pytest.raises(SettingsError, match=r"another version .*format 2; this one reads 1.*Install that"):
        DeadLetter.from_json(value, "topic x")
