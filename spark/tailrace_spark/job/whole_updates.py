"""Refuses what takes updates apart, for sinks that are given them whole."""

from __future__ import annotations

from typing import Final

from tailrace_common.sections.stream import StreamSettings
from tailrace_schemas.errors import SettingsError
from tailrace_spark.sinks.protocol import Capabilities

_LOG_TABLES: Final = "not for log tables: they repeat each update as it was written"
_TRANSACTIONS: Final = (
    "not for a sink with transactions: these have every change of a mutation, as one replica logged it. Remove one of "
    "both settings"
)


def require_whole(stream: StreamSettings, capabilities: Capabilities) -> None:
    """Raise SettingsError where filters, masks or left-out copies would take apart what this sink is given whole."""
    if capabilities.whole_updates is None and not capabilities.transactions:
        return
    words = _TRANSACTIONS if capabilities.transactions else _LOG_TABLES
    if stream.where:
        raise SettingsError(f"stream.where is {words}")
    if stream.columns:
        raise SettingsError(f"stream.columns is {words}")
    if capabilities.transactions and stream.one_copy_seconds is not None:
        raise SettingsError(f"stream.one_copy_seconds is {words}")
