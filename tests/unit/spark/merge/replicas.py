"""Three replicas that are written and truncated, their logs as a topic has them, and a store that merges these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from tailrace_schemas.change import Change
from tailrace_schemas.position import Position
from tailrace_spark.batch.delivery import Delivered
from tailrace_spark.merge.batch_changes import truncate_batch
from tailrace_spark.rowstate.partition import Partition
from tailrace_spark.rowstate.truncation import EVERYTHING, TruncationState
from tests.unit.spark.cassandra import Log, truncate, with_source
from tests.unit.spark.changes import PLAIN

SECOND = 1_000_000
DELAY = 30.0
START = 1_700_000_000 * SECOND
HOSTS = ("a", "b", "c")
LOG = Log(PLAIN)


@dataclass
class Cluster:
    """Three replicas: their logs, as their agents publish them, and what a SELECT of all three finds."""

    now: int = START
    logs: dict[str, list[Change]] = field(default_factory=lambda: {host: [] for host in HOSTS})
    stored: dict[str, list[Change]] = field(default_factory=lambda: {host: [] for host in HOSTS})

    def write(self, host: str, change: Change) -> None:
        position = Position(0, 1, len(self.logs[host]) + 1)
        logged = with_source(change, host=host, position=position, seen=self.now // 1000)
        self.logs[host].append(logged)
        self.stored[host].append(logged)

    def truncate(self, host: str, skew: int) -> None:
        upto = Position(0, 1, len(self.logs[host]))
        told = truncate(PLAIN, host, self.now + skew, upto, seen=self.now // 1000)
        self.logs[host].append(with_source(told, position=Position(0, 1, upto.offset + 1)))
        self.stored[host].clear()

    def select(self) -> Partition:
        partition = Partition()
        for host in HOSTS:
            for change in self.stored[host]:
                partition.absorb(change)
        return partition


changes = st.builds(
    lambda kind, clustering, value: (kind, clustering, value),
    st.sampled_from(["insert", "update", "delete", "range", "partition", "static"]),
    st.integers(0, 2),
    st.integers(0, 9),
)
times = st.sampled_from(["now", "old", "older", "soon", "future", "same"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), changes, times, st.sets(st.sampled_from(HOSTS), min_size=1)),
        # A truncation reaches one host after the other; a write between reaches some before it, and some behind it.
        st.tuples(st.just("truncate"), st.permutations(HOSTS), changes, times),
        st.tuples(st.just("wait"), st.integers(1, 90)),
    ),
    max_size=14,
)


def statement(cluster: Cluster, what: tuple[str, int, int], when: str) -> Change:
    kind, clustering, value = what
    written = {
        "now": cluster.now, "old": START - 5, "older": START - 9, "soon": cluster.now + 5 * SECOND,
        "future": cluster.now + 500 * SECOND, "same": START,
    }[when]  # fmt: skip
    key = (1,)
    match kind:
        case "insert":
            return LOG.insert(key, (clustering,), written, v=value)
        case "update":
            return LOG.update(key, (clustering,), written, w=str(value))
        case "delete":
            return LOG.delete(key, (clustering,), written)
        case "range":
            return LOG.delete_range(key, (0,), (clustering,), written)
        case "partition":
            return LOG.delete_partition(key, written)
        case _:
            return LOG.static(key, written, s=str(value))


def history(cluster: Cluster, program: Sequence[tuple[object, ...]]) -> None:
    for step in program:
        cluster.now += SECOND
        match step:
            case ("write", what, when, replicas):
                change = statement(cluster, what, when)  # type: ignore[arg-type]  # what `steps` makes
                for host in sorted(replicas):  # type: ignore[call-overload]
                    cluster.write(host, change)
            case ("truncate", order, what, when):
                between = statement(cluster, what, when)  # type: ignore[arg-type]
                for index, host in enumerate(order):  # type: ignore[arg-type]
                    if index == 1:
                        for replica in HOSTS:
                            cluster.write(replica, between)
                    cluster.now += SECOND // 10
                    cluster.truncate(host, skew=index * 1000)
            case ("wait", seconds):
                cluster.now += int(str(seconds)) * SECOND


def interleaved(logs: dict[str, list[Change]], order: Sequence[str]) -> Iterator[Change]:
    """The hosts' changes as a partition of the topic has them: each host's in its order."""
    left = {host: list(log) for host, log in logs.items()}
    for host in (*order, *(replica for replica in HOSTS for _ in logs[replica])):
        if left[host]:
            yield left[host].pop(0)


class Store:
    """What a merging store does with batches."""

    def __init__(self) -> None:
        self.truncations = TruncationState()
        self.partition = Partition()

    def take(self, batch: Sequence[Delivered]) -> None:
        taken = truncate_batch(self.truncations, batch, DELAY)
        self.truncations = taken.truncations
        if taken.erased == EVERYTHING:
            self.partition = Partition()
        elif taken.erased is not None:
            self.partition.erase(taken.erased)
        for one in taken.left:
            self.partition.absorb(one.change)


def shown(partition: Partition) -> object:
    rows = {key: row.state for key, row in partition.rows.items() if not row.state.empty}
    return partition.deletions, rows
