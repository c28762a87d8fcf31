"""`tailrace hosts`: the hosts that have published against those that the cluster has, and retiring one for good."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Annotated

import typer

from tailrace.assembly.node import node_names
from tailrace.cli.support.records import (
    Fence,
    known_hosts,
    known_progress,
    publisher_of,
    require_stopped,
    require_unchanged,
)
from tailrace.cluster import LiveCluster
from tailrace.publish.hosts import HostRecord, host_of, position_words
from tailrace_common.cli.console import print_rows, say
from tailrace_common.cli.options import SettingsFile, Yes, confirm, settings_of
from tailrace_common.durations import duration_words
from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.progress import Progress
from tailrace_schemas.ring import Ring

app = typer.Typer(
    no_args_is_help=True,
    help="List hosts with their progress, and remove those that left.\n\nExample: tailrace hosts list",
)


@app.command("list")
def list_(config: SettingsFile = None) -> None:
    """List the hosts that have published, and those of the cluster's ring.

    Name: the address by DNS. Address: the one that other nodes use. State: `in the ring`; `gone`, for a node that left
    or was replaced and can be retired; `never published`, for a node without an agent; `of another cluster`. Position:
    log epoch, segment and offset of the last published mutation. Age: seconds since that was committed. Progress:
    whether the agent has caught up, by its last report, and its number of parked mutations.

    Example: tailrace hosts list -c tailrace.toml
    """
    settings = settings_of(config)
    members = _members(settings)
    rows = host_rows(known_hosts(settings), members, time.time(), known_progress(settings))
    print_rows(
        rows,
        headings={"host": "host id", "position": "published up to", "age": "committed ago"},
        empty=f"no host has published under {settings.topics.prefix}, and the cluster has none",
    )


@app.command()
def retire(
    host: Annotated[str, typer.Argument(metavar="HOST", help="The host id, as `hosts list` shows it.")],
    config: SettingsFile = None,
    fence: Fence = False,
    yes: Yes = False,
) -> None:
    """Remove a host that has left for ever: its position, its schema history, and what it has parked.

    Its published changes stay. Refused for a host of the cluster's ring, and while its agent seems to run. If a node
    returns under this host id, its agent starts at the first segment.

    Example: tailrace hosts retire 2f1c... --yes
    """
    settings = settings_of(config)
    record = host_of(known_hosts(settings), host)
    members = _members(settings)
    require_gone(record, members.cluster, members.ring)
    require_stopped(settings, record, time.time(), fence=fence)
    say(retired_words(record, time.time()))
    confirm("Forget it?", yes)
    with closing(publisher_of(settings, record)) as publisher:
        if record.resume is None:
            publisher.open()
        else:
            require_unchanged(record, publisher.start())
        publisher.forget()
    say(f"host {host} is retired")


def retired_words(record: HostRecord, now: float) -> str:
    """How far a host has published, and what goes with its record; `now` in seconds since the epoch."""
    resume = record.resume
    published_to = "an unreadable position" if resume is None else position_words(resume.position)
    parked = sum(len(lot.offsets) for lot in resume.parked) if resume else 0
    never = f". It has {parked} parked mutation{'s' * (parked != 1)}, which are published never then" if parked else ""
    return f"host {record.host} published up to {published_to}, last {duration_words(record.age(now))} ago{never}"


@dataclass(frozen=True, slots=True)
class Members:
    """The cluster that the settings reach: its name, its ring, its nodes' addresses by host id, names by address."""

    cluster: str
    ring: Ring
    addresses: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    def node(self, host: str) -> dict[str, object]:
        """Name, address and id of a host, for its row."""
        address = self.addresses.get(host)
        return {"name": None if address is None else self.names.get(address), "address": address, "host": host}


def host_rows(
    hosts: Iterable[HostRecord], members: Members, now: float, reports: Iterable[Progress] = ()
) -> list[dict[str, object]]:
    """One row per host: those that published, then those that never did. `now` is wall time in seconds."""
    progress = {(report.cluster, report.host): report for report in reports}
    nodes = {node.host: node for node in members.ring.nodes}
    rows: list[dict[str, object]] = []
    for record in hosts:
        node = nodes.pop(record.host, None)
        absent = "gone" if record.cluster == members.cluster else "of another cluster"
        rows.append(
            {
                "cluster": record.cluster,
                **members.node(record.host),
                "state": absent if node is None else "in the ring",
                "datacenter": None if node is None else node.datacenter,
                "position": record.problem if record.resume is None else position_words(record.resume.position),
                "age": duration_words(record.age(now)),
                "progress": progress_words(progress.get((record.cluster, record.host)), now),
            }
        )
    for node in nodes.values():
        unknown = {"datacenter": node.datacenter, "position": None, "age": None, "progress": None}
        rows.append({"cluster": members.cluster, **members.node(node.host), "state": "never published", **unknown})
    return rows


def progress_words(progress: Progress | None, now: float) -> str | None:
    """A host's progress for people: whether it has caught up, when it said so, and what it has set aside."""
    if progress is None:
        return None
    state = "caught up" if progress.caught_up else "behind"
    words = f"{state}, as of {duration_words(progress.age(now))} ago"
    if progress.parked:
        words += f"; {progress.parked} mutation{'s' * (progress.parked != 1)} parked"
    if progress.quarantined:
        words += f"; {progress.quarantined} segment{'s' * (progress.quarantined != 1)} quarantined"
    return words


def require_gone(record: HostRecord, cluster: str, ring: Ring) -> None:
    """Raise SettingsError for a host of the ring, and for one of a cluster that this ring says nothing about."""
    if any(node.host == record.host for node in ring.nodes):
        raise SettingsError(
            f"host {record.host} is in the ring of {cluster}: what its agent published would be published again. "
            "Decommission or remove the node first"
        )
    if record.cluster != cluster:
        raise SettingsError(
            f"host {record.host} published for the cluster {record.cluster!r}, and the settings reach {cluster!r}: "
            "whether it is gone cannot be told from here. If the cluster was renamed, set cluster.name"
        )


def _members(settings: Settings) -> Members:
    """The settings' cluster. Raises ServiceError, RingError."""
    with closing(LiveCluster(settings.cluster)) as cluster:
        addresses = cluster.addresses()
        name = settings.cluster.name or cluster.local().cluster
        return Members(name, cluster.ring(), addresses, node_names(addresses.values()))
