"""`tailrace size`: by hand, against the figures that benchmarks measured, and as a command."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from typer import Typer
from typer.testing import CliRunner

from tailrace_schemas.errors import SettingsError
from tailrace_spark.cli.size import size_of
from tailrace_spark.cluster_sizing import AGENT_MIB, PYTHON_MIB, STORES, Cluster, Part, parts
from tailrace_spark.sizing import COSTS, Load

PERFORMANCE: Final = (Path(__file__).resolve().parents[3] / "docs" / "performance.md").read_text(encoding="utf-8")
CLUSTER: Final = Cluster(
    writes=10_000,
    replication_factor=3,
    nodes=6,
    tables=10,
    brokers=3,
    record_bytes=250,
    retention_days=7,
    batch_seconds=10,
    default_partitions=12,
    internal_topics=8,
    internal_partitions=55,
)


def named(found: list[Part], name: str) -> Part:
    (part,) = [part for part in found if part.part == name]
    return part


def test_a_cluster_by_hand() -> None:
    """30,000 records a second: 9.4 us each for agents, 5.6 for brokers, at 70 % of a core; 250 bytes, three copies."""
    found = parts(CLUSTER, ["postgresql"])
    agent, broker, topic = (named(found, name) for name in ("agent", "broker", "topic"))
    assert (agent.number, agent.cores, agent.memory_mib) == (6, round(30_000 * 9.4e-6 / 0.7 / 6, 2), 110)
    assert (broker.number, broker.cores) == (3, round(30_000 * 5.6e-6 / 0.7 / 3, 2))
    assert broker.storage_gb == -(-30_000 * 250 * 3 * 7 * 86_400 // 3 // 10**9)
    assert (topic.number, topic.partitions) == (18, 10 * 12 + 55)
    executor = named(found, "postgresql: executor")
    assert executor.cores == 3  # 1.854 s of work a second, at 70 % of a core
    assert executor.memory_mib == 1_024 + 3 * PYTHON_MIB


def test_a_large_load_needs_more_partitions_than_the_default() -> None:
    small, large = (named(parts(replace(CLUSTER, writes=w), ["cassandra"]), "topic") for w in (10_000, 1_000_000))
    assert small.partitions is not None
    assert large.partitions is not None
    assert large.partitions > small.partitions


def test_what_cannot_be_reckoned_is_refused() -> None:
    with pytest.raises(SettingsError, match="costs were measured for postgresql, delta, cassandra"):
        parts(CLUSTER, ["oracle"])
    with pytest.raises(SettingsError, match="2 nodes cannot hold 3 copies"):
        parts(replace(CLUSTER, nodes=2), [])


def test_the_costs_are_those_that_benchmarks_measured() -> None:
    """The higher figure of the agent's two runs, and tasks' second round, which is the dearer one."""
    cells = re.findall(r"(?m)^\| \*\*Tailrace\*\* \|(.*)\|$", PERFORMANCE)[0].replace("*", "").split("|")
    cpu, memory, broker = (float(cells[index].split("-")[-1]) for index in (1, 4, 5))
    assert (Load(1).agent, AGENT_MIB, Load(1).broker) == (cpu, memory, broker)
    row = r"\| by tasks, second round \| \S+ \| \S+ \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|"
    task, java, server = re.findall(row, PERFORMANCE)[0]
    costs = COSTS[STORES["postgresql"]]
    assert costs.record == pytest.approx(float(task) + float(java))
    assert costs.store == float(server)
    assert f"peaks at {PYTHON_MIB} MB" in PERFORMANCE


def test_one_core_is_enough_for_the_rate_that_one_agent_was_measured_at() -> None:
    """75,000 to 85,000 records a second of one agent: the command asks for one core, the share for peaks included."""
    measured = replace(CLUSTER, writes=75_000, replication_factor=1, nodes=1)
    cores = named(parts(measured, []), "agent").cores
    assert cores is not None
    assert 0.6 <= cores * 0.7 <= 1


def test_the_command_prints_a_line_for_each_part() -> None:
    app = Typer()
    app.command()(size_of)
    answer = CliRunner().invoke(app, ["--writes", "20000", "--nodes", "6", "--tables", "12", "--store", "delta"])
    assert answer.exit_code == 0, answer.output
    lines = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [line["part"] for line in lines] == ["agent", "broker", "topic", "delta: driver", "delta: executor"]
    assert {tuple(line) for line in lines} == {
        ("part", "number", "cores", "memory_mib", "partitions", "storage_gb", "why")
    }
