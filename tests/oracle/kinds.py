"""What a random program may have, by its seed: what the sinks can merge."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.corpus.kinds import Kinds

COUNTERS: Final = False
EXPIRIES: Final = False
TRUNCATIONS: Final = False
"""What the sinks do not merge yet is off."""


def kinds_of(seed: int) -> Kinds:
    """The kinds of this seed: truncations or times, as both are never in one program."""
    random = Random(seed)
    truncations = TRUNCATIONS and random.random() < 0.25
    return Kinds(
        counters=COUNTERS,
        times=not truncations and random.random() < 0.8,
        expiries=EXPIRIES and random.random() < 0.5,
        truncations=truncations,
        alterations=random.random() < 0.6,
        long_keys=False,
    )
