"""Takes away what a subscription has written: once nobody runs it, and only where no other one writes there too."""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Final

from tailrace_common.settings import Settings
from tailrace_common.topics.schemas import SchemaReader
from tailrace_schemas.table import Table
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model import transitions
from tailrace_server.model.errors import ConflictError, RefusedRequestError
from tailrace_server.model.subscription import RUNNABLE, Subscription, TableName
from tailrace_server.operations.sections import section_of
from tailrace_spark.sinks.registry import SINKS, sink_of

log = logging.getLogger("tailrace_server")

_KAFKA_SECONDS: Final = 10.0
_LOOKS: Final = 40
_LOOK_SECONDS: Final = 0.5


def can_drop(kind: str) -> bool:
    """Whether sinks of this type can take away what they have made."""
    return kind in SINKS and SINKS[kind].droppable


def drop_target(
    subscriptions: Subscriptions,
    settings: Settings,
    user: str,
    subscription: Subscription,
    wait: Callable[[float], None],
) -> list[str]:
    """Pause it, wait until its worker has left it, then drop; the names of what was dropped.

    Raises RefusedRequestError, ConflictError before anything is changed, and ConflictError while a worker still has it.
    Then it is paused, and asking again goes on from there. Raises ServiceError, SettingsError as the sink does.
    """
    require_droppable(subscription, subscriptions.all(settings.topics.prefix))
    if subscription.state in RUNNABLE:
        pause = partial(subscriptions.change, subscription.id, "pause", user)
        pause(transitions.paused)
    for _ in range(_LOOKS):
        if not subscriptions.is_run(subscription.id):
            break
        wait(_LOOK_SECONDS)
    else:
        raise ConflictError(
            f"{subscription.reference} is paused now, but its worker is still at a batch: ask again in a while. "
            "Nothing was dropped"
        )
    return _dropped(subscriptions, settings, subscription)


def require_droppable(subscription: Subscription, existing: Sequence[Subscription]) -> None:
    """Raise RefusedRequestError where the sink cannot do that, and ConflictError where others write there too."""
    kind, target = subscription.sink.type, subscription.sink.target
    if not can_drop(kind):
        able = ", ".join(name for name in SINKS if can_drop(name))
        raise RefusedRequestError(
            f"{subscription.reference}: a sink of type {kind} cannot drop what it has written into {target}; {able} "
            "can. Cancel it without that, and remove it yourself"
        )
    sharing = [
        sharer.reference
        for sharer in existing
        if sharer.id != subscription.id and sharer.sink.target == target and _overlap(sharer.table, subscription.table)
    ]
    if sharing:
        raise ConflictError(
            f"{subscription.reference}: {', '.join(sharing)} writes into {target} too: cancel that first, or cancel "
            "this one without dropping"
        )


def _overlap(one_table: TableName, other_table: TableName) -> bool:
    """Whether a table may be of both. Of two patterns that is assumed."""
    if one_table.pattern and other_table.pattern:
        return True
    return fnmatch.fnmatchcase(str(one_table), str(other_table)) or fnmatch.fnmatchcase(
        str(other_table), str(one_table)
    )


def _dropped(subscriptions: Subscriptions, settings: Settings, subscription: Subscription) -> list[str]:
    name, secrets = subscription.sink_name, subscriptions.settings(subscription.id)
    section, _ = section_of(settings, subscription.table, name, secrets, subscription.shape)
    with closing(sink_of(settings.model_copy(update={"sink": {name: section}}), name)) as sink:
        droppable = sink.capabilities.droppable
        dropped = [] if droppable is None else list(droppable.drop(_tables(settings, subscription)))
    log.info("%s: dropped %s", subscription.reference, ", ".join(dropped) or "nothing, for nothing was there")
    return dropped


def _tables(settings: Settings, subscription: Subscription) -> list[Table]:
    """All that were ever published under its names, those that were dropped and made again too."""
    with SchemaReader(settings.kafka.reveal(), settings.topics.prefix, timeout=_KAFKA_SECONDS) as schemas:
        schemas.refresh()
        tables = [entry.table for entry in schemas.values() if entry.part == "value"]
    return [table for table in tables if fnmatch.fnmatchcase(str(table), str(subscription.table))]
