"""`tailrace check` of what the node's own settings mean for its changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tailrace.assembly.node import ENABLE, GRANT, NodeSettings, has_segments, named_otherwise
from tailrace.ops.headroom import Headroom, limits_of
from tailrace.retention.pressure import threshold_of
from tailrace.retention.spool import size_of
from tailrace.segments.directory import list_cdc_raw
from tailrace_common.cli.checks import Check, judge
from tailrace_common.settings import AgentSettings, Settings
from tailrace_schemas.errors import ServiceError

_PERIOD: Final = re.compile(r"(\d+)(ms|s|m|)")
_UNITS: Final = {"ms": 0.001, "": 0.001, "s": 1.0, "m": 60.0}
_ON_REPAIR: Final = "cdc_on_repair_enabled"


def check_node(settings: Settings, node: NodeSettings) -> Iterator[Check]:
    """A row for each setting that matters; where they cannot be read, rows that fail and say so."""
    if node.absent:
        detail = "unknown: this release has no table of its settings"
        yield Check("cdc_enabled", True, detail, "see that cassandra.yaml has cdc_enabled: true")
        return
    if not node.values:
        why = node.refusal or "the node gave no answer to a query of system_views.settings"
        yield Check("node settings", False, why, GRANT if node.refusal else "try again; see [cluster]")
        detail = f"unknown, and so are cdc_raw space, latency, same directory and {_ON_REPAIR}"
        yield Check("cdc_enabled", False, detail, "let the role read the node's settings, as the row above says")
        return
    values = node.values
    if "cdc_enabled" not in values:
        yield Check("cdc_enabled", False, "the node does not say whether it is true", ENABLE)
        return
    yield judge("cdc_enabled", values["cdc_enabled"] == "true", values["cdc_enabled"], ENABLE)
    yield from _check_space(settings.agent, values)
    yield from check_latency(settings.agent, values)
    yield from _check_repair(values)
    configured = settings.agent.cdc_raw_directory
    reported = named_otherwise(configured, values)
    if reported is not None:
        segments = has_segments(configured)
        advice = "that may be right in a container" if segments else f"set agent.cdc_raw_directory to {reported}"
        yield Check("same directory", segments, f"Cassandra's is {reported}, ours is {configured}", advice)


def _check_repair(node: Mapping[str, str]) -> Iterator[Check]:
    """Whether streamed data is logged: by repairs, and by nodes that join, leave or are replaced."""
    if node.get(_ON_REPAIR) != "true":
        return
    detail = "true: a node logs what a repair, a join, a decommission or a replacement streams to it"
    advice = (
        "such changes come once more, with their old write times: sinks that merge end up the same, change logs get "
        "them twice. cdc_on_repair_enabled: false in cassandra.yaml stops it; then what a repair brings to a node is "
        "published by the other replicas alone"
    )
    yield Check(_ON_REPAIR, True, detail, advice)


def check_latency(settings: AgentSettings, node: Mapping[str, str]) -> Iterator[Check]:
    """How long a change waits for Cassandra's flush, where the node says how often that is."""
    period = node.get("commitlog_sync_period") or node.get("commitlog_sync_period_in_ms", "")
    match = _PERIOD.fullmatch(period)
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
    headroom = Headroom(sum(size_of(files) for files in listing.segments), limits.total)
    threshold = threshold_of(limits, settings.pressure_percent)
    full = threshold is not None and headroom.used >= threshold
    advice = (
        f"agent.on_pressure = {settings.on_pressure} applies; raise cdc_total_space, or see why the agent is behind"
    )
    yield judge("cdc_raw space", not full, str(headroom), advice)
    if limits.may_delete:
        blocking = node.get("cdc_block_writes", "unknown")
        advice = "Cassandra deletes unread segments when cdc_raw is full: changes would be lost, and reported as such"
        yield Check("cdc_block_writes", True, blocking, advice)
