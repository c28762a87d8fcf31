"""Breakages of subscriptions: their leases, and the secrets of their sinks."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Breakage, Needs, Red

LEASES: Final = "spark/tailrace_server/meta/leases.py"
SUBSCRIPTIONS: Final = "spark/tailrace_server/meta/subscriptions.py"
CONTRACT: Final = "unit/server/meta/test_contract.py"

BREAKAGES: Final = (
    Breakage(
        name="a-lease-is-renewed-after-its-end",
        promise="a subscription has one owner at a time",
        file=LEASES,
        old="            owned = subscribe.c.owner == self.owner, subscribe.c.lease_until >= now()\n",
        new="            owned = (subscribe.c.owner == self.owner,)\n",
        needs=Needs.NOTHING,
        reds=(Red(CONTRACT, "test_a_lapsed_owner_is_refused[sqlite]", r"killed.renew\(1\) == \{\}"),),
    ),
    Breakage(
        name="progress-is-kept-without-the-token",
        promise="a worker that has lost a subscription keeps no progress of it",
        file=LEASES,
        old="            subscribe.c.owner == self.owner,\n            subscribe.c.token == claim.token,\n",
        new="            subscribe.c.id == claim.subscription.id,\n",
        needs=Needs.NOTHING,
        reds=(Red(CONTRACT, "test_a_lapsed_owner_is_refused[sqlite]", "DID NOT RAISE"),),
    ),
    Breakage(
        name="a-claim-does-not-ask-whether-it-is-free",
        promise="a subscription has one owner at a time",
        file=LEASES,
        old="        free = subscribe.c.id == identity, *self._runnable(), self._free()\n",
        new="        free = subscribe.c.id == identity, *self._runnable()\n",
        needs=Needs.NOTHING,
        reds=(Red("unit/server/meta/test_claimants.py", "test_no_token_has_two_owners[sqlite-1]", "assert"),),
    ),
    Breakage(
        name="another-request-is-taken-for-the-same",
        promise="another request under a name that is taken is refused",
        file=SUBSCRIPTIONS,
        old="            if old != new\n",
        new="            if old is None\n",
        needs=Needs.NOTHING,
        reds=(Red(CONTRACT, "test_another_request_under_the_name_is_refused", "DID NOT RAISE"),),
    ),
)
