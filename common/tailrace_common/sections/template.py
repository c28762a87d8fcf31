"""Names of what stores have for tables: by templates of settings, `changes.{keyspace}.{table}`, and short enough."""

from __future__ import annotations

from collections.abc import Callable, Collection
from hashlib import blake2b
from string import Formatter
from typing import Final
from urllib.parse import quote

KEY_COLUMN: Final = "key."
"""In braces in front of a column of the partition key: `{key.country}`."""

_SAMPLES: Final = {"number": 0}
# File systems have 255 bytes for a name. Behind a table's stand `-state`, and `-2`, `-3`, ... where it has several.
_LONGEST_DIRECTORY: Final = 240
# Ours stand beside a table's columns.
KEY: Final = "__key"
CLUSTERING: Final = "__clustering"


def fit(name: str, limit: int) -> str:
    """The name itself, or its head and a hash of all of it, in at most `limit` bytes of UTF-8.

    Every name that is made for a store goes through it: a keyspace may have 48 characters, and a table 222.
    """
    if len(name.encode()) <= limit:
        return name
    digest = blake2b(name.encode(), digest_size=4).hexdigest()
    return name.encode()[: limit - 9].decode(errors="ignore") + "_" + digest


def directory_name(keyspace: str, name: str) -> str:
    """The name of a table's directory: `<keyspace>.<table>`, each a component of a URL."""
    return fit(f"{quote(keyspace, safe='')}.{quote(name, safe='')}", _LONGEST_DIRECTORY)


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


def require_route(text: str, *names: str) -> str:
    """As `require_template`; in its braces may also stand columns of the partition key, as {key.country}."""
    try:
        pieces = [(literal, name, form or conversion) for literal, name, form, conversion in Formatter().parse(text)]
    except ValueError:
        pieces = [("", "", "")]
    plain = ""
    for literal, name, form in pieces:
        plain += literal.replace("{", "{{").replace("}", "}}")
        if name is not None and (form or not name.startswith(KEY_COLUMN) or name == KEY_COLUMN):
            plain += f"{{{name}{f':{form}' if form else ''}}}"
    try:
        require_template(plain, *names)
    except ValueError:
        listed = ", ".join(f"{{{name}}}" for name in names)
        raise ValueError(
            f"may contain {listed} and columns of the partition key, as {{key.country}}, and no other braces"
        ) from None
    return text


def key_columns(text: str) -> tuple[str, ...]:
    """The columns of the partition key that a template names, each once."""
    names = [name for _, name, _, _ in Formatter().parse(text) if name is not None and name.startswith(KEY_COLUMN)]
    return tuple(dict.fromkeys(name.removeprefix(KEY_COLUMN) for name in names))


def filled_for_table(text: str, **names: str) -> str:
    """The template with these names filled in; columns of the partition key stay as they are, in braces."""
    filled = ""
    for literal, name, _, _ in Formatter().parse(text):
        filled += literal
        if name is not None:
            filled += f"{{{name}}}" if name.startswith(KEY_COLUMN) else names[name]
    return filled


def claim(name: str, limit: int, used: Collection[str], needs: Callable[[str], frozenset[str]] | None = None) -> str:
    """A name that is free: `name`, else `name_2`, `name_3`, ...; `used` holds names in lower case.

    It is free when none of what it `needs`, in lower case, is taken: by default itself alone.
    """
    fitting = free = fit(name, limit)
    suffix = 1
    while not (needs(free) if needs else {free.lower()}).isdisjoint(used):
        suffix += 1
        free = fit(fitting, limit - len(str(suffix)) - 1) + f"_{suffix}"
    return free
