"""The topics of published tables: opened as soon as a table is known, and again where one was refused."""

from __future__ import annotations

import logging
from typing import Final

from tailrace.agent.parts import Limits, Parts
from tailrace.errors import HeldError
from tailrace_common.backoff import Backoff

_LOG: Final = logging.getLogger("tailrace.agent")


class TableTopics:
    """Opens topics ahead of their changes. A refused one is tried again soon, then less often."""

    def __init__(self, parts: Parts, limits: Limits) -> None:
        self._parts = parts
        self._refused = False
        self._backoff = Backoff(limits.waits)
        self._next = 0.0

    def open(self, changed: bool) -> bool:
        """Open all where the schema has `changed`, or a retry is due. Whether one is open now that was refused before.

        A refused topic is reported now; its changes are parked when they come.
        """
        if not changed and not (self._refused and self._parts.clock() >= self._next):
            return False
        health = self._parts.health
        self._refused, opened = False, False
        for table in filter(self._parts.routing.publishes, self._parts.schema.history.tracked()):
            try:
                self._parts.routing.open(table)
                opened |= health.recover(f"schema of {table}")
            except HeldError as error:
                self._refused = True
                if health.degrade(f"schema of {table}", str(error)):
                    _LOG.error("%s", error)
        if self._refused:
            self._next = self._parts.clock() + self._backoff.next()
        else:
            self._backoff.reset()
        return opened
