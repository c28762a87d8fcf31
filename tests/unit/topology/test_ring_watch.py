"""When a ring has settled: each kind of change, each kind of look, one agent at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tailrace.ops.health import RingState
from tailrace.topology.ring_watch import USUAL, Delays, NextLook, RingWatch, ring_digest
from tailrace_schemas.ring import Node, Ring

A, B, C = (Node(host, "dc1", tokens) for host, tokens in (("a", (1, 5)), ("b", (3,)), ("c", (9,))))
OLD, NEW = Ring((A, B)), Ring((A, B, C))
COVERED, CHANGING, SETTLING, DUE = RingState.COVERED, RingState.CHANGING, RingState.SETTLING, RingState.DUE


@dataclass
class Agent:
    """One agent's watch; `rings` are those of the accepted generations, whose timestamps are 0, 1, 2..."""

    host: str = "a"
    delays: Delays = USUAL
    rings: list[Ring] = field(default_factory=lambda: [OLD])

    def __post_init__(self) -> None:
        self.watch = RingWatch(self.host, self.delays)

    def look(self, ring: Ring | None, at: float, took: float = 0.0) -> NextLook:
        """A look and what follows; None: it failed."""
        if ring is None:
            self.watch.miss()
        else:
            self.watch.see(ring, at, at + took)
        return self.watch.judge(range(len(self.rings)), lambda place: ring_digest(self.rings[place]), at + took)

    def states(self, looks: Sequence[tuple[float, Ring | None]]) -> list[RingState]:
        return [self.look(ring, at).state for at, ring in looks]


def doing(ring: Ring, host: str) -> Ring:
    """The ring while that node joins, leaves or moves."""
    return Ring(tuple(Node(n.host, n.datacenter, n.tokens, normal=n.host != host) for n in ring.nodes))


CHANGES = {
    "a node joins": NEW,
    "a node leaves, or is removed for good": Ring((A,)),
    "a node moves": Ring((A, Node("b", "dc1", (4,)))),
    "a node is replaced: same tokens, another host id": Ring((A, Node("z", "dc1", (3,)))),
    "a node has more tokens": Ring((A, Node("b", "dc1", (3, 4)))),
    "tokens change owners": Ring((Node("a", "dc1", (1, 3)), Node("b", "dc1", (5,)))),
    "a node is in another datacenter": Ring((A, Node("b", "dc2", (3,)))),
}


@pytest.mark.promise("ring.membership")
@pytest.mark.parametrize("ring", CHANGES.values(), ids=CHANGES)
def test_a_change_settles_for_a_ring_delay_and_is_proposed_once(ring: Ring) -> None:
    agent = Agent()
    assert agent.states([(0, OLD), (50, OLD), (60, ring), (75, ring), (89.9, ring)]) == [
        *(COVERED, COVERED),
        *(SETTLING, SETTLING, SETTLING),
    ]
    assert agent.look(ring, 90).state is DUE
    agent.rings.append(ring)
    assert agent.states([(90, ring), (91, ring), (1000, ring)]) == [COVERED] * 3


@pytest.mark.promise("ring.membership")
def test_a_node_that_is_down_changes_nothing() -> None:
    assert Agent().states([(0, OLD), (40, Ring((B, A)))]) == [COVERED, COVERED]


@pytest.mark.parametrize(("before", "after"), [(OLD, NEW), (NEW, OLD)])
def test_a_ring_waits_until_all_its_nodes_are_normal(before: Ring, after: Ring) -> None:
    """The delay counts from the first look at which they are, not from the change of tokens."""
    agent = Agent(rings=[before])
    busy = doing(NEW, "c")
    assert agent.states([(0, before), (60, busy), (80, busy), (200, busy)]) == [COVERED, *[CHANGING] * 3]
    assert "c to finish joining, leaving or moving" in agent.look(busy, 210).words
    assert agent.states([(220, after), (235, after), (249, after), (250, after)]) == [*[SETTLING] * 3, DUE]


def test_a_change_that_is_taken_back_is_none() -> None:
    assert Agent().states([(0, OLD), (10, NEW), (20, OLD), (60, OLD)]) == [COVERED, SETTLING, COVERED, COVERED]


def test_a_change_within_a_change_begins_the_delay_anew() -> None:
    third = Ring((A, C))
    agent = Agent()
    assert agent.states([(0, OLD), (10, NEW), (30, third), (39, third), (40, third)]) == [COVERED, *[SETTLING] * 4]
    assert agent.states([(59, third), (60, third)]) == [SETTLING, DUE]


