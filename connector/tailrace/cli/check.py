"""`tailrace check`: reach everything the settings name, and explain what is wrong."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Final

import typer

from tailrace.capture.directory import list_cdc_raw
from tailrace.capture.owner import read_owner
from tailrace.capture.pressure import threshold_of
from tailrace.capture.spool import Spool, size_of, unwritable
from tailrace.cli.agent import contact_of, registry_store
from tailrace.cli.own_directory import has_segments, named_otherwise, node_settings
from tailrace.cli.segment_keys import keys_of_settings
from tailrace.cluster import LiveCluster
from tailrace.ops.headroom import Headroom, limits_of
from tailrace.publish.kafka import KafkaTopics
from tailrace.publish.routing import Selection
from tailrace_common.checks import Check, CheckSource, judge
from tailrace_common.command_options import SettingsFile, settings_of
from tailrace_common.console import on_terminal, print_rows, say
from tailrace_common.settings import AgentSettings, Settings
from tailrace_schemas.errors import ServiceError, SettingsError, TailraceError

ENTRY_POINTS: Final = "tailrace.checks"


def check_directories(settings: Settings) -> Iterator[Check]:
    """The node's directories: there, for us to read and delete from, on one file system, their keys at hand."""
    raw = settings.agent.cdc_raw_directory
    if not raw.is_dir():
        advice = "set agent.cdc_raw_directory to the node's own, and cdc_enabled: true in cassandra.yaml"
        yield Check("cdc_raw_directory", False, f"{raw} is not a directory", advice)
        return
    advice = "run the agent as Cassandra's user, or in a group that may write it: finished segments are deleted"
    detail = f"{raw}, {shutil.disk_usage(raw).free >> 20} MiB free on its disk"
    yield judge("cdc_raw_directory", os.access(raw, os.R_OK | os.W_OK | os.X_OK), detail, advice)
    yield from _check_owner(raw, settings.topics.prefix)
    log = settings.agent.commitlog_directory
    if log is not None:
        advice = "Cassandra hard-links segments from one to the other: both must be on one file system"
        same = log.is_dir() and log.stat().st_dev == raw.stat().st_dev
        detail = f"{log}{'' if log.is_dir() else ' is not a directory'}"
        yield judge("commitlog_directory", same, detail, advice)
    yield from _check_places(settings.agent)
    if settings.agent.keystore is not None or settings.agent.segment_key is not None:
        yield _check_keys(settings.agent)


def _check_places(settings: AgentSettings) -> Iterator[Check]:
    """Where segments go that do not stay in cdc_raw."""
    if settings.on_pressure == "spool":
        spool = Spool(settings.spool_directory, settings.spool_bytes)
        problem, room = spool.problem(), f"up to {settings.spool_bytes >> 20} MiB"
        advice = "without a spool cdc_raw fills while Kafka is away, and Cassandra refuses writes to tables with cdc"
        yield judge("spool_directory", problem is None, problem or f"{settings.spool_directory}, {room}", advice)
    if settings.on_release == "archive" and settings.archive_directory is not None:
        refused = unwritable(settings.archive_directory)
        detail = f"{settings.archive_directory}" if refused is None else f"agent.archive_directory: {refused}"
        yield judge("archive_directory", refused is None, detail, "published segments stay in cdc_raw until it is")


def _check_keys(settings: AgentSettings) -> Check:
    try:
        keys = keys_of_settings(settings)
    except SettingsError as error:
        return Check("segment keys", False, str(error), "see agent.keystore and agent.segment_key")
    return Check("segment keys", True, ", ".join(sorted(keys.by_alias)) or "one for every alias")


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
        selection = Selection(settings.tables.include, settings.tables.exclude)
        tables = sorted(str(table) for table in cluster.definitions().tables if table.cdc and selection.wants(table))
        advice = "" if tables else "ALTER TABLE ... WITH cdc = true; see [tables] too"
        yield Check("tables", True, ", ".join(tables) or "no table has cdc = true", advice)
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


def _check_owner(directory: Path, prefix: str) -> Iterator[Check]:
    """Which agent owns cdc_raw, where one has ever run on it."""
    try:
        owner = read_owner(directory)
    except SettingsError as error:
        yield Check("cdc_raw owner", False, str(error))
        return
    if owner is not None:
        advice = "correct topics.prefix, or start the agent once with --take-over if the prefix was changed on purpose"
        yield judge("cdc_raw owner", owner.prefix == prefix, str(owner), advice)


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


