"""The hosts of a prefix as `<prefix>.offsets` knows them: how far each has come, and moving that by hand."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tailrace.publish.offsets import OffsetsError, host_key, offsets_key, read_offsets
from tailrace.state import Quarantined, Resume, SegmentKey
from tailrace_common.kafka import Record, TopicReader
from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.position import Position
from tailrace_schemas.progress import Progress, has_read
from tailrace_schemas.topics import Internal, internal_topic

_TARGET: Final = re.compile(r"(?:(\d{1,9})/)?(\d{1,19})(?::(\d{1,10}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class HostRecord:
    """A host's last offsets record. `committed` is Kafka's timestamp of it, in milliseconds.

    `resume` is None for a record that this version cannot read; `problem` says why.
    """

    cluster: str
    host: str
    resume: Resume | None
    committed: int
    problem: str = ""

    def age(self, now: float) -> float:
        """Seconds since it was committed, by our clock, which is `now`, in seconds; never below 0."""
        return max(0.0, now - self.committed / 1000)


def hosts_of(records: Iterable[Record]) -> tuple[HostRecord, ...]:
    """The hosts of `.offsets`' committed records, by cluster and host; the last one of a key counts, a tombstone too.

    Records under keys that are not ours are left out.
    """
    last = {record.key: record for record in records if record.key is not None}
    owners = {key: host_key(key) for key in last}
    hosts = []
    for key, record in last.items():
        owner = owners[key]
        # owner[2] is true for lots of parked mutations, which are read with their host's own record.
        if owner is None or owner[2] or record.value is None:
            continue
        cluster, host, _ = owner
        values = (
            (other_key, last[other_key].value)
            for other_key, other_owner in owners.items()
            if other_owner and other_owner[:2] == (cluster, host)
        )
        hosts.append(_host(cluster, host, values, record.timestamp))
    return tuple(sorted(hosts, key=lambda host: (host.cluster, host.host)))


def _host(cluster: str, host: str, own: Iterable[tuple[bytes, bytes | None]], committed: int) -> HostRecord:
    try:
        return HostRecord(cluster, host, read_offsets(cluster, host, own), committed)
    except OffsetsError as error:
        return HostRecord(cluster, host, None, committed, str(error))


def read_hosts(config: Mapping[str, Scalar], prefix: str, topics: Container[str]) -> tuple[HostRecord, ...]:
    """The hosts of a prefix, none where `.offsets` is not among Kafka's `topics` yet.

    `config` is librdkafka's. Raises ServiceError.
    """
    topic = internal_topic(prefix, Internal.OFFSETS)
    if topic not in topics:
        return ()
    with TopicReader(config, topic, beginning=True) as reader:
        return hosts_of(record for _, record in reader.read_to_end())


def lost_hosts(keys: Container[bytes | None], progresses: Iterable[Progress]) -> tuple[Progress, ...]:
    """The hosts that have progress and had an offsets record, of which `.offsets` has nothing, not even a tombstone.

    `keys` are those of all records of `.offsets`, `progresses` what `.progress` has.
    """
    # `tailrace hosts retire` writes a tombstone: such a host is gone on purpose (reference/positions.md).
    return tuple(
        progress
        for progress in progresses
        if has_read(progress) and offsets_key(progress.cluster, progress.host) not in keys
    )


def host_of(hosts: Iterable[HostRecord], host: str, cluster: str | None = None) -> HostRecord:
    """The record of a host id. Raises SettingsError where there is none, or one under each of two clusters' names."""
    records = tuple(hosts)
    matching = [record for record in records if record.host == host and cluster in (None, record.cluster)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        names = ", ".join(repr(record.cluster) for record in matching)
        raise SettingsError(f"host {host} has a record under the clusters {names}: set cluster.name to one of them")
    names = ", ".join(record.host for record in records) or "none"
    raise SettingsError(f"no agent of host {host} has committed a position under this prefix; the hosts are: {names}")


@dataclass(frozen=True, slots=True)
class Between:
    """What lies between two positions, as far as files tell. `segments` are ids of files that hold some of it.

    `whole` is false where segments of the stretch are gone, or could not be read to the end.
    """

    mutations: int
    segments: tuple[int, ...]
    whole: bool


def target_of(text: str, current: Position) -> Position:
    """The position that a person wrote as [EPOCH/]SEGMENT[:OFFSET]; without offset, the segment's beginning.

    Raises SettingsError for anything else, and for another log epoch than that of `current`: files of another log
    are not there to be read.
    """
    match = _TARGET.fullmatch(text)
    if match is None:
        raise SettingsError(f"{text}: a position is [EPOCH/]SEGMENT[:OFFSET], such as {current}")
    epoch = current.epoch if match[1] is None else int(match[1])
    # Segment ids of another log mean nothing here, and its files may be gone (contracts.md 1, "Log epoch").
    if epoch != current.epoch:
        raise SettingsError(
            f"{text}: the host is in log epoch {current.epoch}, and a position stays in its log; "
            "`tailrace offsets adopt --new-log` opens the next epoch"
        )
    return Position(epoch, int(match[2]), int(match[3] or 0))


def moved(resume: Resume, target: Position, present: Iterable[SegmentKey]) -> Resume:
    """The record with its position at `target`. `present` are the segments in cdc_raw, by id and header checksum.

    Those at or below the target count as read from now on, as contracts.md 1 asks of `open`. Else they would be taken
    for another log's. Places quarantined in the target's segment or behind it are forgotten, so that they are read.
    What is gone by now was published, or told of with this move: none of it is reported as missing later.
    """
    current = resume.position or target
    between = ((target.segment + 1, current.segment),) if target.segment < current.segment else ()
    passed = {segment: checksum for segment, checksum in present if segment <= target.segment}
    return replace(
        resume,
        position=target,
        open=tuple(sorted((passed | dict(resume.open)).items())),
        quarantined=tuple(quarantined for quarantined in resume.quarantined if quarantined.segment < target.segment),
        unread=tuple((max(a, target.segment + 1), b) for a, b in resume.unread if b > target.segment),
        reported=(*resume.reported, *between),
    )


def adopted(resume: Resume) -> Resume:
    """The record with which the next log epoch opens: no segment of the new log counts as read, whatever its id.

    Raises SettingsError where nothing was ever read: then there is no other log.
    """
    position = resume.position
    if position is None:
        raise SettingsError("this host has no position yet: its agent starts with any log")
    # What the record says of segments is of the old log's; the new one may use the same ids ("Log epoch").
    return replace(
        resume,
        position=Position(position.epoch + 1, -1, 0),
        open=(),
        quarantined=(),
        schema=None,
        truncations=(),
        unread=(),
        reported=(),
    )


def restored(position: Position, present: Iterable[SegmentKey], aside: Iterable[SegmentKey]) -> Resume:
    """The record of a host whose record was deleted: all up to `position` is published.

    `present` are the segments that the node has, in cdc_raw and in its commit log, by id and header checksum. Those of
    `aside` may have mutations that are not published, though they are below the position: they are kept, and read no
    more.
    """
    reason = "its record was deleted from Kafka, and may have named mutations of it that are parked, or damage"
    return Resume(
        position,
        tuple(sorted({segment: checksum for segment, checksum in present if segment <= position.segment}.items())),
        tuple(Quarantined(segment, checksum, 0, reason) for segment, checksum in aside if segment < position.segment),
        schema=position,
    )


def position_words(position: Position | None) -> str:
    """A position for people: that of an epoch in which nothing was read yet has no segment."""
    if position is None:
        return "the first segment"
    return f"{position.epoch}/start" if position.segment < 0 else str(position)


def move_words(host: str, before: Position, after: Position, between: Between | None) -> str:
    """What the move of a host's position means. `between` is None where no file could be looked at."""
    if after == before:
        return f"host {host} is at {before} already"
    back = after < before
    direction = "back" if back else "forward"
    if between is None:
        mutations = "the mutations in between (not counted: cdc_raw is not at hand)"
    else:
        least = "" if between.whole else "at least "
        mutations = f"{least}{_many(between.mutations, 'mutation')} in {_many(len(between.segments), 'segment')}"
    if back:
        means = f"{mutations}, of all tables, are read again: their changes are published a second time (duplicates)"
        if between is not None and not between.whole:
            means += "; what is gone from cdc_raw is not"
    else:
        means = f"{mutations}, of all tables, are never published (a gap), and their finished segments are deleted"
    return f"host {host} goes {direction} from {position_words(before)} to {position_words(after)}: {means}"


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
