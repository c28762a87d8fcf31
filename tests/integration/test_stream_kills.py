"""kill -9 of `tailrace stream` and of its Java, under load: the sink comes out equal to what was published."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tailrace.local import LocalKafka
from tests.integration.dying_stream import Step
from tests.integration.killed import Killed
from tests.integration.targets import sql_target
from tests.integration.ways import Ground
from tests.postgres import new_database


@pytest.mark.spine
@pytest.mark.promise("stream.killed")
@pytest.mark.parametrize("database", [pytest.param("sqlite", marks=pytest.mark.long), "postgresql"])
def test_a_killed_stream_goes_on(database: str, kafka: LocalKafka, prefix: str, tmp_path: Path, ground: Ground) -> None:
    """At the steps where most is at stake; at all of them, and at any time, `test_sink_kills`."""
    target = sql_target(f"sqlite:///{tmp_path / 'sink.db'}" if database == "sqlite" else new_database(), ground)
    with closing(Killed(target, kafka, prefix, tmp_path, "driver")) as trial:
        with trial.load() as load:
            for step in (Step.MERGED, Step.COMMITTED):
                trial.die_at(step, 2)
        trial.settle(load.sent)
