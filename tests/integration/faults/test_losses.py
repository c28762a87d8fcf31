"""What was lost is shown until somebody acknowledges it, and our own topics are missed when they are deleted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tailrace.local import LocalCassandra
from tailrace.segments.files import list_segments
from tests.integration.agents import AgentProcess, roll_over
from tests.integration.faults.trial import Settings, Trial, until_more
from tests.support.waiting import until


def delete_segment(cassandra: LocalCassandra, segment: int) -> None:
    """Delete a segment and its index from cdc_raw, once Cassandra has finished both."""

    def files() -> tuple[Path, ...]:
        (one,) = (files for files in list_segments(cassandra.cdc_raw).segments if files.id == segment)
        return tuple(path for path in (one.log, one.index) if path is not None)

    until(
        lambda: any(b"COMPLETED" in path.read_bytes() for path in files() if path.suffix == ".idx"),
        "a complete segment",
    )
    for path in files():
        path.unlink()


def without_commitlog(trial: Trial) -> Settings:
    """Settings of an agent that may not read the commit log."""
    settings = trial.settings
    elsewhere = trial.place / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    settings["agent"]["commitlog_directory"] = str(elsewhere)
    return settings


def delete_topic(trial: Trial, topic: str) -> None:
    """Delete a topic, and wait until no broker has it."""
    admin = AdminClient({"bootstrap.servers": trial.kafka.bootstrap})
    admin.delete_topics([topic])[topic].result(60)
    until(lambda: topic not in admin.list_topics(timeout=60).topics, "the topic's end")


def losses_of(agent: AgentProcess) -> dict[str, str]:
    """What /status says of losses."""
    degraded = agent.status().get("degraded", {})
    return {cause: words for cause, words in degraded.items() if cause.startswith("loss of ")}


def stopped_within_a_segment(trial: Trial, agent: AgentProcess) -> dict[str, int]:
    """The position of an agent that has published a mark and was stopped, in a segment that is in cdc_raw.

    Other tests' writes may have ended the mark's segment meanwhile, which the agent then has released: once more.
    """
    for _ in range(5):
        mark = trial.mark()
        agent.until(lambda mark=mark: trial.is_published(mark))  # type: ignore[misc]  # as elsewhere
        assert agent.stop() == 0, agent.words()
        position: dict[str, int] = json.loads(agent.command("offsets", "show"))["position"]
        if position["segment"] in {files.id for files in list_segments(trial.cassandra.cdc_raw).segments}:
            return position
        agent.start()
    raise AssertionError("each segment ended before the agent was stopped")


@pytest.mark.promise("agent.vanished-segments", "agent.losses-acknowledged")
def test_a_segment_deleted_while_no_agent_runs_is_shown_until_it_is_acknowledged(trial: Trial) -> None:
    """It was read in part: lost is what stood behind that. /status and `losses list` have it after restarts too; an
    acknowledgement ends it, also for an agent that runs."""
    with trial.agent(settings=without_commitlog(trial)) as agent:
        position = stopped_within_a_segment(trial, agent)
        lost = trial.mark()
        roll_over(trial.session, trial.cassandra, trial.keyspace)
        delete_segment(trial.cassandra, position["segment"])
        last = trial.mark()
        agent.start()
        agent.until(lambda: trial.is_published(last))
        assert agent.stop() == 4, agent.words()
        assert not trial.is_published(lost)
        agent.start()
        agent.until(lambda: bool(losses_of(agent)))
        ((cause, words),) = losses_of(agent).items()
        (listed,) = (json.loads(line) for line in agent.command("losses", "list").splitlines())
        assert cause == f"loss of {position['segment']}"
        assert f"behind 1/{position['segment']}:{position['offset']}" in words
        assert (listed["kind"], listed["from"]) == ("lost", f"1/{position['segment']}:{position['offset']}")
        assert f"{trial.keyspace}.marks" in listed["tables"]
        agent.command("losses", "acknowledge", listed["id"], "--yes")
        agent.until(lambda: not losses_of(agent))
        assert agent.stop() == 0, agent.words()
        agent.start().until_ready()
        assert not losses_of(agent)
        assert agent.command("losses", "list") == ""
        assert json.loads(agent.command("losses", "list", "--all"))["acknowledged"]
        assert agent.stop() == 0, agent.words()


@pytest.mark.promise("agent.deleted-offsets")
def test_a_deleted_offsets_topic_repeats_nothing(trial: Trial) -> None:
    """The agent refuses to start, and says what is known and what to do; so does check. Once the record is restored, it
    goes on behind what was published, also where the agent was killed before it told that."""
    with trial.agent() as agent:
        agent.until_ready()
        load = trial.load(rate=200)
        until_more(agent)
        agent.kill()
        load.end()
        delete_topic(trial, f"{trial.prefix}.offsets")
        agent.start()
        assert agent.ended() == 1
        assert f"{trial.prefix}.offsets has no record of host" in agent.words()
        assert "`tailrace offsets restore`" in agent.words()
        rows = [json.loads(line) for line in agent.command("check", "--only", "kafka", code=1).splitlines()]
        assert [row["ok"] for row in rows if row["name"] == "positions"] == [False]
        agent.command("offsets", "restore", "--fence", "--yes")
        agent.start()
        trial.settle(agent)
    verdict = trial.verdict()
    assert verdict.sound, str(verdict)
