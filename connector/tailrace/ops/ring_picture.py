"""A picture of a generation as SVG: the ring's ranges, who holds them, the streams, and where keys fall."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from colorsys import hls_to_rgb
from datetime import UTC, datetime
from html import escape
from math import cos, pi, sin
from typing import Final

from tailrace.ops.ring_layout import SLICES, Circle, KeyPlace, Range, angle_of, circles, place
from tailrace_schemas.ring import Ring
from tailrace_schemas.streams import Generation

WIDTH: Final = 1_120
HEIGHT: Final = 770
MOST_LISTED: Final = 18
"""Nodes that are listed by name; more are shown as bars side by side, and by their extremes."""
MOST_DOTS: Final = 1_200

_CENTRE: Final = (340.0, 432.0)
_OUTER: Final = 258.0
_INNER: Final = 120.0
_GAP: Final = 5.0
_PANEL: Final = 690.0
_PANEL_WIDTH: Final = 390.0
_INK: Final = "#1d2733"
_GREY: Final = "#5f6b78"
_KEYS: Final = "#111111"
_STYLE: Final = (
    f"text{{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:{_INK};font-size:13px}}"
    f".small{{font-size:11.5px;fill:{_GREY}}}.head{{font-size:20px;font-weight:600}}.dc{{font-weight:600}}"
    ".mono{font-family:ui-monospace,'DejaVu Sans Mono',monospace;font-size:11.5px}"
    f".key{{fill:{_KEYS};font-weight:600}}.number{{fill:#fff;font-weight:600}}"
)


def ring_svg(ring: Ring, generation: Generation, keys: Sequence[tuple[str, int]] = ()) -> str:
    """One picture, whole in itself: no script, nothing from elsewhere. `keys` are labels and tokens.

    A circle for each datacenter, from the outside in. A sector is a range of tokens, as wide as its part of all
    tokens, coloured by the node that holds it. Where a datacenter has too many, slices of equal width are the darker
    the more ranges end in them. Elements carry what they are in data- attributes: class `range` (data-end, data-host),
    `slice` (data-ranges), `stream` (data-stream), `share` (data-host, data-part), `marker` (data-token).
    """
    around = circles(ring)
    colours = _colours(around)
    placed = [place(generation, around, label, token) for label, token in keys]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="The token ring of generation {generation.timestamp}">',
        f'<style>{_STYLE}</style><rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        *_heading(ring, generation, around),
        *_scale(),
        *(
            element
            for circle, radii in zip(around, _bands(len(around)), strict=True)
            for element in _band(circle, *radii, colours)
        ),
        *_streams(generation),
        *_legend(around, colours, _listed_height(len(placed))),
        *_keys(placed, {} if any(circle.slices for circle in around) else colours),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _heading(ring: Ring, generation: Generation, around: Sequence[Circle]) -> Iterator[str]:
    begin = datetime.fromtimestamp(generation.timestamp / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
    streams = sum(len(entry.streams) for entry in generation.entries)
    yield _text(24, 36, f"Generation of {begin.removesuffix('+00:00')} UTC", "head")
    counts = [
        _count(sum(bool(node.tokens) for node in ring.nodes), "node"),
        _count(len(around), "datacenter"),
        _count(len(generation.entries), "token range"),
        _count(streams, "stream"),
    ]
    yield _text(24, 60, f"{generation.timestamp} ms: {', '.join(counts)}")
    for n, line in enumerate(_words(around, streams)):
        yield _text(24, 82 + n * 16, line, "small")


def _words(around: Sequence[Circle], streams: int) -> Iterator[str]:
    """What is to be seen, in lines that leave the panel alone."""
    if len(around) == 1:
        yield "The circle is the ring of all tokens, clockwise from the smallest at the top."
    else:
        yield "Each circle is the ring of all tokens in one datacenter, clockwise from the smallest at the top."
    if any(circle.slices for circle in around):
        yield f"There are too many ranges to draw: each slice is 1/{SLICES} of the ring, darker where more ranges end."
    else:
        yield "A sector is a range of tokens, coloured by the node that holds it (its first replica there)."
    if streams <= MOST_DOTS:
        yield "A dot outside is a stream, at its own token. A change has the stream of the range of its key's token."
    else:
        yield "Each range has its streams, with tokens in it. A change has the stream of the range of its key's token."


def _scale() -> Iterator[str]:
    """The tokens at the quarters of the circle."""
    for quarter, words in enumerate(("-2⁶³", "-2⁶²", "0", "2⁶²")):
        angle = quarter * pi / 2
        (x1, y1), (x2, y2) = _point(_OUTER + 12, angle), _point(_OUTER + 18, angle)
        yield f'<path d="M{x1} {y1}L{x2} {y2}" stroke="{_GREY}"/>'
        x, y = _point(_OUTER + 30, angle)
        yield _text(x, y + 4, words, "small", ("middle", "start", "middle", "end")[quarter])


def _bands(count: int) -> list[tuple[float, float]]:
    """Outer and inner radius of each circle."""
    width = (_OUTER - _INNER + _GAP) / max(count, 2)
    return [(_OUTER - n * width, _OUTER - (n + 1) * width + _GAP) for n in range(count)]


def _band(circle: Circle, outer: float, inner: float, colours: Mapping[str, str]) -> Iterator[str]:
    yield f'<g class="datacenter" data-datacenter="{escape(circle.datacenter)}">'
    if circle.slices:
        least, largest = min(circle.slices), max(circle.slices)
        for n, ranges in enumerate(circle.slices):
            words = f"{ranges} ranges end in this slice of 1/{SLICES}"
            shade = _mixed((222, 235, 247), (8, 69, 122), (ranges - least) / max(1, largest - least))
            shape = _sector(outer, inner, n / SLICES * 2 * pi, 2 * pi / SLICES)
            # A line of its own colour closes the gap that smoothing leaves between two slices.
            yield (
                f'<path class="slice" data-ranges="{ranges}" d="{shape}" fill="{shade}" stroke="{shade}" '
                f'stroke-width=".6"><title>{words}</title></path>'
            )
    else:
        line = 'stroke="#fff" stroke-width="1"' if len(circle.ranges) <= 160 else 'stroke="#fff" stroke-width=".3"'
        yield f"<g {line}>"
        yield from (_range(owned, outer, inner, colours) for owned in circle.ranges)
        yield "</g>"
    yield "</g>"


def _range(token_range: Range, outer: float, inner: float, colours: Mapping[str, str]) -> str:
    begin, wide = token_range.angles
    host = escape(token_range.node.host)
    words = f"{host}: after {token_range.start} up to {token_range.end}, {_percent(wide / 2 / pi)} of the ring"
    return (
        f'<path class="range" data-end="{token_range.end}" data-host="{host}" d="{_sector(outer, inner, begin, wide)}" '
        f'fill="{colours[token_range.node.host]}"><title>{words}</title></path>'
    )


def _streams(generation: Generation) -> Iterator[str]:
    streams = [stream for entry in generation.entries for stream in entry.streams]
    if len(streams) > MOST_DOTS:
        return
    size = 2.2 if len(streams) <= 200 else 1.1
    yield f'<g fill="{_INK}">'
    for stream in streams:
        x, y = _point(_OUTER + 7, angle_of(stream.token))
        dot = f'class="stream" data-stream="{stream}" cx="{x}" cy="{y}" r="{size}"'
        yield f"<circle {dot}><title>{stream}</title></circle>"
    yield "</g>"


# -- the panel


def _listed_height(keys: int) -> float:
    """How far down the list of nodes may reach."""
    return HEIGHT - 40 - 92 * min(keys, 3)


def _legend(around: Sequence[Circle], colours: Mapping[str, str], until: float) -> Iterator[str]:
    y = 36.0
    each = (until - y) / len(around)
    for index, circle in enumerate(around, 1):
        words = f"{circle.datacenter or 'datacenter'}: {_count(len(circle.shares), 'node')}"
        if len(around) > 1:
            words += f", circle {index} from outside"
        yield _text(_PANEL, y, words, "dc")
        fits = int((each - 46) // 21)
        if len(circle.shares) <= min(fits, MOST_LISTED):
            yield from _list(circle, y + 22, colours)
        else:
            yield from _bars(circle, y + 14, min(each - 94, 170), colours)
        y += each if len(around) > 1 else 0


def _list(circle: Circle, y: float, colours: Mapping[str, str]) -> Iterator[str]:
    largest = circle.shares[0].part
    for n, share in enumerate(circle.shares):
        top, host = y + n * 21, escape(share.node.host)
        wide = _number(share.part / largest * 120)
        yield f"<g><title>{host}: {_count(len(share.node.tokens), 'token')}</title>"
        colour = colours[share.node.host]
        yield f'<rect x="{_PANEL}" y="{_number(top - 11)}" width="13" height="13" rx="2" fill="{colour}"/>'
        yield _text(_PANEL + 20, top, _short(share.node.host), "mono")
        yield (
            f'<rect class="share" data-host="{host}" data-part="{share.part:.12f}" x="{_PANEL + 130}" '
            f'y="{_number(top - 9)}" width="{wide}" height="9" fill="{colour}"/>'
        )
        words = f"{_percent(share.part)}, {_count(len(share.node.tokens), 'token')}"
        yield _text(_PANEL + 260, top, words, "small") + "</g>"


def _bars(circle: Circle, y: float, high: float, colours: Mapping[str, str]) -> Iterator[str]:
    """Every node's share as a bar of its own, and the extremes in words."""
    shares, wide = circle.shares, _PANEL_WIDTH / len(circle.shares)
    for n, share in enumerate(shares):
        tall = share.part / shares[0].part * high
        yield (
            f'<rect class="share" data-host="{escape(share.node.host)}" data-part="{share.part:.12f}" '
            f'x="{_PANEL + n * wide:.3f}" y="{_number(y + high - tall)}" width="{max(wide - 0.5, wide * 0.7):.3f}" '
            f'height="{tall:.3f}" fill="{_bar_colour(circle, share.node.host, colours)}">'
            f"<title>{escape(share.node.host)}: {_percent(share.part)}</title></rect>"
        )
    even = 1 / len(shares)
    line = y + high - even / shares[0].part * high
    yield f'<path d="M{_PANEL} {_number(line)}h{_PANEL_WIDTH}" stroke="{_INK}" stroke-dasharray="3 3"/>'
    yield _text(_PANEL, y + high + 17, "A bar for each node: its share of the ring; dashed: equal shares.", "small")
    yield _text(
        _PANEL,
        y + high + 34,
        f"Most {_percent(shares[0].part)} ({_short(shares[0].node.host)}), least {_percent(shares[-1].part)} "
        f"({_short(shares[-1].node.host)}).",
        "small",
    )
    if circle.slices:
        words = f"Between {min(circle.slices):,} and {max(circle.slices):,} of {len(circle.ranges):,} ranges"
        yield _text(_PANEL, y + high + 51, f"{words} end in a slice.", "small")


