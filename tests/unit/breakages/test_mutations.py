"""Mutations change one part of one symbol, whatever the layout, and say what does not fit."""

from __future__ import annotations

import ast
from typing import Final

import pytest

from tests.breakages.mutations import (
    BreakageError,
    Mutation,
    argument,
    compare,
    constant,
    drop,
    give,
    insert,
    mutated,
    negate,
    replace,
    swap,
    together,
    unwrap,
)


def function(*statements: str) -> str:
    return "\n    ".join(("def function():", *statements))


def tree(text: str) -> str:
    return ast.dump(ast.parse(text))


@pytest.mark.parametrize(
    ("statement", "mutation", "broken"),
    [
        ("put(a); note(b)", drop("put(...)"), "note(b)"),
        ("put(a)", drop("put(a)"), "pass"),
        ("if a: put(b)", drop("put(b)"), "if a: pass"),
        ("put(a); note(b)", drop("put(a)\nnote(b)"), "pass"),
        ("x = a and b and c", drop("b"), "x = a and c"),
        ("x = (a or b) and c", drop("b"), "x = a and c"),
        ("x = (a or b) and c", drop("c"), "x = a or b"),
        ("x = [a for a in b if a > c]", drop("a > c"), "x = [a for a in b]"),
        ("x = put(a, (b, c))", drop("b"), "x = put(a, (c,))"),
        ("if a:\n        # Why.\n        put(b)\n        note(c)", drop("if a: ..."), "pass"),
        ("x = put(a, note(b))", unwrap("put(...)", "note(...)"), "x = note(b)"),
        ("x = a if b else c", unwrap("a if ... else c", "a"), "x = a"),
        ("x = not a", negate("not a"), "x = a"),
        ("x = a is b", negate("a is b"), "x = not a is b"),
        ("x = a < b", compare("a < ...", "<="), "x = a <= b"),
        ("x = a < b", constant("a < b", True), "x = True"),
        ("x = put(a, 'b')", constant("'b'", "c"), "x = put(a, 'c')"),
        ("put(a, b, at=c)", argument("put(...)", 1, "b + 1"), "put(a, b + 1, at=c)"),
        ("put(a, b, at=c)", argument("put(...)", 0, None), "put(b, at=c)"),
        ("put(a, at=c)", argument("put(...)", "at", "None"), "put(a, at=None)"),
        ("put(a, at=c)", argument("put(...)", "at", None), "put(a)"),
        ("put(a); note(b)", swap("put(...)", "note(...)"), "note(b); put(a)"),
        ("x = a if b else c", swap("a", "c"), "x = c if b else a"),
        ("x = a", insert("look()"), "look(); x = a"),
        ("x = a; put(b)", insert("look()", before="put(b)"), "x = a; look(); put(b)"),
        ("x = a; put(b)", insert("look()", before="x = ..."), "look(); x = a; put(b)"),
        ("x = a; put(b)", give("c"), "return c"),
        ("x = a", replace("a", "a + 1"), "x = a + 1"),
        ("x = a", replace("x = ...", "put(a)"), "put(a)"),
        ("put(a)", replace("put(...)", "x = a; x = b"), "x = a; x = b"),
        ("x = a", replace("x = a", "\n    if a:\n        x = b\n    "), "if a: x = b"),
        ("x = a and b", together(drop("a"), replace("b", "c")), "x = c"),
    ],
)
def test_one_part_is_changed(statement: str, mutation: Mutation, broken: str) -> None:
    assert tree(mutated(function(statement), "function", mutation)) == tree(function(broken))


@pytest.mark.parametrize(
    "statement", ["put(a,b)", "put(  # Why.\n a,\n b,\n)", "x = a\n    put(a, b)", "if c: put(a, (b))"]
)
@pytest.mark.parametrize("pattern", ["put(a, b)", "put(a, ...)", "put(..., b)", "put(...)", "(...)(a, b)"])
def test_a_pattern_is_syntax_not_text(statement: str, pattern: str) -> None:
    assert "put" not in mutated(function(statement), "function", drop(pattern))


MODULE: Final = """
LIMIT = 1
LIMITS: Final = (1, 2)

def put(): return 1

class Store:
    SIZE = 3
    def put(self):
        def inner(): return 2
        return inner()

if LIMIT:
    def note(): return 3
"""


@pytest.mark.parametrize(
    ("symbol", "old", "new"),
    [
        ("LIMIT", "LIMIT = 1", "LIMIT = 9"),
        ("LIMITS", "LIMITS: Final = (1, 2)", "LIMITS: Final = 9"),
        ("put", "return 1", "return 9"),
        ("Store.SIZE", "SIZE = 3", "SIZE = 9"),
        ("Store.put.inner", "return 2", "return 9"),
        ("note", "return 3", "return 9"),
    ],
)
def test_a_symbol_is_changed_alone(symbol: str, old: str, new: str) -> None:
    assert tree(mutated(MODULE, symbol, give("9"))) == tree(MODULE.replace(old, new))


@pytest.mark.parametrize(
    ("symbol", "mutation", "words"),
    [
        ("function", drop("note(...)"), "fits 0 parts, and must fit one"),
        ("function", drop("put(...)"), "fits 2 parts, and must fit one"),
        ("function", drop("put(b)"), r"'put\(b\)' cannot be left out"),
        ("function", unwrap("put(b)", "a"), r"'put\(b\)' has no part 'a'"),
        ("function", argument("put(b)", 1, "c"), r"'put\(b\)' has no argument 1"),
        ("function", argument("put(b)", "at", "c"), r"'put\(b\)' has no argument at"),
        ("function", replace("put(b)", "put( b )"), "the mutation changes nothing"),
        ("function.inner", give("c"), "inner is defined 0 times, and must be once"),
    ],
)
def test_what_does_not_fit_is_an_error(symbol: str, mutation: Mutation, words: str) -> None:
    with pytest.raises(BreakageError, match=words):
        mutated(function("put(a)", "x = put(b)"), symbol, mutation)
