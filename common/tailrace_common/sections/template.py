"""Templates of names in settings: `changes.{keyspace}.{table}`, filled in for each table."""

from __future__ import annotations

from string import Formatter
from typing import Final

_SAMPLES: Final = {"number": 0}


def require_template(text: str, *names: str, needed: str | None = None) -> str:
    """The text, in whose braces stand only these names, and the needed one. Raises ValueError.

    A name may have a format, such as {number:02}, but no attribute, index or conversion.
    """
    *leading, last = (f"{{{name}}}" for name in names)
    listed = f"{', '.join(leading)} and {last}" if leading else last
    refused = ValueError(f"may contain {listed}, and no other braces")
    try:
        fields = [(name, conversion) for _, name, _, conversion in Formatter().parse(text) if name is not None]
        if any(name not in names or conversion for name, conversion in fields):
            raise refused
        text.format(**{name: _SAMPLES.get(name, "x") for name in names})
    except (KeyError, IndexError, ValueError):
        raise refused from None
    if needed is not None and needed not in {name for name, _ in fields}:
        raise ValueError(f"must contain {{{needed}}}")
    return text
