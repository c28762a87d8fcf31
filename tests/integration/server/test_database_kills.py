"""kill -9 of the meta database, and of a sink's, at named steps of servers: targets come out equal to the source."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import httpx2
import pytest

from tailrace.local import LocalKafka
from tailrace.local.ports import free_port
from tailrace_schemas.errors import ServiceError
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.tables import metadata
from tests.integration.feed import Feed
from tests.integration.items import Load, Source
from tests.integration.server.dying_server import Step
from tests.integration.server.kills import SECONDS, Waiting, finish
from tests.integration.server.servers import LEASE_SECONDS, Site
from tests.mortal import Mortal
from tests.support.meta_database import before, missing
from tests.unit.server.meta.hanging import behind_a_proxy
from tests.unit.spark.sinks.contract import Database

_CLAIMS: Final = frozenset({Step.CLAIMING, Step.CLAIMED, Step.BEGINNING})
"""Steps that come with a new claim alone."""
_META: Final = (
    Step.CLAIMING,
    Step.BEGINNING,
    Step.RENEWING,
    Step.SAVING,
    Step.COMMITTED,
    Step.SAVED,
    Step.CLAIMED,
)
_SINK: Final = (Step.WRITING, Step.COMMITTED, Step.SAVED, Step.WRITING)
pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


def claimed_anew(site: Site, waiting: Waiting, name: str, step: Step) -> None:
    """Let the worker give a subscription up, and claim it again at a step.

    It is ordered while nobody may claim: a server that waits in a transaction holds the row against operators.
    """
    with site.operations() as operations:
        operations.pause(name)
        waiting.server.until(lambda: site.states()[name]["owner"] is None, SECONDS)
        waiting.order(step)
        operations.resume(name)


@pytest.mark.promise("subscription.take-over")
def test_the_meta_database_is_killed_at_each_step_of_a_worker(
    tmp_path: Path, kafka: LocalKafka, prefix: str, feed: Feed, stores: dict[str, Database], mortal: Mortal
) -> None:
    """It comes back at once, and at last not before the worker has given up what it ran."""
    site, source = Site(tmp_path, kafka, prefix, mortal.new_database()), Source(11)
    for name, database in stores.items():
        site.subscribe(name, "shop.items", database.url)
    waiting = Waiting(site)
    waiting.order(_META[0])
    with waiting.server as server:
        with Load(feed, source, seconds=0.2):
            for number, step in enumerate(_META):
                if number and step in _CLAIMS:
                    claimed_anew(site, waiting, "left", step)
                elif number:
                    waiting.order(step)
                waiting.kill(mortal)
                mortal.start()
                server.until(lambda: len(site.owners() - {None}) == 1, SECONDS)
            waiting.order(Step.RENEWING)
            waiting.kill(mortal)
            server.until(lambda: "as long as a lease" in server.log.read_text(), LEASE_SECONDS + 60)
            mortal.start()
        finish(site, server, feed, source, stores)


@pytest.mark.promise("subscription.one-owner")
def test_the_meta_database_hangs(tmp_path: Path, kafka: LocalKafka, prefix: str) -> None:
    """It takes connections and says nothing. The worker stops by its lease, the API says so, and SIGTERM ends both."""
    with behind_a_proxy("postgresql") as (url, proxy):
        port = free_port("127.0.0.1")
        site = Site(tmp_path, kafka, prefix, url, port=port, authentication=False)
        site.subscribe("copy", "shop.items", f"sqlite:///{tmp_path / 'copy.db'}")
        with site.server("server", both=True) as server:
            server.until(lambda: bool(site.owners() - {None}), SECONDS)
            proxy.stall()
            answer = httpx2.get(f"http://127.0.0.1:{port}/v1/subscriptions", timeout=60)
            assert (answer.status_code, "the database" in answer.text) == (503, True), answer.text
            server.until(lambda: "as long as a lease" in server.log.read_text(), LEASE_SECONDS + 60)
            assert server.stop() == 0, server.words()


@pytest.mark.promise("subscription.isolated")
def test_the_database_of_a_sink_is_killed_at_each_step(
    tmp_path: Path, kafka: LocalKafka, prefix: str, feed: Feed, stores: dict[str, Database], mortal: Mortal
) -> None:
    """Its subscription fails until it is back; the other one goes on."""
    url = mortal.new_database()
    stores = {"left": stores["left"], "right": Database(url)}
    site, source = Site(tmp_path, kafka, prefix, f"sqlite:///{tmp_path / 'meta.db'}"), Source(13)
    for name, database in stores.items():
        site.subscribe(name, "shop.items", database.url)
    waiting = Waiting(site)
    with waiting.server as server:
        with Load(feed, source, seconds=0.2):
            for step in _SINK:
                waiting.order(step, 2)
                waiting.kill(mortal)
                server.until(lambda: site.states()["right"]["state"] == "failing", SECONDS)
                assert site.states()["left"]["state"] == "active"
                mortal.start()
                server.until(lambda: site.states()["right"]["state"] == "active", SECONDS)
        finish(site, server, feed, source, stores)
    stores["right"].close()


@pytest.mark.promise("subscription.same-request")
def test_the_meta_database_is_killed_while_the_api_keeps_a_subscription(
    tmp_path: Path, kafka: LocalKafka, prefix: str, mortal: Mortal
) -> None:
    """Killed in its transaction, nothing is kept, and whoever asked is told; killed behind it, the request is there."""
    port = free_port("127.0.0.1")
    site = Site(tmp_path, kafka, prefix, mortal.new_database(), port=port, authentication=False)
    target = site.declare("copy", {"type": "sql", "url": f"sqlite:///{tmp_path / 'copy.db'}"})
    server_url = f"http://127.0.0.1:{port}"
    words = ("subscribe", "shop.items", "--name", "copy", "--target", target, "--server", server_url)
    waiting = Waiting(site, "--role", "api")
    with waiting.server as server:
        server.until(lambda: "HTTP API: http://127.0.0.1" in server.log.read_text(), SECONDS)
        waiting.order(Step.KEEPING)
        refused = asked_meanwhile(site, words, lambda: waiting.kill(mortal))
        assert (refused.returncode, "the meta database" in refused.stderr) == (1, True), refused.stderr
        mortal.start()
        assert site.states() == {}
        waiting.order(Step.KEPT)
        asked_meanwhile(site, words, lambda: waiting.kill(mortal))
        mortal.start()
        [again] = site.tailrace(*words)
        assert again["state"] == "active"
        assert server.stop() == 0, server.words()
    with site.operations() as operations:
        assert [row["operation"] for row in operations.audit(None, 10)] == ["subscribe"]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mortal", ["mysql"], indirect=True)
def test_the_meta_database_is_killed_before_each_statement_that_makes_its_tables(mortal: Mortal) -> None:
    """MySQL keeps each statement at once, so some tables are there then; the next start makes the rest."""
    failures = list[str]()
    while (failure := failure_by_a_kill(mortal, len(failures) + 1)) is not None:
        failures.append(failure)
    revision = 2  # its table and its row
    assert len(failures) == len(metadata.tables) + revision
    assert {"Lost connection" in failure for failure in failures} == {True}, failures


def failure_by_a_kill(mortal: Mortal, number: int) -> str | None:
    """What is said where the database is killed before the nth statement, if there is one; then all is made."""
    url = mortal.new_database()
    with MetaDatabase(url) as database:
        try:
            with before(number, mortal.kill):
                database.prepare()
        except ServiceError as error:
            failure = str(error)
        else:
            return None
        mortal.start()
        database.prepare()
    assert missing(url) == [], number
    return failure


def asked_meanwhile(
    site: Site, words: tuple[str, ...], meanwhile: Callable[[], None]
) -> subprocess.CompletedProcess[str]:
    """What becomes of a command while something else is done."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(site.run, *words)
        meanwhile()
        return answer.result()
