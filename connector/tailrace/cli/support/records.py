"""What Kafka and cdc_raw have of hosts: records, losses, positions; for the commands that show or change them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final
from uuid import uuid4

import typer

from tailrace.agent.notes import IDLE
from tailrace.assembly.services import sizes_of, topics_of
from tailrace.capture.owner import Owner, read_owner
from tailrace.cluster import LiveCluster
from tailrace.commitlog.blocks import Keys
from tailrace.commitlog.frames import frames
from tailrace.commitlog.sections import sections
from tailrace.errors import AgentRunsError
from tailrace.publish.hosts import Between, HostRecord, host_of, lost_hosts, position_words, read_hosts
from tailrace.publish.kafka import KafkaPublisher, KafkaTopics, Tenure
from tailrace.publish.offsets import OffsetsLostError
from tailrace.publish.reports import ReportedLoss, decode_loss
from tailrace.retention.spool import merged
from tailrace.segments.files import SegmentFiles, list_segments, open_segment, read_named_descriptor
from tailrace.segments.open_segment import header_checksum
from tailrace.state import Resume, SegmentKey
from tailrace_common.cli.console import say
from tailrace_common.cli.options import confirm
from tailrace_common.kafka import Pace, Record, TopicReader
from tailrace_common.locks import is_locked
from tailrace_common.settings import Settings
from tailrace_common.topics import ProgressReader
from tailrace_schemas.errors import CorruptError, DecodeError, ServiceError, SettingsError
from tailrace_schemas.position import Position
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
_BUSY_SECONDS: Final = 15.0
"""An agent with anything to commit does so every 10 s at least."""
_LATE_SECONDS: Final = 15.0
"""How much later than its time an agent's record may come."""


def known_hosts(settings: Settings) -> tuple[HostRecord, ...]:
    """The hosts of the settings' prefix. Raises ServiceError."""
    return read_hosts(settings.kafka.reveal(), settings.topics.prefix, known_topics(settings))


def known_progress(settings: Settings) -> tuple[Progress, ...]:
    """What the hosts of the settings' prefix told last; nothing where no agent did so far. Raises ServiceError."""
    if progress_topic(settings) not in known_topics(settings):
        return ()
    with ProgressReader(settings.kafka.reveal(), settings.topics.prefix) as reader:
        return reader.read()


def lost_records(settings: Settings) -> tuple[Progress, ...]:
    """The progress of the hosts whose offsets record was deleted. Raises ServiceError."""
    topic = internal_topic(settings.topics.prefix, Internal.OFFSETS)
    keys: set[bytes | None] = set()
    if topic in known_topics(settings):
        with TopicReader(settings.kafka.reveal(), topic, beginning=True) as reader:
            keys = {record.key for _, record in reader.read_to_end()}
    return lost_hosts(keys, known_progress(settings))


def lost_words(settings: Settings, progress: Progress) -> str:
    """What it means that a host's record was deleted, and what to do."""
    prefix = settings.topics.prefix
    topics = internal_topic(prefix, Internal.OFFSETS), internal_topic(prefix, Internal.PROGRESS)
    return str(OffsetsLostError(topics, progress))


