"""Selected tables whose writes never reach cdc_raw: in health, in a metric, and in the log."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from tailrace.agent.parts import Routing
from tailrace.ops.health import HealthBoard
from tailrace.schema.bypassing import Bypass, bypass_words

_LOG: Final = logging.getLogger("tailrace.agent")
CAUSE: Final = "bypassing"


class Bypasses:
    """Tells what was read of the cluster last."""

    def __init__(self, routing: Routing, health: HealthBoard) -> None:
        self._routing = routing
        self._health = health
        self._told: Sequence[Bypass] | None = None

    def tell(self, bypassing: Sequence[Bypass]) -> None:
        """These are all tables with cdc whose writes are not logged. Those that are not selected are left out."""
        if bypassing is self._told:
            return
        self._told = bypassing
        selected = [bypass for bypass in bypassing if self._routing.publishes(bypass.table)]
        self._health.gauge(bypassing_tables=len(selected))
        if not selected:
            if self._health.recover(CAUSE):
                _LOG.info("the writes of all selected tables reach the commit log")
            return
        words = ". ".join(bypass_words(selected))
        if self._health.degrade(CAUSE, words):
            _LOG.error("%s", words)
