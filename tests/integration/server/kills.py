"""A server that waits at steps while others are killed, and how such a test ends."""

from __future__ import annotations

from typing import Final

from tests.integration.feed import Feed
from tests.integration.items import Source, is_through, rows
from tests.integration.letters import letters_in
from tests.integration.server import dying_server
from tests.integration.server.dying_server import Step
from tests.integration.server.servers import ServerProcess, Site
from tests.mortal import Victim
from tests.unit.spark.sinks.contract import Database

SECONDS: Final = 600  # of a machine that has more to do


class Waiting:
    """A server that waits at steps, while a database is killed there."""

    def __init__(self, site: Site, *words: str, name: str = "waiting") -> None:
        self._site = site
        self._next, self._reached = site.directory / dying_server.NEXT, site.directory / dying_server.REACHED
        self.server: ServerProcess = site.server(name, *words, program=(dying_server.__file__, "-", "0"))

    def order(self, step: Step, number: int = 1) -> None:
        """The step at which it waits, at the nth time from now."""
        new = self._site.directory / "new"
        new.write_text(f"{step}\n{number}")
        new.replace(self._next)

    def kill(self, victim: Victim) -> None:
        """Wait for that step, kill a database there, and let the server go on; or kill the server itself."""
        self.server.until(self._reached.exists, SECONDS)
        victim.kill()
        self._reached.unlink()


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
