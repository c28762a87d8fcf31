"""Statements out of text. Faults point at the word that does not fit; no text in quotes is repeated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any, Final

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from tailrace_server.model.subscription import RefusedRequestError
from tailrace_server.operations.asking import Asked
from tailrace_server.operations.operations import Alteration

Node = Tree[Token]
_MOST_EXPECTED: Final = 6
_QUOTES: Final = "'\"`$"
_LONGEST_NUMBER: Final = 40
_MOST_PARENTHESES: Final = 1000
# A text that is not closed too: it may be a secret.
_QUOTED: Final = re.compile(r"'(?:[^']|'')*(?:'|\Z)")
_RULES: Final = r"""
script: _statement? (";" _statement?)*
_statement: create | show_all | show_one | show_create | pause | resume | alter | reset | drop

create: "CREATE"i "SUBSCRIPTION"i name "ON"i table "INTO"i target options? columns? stream? where? from?
show_all: "SHOW"i ALL? "SUBSCRIPTIONS"i ("LIKE"i STRING)?
show_one: "SHOW"i "SUBSCRIPTION"i _reference
show_create: "SHOW"i "CREATE"i "SUBSCRIPTION"i _reference
pause: "PAUSE"i "SUBSCRIPTION"i _reference
resume: "RESUME"i "SUBSCRIPTION"i _reference
alter: "ALTER"i "SUBSCRIPTION"i _reference (_alteration+ _set_where? | _set_where)
_set_where: "SET"i where | no_where
reset: "RESET"i "SUBSCRIPTION"i _reference (with_snapshot (from | from_offsets)? | from | from_offsets)
with_snapshot: "WITH"i "SNAPSHOT"i
drop: "DROP"i "SUBSCRIPTION"i _reference

_reference: name ("ON"i table)?
table: (TABLE_PART | QUOTED) "." (TABLE_PART | QUOTED)
name: NAME | QUOTED
target: NAME | QUOTED

options: "OPTIONS"i "(" [setting ("," setting)*] ")"
columns: "COLUMNS"i "(" [setting ("," setting)*] ")"
stream: "STREAM"i "(" [setting ("," setting)*] ")"
_alteration: "INTO"i target | set_options | set_columns | set_stream | _removal
_removal: unset_options | unset_columns | unset_stream
set_options: "SET"i "OPTIONS"i? "(" setting ("," setting)* ")"
set_columns: "SET"i "COLUMNS"i "(" setting ("," setting)* ")"
set_stream: "SET"i "STREAM"i "(" setting ("," setting)* ")"
unset_options: "UNSET"i "OPTIONS"i? "(" _key ("," _key)* ")"
unset_columns: "UNSET"i "COLUMNS"i "(" _key ("," _key)* ")"
unset_stream: "UNSET"i "STREAM"i "(" _key ("," _key)* ")"
no_where: "UNSET"i "WHERE"i

setting: _key "=" (STRING | NUMBER | TRUE | FALSE)
_key: NAME | QUOTED

from: "FROM"i (EARLIEST | LATEST | STRING)
from_offsets: "FROM"i "OFFSETS"i STRING
where: "WHERE"i (DOLLARS | condition)
condition: _outer+
_outer: WORD | DISTINCT_FROM | LITERAL | SIGN | "(" _inner* ")"
_inner: WORD | DISTINCT_FROM | LITERAL | SIGN | "(" _inner* ")"