def publisher_of(
    settings: Settings, record: HostRecord, pace: Pace | None = None, topics: KafkaTopics | None = None
) -> KafkaPublisher:
    """What writes a host's offsets record as its agent does, and so shuts out the agent. To be closed.

    `topics` are those that changes go to, if any do.
    """
    return KafkaPublisher(
        settings.kafka.reveal(),
        prefix=settings.topics.prefix,
        cluster=record.cluster,
        host=record.host,
        clock=time.monotonic,
        timeout=settings.agent.transaction_timeout_seconds,
        tenure=Tenure(f"by hand {uuid4().hex}"),
        pace=pace,
        sizes=sizes_of(settings, topics or topics_of(settings)),
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
        with closing(LiveCluster(settings.cluster)) as cluster:
            host = cluster.local().host
    for progress in lost_records(settings):
        if progress.host == host and settings.cluster.name in (None, progress.cluster):
            raise SettingsError(lost_words(settings, progress))
    record = host_of(known_hosts(settings), host, settings.cluster.name)
    if record.resume is None:
        raise SettingsError(f"host {host}: {record.problem}")
    return record, record.resume


def require_stopped(
    settings: Settings, record: HostRecord, now: float, *, fence: bool, directory: Path | None = None
) -> None:
    """Raise AgentRunsError where the host's agent runs, or may run; not for `fence`.

    The lock of cdc_raw says it where that is at hand, and owned by the host's agent. Else the age of its last record
    has to: an idle agent repeats that every 6 times agent.progress_seconds. `directory` is cdc_raw where it is not the
    settings'.
    """
    if fence:
        return
    owner = _owner(directory or settings.agent.cdc_raw_directory, settings.topics.prefix, record.host)
    if owner is not None and owner[1]:
        raise AgentRunsError(
            f"host {record.host}: {owner[0]} runs. Stop it, and try again; or give --fence, then it is shut out and "
            "ends with exit code 5"
        )
    quiet_seconds = _BUSY_SECONDS if owner is not None else IDLE * settings.agent.progress_seconds + _LATE_SECONDS
    age = record.age(now)
    if age < quiet_seconds:
        raise AgentRunsError(
            f"host {record.host} committed {age:.0f} s ago: its agent seems to run. Stop it, and try again in "
            f"{quiet_seconds - age:.0f} s; or give --fence, then it is shut out and ends with exit code 5"
        )


def _owner(directory: Path, prefix: str, host: str) -> tuple[Owner, bool] | None:
    """The host's agent that owns a directory, and whether it runs; None where the directory is not its own."""
    try:
        owner = read_owner(directory)
        if owner is None or (owner.prefix, owner.host) != (prefix, host):
            return None
        return owner, is_locked(directory)
    except (OSError, SettingsError):
        return None


def spool_of(settings: Settings, host: str, epoch: int) -> Path:
    """Where a host's agent moves segments of a log epoch when cdc_raw is nearly full."""
    return settings.agent.spool_directory / host / str(epoch)


def present(directory: Path, spool: Path | None = None) -> tuple[SegmentKey, ...]:
    """Every segment in cdc_raw, and in its spool: id and header checksum. Raises ServiceError."""
    try:
        logs = _logs(directory, spool)
        return tuple((files.id, header_checksum(files.log)) for files in logs if files.log is not None)
    except OSError as error:
        raise _unreadable(directory, error) from error


def between(directory: Path, before: Position, after: Position, keys: Keys, spool: Path | None = None) -> Between:
    """The mutations behind the lower of two positions of a log, up to and including the higher. Raises ServiceError.

    They are those of cdc_raw, and of its spool. On the way back they are whole only where the segment is there in which
    reading is to begin.
    """
    low, high = sorted((before, after))
    mutations, segments, complete = 0, [], low is before
    for files in _logs(directory, spool):
        complete |= files.id == low.segment
        if files.log is None or not low.segment <= files.id <= high.segment:
            continue
        count = 0
        try:
            for end in _ends(files.log, keys):
                count += (low.segment, low.offset) < (files.id, end) <= (high.segment, high.offset)
        except DecodeError:
            complete = False
        except OSError as error:
            raise _unreadable(files.log, error) from error
        if count:
            mutations += count
            segments.append(files.id)
    return Between(mutations, tuple(segments), complete)


def require_boundary(directory: Path, target: Position, keys: Keys, spool: Path | None = None) -> None:
    """Raise SettingsError where the target's segment is there and the position is not behind one of its mutations."""
    files = next((files for files in _logs(directory, spool) if files.id == target.segment), None)
    if files is None or files.log is None or target.offset == 0:
        return
    nearest = 0
    try:
        for end in _ends(files.log, keys):
            if end == target.offset:
                return
            if end > target.offset:
                break
            nearest = end
    except DecodeError as error:
        raise SettingsError(f"{target}: {files.name} is damaged before it: {error}") from error
    except OSError as error:
        raise _unreadable(files.log, error) from error
    raise SettingsError(
        f"{target} is not behind a mutation of {files.name}; the last one before it ends at {target.segment}:{nearest}"
    )


def _ends(path: Path, keys: Keys) -> Iterator[int]:
    """The logical position behind each mutation of a segment."""
    with open_segment(path) as data:
        if not data:
            return
        for section in sections(read_named_descriptor(path, data), data, keys=keys):
            for frame in frames(section):
                yield frame.end


def _logs(directory: Path, spool: Path | None) -> tuple[SegmentFiles, ...]:
    try:
        listing = list_segments(directory)
        if spool is not None and spool.is_dir():
            listing = merged(listing, list_segments(spool))
        return tuple(files for files in listing.segments if files.log is not None)
    except OSError as error:
        raise _unreadable(directory, error) from error


def _unreadable(path: Path, error: OSError) -> ServiceError:
    return ServiceError(f"cannot read {path}: {error.strerror}; run this as a user that may, such as the agent's")


@dataclass(frozen=True, slots=True)
class StoredLoss:
    """A loss, and the record that has it."""

    loss: ReportedLoss
    key: bytes
    value: bytes


def stored_losses(settings: Settings) -> tuple[StoredLoss, ...]:
    """The losses of the settings' prefix, the oldest first. Raises ServiceError."""
    topic, kafka = progress_topic(settings), settings.kafka.reveal()
    if topic not in known_topics(settings):
        return ()
    with TopicReader(kafka, topic, beginning=True) as reader:
        return losses_in(record for _, record in reader.read_to_end())


def losses_in(records: Iterable[Record]) -> tuple[StoredLoss, ...]:
    """The losses of `.progress`' records, the oldest first; the last record of a key counts."""
    newest = {record.key: record.value for record in records if record.key is not None}
    losses = []
    for key, value in newest.items():
        try:
            loss = None if value is None else decode_loss(key, value)
        except CorruptError as error:
            say(f"{error}; it is left out")
            continue
        if loss is not None and value is not None:
            losses.append(StoredLoss(loss, key, value))
    return tuple(sorted(losses, key=lambda stored_loss: (stored_loss.loss.seen, stored_loss.key)))


def chosen_losses(losses: Iterable[StoredLoss], host: str | None, *, all_: bool = False) -> tuple[StoredLoss, ...]:
    """Those of a host, where one is given; without `all_` those that nobody has acknowledged."""
    return tuple(
        stored for stored in losses if host in (None, stored.loss.host) and (all_ or stored.loss.acknowledged is None)
    )


def known_topics(settings: Settings) -> Mapping[str, int]:
    """Kafka's topics with their partitions. Raises ServiceError."""
    topics, _ = KafkaTopics(settings.kafka.reveal(), settings.topics, create=False).survey()
    return topics


def progress_topic(settings: Settings) -> str:
    """The topic that has losses."""
    return internal_topic(settings.topics.prefix, Internal.PROGRESS)
