"""What several modules of tests share of task records."""

from __future__ import annotations

from tests.unit.tables import table

ROWS = table(
    {"k": "int"}, {"c": "int"}, static={"s": "text", "a": "int"}, regular={"v": "int", "w": "text", "b": "blob"}
)


WIDE = table(
    {"k": "int", "l": "text"}, {"c": "text", "d": "int"}, regular={"d9": "decimal", "at": "timestamp", "f": "double"}
)


ALONE = table(
    {"k": "uuid"}, regular={"v": "frozen<list<int>>", "n": "inet", "m": "varint"},
    dropped={"v": ("frozen<list<int>>", 1_713_999_999_000_000)},
)  # fmt: skip


EDITS = table({"k": "int"}, regular={"t": "set<int>"})
