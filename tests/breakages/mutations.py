"""Mutations: small changes to the syntax tree of one symbol, which is a function, a class or a constant of a module.

Each names the part that it changes by a pattern: Python, an expression or statements. Patterns are compared as syntax,
so layout and comments make no difference. One must fit exactly one part of the symbol. In it `...` stands for any
expression; last among arguments, operands, elements or statements it stands for all that follow.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import dedent
from typing import Any, Final, TypeAlias

Mutation: TypeAlias = Callable[[Any], None]
"""Changes the tree of a symbol. Raises BreakageError where it does not fit."""

_UNCOMPARED: Final = ("ctx", "kind", "type_comment")


class BreakageError(Exception):
    """A breakage that does not fit the sources any more; the words say what to look at."""


def mutated(text: str, symbol: str, mutation: Mutation) -> str:
    """A module's text with the mutation in a symbol, `Class.method` for example. Raises BreakageError."""
    tree = ast.parse(text)
    sound = ast.unparse(tree)
    mutation(_symbol(tree, symbol))
    broken = ast.unparse(tree)
    if broken == sound:
        raise BreakageError("the mutation changes nothing")
    return f"{broken}\n"


# -- the kinds


def drop(part: str) -> Mutation:
    """Leave out a statement, an operand of and/or, an argument, an element, or a condition of a comprehension."""
    return _changed(part, lambda _: [])


def unwrap(expression: str, part: str) -> Mutation:
    """Leave of an expression the first of its parts that the second pattern fits."""

    def change(nodes: Sequence[Any]) -> Sequence[Any]:
        places = _fitting(nodes[0], part)
        if not places:
            raise BreakageError(f"{expression!r} has no part {part!r}")
        return places[0].nodes

    return _changed(expression, change)


def negate(condition: str) -> Mutation:
    """Turn a condition round."""

    def change(nodes: Sequence[Any]) -> list[ast.expr]:
        [node] = nodes
        is_negated = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        return [node.operand if is_negated else ast.UnaryOp(ast.Not(), node)]

    return _changed(condition, change)


def compare(comparison: str, operator: str) -> Mutation:
    """Compare the same two by another operator."""
    [expression] = _parsed(f"0 {operator} 0")
    return _changed(comparison, lambda nodes: [ast.Compare(nodes[0].left, expression.ops, nodes[0].comparators)])


def constant(expression: str, value: object) -> Mutation:
    """Put a constant in the place of an expression."""
    return replace(expression, repr(value))


def argument(call: str, name: str | int, value: str | None) -> Mutation:
    """Pass another value to a call, or none: by a keyword, or in a position from 0 on."""

    def change(nodes: Sequence[Any]) -> Sequence[Any]:
        [node] = nodes
        existing: dict[str | int, Any] = {**dict(enumerate(node.args)), **{word.arg: word for word in node.keywords}}
        if name not in existing:
            raise BreakageError(f"{call!r} has no argument {name}")
        if value is None:
            (node.args if isinstance(name, int) else node.keywords).remove(existing[name])
        elif isinstance(name, int):
            [node.args[name]] = _parsed(value)
        else:
            [existing[name].value] = _parsed(value)
        return nodes

    return _changed(call, change)


def swap(first: str, second: str) -> Mutation:
    """Let two statements or expressions change places."""

    def mutate(symbol: Any) -> None:
        places = _place(symbol, first), _place(symbol, second)
        for place, other in zip(places, reversed(places), strict=True):
            place.put(other.nodes)

    return mutate


def insert(statements: str, before: str | None = None) -> Mutation:
    """Add statements before another one, or where the function begins."""
    if before is not None:
        return _changed(before, lambda nodes: [*_statements(statements), *nodes])

    def mutate(symbol: Any) -> None:
        symbol.body[:0] = _statements(statements)

    return mutate


def give(value: str) -> Mutation:
    """Let a function return this at once, or a constant be this."""

    def mutate(symbol: Any) -> None:
        [expression] = _parsed(value)
        if isinstance(symbol, ast.FunctionDef):
            symbol.body = [ast.Return(expression)]
        else:
            symbol.value = expression

    return mutate


def replace(old: str, new: str) -> Mutation:
    """Put an expression or statements in the place of others: where no other kind fits."""
    return _changed(old, lambda _: _parsed(new))


