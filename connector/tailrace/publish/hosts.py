"""The hosts of a prefix as `<prefix>.offsets` knows them: how far each agent has come, and since when."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from tailrace.publish.offsets import OffsetsError, host_key, offsets_key, read_offsets
from tailrace.state import Resume
from tailrace_common.kafka import Record, TopicReader
from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.progress import Progress, has_read
from tailrace_schemas.topics import Internal, internal_topic


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
