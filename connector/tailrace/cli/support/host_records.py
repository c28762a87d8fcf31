"""The record of a host in `<prefix>.offsets`, for the commands that show or change it."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer

from tailrace.assembly.services import contact_of
from tailrace.assembly.stopped import require_stopped
from tailrace.cli.support.options import confirm
from tailrace.cluster import LiveCluster
from tailrace.errors import AgentRunsError
from tailrace.publish.hosts import HostRecord, host_of, lost_hosts, read_hosts
from tailrace.publish.kafka import KafkaPublisher, KafkaTopics, Tenure
from tailrace.publish.moves import position_words
from tailrace.publish.offsets import OffsetsLostError
from tailrace.state.resume import Resume
from tailrace_common.kafka import Pace, TopicReader
from tailrace_common.settings import Settings
from tailrace_common.topics.progress import ProgressReader
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.progress import Progress
from tailrace_schemas.topics import Internal, internal_topic

Host = Annotated[
    str | None,
    typer.Option(
        "--host", metavar="ID", help="The host id. Default: that of the node of the settings.", show_default=False
    ),
]
Fence = Annotated[
    bool, typer.Option("--fence", help="Proceed although the host's agent may run: it ends with exit code 5.")
]


def known_hosts(settings: Settings) -> tuple[HostRecord, ...]:
    """The hosts of the settings' prefix. Raises ServiceError."""
    kafka = settings.kafka.reveal()
    topics, _ = KafkaTopics(kafka, settings.topics, create=False).survey()
    return read_hosts(kafka, settings.topics.prefix, topics)


def known_progress(settings: Settings) -> tuple[Progress, ...]:
    """What the hosts of the settings' prefix told last; nothing where no agent did so far. Raises ServiceError."""
    kafka, prefix = settings.kafka.reveal(), settings.topics.prefix
    topics, _ = KafkaTopics(kafka, settings.topics, create=False).survey()
    if internal_topic(prefix, Internal.PROGRESS) not in topics:
        return ()
    with ProgressReader(kafka, prefix) as reader:
        return reader.read()


def lost_records(settings: Settings) -> tuple[Progress, ...]:
    """The progress of the hosts whose offsets record was deleted. Raises ServiceError."""
    kafka, topic = settings.kafka.reveal(), internal_topic(settings.topics.prefix, Internal.OFFSETS)
    topics, _ = KafkaTopics(kafka, settings.topics, create=False).survey()
    keys: set[bytes | None] = set()
    if topic in topics:
        with TopicReader(kafka, topic, beginning=True) as reader:
            keys = {record.key for _, record in reader.read_to_end()}
    return lost_hosts(keys, known_progress(settings))


def lost_words(settings: Settings, progress: Progress) -> str:
    """What it means that a host's record was deleted, and what to do."""
    prefix = settings.topics.prefix
    topics = internal_topic(prefix, Internal.OFFSETS), internal_topic(prefix, Internal.PROGRESS)
    return str(OffsetsLostError(topics, progress))


def publisher_of(settings: Settings, record: HostRecord, pace: Pace | None = None) -> KafkaPublisher:
    """What writes a host's offsets record as its agent does, and so shuts out the agent. To be closed."""
    return KafkaPublisher(
        settings.kafka.reveal(),
        prefix=settings.topics.prefix,
        cluster=record.cluster,
        host=record.host,
        clock=time.monotonic,
        timeout=settings.agent.transaction_timeout_seconds,
        tenure=Tenure(f"by hand {uuid4().hex}"),
        pace=pace,
    )


def require_unchanged(record: HostRecord, current: Resume) -> None:
    """Raise AgentRunsError where the record, read again behind the fence, is not the one that was shown."""
    if current != record.resume:
        raise AgentRunsError(
            f"host {record.host} committed {position_words(current.position)} meanwhile: its agent was running, and is "
            "shut out now (exit code 5). Nothing was changed; look again, with `tailrace offsets show`"
        )


def change_record(
    settings: Settings,
    record: HostRecord,
    after: Resume,
    question: str,
    *,
    fence: bool,
    yes: bool,
    directory: Path | None = None,
) -> None:
    """Write the record in one transaction of the agent's own id, if it is still the one that was shown.

    `directory` is the host's cdc_raw where it is not the settings'. Raises AgentRunsError.
    """
    require_stopped(settings, record, time.time(), fence=fence, directory=directory)
    confirm(question, yes)
    with closing(publisher_of(settings, record)) as publisher:
        require_unchanged(record, publisher.start())
        publisher.commit(after)


def chosen_host(settings: Settings, host: str | None) -> tuple[HostRecord, Resume]:
    """The record of a host, by default the settings' node. Raises SettingsError, ServiceError."""
    if host is None:
        with closing(LiveCluster(contact_of(settings.cluster))) as cluster:
            host = cluster.local().host
    for progress in lost_records(settings):
        if progress.host == host and settings.cluster.name in (None, progress.cluster):
            raise SettingsError(lost_words(settings, progress))
    record = host_of(known_hosts(settings), host, settings.cluster.name)
    if record.resume is None:
        raise SettingsError(f"host {host}: {record.problem}")
    return record, record.resume
