"""kill -9 of a worker whose subscriptions have snapshots and read their topic together: each target equals SELECT."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests import postgres
from tests.integration.server.dying_server import Step
from tests.integration.server.kills import Waiting
from tests.integration.server.servers import ServerProcess, Site
from tests.integration.server.snapshots import site_of, tables
from tests.integration.snapshot.following import KEYS, Place, Writes
from tests.oracle.comparison import Downstream, Row

_SECONDS: Final = 600  # of a machine that has more to do
_HALF: Final = KEYS // 2
_FILTERS: Final = {"all": None, "also": None, "lower": f"k < {_HALF}"}
_READING: Final = {Step.WRITING: 2, Step.SAVED: 4}
"""The steps while snapshots are read, and at which time the worker dies there. It saves where each stream begins."""
_TOGETHER: Final = (Step.WRITING, Step.SAVED)
_TABLE: Final = "together"
pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


@pytest.fixture
def stores() -> Iterator[dict[str, Downstream]]:
    """Empty ones, by the name of their subscriber."""
    with ExitStack() as stack:
        made = {name: Downstream(postgres.new_database()) for name in _FILTERS}
        for store in made.values():
            stack.callback(store.close)
        yield made


def keeps(name: str, row: Row) -> bool:
    """Whether a subscription has a row, whose first column is k."""
    return _FILTERS[name] is None or int(str(row[0])) < _HALF


def share(place: Place, worker: ServerProcess) -> bool:
    """Whether all that the worker runs have come to read together."""
    words = worker.log.read_text()
    return all(f"{place.keyspace}.{_TABLE}/{name} shares the reading of its topics" in words for name in _FILTERS)


def states(site: Site) -> set[str]:
    """Of all snapshots."""
    return {str(table["state"]) for name in _FILTERS for table in tables(site, name)}


@pytest.mark.promise("subscription.take-over", "subscription.snapshot", "subscription.shared-reading")
def test_subscriptions_that_read_together_come_out_equal(
    place: Place, tmp_path: Path, stores: dict[str, Downstream]
) -> None:
    """At steps of their snapshots, of the reading together, and of a snapshot anew that one takes beside the others."""
    place.create(_TABLE)
    site = site_of(place, tmp_path, url=postgres.new_database(), share_reading=True, rows_per_second=15)
    for name, store in stores.items():
        site.subscribe(name, f"{place.keyspace}.{_TABLE}", store.url, where=_FILTERS[name])
    with Writes(place, _TABLE, pause=0.1) as writes:
        for step, number in _READING.items():
            waiting = Waiting(site, name=f"reading {step.name}")
            waiting.order(step, number)
            with waiting.server as worker:
                waiting.kill(worker)
            assert "done" not in states(site)
        for step in _TOGETHER:
            waiting = Waiting(site, name=f"together {step.name}")
            with waiting.server as worker:
                worker.until(lambda worker=worker: share(place, worker), _SECONDS)  # type: ignore[misc]  # as elsewhere
                waiting.order(step, 2)
                waiting.kill(worker)
            assert states(site) == {"done"}
        waiting = Waiting(site, name="anew")
        with waiting.server as worker:
            worker.until(lambda: share(place, worker), _SECONDS)
            waiting.order(Step.NOTED, 2)
            with site.operations() as operations:
                operations.reset("lower", snapshot=True)
            waiting.kill(worker)
        assert states(site) == {"done", "reading"}
        with site.server("heir") as heir:
            heir.until(lambda: share(place, heir), _SECONDS)
            assert states(site) == {"done"}
            writes.end()
            for name, store in stores.items():
                place.until_equal(store, _TABLE, _SECONDS, keeps=lambda row, name=name: keeps(name, row))  # type: ignore[misc]  # as elsewhere
                assert store.set_aside() == []
            heir.until(lambda: {row["state"] for row in site.states().values()} == {"active"}, _SECONDS)
            assert heir.stop() == 0, heir.words()
    assert site.owners() == {None}
