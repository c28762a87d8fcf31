"""The tables of a pattern that its filter and masks cannot be asked of: the others are not to wait for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import SettingsError
from tailrace_spark.shaping import Shape, newest


@dataclass(frozen=True, slots=True)
class Unfit:
    """Reasons by table, and the topics of these tables."""

    reasons: Mapping[str, str] = field(default_factory=dict)
    topics: frozenset[str] = frozenset()

    def without(self, pattern: str) -> str:
        """A regular expression of topics without these; in words that Java and Python share."""
        if not self.topics:
            return pattern
        return rf"(?!(?:{'|'.join(re.escape(topic) for topic in sorted(self.topics))})$){pattern}"


def unfit_tables(shape: Shape | None, entries: Iterable[SchemaEntry], pattern: str) -> Unfit:
    """Of the tables whose topics fit the pattern, those that do not fit the shape.

    Raises SettingsError where none fits: then there is nothing to run.
    """
    if shape is None:
        return Unfit()
    read = [entry for entry in entries if re.fullmatch(pattern, entry.topic)]
    tables = newest(read)
    reasons: dict[str, str] = {}
    for announced, table in tables:
        try:
            shape.check([(announced, table)])
        except SettingsError as error:
            reasons[str(table)] = str(error)
    if reasons and len(reasons) == len(tables):
        raise SettingsError("\n".join(reasons.values()))
    return Unfit(reasons, frozenset(entry.topic for entry in read if str(entry.table) in reasons))
