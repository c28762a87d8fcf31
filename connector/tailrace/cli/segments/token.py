"""`tailrace token`: serialized partition keys to Cassandra's tokens, offline."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Final

import typer

from tailrace_schemas.errors import SettingsError
from tailrace_schemas.tokens import token as token_of

_HEX: Final = re.compile(r"(?:0x)?((?:[0-9a-fA-F]{2})*)")


def token(
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="HEX", help="Serialized partition keys, in hexadecimal.", show_default=False),
    ] = None,
) -> None:
    """Print the murmur3 token of serialized partition keys, one signed decimal a line.

    Without arguments, keys come from standard input, one a line. A key of one column is the column's bytes. A key of
    several has for each column two bytes of length, the bytes, and 00. A leading `0x`, as cqlsh prints it, is allowed.

    Example: tailrace token 313233
    """
    if keys:
        for tok in [token_of(_key(text, f"argument {index}")) for index, text in enumerate(keys, 1)]:
            print(tok)
        return
    for index, line in enumerate(sys.stdin, 1):
        print(token_of(_key(line.strip(), f"standard input, line {index}")), flush=sys.stdin.isatty())


def _key(text: str, where: str) -> bytes:
    match = _HEX.fullmatch(text)
    if match is None:
        odd = len(text) % 2 and re.fullmatch(r"(?:0x)?[0-9a-fA-F]*", text)
        reason = "an odd number of hexadecimal digits" if odd else "not hexadecimal digits only"
        raise SettingsError(f"{where}: {text!r}: {reason}; a key is two for each byte")
    return bytes.fromhex(match[1])
