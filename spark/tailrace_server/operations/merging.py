"""Settings with changes of some: tables are merged name by name at every depth, and None takes a name away. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_FILES: Final = ("_file", ".file")


def merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """New settings. A name of a change may have steps: `registry.url`, as text or as tables, is `url` of `registry`.

    Tables of another program's properties have such names themselves (`ssl.ca.location`): these are found first. A
    value takes the place of a file that held it, and a file that of a value. A table without names left goes too.
    """
    tree = _copied(settings)
    for steps, value in _leaves(changes):
        _put(tree, steps, value)
    return tree


def _copied(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copied(value) if isinstance(value, Mapping) else value for name, value in settings.items()}


def _leaves(changes: Mapping[str, Any]) -> list[tuple[list[str], Any]]:
    leaves: list[tuple[list[str], Any]] = []
    for name, value in changes.items():
        steps = name.split(".")
        if isinstance(value, Mapping) and value:
            leaves += [([*steps, *below], leaf) for below, leaf in _leaves(value)]
        else:
            leaves.append((steps, value))
    return leaves


def _put(tree: dict[str, Any], steps: list[str], value: Any) -> None:
    dotted = ".".join(steps)
    for count in range(1, len(steps)):
        prefix = ".".join(steps[:count])
        if isinstance(tree.get(prefix), dict):
            _put(tree[prefix], steps[count:], value)
            if not tree[prefix]:
                del tree[prefix]
            return
    twins = {*(dotted + suffix for suffix in _FILES), *(dotted.removesuffix(suffix) for suffix in _FILES)} - {dotted}
    for twin in twins if value is not None else ():
        tree.pop(twin, None)
    if value is None:
        tree.pop(dotted, None)
    elif dotted in tree or len(steps) == 1:
        tree[dotted] = value
    else:
        node = tree.setdefault(steps[0], {})
        if isinstance(node, dict):
            _put(node, steps[1:], value)
        else:
            tree[dotted] = value
