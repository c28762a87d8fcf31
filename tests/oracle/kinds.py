"""What a random program may have, by its seed: what the sinks can merge."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.corpus.kinds import Kinds


def kinds_of(seed: int) -> Kinds:
    """The kinds of this seed; most programs are tied."""
    random = Random(seed)
    truncations = random.random() < 0.3
    times = random.random() < 0.85
    tied = times and random.random() < 0.7
    return Kinds(
        counters=True,
        times=times,
        tied=tied,
        sparing=random.random() < 0.7,
        expiries=random.random() < 0.6,
        truncations=truncations,
        alterations=random.random() < 0.6,
        long_keys=False,
        ahead=not tied and random.random() < 0.25,
    )


def lasting_kinds_of(seed: int) -> Kinds:
    """The same without truncations, which all nodes must be up for."""
    return replace(kinds_of(seed), truncations=False)


def finite_kinds_of(seed: int) -> Kinds:
    """The same without NaN and infinities, for MariaDB."""
    return replace(kinds_of(seed), finite=True)
