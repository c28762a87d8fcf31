"""A case: its name, and a call whose result, or error, is the same of pure and of compiled code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from random import Random
from typing import Any

from tests.differential.canonical import shortened, shown

Case = tuple[str, Callable[[], object]]
Family = Callable[[Random], Iterator[Case]]
"""Cases of some entry points. Of the seed it draws all that it draws."""


def calls(name: str, function: Callable[..., object], arguments: Iterable[Any]) -> Iterator[Case]:
    """A case for each argument; a tuple is several."""
    for index, given in enumerate(arguments):
        yield f"{name} {index}", partial(function, *given) if isinstance(given, tuple) else partial(function, given)


def outcome(call: Callable[[], object]) -> str:
    """What a call gives as text, or its error's type and message."""
    try:
        return shortened(shown(call()))
    except Exception as error:
        return shortened(f"{type(error).__name__}: {error}")
