"""The settings by which the job's `Stream` runs one subscription."""

from __future__ import annotations

import re
from typing import Final

from tailrace_common.settings import Settings
from tailrace_schemas.topics import MAX_NAME, topic_component
from tailrace_server.model.subscription import Subscription, TableName
from tailrace_server.operations.sections import section_of

_SUFFIX: Final = r"\.-[0-9a-f]{6}"
_LONGEST_KEYSPACE: Final = 48


def stream_settings(base: Settings, subscription: Subscription, checkpoint: str) -> Settings:
    """Those of the server, with the target, the filter, the masks and the topics of a subscription.

    Raises SettingsError where they no longer fit this version.
    """
    name = subscription.sink_name
    section, stream = section_of(base, subscription.table, name, subscription.sink, subscription.shape)
    chosen = {"topics": topics_pattern(subscription), "checkpoint": checkpoint, "sink": name}
    return base.model_copy(update={"sink": {name: section}, "stream": stream.model_copy(update=chosen)})


def topics_pattern(subscription: Subscription) -> str:
    """A regular expression of the topics of its tables, in the words that Java and Python share.

    Topics that Kafka's rules gave a suffix are among them (docs/contracts.md 4). Where `reads_cut_names` says so, it
    also matches topics of tables whose names go on otherwise.
    """
    table = subscription.table
    beginning = rf"{re.escape(table.cluster)}\.{_expression(table.keyspace)}\."
    uncut = rf"{beginning}{_expression(table.table)}({_SUFFIX})?"
    if not reads_cut_names(table):
        return uncut
    head = _expression(table.table.partition("*")[0][: _room(table)])
    rest = "[^.]*" if "*" in table.keyspace + table.table else ""
    return rf"(?:{uncut}|(?=.{{{MAX_NAME}}}$){beginning}{head}{rest}{_SUFFIX})"


def reads_cut_names(table: TableName) -> bool:
    """Whether the topic of a table that fits may have a name so long that its end was cut off."""
    head, star, rest = table.table.partition("*")
    return len(head) > _room(table) or bool(star and rest)


def _room(table: TableName) -> int:
    """How many characters of a table's name are in the name of its topic at least, where that was cut."""
    keyspace = _LONGEST_KEYSPACE if "*" in table.keyspace else len(table.keyspace)
    return MAX_NAME - len(".-012345") - len(table.cluster) - keyspace - len("..")


def _expression(pattern: str) -> str:
    """What goes back at no letter: each `*` but the last stands for as little as lets what follows it fit."""
    first, *later = map(_letters, re.split(r"\*+", pattern))
    if not later:
        return first
    return first + "".join(f"(?>[^.]*?{letters})" for letters in later[:-1]) + f"[^.]*{later[-1]}"


def _letters(pattern: str) -> str:
    return "".join("[^.]" if sign == "?" else re.escape(topic_component(sign)) for sign in pattern)
