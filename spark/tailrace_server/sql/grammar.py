"""The grammar of statements, for lark. A condition of WHERE is Spark SQL: it is cut out of the text, not understood."""

from __future__ import annotations

import re
from typing import Final

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
