"""kill -9 of a worker at named steps, and of all that a snapshot rests on: targets come out equal to the source."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from tailrace.local import LocalKafka
from tests import postgres
from tests.integration.feed import Feed
from tests.integration.items import Load, Source
from tests.integration.server import dying_server
from tests.integration.server.dying_server import Step
from tests.integration.server.kills import Waiting, finish
from tests.integration.server.servers import Site
from tests.integration.server.snapshots import site_of, tables, until
from tests.integration.snapshot.following import Place, Writes
from tests.mortal import Mortal
from tests.oracle.comparison import Downstream
from tests.unit.spark.sinks.contract import Database

_SECONDS: Final = 300  # of a machine that has more to do
_WORKER: Final = {
    Step.CLAIMING: 2,
    Step.CLAIMED: 1,
    Step.BEGINNING: 2,
    Step.RENEWING: 3,
    Step.WRITING: 2,
    Step.COMMITTED: 2,
    Step.SAVING: 4,
    Step.SAVED: 4,
}
"""The steps of a worker, and at which time it dies there. Two claims come at once."""
_SNAPSHOT: Final = (Step.NOTING, Step.NOTED, Step.WRITING)
_VICTIMS: Final = (
    ("meta", "postgresql"),
    ("sink", "mysql"),
    ("worker", "postgresql"),
)
pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


@pytest.mark.promise("subscription.take-over")
def test_a_worker_is_killed_at_each_step(
    tmp_path: Path, kafka: LocalKafka, prefix: str, feed: Feed, stores: dict[str, Database]
) -> None:
    """With its Java, and each time the next one takes over."""
    site, source = Site(tmp_path, kafka, prefix, postgres.new_database()), Source(17)
    for name, database in stores.items():
        site.subscribe(name, "shop.items", database.url)
    with Load(feed, source, seconds=0.2):
        for step, number in _WORKER.items():
            with site.server("dying", program=(dying_server.__file__, step, str(number))) as dying:
                assert dying.ended(_SECONDS) == -signal.SIGKILL, f"{step}\n{dying.words()}"
    with site.server("heir") as server:
        finish(site, server, feed, source, stores)


@pytest.mark.promise("subscription.snapshot")
@pytest.mark.parametrize(("victim", "mortal"), _VICTIMS, indirect=["mortal"])
def test_a_snapshot_whose_databases_or_worker_are_killed_comes_out_equal(
    place: Place, tmp_path: Path, mortal: Mortal, victim: str
) -> None:
    """At each step of its rounds, while its table is written; what SELECT answers is the oracle."""
    name = f"killed_{uuid4().hex[:12]}"  # the keyspace is that of all its cases
    place.create(name)
    store = Downstream(mortal.new_database() if victim == "sink" else postgres.new_database())
    site = site_of(place, tmp_path, url=mortal.new_database() if victim == "meta" else postgres.new_database())
    site.subscribe("copy", f"{place.keyspace}.{name}", store.url)
    with Writes(place, name, pause=0.1) as writes:
        if victim == "worker":
            for step in _SNAPSHOT:
                with site.server("dying", program=(dying_server.__file__, step, "2")) as dying:
                    assert dying.ended(_SECONDS) == -signal.SIGKILL, f"{step}\n{dying.words()}"
        waiting = Waiting(site)
        with waiting.server as server:
            for step in () if victim == "worker" else _SNAPSHOT:
                before = ranges(site)
                waiting.order(step, 2)
                waiting.kill(mortal)
                mortal.start()
                server.until(lambda before=before: goes_on(site, before), _SECONDS)  # type: ignore[misc]  # as above
            done = until(site, server, "copy", lambda table: table["state"] == "done")
            writes.end()
            place.until_equal(store, name, _SECONDS)
            server.until(lambda: site.states()["copy"]["state"] == "active", _SECONDS)
            assert server.stop() == 0, server.words()
    assert (done["percent"], done["reading"]) == (100.0, [])
    store.close()


def ranges(site: Site) -> int:
    """How many are done; 0 before the first."""
    return max((int(table["ranges"]) for table in tables(site, "copy")), default=0)


def goes_on(site: Site, before: int) -> bool:
    """Whether more ranges are done than before, or all."""
    return any(table["ranges"] > before or table["state"] == "done" for table in tables(site, "copy"))