def _bar_colour(circle: Circle, host: str, colours: Mapping[str, str]) -> str:
    return "#2f6ea5" if circle.slices else colours[host]


# -- keys


def _keys(placed: Sequence[KeyPlace], colours: Mapping[str, str]) -> Iterator[str]:
    for index, key in enumerate(placed, 1):
        angle = angle_of(key.token)
        (x1, y1), (x2, y2) = _point(_INNER - 22, angle), _point(_OUTER + 24, angle)
        yield f'<g class="marker" data-token="{key.token}" data-stream="{key.stream}">'
        arc, line = _arc(_OUTER + 3, angle_of(key.start), key.part * 2 * pi), f"M{x1} {y1}L{x2} {y2}"
        yield f'<path class="entry" d="{arc}" fill="none" stroke="{_KEYS}" stroke-width="4"/>'
        yield f'<path d="{line}" stroke="#fff" stroke-width="4.5"/>'
        yield f'<path class="pointer" d="{line}" stroke="{_KEYS}" stroke-width="1.8"/>'
        x, y = _point(_INNER - 34, angle)
        yield f'<circle cx="{x}" cy="{y}" r="11" fill="{_KEYS}"/>'
        yield f'<text class="number" x="{x}" y="{_number(y + 4.5)}" text-anchor="middle">{index}</text></g>'
    for index, key in enumerate(placed[:3]):
        yield from _explained(index + 1, key, HEIGHT - 14 - 92 * (min(len(placed), 3) - index), colours)
    if len(placed) > 3:
        yield _text(_PANEL, HEIGHT - 6, f"and {len(placed) - 3} more keys", "small")


