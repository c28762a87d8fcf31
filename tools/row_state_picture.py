"""Draws docs/row-state.svg: a partition in two orders of its changes, as row state itself merges them."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from tailrace_schemas.change import Bound, Cell, Change, Deletion, Marker, Op
from tailrace_schemas.cql.types import parse_type
from tailrace_schemas.table import Column, ColumnKind, Table
from tailrace_spark.rowstate.partition import Partition
from tailrace_spark.rowstate.visible import Images

_STYLE: Final = (
    "text{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#1d2733;font-size:13px}"
    ".small{font-size:11.5px;fill:#5f6b78}.head{font-size:20px;font-weight:600}.row{font-weight:600}"
    ".mono{font-family:ui-monospace,'DejaVu Sans Mono',monospace;font-size:12px}"
)
_INT: Final = parse_type("int", {})
_TABLE: Final = Table(
    keyspace="shop",
    name="cart",
    id=UUID(int=1),
    partition_key=(Column("customer", b"customer", ColumnKind.PARTITION_KEY, _INT, 0),),
    clustering=(Column("line", b"line", ColumnKind.CLUSTERING, _INT, 0),),
    regular=(Column("amount", b"amount", ColumnKind.REGULAR, _INT),),
)
_LINES: Final = (1, 2, 3)
_GREY, _GREEN, _RED, _INK = "#e6eaee", "#cfe8d5", "#f3d3d0", "#5f6b78"


def _write(line: int, amount: int, written: int) -> Change:
    cell = Cell(_TABLE.regular[0], None, written, None, None, _number(amount))
    return Change(
        op=Op.INSERT,
        table=_TABLE,
        token=0,
        key=_number(7),
        clustering=(_number(line),),
        marker=Marker(written),
        cells=(cell,),
    )


def _number(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


_CHANGES: Final = {
    "A": ("@10  line 1: 5", _write(1, 5, 10)),
    "B": ("@20  line 2: 2", _write(2, 2, 20)),
    "C": ("@40  line 2: 9", _write(2, 9, 40)),
    "D": (
        "@30  DELETE line >= 2",
        Change(
            op=Op.DELETE_RANGE,
            table=_TABLE,
            token=0,
            key=_number(7),
            deletion=Deletion(30, 0),
            start=Bound((_number(2),), True),
            end=Bound((), True),
        ),
    ),
    "E": ("@25  line 3: 1", _write(3, 1, 25)),
}
_ORDERS: Final = (
    ("It comes last: line 3 was written before it and goes, line 2 was written again since and stays", "ABECD"),
    ("It comes first: the older writes that it covers never show", "DABEC"),
)


def picture() -> str:
    """The picture, SVG."""
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1060 560" width="1060" height="560" role="img" '
        'aria-label="One partition after each of five changes, in two orders that end alike">',
        f'<style>{_STYLE}</style><rect width="1060" height="560" fill="#fff"/>',
        _text(24, 36, "A range delete settles, whenever it comes", "head"),
        _text(
            24,
            58,
            "Five changes of one partition, by write time (@). Each column is the partition after one more of them.",
            "",
        ),
    ]
    for place, (name, (words, _)) in enumerate(sorted(_CHANGES.items(), key=lambda item: item[1][0])):
        parts.append(_text(24 + 205 * place, 84, f"{name}  {words}", "mono"))
    for number, (title, order) in enumerate(_ORDERS):
        parts += _panel(116 + 220 * number, title, order)
    parts.append(
        _text(
            24,
            548,
            "Green: what SELECT shows. Red: what the deletion at 30 covers. Both orders end in the same state.",
            "small",
        )
    )
    return "\n".join([*parts, "</svg>\n"])


def _panel(top: int, title: str, order: str) -> list[str]:
    parts = [_text(24, top + 12, title, "row")]
    partition, images = Partition(), Images(_TABLE)
    parts += [_text(24, top + 62 + 40 * place, f"line {line}", "small") for place, line in enumerate(_LINES)]
    for column, name in enumerate(order):
        left = 90 + 190 * column
        told = images.apply(partition, [_CHANGES[name][1]])
        parts.append(_text(left, top + 36, f"after {name}", "mono"))
        if partition.deletions.ranges:
            parts.append(_box(left - 6, top + 80, 166, 84, "none", "#c0564e"))
        shown = {known.clustering: known.state for known in partition.rows.values()}
        for place, line in enumerate(_LINES):
            state = shown.get((_number(line),))
            y = top + 44 + 40 * place
            changed = any(image.clustering == (_number(line),) for image in told)
            covered = name in "BE" and partition.deletions.ranges and _CHANGES[name][1].clustering == (_number(line),)
            words = ""
            if state is not None:
                cell = state.columns[b"amount"].cells[None]
                words = f"{int.from_bytes(cell.value or b'', 'big')}  @{cell.written}"
            elif covered or (changed and told):
                words = "covered" if covered else "deleted"
            colour = _GREEN if state is not None else _RED if words else _GREY
            parts.append(_box(left, y, 154, 30, colour, _INK if changed else "none"))
            parts.append(_text(left + 12, y + 20, words, "mono"))
    return parts


def _box(x: int, y: int, width: int, height: int, fill: str, line: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{fill}" stroke="{line}"/>'


def _text(x: int, y: int, words: str, kind: str) -> str:
    words = words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f'<text x="{x}" y="{y}" class="{kind}" xml:space="preserve">{words}</text>' if words else ""
