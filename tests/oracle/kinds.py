"""What a random program may have, by its seed: what the sinks can merge."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.corpus.kinds import Kinds


def kinds_of(seed: int) -> Kinds:
    """The kinds of this seed: truncations or times, as both are never in one program."""
    random = Random(seed)
    truncations = random.random() < 0.25
    return Kinds(
        counters=True,
        times=not truncations and random.random() < 0.8,
        expiries=random.random() < 0.5,
        truncations=truncations,
        alterations=random.random() < 0.6,
        long_keys=False,
        ahead=random.random() < 0.25,
    )


def logged_kinds_of(seed: int) -> Kinds:
    """The same without truncations: the log tells of them in tables of the system's, which the short way leaves out."""
    return replace(kinds_of(seed), truncations=False)