def _explained(number: int, key: KeyPlace, y: float, colours: Mapping[str, str]) -> Iterator[str]:
    yield f'<path d="M{_PANEL} {_number(y - 16)}h{_PANEL_WIDTH}" stroke="#ccd3da"/>'
    yield _text(_PANEL, y + 2, f"{number}: {_clipped(key.label, 50)}", "key")
    yield _text(_PANEL, y + 20, f"token {key.token}, {_percent(key.part)} of the ring in its range:", "small")
    yield _text(_PANEL, y + 36, f"after {key.start} up to {key.end}", "mono")
    yield _text(_PANEL, y + 54, f"stream {key.stream}", "mono")
    x = _PANEL
    for datacenter, node in key.owners[:3]:
        if node.host in colours:
            yield f'<rect x="{x}" y="{_number(y + 61)}" width="11" height="11" rx="2" fill="{colours[node.host]}"/>'
        yield _text(
            x + (16 if node.host in colours else 0),
            y + 71,
            f"{_short(node.host)} ({_clipped(datacenter, 10)})",
            "small",
        )
        x += 132


# -- shapes and words


def _point(radius: float, angle: float) -> tuple[float, float]:
    return round(_CENTRE[0] + radius * sin(angle), 3), round(_CENTRE[1] - radius * cos(angle), 3)


