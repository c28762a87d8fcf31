"""`tailrace check` of the forms that values have in the messages of a prefix, which [avro] chooses for new ones."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Final, get_args, get_type_hints

from tailrace.publish.selection import listed
from tailrace_common.cli.checks import Check
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.avro.schema import canonical_text, value_schema
from tailrace_schemas.forms import ValueForms

_HINTS: Final = get_type_hints(ValueForms)
_ALL: Final = tuple(ValueForms(*chosen) for chosen in product(*(get_args(hint) for hint in _HINTS.values())))


def judge_forms(entries: Iterable[SchemaEntry], prefix: str, forms: ValueForms) -> Check:
    """Which topics have messages in other forms than those of the settings, by the schemas that were announced."""
    differing: dict[str, set[str]] = {}
    for entry in entries:
        if entry.part == "value" and (entry_forms := _other(entry, prefix, forms)) is not None:
            for name in _HINTS:
                if getattr(entry_forms, name) != getattr(forms, name):
                    differing.setdefault(f'{name} = "{getattr(entry_forms, name)}"', set()).add(entry.topic)
    now = ", ".join(f'{name} = "{getattr(forms, name)}"' for name in _HINTS)
    if not differing:
        return Check("avro", True, now)
    named = "; ".join(f"{name} in {listed(sorted(topics))}" for name, topics in sorted(differing.items()))
    advice = (
        "our readers take both. Other readers must know both forms: give all agents the same [avro], and start such "
        "readers behind the messages from before"
    )
    return Check("avro", True, f"both: {named}, by other agents or earlier settings; new messages here: {now}", advice)


def _other(entry: SchemaEntry, prefix: str, forms: ValueForms) -> ValueForms | None:
    """The forms of a schema, as near to these as can be; None where they are these, or where another version of
    Tailrace made it."""

    def differing(other: ValueForms) -> int:
        return sum(getattr(other, name) != getattr(forms, name) for name in _HINTS)

    for each in sorted(_ALL, key=differing):
        if canonical_text(value_schema(entry.table, prefix, each)) == entry.avro:
            return None if each == forms else each
    return None
