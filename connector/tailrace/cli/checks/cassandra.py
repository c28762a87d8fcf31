"""`tailrace check` of Cassandra: whether the node answers, and what follows for settings, tables, ring and mirror."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import zip_longest
from typing import Final

from tailrace.assembly.node import (
    ENABLE,
    GRANT,
    NodeSettings,
    has_segments,
    named_otherwise,
    node_names,
    node_words,
    read_node_settings,
)
from tailrace.assembly.services import mirror_of
from tailrace.cli.support.records import known_topics
from tailrace.cluster import LiveCluster, LocalNode
from tailrace.ops.headroom import Headroom, limits_of
from tailrace.retention.pressure import threshold_of
from tailrace.retention.spool import size_of
from tailrace.schema.cluster_view import Bypass, bypass_words, read_bypassing
from tailrace.segments.files import list_cdc_raw
from tailrace.topology.mirror import MirrorStore
from tailrace.topology.mirror_plan import (
    IdForm,
    MirrorOptions,
    MirrorTable,
    Removal,
    Shapes,
    create_table,
    default_replication,
    existing_form,
    is_removable,
    require_shapes,
    wanted,
)
from tailrace_common.cli.checks import Check, judge
from tailrace_common.column_masks import ALL_MASKS, Rows, can_mask, masked_words
from tailrace_common.sections.agent import MirrorSettings
from tailrace_common.selection import Coverage, coverage, listed
from tailrace_common.settings import AgentSettings, Settings
from tailrace_common.topics import GenerationReader
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.generation_records import PublishedGeneration
from tailrace_schemas.ring import Ring, RingError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import Internal, internal_topic

_PERIOD: Final = re.compile(r"(\d+)(ms|s|m|)")
_UNITS: Final = {"ms": 0.001, "": 0.001, "s": 1.0, "m": 60.0}
_ON_REPAIR: Final = "cdc_on_repair_enabled"
_EPOCHS: Final = (
    "each write names the epoch of its definition; DDL is read from the log, where the node tells of its epochs there "
    "(6.0-alpha2 does), else from this node, and then changes are marked schema_inferred, and /status says so"
)
_PROBE: Final = Removal(MirrorTable.LOCAL, ("key",), ("tailrace check",), 1)
"""Removes a row that nobody writes, at a time before all others: it takes the right to write, and changes nothing."""
_MAKE: Final = "make it (docs/security.md 2), or set mirror.create = true"


def check_cassandra(settings: Settings) -> Iterator[Check]:
    """The node: it answers, computes tokens as we do, has CDC on, and tables that use it.

    What cannot be looked at is a row that fails, and hides no other one.
    """
    try:
        cluster = LiveCluster(settings.cluster)
    except (ServiceError, SettingsError) as error:
        yield Check("cassandra", False, str(error), "see [cluster]; is the node up, and its native transport on?")
        return
    with closing(cluster):
        try:
            node = cluster.check()
        except (ServiceError, SettingsError) as error:
            yield Check("cassandra", False, str(error), "see [cluster]")
            return
        yield Check("cassandra", True, f"{node.release}, {node.cluster}, {node.datacenter}, {_named(cluster, node)}")
        for name, look in _parts(settings, cluster, node).items():
            try:
                yield from look()
            except (ServiceError, SettingsError, RingError) as error:
                yield Check(name, False, f"cannot be looked at: {error}", "docs/security.md 2 has the rights it takes")


def _named(cluster: LiveCluster, node: LocalNode) -> str:
    address = cluster.known_address(node.host)
    names = {} if address is None else node_names([address])
    return node_words(node.host, address, names.get(address or ""))


def _parts(settings: Settings, cluster: LiveCluster, node: LocalNode) -> dict[str, Callable[[], Iterator[Check]]]:
    """What to look at, by the name of the row that says where that fails."""
    return {
        "node settings": lambda: check_node(settings, read_node_settings(cluster, node.release)),
        "tables": lambda: check_tables(settings, cluster.definitions().tables),
        "tables logged": lambda: check_logged(
            settings, read_bypassing(cluster, cluster.definitions().tables, cluster.node_state())
        ),
        "masked columns": lambda: check_masked(settings, cluster.definitions().tables, _rows_of(cluster), node.release),
        "ring": lambda: _check_ring(cluster),
        "mirror": lambda: _check_mirror(settings, cluster),
        "metadata epochs": lambda: _check_epochs(cluster),
    }


def _rows_of(cluster: LiveCluster) -> Rows:
    return lambda statement: [tuple(row.values()) for row in cluster.execute(statement)]


def _check_ring(cluster: LiveCluster) -> Iterator[Check]:
    ring = cluster.ring()
    addresses = cluster.addresses()
    moving = sorted(node_words(node.host, addresses.get(node.host)) for node in ring.nodes if not node.normal)
    detail = f"{len(ring.nodes)} nodes, {len(ring.tokens)} tokens"
    advice = f"joining, leaving or moving: {'; '.join(moving)}. A generation is proposed once that is over"
    yield Check("ring", True, detail, advice if moving else "")


def _check_mirror(settings: Settings, cluster: LiveCluster) -> Iterator[Check]:
    mirror = mirror_of(settings, cluster)
    if mirror is None:
        return
    topic = internal_topic(settings.topics.prefix, Internal.GENERATIONS)
    published: tuple[PublishedGeneration, ...] = ()
    if topic in known_topics(settings):
        with GenerationReader.open(settings.kafka.reveal(), topic) as reader:
            published = reader.refresh()
    replication = cluster.node_state().keyspaces.get(mirror.store.keyspace, {}).get("replication")
    needed = needed_generations(published, mirror.options, time.time_ns() // 1_000_000)
    yield from check_mirror(settings.mirror, mirror.store, replication, cluster.ring(), needed)


def _check_epochs(cluster: LiveCluster) -> Iterator[Check]:
    epoch = cluster.node_state().metadata
    if epoch is not None:
        yield Check("metadata epochs", True, f"epoch {epoch}: {_EPOCHS}")


def check_tables(settings: Settings, tables: Iterable[Table]) -> Iterator[Check]:
    """How the selection fits these tables; a row more for each kind of mistake in it."""
    fit = coverage(settings.tables.selection, tables)
    released = settings.tables.release_unselected
    yield _selected(fit, released=released)
    if fit.untaken:
        pronoun, their = ("it", "its") if len(fit.untaken) == 1 else ("them", "their")
        advice = f"name {pronoun} in tables.include, or in tables.exclude if {their} changes are left out on purpose"
        yield Check("tables without a pattern", released, fit.untaken_words(), advice)
    if clauses := fit.unmatched_words():
        advice = "correct the pattern: it has the form keyspace.table. If the table is yet to be made, make it first"
        yield Check("patterns", False, "; ".join(clauses), advice)
    if fit.without_cdc:
        match = "matches" if len(fit.without_cdc) == 1 else "match"
        detail = f"tables.include: {listed(fit.without_cdc)} {match} only tables without cdc"
        yield Check("tables without cdc", True, detail, "ALTER TABLE ... WITH cdc = true, if they are to be published")
    if fit.unmatched_exclude:
        match = "matches" if len(fit.unmatched_exclude) == 1 else "match"
        detail = f"tables.exclude: {listed(fit.unmatched_exclude)} {match} no table"
        yield Check("exclude patterns", True, detail, "check the spelling: what is not excluded is published")


def check_logged(settings: Settings, bypassing: Iterable[Bypass]) -> Iterator[Check]:
    """Selected tables whose writes never reach cdc_raw, of those that bypass the commit log; a row where there are."""
    selection = settings.tables.selection
    selected = [bypass for bypass in bypassing if selection.wants(bypass.table)]
    if selected:
        yield Check("tables logged", False, *bypass_words(selected))


def check_masked(settings: Settings, tables: Iterable[Table], rows: Rows, release: str) -> Iterator[Check]:
    """Selected tables of which SELECT gives this role masked values; a row where there are. Raises ServiceError."""
    if settings.snapshot.allow_masked_values or not can_mask(release):
        return
    columns: dict[tuple[object, object], list[str]] = {}
    for keyspace, name, column in rows(ALL_MASKS):
        columns.setdefault((keyspace, name), []).append(str(column))
    fit = coverage(settings.tables.selection, tables)
    masked = [
        masked_words(rows, keyspace, name, columns[keyspace, name], settings.cluster.username)
        for keyspace, _, name in (table.partition(".") for table in fit.selected)
        if (keyspace, name) in columns
    ]
    refusals = [words for words in masked if words is not None]
    if refusals:
        copied = settings.stream.snapshot != "never"
        advice = "until then existing rows are not copied, compared or read back; the log has what is stored"
        yield Check("masked columns", not copied, "; ".join(refusals), advice)


def _selected(fit: Coverage, *, released: bool) -> Check:
    if fit.selected:
        return Check("tables", True, ", ".join(fit.selected))
    if not fit.selects_nothing:
        return Check("tables", True, "no table has cdc = true", "ALTER TABLE ... WITH cdc = true")
    detail = f"none of the tables with cdc = true is selected: {listed((*fit.untaken, *fit.excluded))}"
    if released:
        return Check("tables", True, detail, "their changes are given up, as tables.release_unselected = true says")
    advice = (
        "correct tables.include and tables.exclude. Until then nothing is published, and the segments are kept; "
        "tables.release_unselected = true gives these changes up"
    )
    return Check("tables", False, detail, advice)


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


def check_mirror(
    settings: MirrorSettings,
    store: MirrorStore,
    replication: Mapping[str, str] | None,
    ring: Ring,
    generations: Sequence[int],
) -> Iterator[Check]:
    """How the mirror stands to its settings. `replication` is the keyspace's own, None where there is none;
    `generations` are the timestamps of those in Kafka that readers still need. Raises ServiceError."""
    shapes = store.shapes()
    if shapes is None:
        copies = settings.replication or default_replication(ring)
        detail = f"there is no keyspace {store.keyspace}"
        if settings.create:
            yield Check("mirror", True, f"{detail}: an agent makes it, with {_copies(copies)}")
        else:
            yield Check("mirror", False, detail, _MAKE)
        return
    tables = _check_mirror_tables(settings, store.keyspace, shapes)
    yield tables
    yield _check_replication(settings, replication or {}, ring)
    if not tables.ok or MirrorTable.LOCAL not in shapes or MirrorTable.TIMESTAMPS not in shapes:
        return
    try:
        store.apply(_PROBE)
    except ServiceError as error:
        yield Check("mirror writes", False, str(error), "the rights are in docs/security.md 2")
    else:
        yield Check("mirror writes", True, "a majority of the replicas takes them")
    yield _check_generations(store, generations)


def needed_generations(
    published: Sequence[PublishedGeneration], options: MirrorOptions, now_ms: int
) -> tuple[int, ...]:
    """The timestamps of the generations that the mirror has to have now."""
    following = zip_longest(published, published[1:])
    return tuple(
        generation.timestamp
        for generation, successor in following
        if successor is None or not is_removable(successor.timestamp, options, now_ms)
    )


def _check_mirror_tables(settings: MirrorSettings, keyspace: str, shapes: Shapes) -> Check:
    form = IdForm(settings.stream_ids) if settings.stream_ids else existing_form(shapes) or IdForm.BLOB
    try:
        require_shapes(keyspace, shapes, wanted(settings.v1), form)
    except SettingsError as error:
        return Check("mirror", False, str(error), "see [mirror]")
    missing = [table for table in wanted(settings.v1) if table not in shapes]
    detail = f"keyspace {keyspace}, stream ids as {form}"
    if not missing:
        return Check("mirror", True, detail)
    detail += f"; without {', '.join(missing)}"
    if settings.create:
        return Check("mirror", True, f"{detail}: an agent makes them")
    statements = "; ".join(create_table(keyspace, table, form) for table in missing)
    return Check("mirror", False, detail, f"{_MAKE}: {statements}")


def _check_replication(settings: MirrorSettings, replication: Mapping[str, str], ring: Ring) -> Check:
    detail = ", ".join(f"{name}: {value}" for name, value in sorted(replication.items()))
    copies = {name: value for name, value in replication.items() if name != "class"}
    if settings.replication is not None:
        configured = {name: str(copy_count) for name, copy_count in settings.replication.items()}
        advice = f"mirror.replication says {_copies(settings.replication)}: ALTER KEYSPACE, or correct the setting"
        return judge("mirror replication", copies == configured, detail, advice)
    fewer = [
        dc
        for dc, copy_count in default_replication(ring).items()
        if int(copies.get(dc, "0").split("/")[0]) < copy_count
    ]
    simple = "SimpleStrategy" in replication.get("class", "")
    words = f"fewer than three copies in {', '.join(sorted(fewer))}: readers there depend on few nodes"
    advice = "NetworkTopologyStrategy lets each datacenter have copies of its own" if simple else words if fewer else ""
    return Check("mirror replication", True, detail, advice)


def _check_generations(store: MirrorStore, generations: Sequence[int]) -> Check:
    present = set(store.expirations(MirrorTable.TIMESTAMPS))
    missing = sorted(set(generations) - present)
    detail = f"{len(generations) - len(missing)} of {len(generations)} generations in Kafka"
    if missing:
        detail += f"; without those of {', '.join(map(str, missing[:3]))}{' and more' if len(missing) > 3 else ''} (ms)"
    advice = "an agent with this [mirror] writes them within seconds: is one running, and what does its /status say?"
    return judge("mirror generations", not missing, detail, advice)


def _copies(replication: Mapping[str, int]) -> str:
    return ", ".join(f"{copy_count} copies in {dc}" for dc, copy_count in sorted(replication.items()))
