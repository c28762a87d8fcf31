"""kill -9 of a worker at named steps: targets come out equal to the source."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

import pytest

from tailrace.local import LocalKafka
from tests import postgres
from tests.integration.feed import Feed
from tests.integration.server import dying_server
from tests.integration.server.dying_server import Step
from tests.integration.server.servers import Site
from tests.integration.server.test_database_kills import finish
from tests.integration.test_stream_kills import Load, Source
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
