"""Servers that wait at steps while others are killed, or stop themselves there, and how such a test ends."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.integration.feed import Feed
from tests.integration.items import Source, is_through, rows
from tests.integration.letters import letters_in
from tests.integration.server import dying_server
from tests.integration.server.dying_server import Step
from tests.integration.server.servers import ServerProcess, Site
from tests.mortal import Victim
from tests.support.waiting import until
from tests.unit.spark.sinks.contract import Database

SECONDS: Final = 600  # of a machine that has more to do


class Orders:
    """The step at which servers of a site wait, or one of them stops."""

    def __init__(self, site: Site) -> None:
        self._new, self._next = site.directory / "new", site.directory / dying_server.NEXT
        self._reached = site.directory / dying_server.REACHED

    def order(self, step: Step, number: int = 1) -> None:
        """That step, at the nth time from now."""
        self._new.write_text(f"{step}\n{number}")
        self._new.replace(self._next)


class Waiting(Orders):
    """A server that waits at steps, while a database is killed there."""

    def __init__(self, site: Site, *words: str, name: str = "waiting") -> None:
        super().__init__(site)
        self.server: ServerProcess = site.server(name, *words, program=(dying_server.__file__, "-", "0"))

    def kill(self, victim: Victim) -> None:
        """Wait for that step, kill a database there, and let the server go on; or kill the server itself."""
        self.server.until(self._reached.exists, SECONDS)
        victim.kill()
        self._reached.unlink()


class Stopping(Orders):
    """Workers that stop themselves at steps, one at a time or both; the process of each lives on."""

    def __init__(self, site: Site, stack: ExitStack) -> None:
        """They end with `stack`."""
        super().__init__(site)
        self._site, self._stack = site, stack
        self.workers: list[ServerProcess] = []
        self._asleep: list[ServerProcess] = []

    def start(self, name: str) -> None:
        """One more."""
        server = self._site.server(name, program=(dying_server.__file__, "=", "0"))
        self.workers.append(self._stack.enter_context(server))

    def stopped(self) -> ServerProcess:
        """The one that stops at the step, beside those that have not gone on."""

        def newly_stopped() -> list[ServerProcess]:
            return [worker for worker in self.workers if worker not in self._asleep and _is_stopped(worker)]

        until(newly_stopped, "a worker that stops at the step", SECONDS, state=self._words)
        [stopped] = newly_stopped()
        self._asleep.append(stopped)
        self._reached.unlink()
        return stopped

    def go_on(self, worker: ServerProcess) -> None:
        """Continue it."""
        self._asleep.remove(worker)
        os.kill(worker.process.pid, signal.SIGCONT)

    def other(self, worker: ServerProcess) -> ServerProcess:
        """Not this one."""
        [other] = [each for each in self.workers if each is not worker]
        return other

    def _words(self) -> str:
        return "\n".join(worker.words() for worker in self.workers)


def _is_stopped(worker: ServerProcess) -> bool:
    state = Path(f"/proc/{worker.process.pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    return state == "T"


def finish(site: Site, server: ServerProcess, feed: Feed, source: Source, stores: dict[str, Database]) -> None:
    """All come out equal to the source, nothing was set aside, and the server ends well."""
    feed.publish(source.last())
    for database in stores.values():
        server.until(lambda database=database: is_through(database), SECONDS)  # type: ignore[misc]  # mypy cannot infer it
        assert rows(database) == source.rows()
    server.until(lambda: {row["state"] for row in site.states().values()} == {"active"}, SECONDS)
    assert server.stop() == 0, server.words()
    assert site.owners() == {None}
    assert letters_in(site.kafka, site.prefix) == []