def test_an_event_begins_it_anew_too() -> None:
    """What an event tells of may have come and gone between two looks."""
    agent = Agent()
    agent.look(OLD, 0)
    agent.look(NEW, 10)
    agent.watch.stir(35)
    assert agent.states([(40, NEW), (60, NEW), (65, NEW)]) == [SETTLING, SETTLING, DUE]


def test_looks_too_far_apart_prove_nothing() -> None:
    agent = Agent()
    assert agent.states([(0, OLD), (10, NEW), (41, NEW), (70, NEW), (71, NEW)]) == [COVERED, *[SETTLING] * 3, DUE]


def test_a_look_that_fails_breaks_the_row_only_when_it_lasts() -> None:
    agent = Agent()
    unknown = RingState.UNKNOWN
    assert agent.states([(0, NEW), (10, None), (20, NEW), (30, NEW)]) == [SETTLING, unknown, SETTLING, DUE]
    agent = Agent()
    assert agent.states([(0, NEW), (10, None), (30, None), (31, NEW), (60, NEW)]) == [
        *(SETTLING, unknown, unknown),
        *(SETTLING, SETTLING),
    ]
    assert agent.look(None, 61).seconds == 10
    assert agent.watch.digest is None


def test_a_slow_look_counts_from_its_end_to_the_next_one_s_begin() -> None:
    agent = Agent()
    agent.look(NEW, 0, took=5)
    assert agent.look(NEW, 30, took=6).state is SETTLING
    assert agent.look(NEW, 36, took=0).state is DUE


def test_the_first_generation_waits_for_nothing_but_normal_nodes() -> None:
    agent = Agent(rings=[])
    assert agent.states([(0, doing(NEW, "c")), (1, NEW)]) == [CHANGING, DUE]


def test_who_sees_a_change_late_does_not_propose_the_old_ring() -> None:
    """The generation of the new ring comes before the news of it."""
    agent = Agent()
    assert agent.states([(at, OLD) for at in range(0, 101, 20)]) == [COVERED] * 6
    agent.rings.append(NEW)
    assert agent.states([(101, OLD), (110, OLD), (120, OLD), (130.9, OLD)]) == [SETTLING] * 4
    assert agent.look(NEW, 131).state is COVERED


def test_an_agent_that_comes_late_waits_as_the_others_did() -> None:
    assert Agent().states([(500, NEW), (515, NEW), (529, NEW), (530, NEW)]) == [SETTLING, SETTLING, SETTLING, DUE]


def _due(agent: Agent, ring: Ring, start: float = 0.0) -> float:
    """When a ring that is there from the start is proposed, looking as often as the verdicts say."""
    at = start
    while (verdict := agent.look(ring, at)).state is SETTLING:
        at += verdict.seconds
    assert verdict.state is DUE
    return at - start


def test_agents_take_turns() -> None:
    assert [_due(Agent(host=host), NEW) for host in "abcz"] == pytest.approx([30, 33, 36, 39])
    many = Ring(tuple(Node(f"{n:03}", "dc1", (n,)) for n in range(110)))
    turns = [_due(Agent(host=f"{n:03}"), many) for n in range(110)]
    assert turns == sorted(turns)
    assert turns[:11] == pytest.approx([30 + 3 * n for n in range(11)])
    assert turns[60] == pytest.approx(75)
    assert turns[-1] < 90


@pytest.mark.slow
def test_nodes_that_disagree_for_good_wait_ever_longer() -> None:
    agent = Agent(rings=[OLD])
    waits = []
    at = 0.0
    for _ in range(12):
        waits.append(_due(agent, NEW, at))
        at += waits[-1] + 1
        agent.rings += [NEW, OLD]
    assert waits[:5] == pytest.approx([30, 60, 120, 240, 480])
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(30 * 2**8)
    assert agent.look(NEW, at).disputed == 8


def test_without_a_delay_everything_is_at_once() -> None:
    agent = Agent(delays=Delays(0, 10))
    assert agent.states([(0, OLD), (1, NEW)]) == [COVERED, DUE]
    assert _due(Agent(host="z", delays=Delays(0, 10)), NEW) == 0
    assert _due(Agent(delays=Delays(0, 10), rings=[NEW, OLD]), NEW) == pytest.approx(1)


@pytest.mark.parametrize(
    ("delays", "seconds"), [(Delays(30, 10), 7.5), (Delays(30, 2), 2), (Delays(4, 10), 1), (Delays(0.2, 10), 0.1)]
)
def test_a_changing_ring_is_looked_at_more_often(delays: Delays, seconds: float) -> None:
    agent = Agent(delays=delays)
    assert agent.look(NEW, 0).seconds == pytest.approx(seconds)
    assert agent.look(doing(NEW, "a"), 1).seconds == pytest.approx(seconds)
    assert agent.look(OLD, 1).seconds == delays.poll
