"""No space: for the agent's own files, and in its spool, where Cassandra then refuses writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tests.integration.agents import AgentProcess
from tests.integration.faults.load import Load
from tests.integration.faults.trial import Trial, trial_on, until_more
from tests.support.waiting import until

PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@contextmanager
def small_file_system(place: Path, size: str) -> Iterator[Path]:
    """A directory in which there is so much space."""
    if os.getuid() != 0:
        pytest.skip("only root can mount a file system")
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(place: Path) -> None:
    """Leave no space in it."""
    with suppress(OSError), (place / "filler").open("wb", buffering=0) as filler:
        while filler.write(bytes(PAGE)):
            pass
    assert os.statvfs(place).f_bavail == 0


@pytest.mark.promise("agent.full-disk")
@pytest.mark.long
def test_a_disk_that_is_full(trial: Trial, tmp_path: Path) -> None:
    """What the agent has to say goes nowhere; changes go on, and it ends in order."""
    load = trial.load(rate=200)
    with small_file_system(tmp_path / "small", "256k") as place, AgentProcess(place, trial.settings) as agent:
        until_more(agent)
        fill(place)
        # The log's last page still takes something, up to its end.
        agent.until(lambda: agent.log.stat().st_size % PAGE == 0)
        size = agent.log.stat().st_size
        until_more(agent, 600)
        load.end()
        trial.settle(agent)
        assert agent.log.stat().st_size == size, "there was space: this shows nothing"


@pytest.mark.promise("agent.full-disk")
@pytest.mark.long
def test_a_spool_that_is_full(kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path) -> None:
    """Kafka stands still: the spool takes what there is room for, health says that it is full, and Cassandra refuses
    writes. When Kafka goes on, all that was taken is published once, and nothing is left of moves that were cut off."""
    settings = CassandraSettings(cdc_total_mib=8, heap_mib=384, yaml={"cdc_free_space_check_interval": "20ms"})
    with (
        small_file_system(tmp_path / "small", "3m") as place,
        LocalCassandra(tmp_path / "cassandra", settings) as cassandra,
        trial_on(cassandra, kafka, prefix, keyspace_name, tmp_path) as trial,
    ):
        own = trial.settings
        own["agent"]["spool_directory"] = str(place)
        with trial.agent(settings=own) as agent:
            load = trial.load(rate=150, bulk=60_000)
            until_more(agent)
            os.kill(kafka.pid, signal.SIGSTOP)
            try:
                refused = load.refused
                until(lambda: load.refused >= refused + 50, "refused writes: it never was full, this shows nothing")
                agent.until(lambda: "agent.spool_directory" in json.dumps(agent.status().get("degraded", {})))
            finally:
                os.kill(kafka.pid, signal.SIGCONT)
            until_it_flows(load)
            load.end()
            trial.settle(agent)
        assert [path.name for path in place.rglob("*") if path.suffix in (".log", ".idx", ".partial")] == []


def until_it_flows(load: Load) -> None:
    """Wait for 150 statements of which none is refused."""
    sent, refused = load.sent, load.refused

    def flows() -> bool:
        nonlocal sent, refused
        if load.refused != refused:
            sent, refused = load.sent, load.refused
        return load.sent >= sent + 150

    until(flows, "150 writes in a row that are taken: writes are refused still")