def check_kafka(settings: Settings, timeout: int = 10) -> Iterator[Check]:
    """The brokers answer within `timeout` seconds; the topics that exist will do."""
    try:
        topics = KafkaTopics(settings.kafka.reveal(), settings.topics, create=False, timeout=timeout)
        there, brokers = topics.survey()
    except TailraceError as error:
        yield Check("kafka", False, str(error), "see [kafka]: addresses, security.protocol, credentials")
        return
    advice = "" if brokers >= 3 else "three brokers or more keep the changes when one is lost"
    yield Check("kafka", True, f"{settings.kafka.bootstrap_servers}, brokers: {brokers}", advice)
    ours = {name: count for name, count in there.items() if name.startswith(f"{settings.topics.prefix}.")}
    try:
        problems = topics.problems(ours)
    except ServiceError as error:
        problems = [str(error)]
    detail = "; ".join(problems) or f"{len(ours)} under {settings.topics.prefix}"
    yield judge("topics", not problems, detail, "change the topic's settings, or choose another topics.prefix")
    if ours:
        try:
            yield judge_copies({name: topics.copies().get(name, 0) for name in ours}, topics.in_sync(ours))
        except ServiceError as error:
            yield Check("copies", False, str(error), "the agent's user needs DescribeConfigs on its topics for this")


def judge_copies(copies: Mapping[str, int], in_sync: Mapping[str, int]) -> Check:
    """What the loss of a broker means, by topics' copies and how many of them must have a record for it to count."""
    fewest, most = min(copies.values()), max(copies.values())
    detail = f"{fewest} of each partition" if fewest == most else f"{fewest} to {most} of each partition"
    refused = sorted(name for name, count in copies.items() if in_sync[name] > count)
    if refused:
        words = f"{', '.join(refused)}: min.insync.replicas is more than there are copies, so nothing can be written"
        return Check("copies", False, words, "lower min.insync.replicas, or add copies")
    advice = []
    if few := sorted(name for name, count in copies.items() if count < 3):
        advice.append(f"with fewer than three copies, two lost brokers lose what {_some(few)} had")
    if stiff := sorted(name for name, count in copies.items() if count > 1 and in_sync[name] == count):
        advice.append(f"one broker that is down stops {_some(stiff)}: min.insync.replicas is the number of copies")
    if loose := sorted(name for name, count in copies.items() if count > 2 and in_sync[name] == 1):
        advice.append(f"a record of {_some(loose)} counts with one copy: raise min.insync.replicas to 2")
    return Check("copies", True, detail, "; ".join(advice))


def _some(names: Collection[str]) -> str:
    """The first of them, and how many more."""
    first, *more = names
    return f"{first} and {len(more)} more" if more else first


def check_registry(settings: Settings) -> Iterator[Check]:
    """The schema registry, where there is to be one: it answers us."""
    if settings.schemas.store == "topic":
        return
    try:
        with closing(registry_store(settings.schemas, {})) as registry:
            rule = registry.reach()
    except TailraceError as error:
        yield Check("registry", False, str(error), "see [schemas.registry]: url, authority, user and password")
        return
    yield Check(
        "registry", True, f"{settings.schemas.registry.root['url']}, rule of subjects without their own: {rule}"
    )


def sources(only: Collection[str]) -> Mapping[str, CheckSource]:
    """What to look at, by name: the agent's parts, and what other packages announce. All of it where `only` is empty.

    Raises SettingsError for a name that nobody has.
    """
    ours: dict[str, CheckSource] = {
        "directories": check_directories,
        "cassandra": check_cassandra,
        "kafka": check_kafka,
        "registry": check_registry,
    }
    points = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    unknown = sorted(set(only) - {*ours, *points})
    if unknown:
        raise SettingsError(f"--only {unknown[0]}: the parts are {', '.join((*ours, *points))}")
    found: dict[str, CheckSource] = {name: source for name, source in ours.items() if not only or name in only}
    for name, point in points.items():
        if not only or name in only:
            try:
                found[name] = point.load()
            except ImportError as cause:
                say(f"{name} is not checked: it needs {cause.name}")
    return found


@contextmanager
def _driver_silenced() -> Iterator[None]:
    """What Cassandra's driver logs while it fails to connect, the check says itself."""
    driver = logging.getLogger("cassandra")
    before = driver.level
    driver.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        driver.setLevel(before)


def check(
    config: SettingsFile = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART", help="Look at this alone: directories, cassandra, kafka, registry, stream. May be repeated."
        ),
    ] = None,
) -> None:
    """Reach everything that the settings name, and explain what is wrong.

    Prints name, ok, detail and advice of each check; exit code 1 when one is not ok.

    Example: tailrace check -c tailrace.toml
    """
    settings = settings_of(config)
    with _driver_silenced():
        checks = [found for source in sources(only or ()).values() for found in source(settings)]
    print_rows(asdict(found) for found in checks)
    wrong = sum(not found.ok for found in checks)
    if on_terminal() or wrong:
        say(f"{wrong} of {len(checks)} checks failed" if wrong else f"all {len(checks)} checks passed")
    if wrong:
        raise typer.Exit(1)
