"""Every breakage there is."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.breakages import (
    capture,
    command_line,
    copies,
    delivery,
    delta,
    generations,
    iceberg,
    images,
    losses,
    schema,
    services,
    shaping,
    sinks,
    snapshots,
    spark_user,
    streaming,
    subscriptions,
    tasks,
    upgrades,
)
from tests.breakages.breakage import Breakage

_TABLES: Final = (
    delivery,
    capture,
    losses,
    schema,
    generations,
    services,
    snapshots,
    streaming,
    spark_user,
    tasks,
    upgrades,
    images,
    copies,
    shaping,
    subscriptions,
    delta,
    iceberg,
    sinks,
    command_line,
)
BREAKAGES: Final[tuple[Breakage, ...]] = tuple(
    replace(breakage, name=name) for table in _TABLES for name, breakage in table.BREAKAGES.items()
)
