"""A case: its name, and a call whose result, or error, is the same of pure and of compiled code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from random import Random
from typing import Any, Final

from tests import properties
from tests.differential.canonical import shortened, shown

Case = tuple[str, Callable[[], object]]
Family = Callable[[Random], Iterator[Case]]
"""Cases of some entry points. Of the seed it draws all that it draws."""


_SHARE: Final = 3


def examples(number: int) -> int:
    """A third of so many: properties say what code does, and cases here only that two codes do the same."""
    return properties.examples(-(-number // _SHARE))


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
