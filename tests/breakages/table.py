"""Every breakage there is."""

from __future__ import annotations

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

BREAKAGES: Final[tuple[Breakage, ...]] = (
    *delivery.BREAKAGES,
    *capture.BREAKAGES,
    *losses.BREAKAGES,
    *schema.BREAKAGES,
    *generations.BREAKAGES,
    *services.BREAKAGES,
    *snapshots.BREAKAGES,
    *streaming.BREAKAGES,
    *spark_user.BREAKAGES,
    *tasks.BREAKAGES,
    *upgrades.BREAKAGES,
    *images.BREAKAGES,
    *copies.BREAKAGES,
    *shaping.BREAKAGES,
    *subscriptions.BREAKAGES,
    *delta.BREAKAGES,
    *iceberg.BREAKAGES,
    *sinks.BREAKAGES,
    *command_line.BREAKAGES,
)
