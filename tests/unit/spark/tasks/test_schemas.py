"""Schemas on their way to tasks."""

from __future__ import annotations

import pickle

import pytest

from tailrace_spark.tasks.schemas import TaskSchemas
from tests.unit.spark.tasks.announced import entries


def test_what_arrives_is_what_was_sent_in_compiled_code_too() -> None:
    sent = entries()
    arrived: TaskSchemas = pickle.loads(pickle.dumps(TaskSchemas.of(sent)))  # noqa: S301 - our own
    assert dict(arrived) == sent
    assert [entry.announced for entry in arrived.values()] == [entry.announced for entry in sent.values()]


def test_an_entry_is_made_once_and_an_unknown_one_is_none() -> None:
    schemas = TaskSchemas.of(entries())
    assert all(schemas[schema_id] is schemas[schema_id] for schema_id in schemas)
    assert schemas.get(b"unheard-") is None
    with pytest.raises(KeyError):
        schemas[b"unheard-"]


def test_the_newest_definition_of_a_table_is_known_by_its_id() -> None:
    schemas = TaskSchemas.of(entries())
    for entry in schemas.values():
        ours = [other for other in schemas.values() if other.part == "value" and other.table.id == entry.table.id]
        assert schemas.newest(entry.table) is max(ours, key=lambda other: other.announced).table
