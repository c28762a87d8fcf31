"""The tables to publish: their topics, whether the selection fits those with cdc, whether their writes are logged."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from tailrace.agent.limits import Limits
from tailrace.agent.ports import Environment, Routing
from tailrace.errors import HeldError
from tailrace.history.schema import SchemaHistory
from tailrace.ops.health import HealthBoard
from tailrace.schema.cluster_view import Bypass, bypass_words
from tailrace_common.backoff import Backoff
from tailrace_common.selection import Coverage, Selection, coverage, listed

_LOG: Final = logging.getLogger("tailrace.agent")
SELECTION: Final = "selection"
KEPT: Final = (
    "no table with cdc = true is selected. Correct tables.include and tables.exclude (`tailrace check` names the "
    "patterns) and start the agent again, or set tables.release_unselected = true to give these changes up"
)
BYPASSING: Final = "bypassing"


class TableTopics:
    """Opens topics ahead of their changes. A refused one is tried again soon, then less often.

    Outlives sessions with Kafka, as what was refused in one is refused in the next.
    """

    def __init__(self, environment: Environment, limits: Limits) -> None:
        self._environment = environment
        self._refused: set[str] = set()  # their causes in health
        self._backoff = Backoff(limits.waits)
        self._next = 0.0

    def open(self, changed: bool) -> bool:
        """Open all where the schema has `changed`, or a retry is due. Whether one is open now that was refused before.

        A refused topic is reported now; its changes are parked when they come.
        """
        if not changed and not (self._refused and self._environment.clock() >= self._next):
            return False
        tracked = filter(self._environment.routing.publishes, self._environment.schema.history.tracked())
        tables = {f"schema of {table}": table for table in tracked}
        for cause in self._refused - tables.keys():
            self._recover(cause)
        opened = False
        for cause, table in tables.items():
            try:
                opened |= self._environment.routing.open(table)
                self._recover(cause)
            except HeldError as error:
                self._refused.add(cause)
                if self._environment.health.degrade(cause, str(error)):
                    _LOG.error("%s", error)
        if self._refused:
            self._next = self._environment.clock() + self._backoff.next()
        else:
            self._backoff.reset()
        return opened

    def _recover(self, cause: str) -> None:
        self._refused.discard(cause)
        self._environment.health.recover(cause)


class SelectionWatch:
    """How the selected tables fit those that have cdc: in health, in the log, in what is released.

    Judges the selection whenever the schema's history is another one. Not thread-safe.

    While tables have cdc = true and none of them is selected, most likely a pattern is wrong. Their mutations are then
    parked, which retains their segments. With `release_unselected` they are released like all others.
    """

    def __init__(
        self, selection: Selection, routing: Routing, health: HealthBoard, *, release_unselected: bool = False
    ) -> None:
        self._selection = selection
        self._routing = routing
        self._health = health
        self._release = release_unselected
        self._history: SchemaHistory | None = None
        self._keeping = False

    def __call__(self, history: SchemaHistory) -> bool:
        """Look at a history; whether the kept segments may be released by now."""
        if history is self._history:
            return False
        self._history = history
        newest = [history.newest(id) for id in history.current]
        fit = coverage(self._selection, (table for table in newest if table is not None))
        self._health.gauge(
            selected_tables=len(fit.selected),
            unselected_tables=len(fit.untaken),
            unmatched_patterns=len(fit.unmatched),
        )
        self._health.about(tables=listed(fit.selected) or "none")
        self._tell(fit)
        # Also where no table has cdc any more: the log may still have changes of one that had it.
        keeping = not fit.selected and not self._release
        if keeping == self._keeping:
            return False
        self._keeping = keeping
        self._routing.keep_unselected(KEPT if keeping else None)
        return not keeping

    def _tell(self, fit: Coverage) -> None:
        words = selection_words(fit, release_unselected=self._release)
        if not words:
            if self._health.recover(SELECTION):
                _LOG.info("the selected tables fit those that have cdc = true: %s", listed(fit.selected) or "none has")
        elif self._health.degrade(SELECTION, words, blocking=fit.selects_nothing and not self._release):
            (_LOG.error if fit.selects_nothing else _LOG.warning)("%s", words)


def selection_words(fit: Coverage, *, release_unselected: bool) -> str:
    """What is wrong with a selection, the consequence, and what to do; empty where nothing is."""
    clauses = [*fit.unmatched_words()]
    if fit.selects_nothing and not release_unselected:
        tables = listed((*fit.untaken, *fit.excluded))
        clauses.append(f"nothing is published, and changes of {tables} are parked, their segments kept: {KEPT}")
    elif fit.untaken and not release_unselected:
        clauses.append(
            f"{fit.untaken_words()}: such changes are not published, and their segments are released. Name each table "
            "in tables.include, or in tables.exclude if it is left out on purpose"
        )
    return "; ".join(clauses)


class Bypasses:
    """Selected tables whose writes never reach cdc_raw: in health, in a metric, and in the log.

    Tells what was read of the cluster last.
    """

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
            if self._health.recover(BYPASSING):
                _LOG.info("the writes of all selected tables reach the commit log")
            return
        words = ". ".join(bypass_words(selected))
        if self._health.degrade(BYPASSING, words):
            _LOG.error("%s", words)
