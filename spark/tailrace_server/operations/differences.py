"""What a declared subscription changes of one that exists, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tailrace_server.model.subscription import Request, Subscription


def differences(existing: Subscription, request: Request) -> list[str]:
    """A line for each setting that changes. The start is no part of it: it has counted once."""
    old, new = existing.shape, request.shape
    return [
        *_changed("", {"target": existing.sink.target}, {"target": request.sink.target}),
        *_changed("options.", existing.sink.options, request.sink.options),
        *_changed("", {"where": old.where}, {"where": new.where}),
        *_changed("columns.", old.columns, new.columns),
        *_changed("stream.", old.stream, new.stream),
    ]


def _changed(prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield f"{prefix}{name}: {_word(old.get(name))} -> {_word(new.get(name))}"


def _word(value: object) -> str:
    return "unset" if value is None else str(value)
