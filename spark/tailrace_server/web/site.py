"""What the pages stand on: settings, operations, the meta database, and who may see them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tailrace_common.settings import Settings
from tailrace_server.api.access import Access, OperationsFor
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.history import History
from tailrace_server.meta.sessions import Sessions
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.operations.operations import DirectOperations, Examine
from tailrace_server.web.access import Doorkeeper


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """All of it. `clock` is wall time, in seconds."""

    settings: Settings
    operations: OperationsFor
    subscriptions: Subscriptions
    history: History
    doors: Doorkeeper
    sessions: Sessions
    version: str
    clock: Callable[[], float]


def site_of(
    settings: Settings,
    database: MetaDatabase,
    subscriptions: Subscriptions,
    version: str,
    access: Access,
    clock: Callable[[], float] = time.time,
    examine: Examine | None = None,
) -> Site:
    """The site of a server with these settings; requests are looked at by `examine`."""
    sessions = Sessions(database, clock)
    return Site(
        settings=settings,
        operations=lambda name: DirectOperations(subscriptions, settings, name, examine),
        subscriptions=subscriptions,
        history=History(database),
        doors=Doorkeeper(sessions, access),
        sessions=sessions,
        version=version,
        clock=clock,
    )
