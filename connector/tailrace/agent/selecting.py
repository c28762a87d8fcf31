"""How the selected tables fit those that have cdc, while the agent runs: in health, in the log, in what is released."""

from __future__ import annotations

import logging
from typing import Final

from tailrace.agent.parts import Routing
from tailrace.history.schema import SchemaHistory
from tailrace.ops.health import HealthBoard
from tailrace.publish.selection import Coverage, Selection, coverage, listed

_LOG: Final = logging.getLogger("tailrace.agent")
CAUSE: Final = "selection"
KEPT: Final = (
    "no table with cdc = true is selected. Correct tables.include and tables.exclude (`tailrace check` names the "
    "patterns) and start the agent again, or set tables.release_unselected = true to give these changes up"
)


class SelectionWatch:
    """Judges the selection whenever the schema's history is another one. Not thread-safe.

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
            if self._health.recover(CAUSE):
                _LOG.info("the selected tables fit those that have cdc = true: %s", listed(fit.selected) or "none has")
        elif self._health.degrade(CAUSE, words, blocking=fit.selects_nothing and not self._release):
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
