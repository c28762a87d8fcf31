"""When a ring has settled: looks at the ring and the accepted generations in, "nothing", "wait" or "propose" out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tailrace.ops.health import RingState
from tailrace_schemas.ring import Ring, ring_seed

REMEMBERED: Final = 16
"""How many of the last generations are asked whether they had this ring before."""

_SHARE: Final = 10
_LEAST_SECONDS: Final = 0.1
_BACK_OFF_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds. `ring`: how long a ring must stay as it is before it counts as settled; `poll`: between two looks."""

    ring: float = 30.0
    poll: float = 10.0

    @property
    def often(self) -> float:
        """Between two looks while the ring is not the latest generation's."""
        return min(self.poll, max(self.ring / 4, _LEAST_SECONDS))


USUAL: Final = Delays()


class NextLook(NamedTuple):
    """What follows from a look: the state, in words what is waited for, and after how many seconds to look again.

    `disputed`: how often this ring was replaced by another and proposed again, of late; 0 usually.
    """

    state: RingState
    words: str
    seconds: float
    disputed: int = 0


def ring_digest(ring: Ring) -> int:
    """Equal for equal rings, and small."""
    return ring_seed(ring, None)


class RingWatch:
    """What one agent has seen of the ring. Times are seconds of a monotonic clock, of which the agent alone knows.

    A ring is settled when every node is NORMAL, and it was the same at every look for a ring delay. Two looks are no
    further apart than that. After each accepted generation another ring delay passes. An agent that sees a change of
    the ring late sees the generation first, and must not propose the old ring against the new one. For the same reason
    a ring that was replaced lately, and is to return, has to wait twice as long each time. Otherwise nodes that
    disagree for good would replace each other's generations for ever.

    The agents of a ring propose one after another, a tenth of the delay apart in the order of host ids. From the tenth
    on they do so all within one more delay. Each but the first will find the generation published.
    """

    def __init__(self, host: str, delays: Delays) -> None:
        self._host = host
        self._delays = delays
        self._ring: Ring | None = None
        self._digest = 0
        self._readable = False
        self._since = self._began = self._ended = 0.0
        self._latest: int | None = None
        self._learnt = 0.0

    @property
    def digest(self) -> int | None:
        """The digest of the ring as it was seen last; None where it could not be read."""
        return self._digest if self._readable else None

    def see(self, ring: Ring, began: float, ended: float) -> None:
        """A look at the ring that began and ended at these times."""
        previous = self._ring
        unchanged = previous == ring
        unbroken = began - self._ended <= max(self._delays.ring, _BACK_OFF_SECONDS)
        if previous is None or not (unchanged and previous.normal and ring.normal and unbroken):
            self._since = ended
        if not unchanged:
            self._digest = ring_digest(ring)
        self._ring, self._began, self._ended, self._readable = ring, began, ended, True

    def miss(self) -> None:
        """A look that failed. It does not break a row of looks unless it lasts for a ring delay."""
        self._readable = False

    def stir(self, now: float) -> None:
        """Something tells that the ring changed: it is settled a ring delay from now at the earliest."""
        self._since = max(self._since, now)

    def judge(self, accepted: Sequence[int], digest_of: Callable[[int], int], now: float) -> NextLook:
        """What to do. `accepted`: the generations' timestamps, ascending, read after the look.

        `digest_of` a timestamp: the digest of that generation's ring. Asked for the last one, and for REMEMBERED of
        them only while the ring is another than that one's.
        """
        latest = accepted[-1] if accepted else None
        if latest != self._latest:
            self._latest, self._learnt = latest, now
        if not self._readable or self._ring is None:
            return NextLook(RingState.UNKNOWN, "an answer from Cassandra about the ring", self._delays.poll)
        moving = [node.host for node in self._ring.nodes if not node.normal]
        if moving:
            words = f"{', '.join(moving[:3])}{' and others' * (len(moving) > 3)} to finish joining, leaving or moving"
            return NextLook(RingState.CHANGING, words, self._delays.often)
        if latest is None:
            return NextLook(RingState.DUE, "the first generation, which is proposed now", 0.0)
        if digest_of(latest) == self._digest:
            return NextLook(RingState.COVERED, "nothing", self._delays.poll)
        disputed = sum(digest_of(timestamp) == self._digest for timestamp in accepted[-REMEMBERED:])
        remaining = self._patience(self._ring, disputed) - min(self._began - self._since, now - self._learnt)
        if remaining <= 0:
            return NextLook(RingState.DUE, "a new generation, which is proposed now", 0.0, disputed)
        words = f"{remaining:.0f} s more without a change of the ring"
        return NextLook(RingState.SETTLING, words, min(remaining, self._delays.often), disputed)

    def _patience(self, ring: Ring, disputed: int) -> float:
        delay = self._delays.ring
        hosts = [node.host for node in ring.nodes]
        rank = hosts.index(self._host) if self._host in hosts else len(hosts)
        turn = min(rank, _SHARE) / _SHARE + max(0, rank - _SHARE) / max(1, len(hosts) - _SHARE)
        return delay * (1 + turn) + max(delay, _BACK_OFF_SECONDS) * ((1 << disputed) - 1)
