"""`tailrace check` of the node: whether it answers, and what its own settings mean for its changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tailrace.capture.directory import list_cdc_raw
from tailrace.capture.pressure import threshold_of
from tailrace.capture.spool import size_of
from tailrace.cli.agent import contact_of
from tailrace.cli.check_tables import check_tables
from tailrace.cli.own_directory import has_segments, named_otherwise, node_settings
from tailrace.cluster import LiveCluster
from tailrace.ops.headroom import Headroom, limits_of
from tailrace_common.checks import Check, judge
from tailrace_common.settings import AgentSettings, Settings
from tailrace_schemas.errors import ServiceError, SettingsError

_PERIOD: Final = re.compile(r"(\d+)(ms|s|m|)")
_UNITS: Final = {"ms": 0.001, "": 0.001, "s": 1.0, "m": 60.0}
_EPOCHS: Final = (
    "each write names the epoch of its definition; DDL is read from the log, where the node tells of its epochs there "
    "(6.0-alpha2 does), else from this node, and then changes are marked schema_inferred, and /status says so"
)


def check_cassandra(settings: Settings) -> Iterator[Check]:
    """The node: it answers, computes tokens as we do, has CDC on, and tables that use it."""
    try:
        cluster = LiveCluster(contact_of(settings.cluster))
    except (ServiceError, SettingsError) as error:
        yield Check("cassandra", False, str(error), "see [cluster]; is the node up, and its native transport on?")
        return
    try:
        node = cluster.check()
        yield Check("cassandra", True, f"{node.release}, {node.cluster}, {node.datacenter}, host id {node.host}")
        yield from _check_node(settings, node_settings(cluster))
        yield from check_tables(settings, cluster.definitions().tables)
        epoch = cluster.node_state().metadata
        if epoch is not None:
            yield Check("metadata epochs", True, f"epoch {epoch}: {_EPOCHS}")
    except ServiceError as error:
        yield Check("cassandra", False, str(error), "see [cluster]")
    finally:
        cluster.close()


def _check_node(settings: Settings, node: Mapping[str, str]) -> Iterator[Check]:
    if "cdc_enabled" not in node:
        return
    enabled = node["cdc_enabled"] == "true"
    yield judge("cdc_enabled", enabled, node["cdc_enabled"], "set cdc_enabled: true in cassandra.yaml and restart")
    yield from _check_space(settings.agent, node)
    yield from check_latency(settings.agent, node)
    ours = settings.agent.cdc_raw_directory
    theirs = named_otherwise(ours, node)
    if theirs is not None:
        segments = has_segments(ours)
        advice = "that may be right in a container" if segments else f"set agent.cdc_raw_directory to {theirs}"
        yield Check("same directory", segments, f"Cassandra's is {theirs}, ours is {ours}", advice)


def check_latency(settings: AgentSettings, node: Mapping[str, str]) -> Iterator[Check]:
    """How long a change waits for Cassandra's flush, where the node says how often that is."""
    said = node.get("commitlog_sync_period") or node.get("commitlog_sync_period_in_ms", "")
    match = _PERIOD.fullmatch(said)
    if match is None or node.get("commitlog_sync") != "periodic":
        return
    seconds = int(match[1]) * _UNITS[match[2]]
    if settings.early:
        words = f"changes come ahead of the flush (every {seconds:g} s), marked durable = false (agent.early)"
        yield Check("latency", True, words)
        return
    words = f"Cassandra flushes its log every {seconds:g} s: half of the changes wait for {seconds / 2:g} s and more"
    cures = "lower commitlog_sync_period in cassandra.yaml, or set agent.early = true (a crash may take changes back)"
    yield Check("latency", True, words, cures if seconds > 1 else "")


def _check_space(settings: AgentSettings, node: Mapping[str, str]) -> Iterator[Check]:
    """How full cdc_raw is, and what happens when it is full."""
    limits = limits_of(node)
    try:
        listing = list_cdc_raw(settings.cdc_raw_directory)
    except ServiceError:
        return  # check_directories says it
    found = Headroom(sum(size_of(files) for files in listing.segments), limits.total)
    threshold = threshold_of(limits, settings.pressure_percent)
    full = threshold is not None and found.used >= threshold
    advice = (
        f"agent.on_pressure = {settings.on_pressure} applies; raise cdc_total_space, or see why the agent is behind"
    )
    yield judge("cdc_raw space", not full, str(found), advice)
    if limits.may_delete:
        said = node.get("cdc_block_writes", "unknown")
        advice = "Cassandra deletes unread segments when cdc_raw is full: changes would be lost, and reported as such"
        yield Check("cdc_block_writes", True, said, advice)