ALL.1: /all(?![\w-])/i
TRUE.1: /true(?![\w-])/i
FALSE.1: /false(?![\w-])/i
EARLIEST.1: /earliest(?![\w-])/i
LATEST.1: /latest(?![\w-])/i
NAME: /\w+(-\w+)*/i
TABLE_PART: /[\w*?]+/i
QUOTED: /"(?:[^"]|"")+"/
STRING: /'(?:[^']|'')*'/
NUMBER.1: /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/
DOLLARS.2: /\$(?P<tag>\w*)\$[\s\S]*?\$(?P=tag)\$/
DISTINCT_FROM.2: /distinct\s+from\b/i
WORD: /\w+/i
LITERAL: /'(?:[^'\\]|\\[\s\S]|'')*'|"(?:[^"\\]|\\[\s\S]|"")*"|`(?:[^`]|``)*`/
SIGN: /[^\s\w'"`();$]/
COMMENT.3: /--[^\n]*|\/\*[\s\S]*?\*\//
SPACE: /\s+/
%ignore COMMENT
%ignore SPACE
"""

_KEYWORD: Final = re.compile(r'"([A-Z]+)"i')


class Verb(StrEnum):
    """What is done to one subscription without more words, as the grammar calls it."""

    SHOW = "show_one"
    SHOW_CREATE = "show_create"
    PAUSE = "pause"
    RESUME = "resume"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Create:
    """CREATE SUBSCRIPTION."""

    asked: Asked


@dataclass(frozen=True, slots=True)
class ShowAll:
    """SHOW [ALL] SUBSCRIPTIONS [LIKE]: cancelled ones too, and those whose name or reference is like a pattern."""

    cancelled: bool = False
    like: str | None = None


@dataclass(frozen=True, slots=True)
class One:
    """SHOW SUBSCRIPTION and others that have its reference alone."""

    verb: Verb
    reference: str


@dataclass(frozen=True, slots=True)
class Alter:
    """ALTER SUBSCRIPTION."""

    reference: str
    alteration: Alteration


@dataclass(frozen=True, slots=True)
class Reset:
    """RESET SUBSCRIPTION FROM a start, or from offsets as JSON; WITH SNAPSHOT the tables too.

    Without a start, which only WITH SNAPSHOT allows, the log goes on where it is.
    """

    reference: str
    start: str | None = "earliest"
    offsets: str | None = None
    snapshot: bool = False


Statement = Create | ShowAll | One | Alter | Reset


def reads(statement: Statement) -> bool:
    """Whether it changes nothing."""
    return isinstance(statement, ShowAll) or (
        isinstance(statement, One) and statement.verb in (Verb.SHOW, Verb.SHOW_CREATE)
    )


class StatementError(RefusedRequestError):
    """A statement is wrong at a place of its text."""


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


@dataclass(frozen=True, slots=True)
class Parsed:
    """A statement, the text of the script that it is of, and where its words stand.

    `marks` are phrases of the operations' errors (`options.NAME`), each with its span.
    """

    statement: Statement
    text: str
    span: Span
    marks: Mapping[str, Span] = field(default_factory=dict)

    def pointing(self, words: str) -> str:
        """An error of the operations, pointed at the word that it is about, else at the statement."""
        fitting = [mark for mark in self.marks if mark in words]
        span = self.marks[max(fitting, key=len)] if fitting else self.span
        return pointed(self.text, span, words)


@cache
def _parser() -> Lark:
    return Lark(GRAMMAR, start="script", parser="lalr", propagate_positions=True, maybe_placeholders=False)


def parse(text: str) -> list[Parsed]:
    """The statements of a text, with `;` between them. Raises StatementError."""
    if text.count("(") > _MOST_PARENTHESES:
        raise StatementError(f"the text has more than {_MOST_PARENTHESES} parentheses")
    try:
        script = _parser().parse(text)
    except UnexpectedInput as error:
        raise _unexpected(text, error) from None
    return [_Reading(text, node).parsed() for node in script.children if isinstance(node, Tree)]


def _unexpected(text: str, error: UnexpectedInput) -> StatementError:
    end = len(text.rstrip())
    if isinstance(error, UnexpectedCharacters):
        start: int = error.pos_in_stream  # type: ignore[assignment]  # None only in lark's base class
        span = Span(start, start + 1)
        sign = text[span.start]
        if sign in _QUOTES:
            return StatementError(pointed(text, span, f"the quote {sign} is not closed"))
        return StatementError(pointed(text, span, f"{sign} does not fit here; {_expected(error.allowed)}"))
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        token: Token = error.token
        word = "a text" if token.type in ("STRING", "LITERAL") else f'"{token}"'
        span = Span(token.start_pos or 0, token.end_pos or end)
        return StatementError(pointed(text, span, f"{word} does not fit here; {_expected(error.accepts)}"))
    accepted = error.accepts if isinstance(error, UnexpectedToken) else ()
    return StatementError(pointed(text, Span(end, end + 1), f"the statement is not complete; {_expected(accepted)}"))


def _expected(terminals: Iterable[str]) -> str:
    words = sorted({WORDS.get(name, name.lstrip("_")) for name in terminals})
    return "expected: " + ", ".join(words[:_MOST_EXPECTED]) + (" and others" if len(words) > _MOST_EXPECTED else "")


class _Reading:
    """One statement out of its tree."""

    def __init__(self, text: str, node: Node) -> None:
        self._text = text
        self._node = node
        self._marks: dict[str, Span] = {}

    def parsed(self) -> Parsed:
        statement = self._statement()
        return Parsed(statement, self._text, _span(self._node), self._marks)

    def _statement(self) -> Statement:
        match self._node.data:
            case "show_all":
                return self._show_all()
            case "create":
                return self._create()
            case "alter":
                return self._alter()
            case "reset":
                return self._reset()
            case verb:
                return One(Verb(verb), self._reference())

    def _create(self) -> Create:
        name, table = self._named()
        spec = Asked(
            table=table or "",
            name=name,
            target=self._target() or "",
            options=self._settings("options", "options", f"sink.{name}"),
            columns=self._settings("columns", "columns"),
            stream=self._settings("stream", "stream"),
            where=self._where(),
            start=self._start(),
        )
        return Create(spec)

    def _alter(self) -> Alter:
        name, _ = self._named()
        alteration = Alteration(
            target=self._target(),
            options={**self._settings("set_options", "options", f"sink.{name}"), **self._unset("options")},
            columns={**self._settings("set_columns", "columns"), **self._unset("columns")},
            stream={**self._settings("set_stream", "stream"), **self._unset("stream")},
            where="" if self._has("no_where") else self._where(),
        )
        return Alter(self._reference(), alteration)

    def _reset(self) -> Reset:
        reference, snapshot = self._reference(), self._has("with_snapshot")
        for node in self._parts("from_offsets"):
            self._marks["offsets"] = _span(node.children[0])
            return Reset(reference, offsets=_word(node.children[0]), snapshot=snapshot)
        start = None if snapshot and not self._has("from") else self._start()
        return Reset(reference, start, snapshot=snapshot)

    def _has(self, name: str) -> bool:
        return any(True for _ in self._parts(name))

    def _show_all(self) -> ShowAll:
        tokens = [token for token in self._node.children if isinstance(token, Token)]
        like = next((_word(token) for token in tokens if token.type == "STRING"), None)
        return ShowAll(any(token.type == "ALL" for token in tokens), like)

    def _parts(self, name: str) -> Iterator[Node]:
        return (child for child in self._node.children if isinstance(child, Tree) and child.data == name)

    def _named(self) -> tuple[str, str | None]:
        """The name, and the table where the statement has one."""
        [node] = self._parts("name")
        name, table = _word(node.children[0]), None
        self._marks[f'name "{name}"'] = self._marks[f"{name}:"] = _span(node)
        for table_node in self._parts("table"):
            table = ".".join(map(_word, table_node.children))
            self._marks[f'table "{table}"'] = _span(table_node)
            self._marks[f"{table}/{name}:"] = _span(node)
        return name, table

    def _reference(self) -> str:
        name, table = self._named()
        return name if table is None else f"{table}/{name}"

    def _target(self) -> str | None:
        target = None
        for node in self._parts("target"):
            target = _word(node.children[0])
            self._marks[f'target "{target}"'] = _span(node)
        return target

    def _where(self) -> str | None:
        for node in self._parts("where"):
            content = node.children[0]
            span = self._marks["condition"] = _span(content)
            written = self._text[span.start : span.end]
            if isinstance(content, Token):
                tag = written.index("$", 1) + 1
                return written[tag:-tag]
            return written
        return None

    def _start(self) -> str:
        for node in self._parts("from"):
            [token] = node.children
            word = _word(token)
            self._marks[f'start "{word}"'] = _span(token)
            return word if isinstance(token, Token) and token.type == "STRING" else word.lower()
        return "earliest"

    def _settings(self, clause: str, *sections: str) -> dict[str, Any]:
        """What a clause sets; errors call a setting by its name behind that of any of the sections."""
        values: dict[str, Any] = {}
        for node in self._parts(clause):
            for setting in node.children:
                if isinstance(setting, Tree):
                    name_token, value = setting.children
                    name = self._marked(name_token, *sections)
                    if name in values:
                        raise StatementError(pointed(self._text, _span(setting), f"{name} is set twice"))
                    values[name] = self._scalar(value)
        return values

    def _unset(self, section: str) -> dict[str, None]:
        nodes = self._parts(f"unset_{section}")
        return {self._marked(name, section): None for node in nodes for name in node.children}

    def _marked(self, name_token: Node | Token, *sections: str) -> str:
        name = _word(name_token)
        self._marks.update({f"{section}.{name}": _span(name_token) for section in sections})
        return name

    def _scalar(self, node: Node | Token) -> Any:
        token = node if isinstance(node, Token) else Token("", "")
        match token.type:
            case "STRING":
                return _word(token)
            case "NUMBER":
                return self._number(token)
            case _:
                return token.type == "TRUE"

    def _number(self, token: Token) -> int | float:
        if len(token) > _LONGEST_NUMBER:
            raise StatementError(pointed(self._text, _span(token), "the number has too many digits"))
        return int(token) if re.fullmatch(r"-?\d+", token) else float(token)


def _word(node: Node | Token) -> str:
    """A name or text without its quotes."""
    text = str(node)
    if text[:1] in ("'", '"'):
        return text[1:-1].replace(text[0] * 2, text[0])
    return text


def _span(node: Node | Token) -> Span:
    if isinstance(node, Token):
        return Span(node.start_pos or 0, node.end_pos or 0)
    return Span(node.meta.start_pos, node.meta.end_pos)


def _grammar() -> str:
    """The rules, with keywords as terminals that end where a word ends. In front of a name they win."""
    keywords = sorted(set(_KEYWORD.findall(_RULES)))
    terminals = "".join(f"_{word}.1: /{word.lower()}(?![\\w-])/i\n" for word in keywords)
    return _KEYWORD.sub(r"_\1", _RULES) + terminals


GRAMMAR: Final = _grammar()

WORDS: Final = {
    "NAME": "a name",
    "QUOTED": 'a name in "..."',
    "TABLE_PART": "KEYSPACE.TABLE",
    "STRING": "a text in '...'",
    "NUMBER": "a number",
    "DOLLARS": "a condition",
    "WORD": "a condition",
    "LITERAL": "a condition",
    "SIGN": "a condition",
    "DISTINCT_FROM": "a condition",
    "LPAR": '"("',
    "RPAR": '")"',
    "COMMA": '","',
    "DOT": '"."',
    "EQUAL": '"="',
    "SEMICOLON": '";"',
    "$END": "the end",
}
"""The terminals in words; keywords are their own."""
