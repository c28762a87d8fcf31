"""Many workers at once on one meta database: each token has had one owner, and what the last one wrote holds."""

from __future__ import annotations

import random
import threading
from collections import defaultdict

import pytest

from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.leases import Claim, Leases
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model.delivery import PartitionProgress
from tailrace_server.model.subscription import LostLeaseError
from tests.unit.server.requests import CLUSTER, request

WORKERS = 6
ROUNDS = 12
SUBSCRIPTIONS = 4
LONG = 60.0
PLACE = ("t", 0)


class Claimant(threading.Thread):
    """Claims, writes, and goes on without a release now and then, as one that is killed; its lease is at its end."""

    def __init__(self, url: str, number: int, seed: int) -> None:
        super().__init__()
        self._url = url
        self._owner = f"w{number}"
        self._random = random.Random(f"{seed} {number}")
        self.had: list[tuple[int, int]] = []
        self.wrote: dict[tuple[int, int], int] = {}
        self.fault: Exception | None = None

    def run(self) -> None:
        try:
            with MetaDatabase(self._url) as database:
                for _ in range(ROUNDS):
                    self._round(database)
        except Exception as error:
            self.fault = error

    def _round(self, database: MetaDatabase) -> None:
        seconds = self._random.choice((0.0, 0.02, LONG))
        leases = Leases(database, CLUSTER, self._owner, seconds)
        shuffled = self._random.sample
        for claim in leases.claim(2, lambda ids: shuffled(list(ids), len(ids))):
            self.had.append((claim.subscription.id, claim.token))
            self._write(leases, claim, seconds)
            if seconds == LONG:
                leases.release(claim)

    def _write(self, leases: Leases, claim: Claim, seconds: float) -> None:
        value = self._random.randrange(1 << 40)
        try:
            leases.save(claim, {PLACE: PartitionProgress(value)})
        except LostLeaseError as error:
            if seconds == LONG:
                raise AssertionError("it lost a lease that had not lapsed") from error
            return
        self.wrote[claim.subscription.id, claim.token] = value


@pytest.mark.slow
@pytest.mark.promise("subscription.one-owner")
@pytest.mark.parametrize("seed", [1])
def test_no_token_has_two_owners(url: str, seed: int) -> None:
    with MetaDatabase(url) as database:
        database.prepare()
        subscriptions = Subscriptions(database)
        ids = [subscriptions.subscribe(request(f"s{number}"), "test")[0].id for number in range(SUBSCRIPTIONS)]
        claimants = [Claimant(url, number, seed) for number in range(WORKERS)]
        for claimant in claimants:
            claimant.start()
        for claimant in claimants:
            claimant.join()
        assert [claimant.fault for claimant in claimants if claimant.fault] == []
        had = [pair for claimant in claimants for pair in claimant.had]
        assert len(set(had)) == len(had), "two owners of one token"
        tokens = defaultdict(set)
        for identity, token in had:
            tokens[identity].add(token)
        for identity in ids:
            last = subscriptions.get(identity).token
            assert tokens[identity] == set(range(1, last + 1)), "a token that nobody had"
        written = {pair: value for claimant in claimants for pair, value in claimant.wrote.items()}
        stored = subscriptions.progress(ids)
        for identity in ids:
            values = {token: value for (one, token), value in written.items() if one == identity}
            expected = values[max(values)] if values else None
            kept = stored[identity].get(PLACE)
            assert (None if kept is None else kept.next) == expected, "a lapsed owner's write is there"
