"""The topics that a subscription's pattern matches and it does not read: others do not wait for these tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tailrace_common.settings import SinkSettings
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import SettingsError
from tailrace_spark.shaping import Shape, newest
from tailrace_spark.sinks.changelog.routes import require_key_columns


@dataclass(frozen=True, slots=True)
class Unfit:
    """Reasons by table, and the topics that are not read: of these tables, and of those that are no tables of it."""

    reasons: Mapping[str, str] = field(default_factory=dict)
    topics: frozenset[str] = frozenset()

    def without(self, pattern: str) -> str:
        """A regular expression of topics without these; in words that Java and Python share."""
        if not self.topics:
            return pattern
        return rf"(?!(?:{'|'.join(re.escape(topic) for topic in sorted(self.topics))})$){pattern}"


def unfit_tables(
    shape: Shape | None, sink: SinkSettings, entries: Iterable[SchemaEntry], pattern: str, name: str = "*"
) -> Unfit:
    """Of the tables whose topics fit the pattern, those that fit neither the shape nor the sink's names by their keys.

    Those whose own names do not fit `name` are no tables of it at all, and have no reason: names of topics are cut.
    Raises SettingsError where none fits: then there is nothing to run.
    """
    matching = [entry for entry in entries if re.fullmatch(pattern, entry.topic)]
    read = [entry for entry in matching if fnmatchcase(str(entry.table), name)]
    foreign = frozenset(entry.topic for entry in matching) - {entry.topic for entry in read}
    if shape is None and not any(sink.routed_by.values()):
        return Unfit(topics=foreign)
    tables = newest(read)
    reasons: dict[str, str] = {}
    for announced, table in tables:
        try:
            if shape is not None:
                shape.check([(announced, table)])
            definition = table if shape is None else shape.definition(table) or table
            for setting, columns in sink.routed_by.items():
                require_key_columns(definition, setting, columns)
        except SettingsError as error:
            reasons[str(table)] = str(error)
    if reasons and len(reasons) == len(tables):
        raise SettingsError("\n".join(reasons.values()))
    return Unfit(reasons, foreign | {entry.topic for entry in read if str(entry.table) in reasons})
