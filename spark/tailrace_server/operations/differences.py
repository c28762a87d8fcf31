"""What a declared subscription changes of one that exists, in words without secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tailrace_common.secrets import REDACTED
from tailrace_server.model.subscription import Request, Shape, Subscription


def differences(
    existing: Subscription, settings: Mapping[str, Any], request: Request, masked: Mapping[str, Any]
) -> list[str]:
    """A line for each setting that changes. `settings` are those that are sealed, `masked` the same with stars.

    The start is no part of it: it has counted once.
    """
    return [
        *_changed("sink.", settings, request.settings, masked, request.sink.shown),
        *_shape(existing.shape, request.shape),
    ]


def _shape(old: Shape, new: Shape) -> Iterator[str]:
    if old.where != new.where:
        yield f"where: {_word(old.where)} -> {_word(new.where)}"
    yield from _changed("columns.", old.columns, new.columns, old.columns, new.columns)
    yield from _changed("stream.", old.stream, new.stream, old.stream, new.stream)


def _changed(
    prefix: str,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    old_shown: Mapping[str, Any],
    new_shown: Mapping[str, Any],
) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            words = _word(old_shown.get(name)), _word(new_shown.get(name))
            same_stars = words[0] == words[1] or REDACTED in words
            yield f"{prefix}{name}: {'another secret' if same_stars else ' -> '.join(words)}"


def _word(value: object) -> str:
    return "unset" if value is None else str(value)
