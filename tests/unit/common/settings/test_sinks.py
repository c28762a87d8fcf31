"""The types of sinks are those that installed packages announce; one that is broken stops nobody."""

from __future__ import annotations

from importlib.metadata import EntryPoint

from pydantic import TypeAdapter

from tailrace_common.sections.sink import SinkSettings
from tailrace_common.settings.sinks import DEFAULT_TYPE, SINK_TYPES, any_section, installed, type_words
from tailrace_spark.sinks.registry import SINKS

SQL = EntryPoint("sql", "tailrace_spark.sinks.sql.settings:SqlSinkSettings", "tailrace.sinks")
HTTP = EntryPoint("http", "tailrace_spark.sinks.http.settings:HttpSinkSettings", "tailrace.sinks")
ABSENT = EntryPoint("absent", "no_such_package.settings:Section", "tailrace.sinks")
OTHER = EntryPoint("other", "pathlib:Path", "tailrace.sinks")


def test_announced_sections_are_those_of_the_registry() -> None:
    assert dict(SINK_TYPES) == {name: kind.settings for name, kind in SINKS.items()}


def test_each_section_has_its_own_name_as_its_type() -> None:
    assert {name: section.model_fields["type"].default for name, section in SINK_TYPES.items()} == {
        name: name for name in SINK_TYPES
    }


def test_the_default_type_comes_first() -> None:
    assert [*installed([HTTP, SQL])[0]] == [DEFAULT_TYPE, "http"]


def test_a_broken_package_is_named_where_a_type_is_wrong_and_the_others_can_be_used() -> None:
    sections, broken = installed([ABSENT, OTHER, SQL, HTTP])
    assert [*sections] == ["sql", "http"]
    words = type_words(sections, broken)
    assert words.startswith(
        'type must be "sql" or "http"; `tailrace sinks` describes them; absent cannot be used: no_such'
    )
    assert words.endswith("other cannot be used: pathlib:Path is no subclass of SinkSettings")


def test_one_that_is_alone_needs_no_other() -> None:
    section = TypeAdapter(any_section(*installed([HTTP]))).validate_python(
        {"type": "http", "url": "https://a.example/"}
    )
    assert section.location == "https://a.example"


def test_where_none_is_installed_settings_can_be_made() -> None:
    assert any_section({}, {}) is SinkSettings


def test_without_any_sink_the_words_still_say_what_is_missing() -> None:
    assert type_words({}, {}).startswith("type must be a type that is installed; ")
