"""The nodes of the source and their agents, by what they publish of themselves: `.progress` and the generations."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tailrace_common.kafka import StartOffsets
from tailrace_common.settings import Settings
from tailrace_common.topics import GenerationReader, ProgressReader
from tailrace_schemas.progress import Progress, has_read
from tailrace_schemas.ring import Node
from tailrace_schemas.topics import Internal, internal_topic

_SECONDS: Final = 10.0
_SILENT_SECONDS: Final = 300.0
_SLOW_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A node; `name` is what people call it, empty where its agent has not told.

    `age` and `lag` are seconds: since its agent's last report, and of what is not published yet.
    `advice` says what to do, where something is not well.
    """

    cluster: str
    host: str
    datacenter: str
    state: str
    well: bool
    name: str = ""
    position: str = ""
    age: float | None = None
    lag: float | None = None
    parked: int = 0
    quarantined: int = 0
    advice: tuple[str, ...] = ()


def hosts_of(reports: Iterable[Progress], nodes: Iterable[Node], now: float) -> list[Host]:
    """A row for each host that has reported, and for each node of the ring that never did. `now` is wall time."""
    ring = {node.host: node for node in nodes}
    hosts = [_reported(report, ring.pop(report.host, None), now) for report in reports]
    silent = "no agent of this node has published: start one there"
    hosts += [
        Host(cluster="", host=node.host, datacenter=node.datacenter, state="never published", well=False,
             advice=(silent,))
        for node in ring.values()
    ]  # fmt: skip
    return sorted(hosts, key=lambda host: (host.well, host.cluster, host.name or host.host))


def _reported(report: Progress, node: Node | None, now: float) -> Host:
    age = report.age(now)
    lag = None if report.complete_to is None else max(0.0, now - report.complete_to / 1000)
    state, advice = _state(report, age, lag)
    if report.parked:
        advice.append("`tailrace parked list` says what waits, and for what")
    if report.quarantined:
        advice.append("`tailrace offsets show` names the damaged segments")
    position = report.position
    words = f"segment {position.segment}, offset {position.offset}" if has_read(report) else "nothing yet"
    return Host(
        cluster=report.cluster,
        host=report.host,
        datacenter="" if node is None else node.datacenter,
        state=state,
        well=not advice,
        name=report.name or "",
        position=words + (f" (log epoch {position.epoch})" if position.epoch > 1 else ""),
        age=age,
        lag=lag,
        parked=report.parked,
        quarantined=report.quarantined,
        advice=tuple(advice),
    )


def _state(report: Progress, age: float, lag: float | None) -> tuple[str, list[str]]:
    if age > _SILENT_SECONDS:
        return "silent", ["its agent has reported nothing for minutes: does it run? Its page and log say more"]
    if report.caught_up or lag is None or lag < _SLOW_SECONDS:
        return ("caught up" if report.caught_up else "publishing"), []
    return "behind", ["its agent is behind by more than a minute: its page says what it waits for"]


class HostSource:
    """Reads what hosts have published, at the most every few seconds, however many look."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def read(self, now: float) -> list[Host]:
        """Raises ServiceError where Kafka does not answer."""
        kafka, prefix = self._settings.kafka.reveal(), self._settings.topics.prefix
        progress = internal_topic(prefix, Internal.PROGRESS)
        generations = internal_topic(prefix, Internal.GENERATIONS)
        pattern = f"{re.escape(progress)}|{re.escape(generations)}"
        topics = {topic for topic, _ in StartOffsets(kafka, timeout=_SECONDS).partitions(pattern)}
        reports: tuple[Progress, ...] = ()
        nodes: tuple[Node, ...] = ()
        if progress in topics:
            with ProgressReader(kafka, prefix, timeout=_SECONDS) as reader:
                reports = reader.read()
        if generations in topics:
            with GenerationReader.open(kafka, generations) as reader_of_generations:
                reader_of_generations.refresh()
                latest = reader_of_generations.latest
                nodes = () if latest is None else tuple(latest.unpack().ring.nodes)
        return hosts_of(reports, nodes, now)
