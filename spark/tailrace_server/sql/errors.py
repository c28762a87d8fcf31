"""Errors of statements: the line of the fault with a caret under its word. No text in quotes is repeated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tailrace_server.model.errors import RefusedRequestError

# A text that is not closed too: it may be a secret.
_QUOTED: Final = re.compile(r"'(?:[^']|'')*(?:'|\Z)")


class StatementError(RefusedRequestError):
    """A statement is wrong at a place of its text."""


class UnclosedError(StatementError):
    """A quote is not closed: the rest may follow."""


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a text, from one index to before another."""

    start: int
    end: int


def pointed(text: str, span: Span, words: str) -> str:
    """The words with the line of the text that they are about, and a caret under each letter of the span."""
    start = min(span.start, len(text.rstrip()))
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line_end = len(text) if line_end < 0 else line_end
    line_number = text.count("\n", 0, start) + 1
    line = _hidden(text)[line_start:line_end].replace("\t", " ").rstrip()
    carets = "^" * max(1, min(span.end, line_end) - start)
    return f"line {line_number}: {words}\n{line}\n{' ' * (start - line_start)}{carets}"


def _hidden(text: str) -> str:
    """The text with stars for what quotes hold, line by line as long as before."""
    return _QUOTED.sub(lambda match: re.sub(r"[^'\n]", "*", match[0]), text)
