"""The settings by which the job's `Stream` runs one subscription."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tailrace_common.settings import Settings
from tailrace_schemas.topics import topic_component
from tailrace_server.model.subscription import Subscription
from tailrace_server.operations.sections import section_of

_WILD: Final = {"*": "[^.]*", "?": "[^.]"}


def stream_settings(base: Settings, subscription: Subscription, sink: Mapping[str, Any], checkpoint: str) -> Settings:
    """Those of the server, with the sink, the filter, the masks and the topics of a subscription.

    Raises SettingsError where they no longer fit this version.
    """
    name = subscription.sink_name
    section, stream = section_of(base, subscription.table, name, sink, subscription.shape)
    chosen = {"topics": topics_pattern(subscription), "checkpoint": checkpoint, "sink": name}
    return base.model_copy(update={"sink": {name: section}, "stream": stream.model_copy(update=chosen)})


def topics_pattern(subscription: Subscription) -> str:
    """A regular expression of the topics of its tables, in the words that Java and Python share.

    Topics that Kafka's rules gave a suffix are among them (docs/contracts.md 4).
    """
    table = subscription.table
    keyspace, name = (_expression(pattern) for pattern in (table.keyspace, table.table))
    return rf"{re.escape(table.cluster)}\.{keyspace}\.{name}(\.-[0-9a-f]{{6}})?"


def _expression(pattern: str) -> str:
    return "".join(_WILD.get(sign) or re.escape(topic_component(sign)) for sign in pattern)
