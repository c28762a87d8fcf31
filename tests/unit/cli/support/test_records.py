"""An agent that runs is noticed before something of its is changed by hand, an idle one too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.assembly.services import topics_of
from tailrace.capture.owner import own, this_agent
from tailrace.cli.support import records
from tailrace.cli.support.records import publisher_of, require_stopped
from tailrace.errors import AgentRunsError
from tailrace.publish.hosts import HostRecord
from tailrace.state import Resume
from tailrace_common.kafka import Sizes
from tailrace_common.settings import Settings

RECORD = HostRecord("c", "h", Resume(), 100_000)
AGENT = this_agent("tailrace", "h", "127.0.0.1:9092", transactional=True, now=0.0)


def settings_of(cdc_raw: Path, progress_seconds: float = 10.0) -> Settings:
    agent = {"cdc_raw_directory": str(cdc_raw), "progress_seconds": progress_seconds}
    return Settings.model_validate({"topics": {"prefix": "tailrace"}, "agent": agent})


@pytest.mark.promise("agent.noticed-by-commands")
def test_the_lock_of_cdc_raw_names_an_agent_that_runs(tmp_path: Path) -> None:
    """However old its last record is; once it has ended, its record must be of before that."""
    settings = settings_of(tmp_path)
    with own(tmp_path, AGENT):
        with pytest.raises(AgentRunsError, match=r"host h: the agent with .*pid \d+\) runs\. Stop it"):
            require_stopped(settings, RECORD, 1e6, fence=False)
        require_stopped(settings, RECORD, 1e6, fence=True)
        elsewhere = settings_of(tmp_path / "gone")
        with pytest.raises(AgentRunsError, match="runs"):
            require_stopped(elsewhere, RECORD, 1e6, fence=False, directory=tmp_path)
    require_stopped(settings, RECORD, 115.0, fence=False)
    with pytest.raises(AgentRunsError, match=r"committed 3 s ago.*try again in 12 s; or give --fence"):
        require_stopped(settings, RECORD, 103.0, fence=False)


@pytest.mark.promise("agent.noticed-by-commands")
@pytest.mark.parametrize(
    "other",
    [replace(AGENT, host="h2"), replace(AGENT, prefix="p2"), None],
    ids=["another host", "another prefix", "nobody"],
)
def test_where_no_lock_says_it_an_idle_agent_has_its_time(tmp_path: Path, other: object) -> None:
    """It repeats its record every 60 s by default."""
    if other is not None:
        assert isinstance(other, type(AGENT))
        own(tmp_path, other).close()
    require_stopped(settings_of(tmp_path), RECORD, 175.0, fence=False)
    require_stopped(settings_of(tmp_path, 2.0), RECORD, 127.0, fence=False)
    with pytest.raises(AgentRunsError, match=r"committed 60 s ago: its agent seems to run.*try again in 15 s"):
        require_stopped(settings_of(tmp_path), RECORD, 160.0, fence=False)


def test_what_is_published_by_hand_has_the_sizes_of_the_settings_and_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that was parked as too large for its topic is as large as that one takes by now."""
    made = list[Sizes]()
    monkeypatch.setattr(records, "KafkaPublisher", lambda _, **options: made.append(options["sizes"]))
    settings = Settings.model_validate({"topics": {"prefix": "tailrace", "max_message_bytes": 30 << 20}})
    topics = topics_of(settings)
    topics.limits["tailrace.ks.t"] = 300_000
    publisher_of(settings, RECORD, topics=topics)
    assert (made[0].largest, made[0].batch) == (30 << 20, 300_000)