def _arc(radius: float, begin: float, wide: float) -> str:
    """An arc clockwise; of more than half a circle in two, so that a whole one is drawn too."""
    x, y = _point(radius, begin)
    return f"M{x} {y}" + _turn(radius, begin, wide)


def _turn(radius: float, begin: float, wide: float) -> str:
    half = wide / 2
    points = [_point(radius, begin + half), _point(radius, begin + wide)]
    return "".join(f"A{_number(radius)} {_number(radius)} 0 0 {int(wide > 0)} {x} {y}" for x, y in points)


def _sector(outer: float, inner: float, begin: float, wide: float) -> str:
    x, y = _point(inner, begin + wide)
    return f"{_arc(outer, begin, wide)}L{x} {y}{_turn(inner, begin + wide, -wide)}Z"


def _colours(around: Sequence[Circle]) -> dict[str, str]:
    """A colour for each node: hues far apart for those that stand side by side, lighter and darker in turn."""
    hosts = [share.node.host for circle in around for share in sorted(circle.shares, key=lambda s: s.node.host)]
    colours: dict[str, str] = {}
    for n, host in enumerate(hosts):
        # The golden section of the circle: never near the hues before it, however many follow.
        hue, light = (0.58 + n * 0.618034) % 1, (0.46, 0.62, 0.36)[n // 8 % 3]
        colours[host] = "#" + "".join(f"{round(255 * channel):02x}" for channel in hls_to_rgb(hue, light, 0.55))
    return colours


def _mixed(light: tuple[int, int, int], dark: tuple[int, int, int], part: float) -> str:
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(light, dark, strict=True))


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    of_kind = f' class="{kind}"' if kind else ""
    alignment = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{_number(x)}" y="{_number(y)}"{of_kind}{alignment}>{escape(words, quote=False)}</text>'


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _percent(part: float) -> str:
    return f"{100 * part:.3g} %" if part < 0.9995 else "100 %"


def _short(host: str) -> str:
    """A host id without what only files need: its first group."""
    return host if len(host) <= 12 else f"{host[:8]}…"


def _clipped(words: str, longest: int) -> str:
    return words if len(words) <= longest else f"{words[: longest - 1]}…"