def together(*mutations: Mutation) -> Mutation:
    """Several mutations, one after the other."""

    def mutate(symbol: Any) -> None:
        for mutation in mutations:
            mutation(symbol)

    return mutate


# -- where they apply


@dataclass(frozen=True, slots=True)
class _Place:
    """Where nodes stand: in a field of `parent`, which has the place `outer`; in a list from `index` on."""

    parent: Any
    field: str
    index: int | None
    nodes: Sequence[Any]
    outer: _Place | None

    def put(self, nodes: Sequence[Any]) -> None:
        """Put others there."""
        is_expression = len(nodes) == 1 and isinstance(nodes[0], ast.expr)
        if self.outer is not None and isinstance(self.parent, ast.Expr) and not is_expression:
            self.outer.put(nodes)
        elif self.index is not None:
            siblings = getattr(self.parent, self.field)
            siblings[self.index : self.index + len(self.nodes)] = [self._formed(node) for node in nodes]
            if not siblings and self.field == "body":
                siblings.append(ast.Pass())
        elif len(nodes) == 1:
            setattr(self.parent, self.field, nodes[0])
        else:
            raise BreakageError(f"{ast.unparse(self.nodes[0])!r} cannot be left out")

    def _formed(self, node: Any) -> Any:
        is_bare = isinstance(self.nodes[0], ast.stmt) and isinstance(node, ast.expr)
        return ast.Expr(node) if is_bare else node


def _changed(pattern: str, change: Callable[[Sequence[Any]], Sequence[Any]]) -> Mutation:
    def mutate(symbol: Any) -> None:
        place = _place(symbol, pattern)
        place.put(change(place.nodes))

    return mutate


def _place(symbol: ast.AST, pattern: str) -> _Place:
    places = _fitting(symbol, pattern)
    if len(places) != 1:
        raise BreakageError(f"{pattern!r} fits {len(places)} parts, and must fit one")
    return places[0]


def _fitting(tree: ast.AST, pattern: str) -> list[_Place]:
    nodes = _parsed(pattern)
    return [place for place in _places(tree, len(nodes), None) if _fits(nodes, place.nodes)]


def _places(node: ast.AST, count: int, outer: _Place | None) -> Iterator[_Place]:
    """All places below a node, with so many nodes in each."""
    for field, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        for index, child in enumerate(children):
            if isinstance(child, ast.AST):
                start = index if isinstance(value, list) else None
                yield _Place(node, field, start, children[index : index + count], outer)
                yield from _places(child, count, _Place(node, field, start, [child], outer))


def _fits(pattern: Any, node: Any) -> bool:
    if _is_any(pattern):
        return True
    if type(pattern) is not type(node):
        return False
    if isinstance(pattern, list):
        is_open = bool(pattern) and _is_any(pattern[-1])
        first = pattern[:-1] if is_open else pattern
        has_length = len(first) <= len(node) if is_open else len(first) == len(node)
        return has_length and all(map(_fits, first, node))
    if isinstance(pattern, ast.Call) and pattern.args and not pattern.keywords and _is_any(pattern.args[-1]):
        return _fits(pattern.func, node.func) and _fits(pattern.args, node.args)
    if isinstance(pattern, ast.AST):
        fields = (field for field in pattern._fields if field not in _UNCOMPARED)
        return all(_fits(getattr(pattern, field, None), getattr(node, field, None)) for field in fields)
    return bool(pattern == node)


def _is_any(pattern: object) -> bool:
    value = pattern.value if isinstance(pattern, ast.Expr) else pattern
    return isinstance(value, ast.Constant) and value.value is ...


def _symbol(tree: ast.AST, name: str) -> Any:
    for part in name.split("."):
        named = [node for node in _members(tree) if part in _names(node)]
        if len(named) != 1:
            raise BreakageError(f"{part} is defined {len(named)} times, and must be once")
        [tree] = named
    return tree


def _members(node: ast.AST) -> Iterator[ast.AST]:
    """What is defined in a module, class or function, and not in others below it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield from _members(child)


def _names(node: ast.AST) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case _:
            return []


def _statements(text: str) -> list[ast.stmt]:
    return ast.parse(dedent(text).strip()).body


def _parsed(text: str) -> list[Any]:
    """An expression, or statements."""
    match _statements(text):
        case [ast.Expr(value=expression)]:
            return [expression]
        case statements:
            return list(statements)
