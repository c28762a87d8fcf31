"""A generation's ring: who holds how much of it, and where keys fall; also as a picture, which is SVG."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from colorsys import hls_to_rgb
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from math import cos, pi, sin
from typing import Final

from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.streams import Generation, StreamId, stream_for
from tailrace_schemas.tokens import MIN_TOKEN

WIDTH: Final = 1_120
HEIGHT: Final = 770
MOST_SECTORS: Final = 1_200
"""More ranges than that in one datacenter would each be thinner than a pixel: its circle is drawn whole."""
MOST_LISTED: Final = 18
"""Nodes that are listed by name, those with the largest shares; of more the smallest follows."""
MOST_DOTS: Final = 1_200

_RING: Final = 1 << 64

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


@dataclass(frozen=True, slots=True)
class Range:
    """The tokens after `start` up to `end`, and who of the datacenter holds them."""

    start: int
    end: int
    node: Node

    @property
    def tokens(self) -> int:
        """How many tokens; the whole ring where there is only one range."""
        return (self.end - self.start - 1) % _RING + 1

    @property
    def angles(self) -> tuple[float, float]:
        """Where it begins and how far it goes, in radians, clockwise from the top."""
        return angle_of(self.start), self.tokens / _RING * 2 * pi


@dataclass(frozen=True, slots=True)
class Share:
    """How much of the ring one node holds: the part of all tokens of which it is its datacenter's first replica."""

    node: Node
    part: float


@dataclass(frozen=True, slots=True)
class Circle:
    """One datacenter: its ranges, of its own nodes' tokens alone, and its nodes, the largest share first."""

    datacenter: str
    ranges: tuple[Range, ...]
    shares: tuple[Share, ...]

    def range_of(self, token: int) -> Range:
        """The range in which a token falls."""
        index = bisect_left(self.ranges, token, key=lambda token_range: token_range.end)
        return self.ranges[index if index < len(self.ranges) else 0]


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """A key in the picture: its label, its token, its stream, the entry's range, and who holds it, by datacenter."""

    label: str
    token: int
    stream: StreamId
    start: int
    end: int
    owners: tuple[tuple[str, Node], ...]

    @property
    def part(self) -> float:
        """How much of the ring the entry's range is."""
        return ((self.end - self.start - 1) % _RING + 1) / _RING


def angle_of(token: int) -> float:
    """A token's place on the circle in radians, clockwise from the top, where the smallest token stands."""
    return (token - MIN_TOKEN) / _RING * 2 * pi


def circles(ring: Ring) -> tuple[Circle, ...]:
    """A circle for each datacenter, by name."""
    nodes: dict[str, list[Node]] = {}
    for node in ring.nodes:
        if node.tokens:
            nodes.setdefault(node.datacenter, []).append(node)
    return tuple(_circle(name, members) for name, members in sorted(nodes.items()))


def place(generation: Generation, around: Sequence[Circle], label: str, token: int) -> KeyPlace:
    """Where a token falls."""
    ends = [entry.token_range_end for entry in generation.entries]
    index = bisect_left(ends, token) % len(ends)
    owners = tuple((circle.datacenter, circle.range_of(token).node) for circle in around)
    return KeyPlace(label, token, stream_for(generation, token), ends[index - 1], ends[index], owners)


def _circle(datacenter: str, nodes: Sequence[Node]) -> Circle:
    owners = sorted((token, node) for node in nodes for token in node.tokens)
    ranges = tuple(Range(start, token, node) for (start, _), (token, node) in pairwise([owners[-1], *owners]))
    tokens: dict[str, int] = {}
    for owned in ranges:
        tokens[owned.node.host] = tokens.get(owned.node.host, 0) + owned.tokens
    shares = sorted((Share(node, tokens[node.host] / _RING) for node in nodes), key=lambda s: (-s.part, s.node.host))
    return Circle(datacenter, ranges, tuple(shares))


# -- the picture


def ring_svg(ring: Ring, generation: Generation, keys: Sequence[tuple[str, int]] = ()) -> str:
    """One picture, whole in itself: no script, nothing from elsewhere. `keys` are labels and tokens.

    A circle for each datacenter, from the outside in. A sector is a range of tokens, as wide as its part of all
    tokens, coloured by the node that holds it. Where a datacenter has too many, its circle is grey. Elements carry what
    they are in data- attributes: class `range` (data-end, data-host), `stream` (data-stream), `share` (data-host,
    data-part), `marker` (data-token).
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
        *_keys(placed, colours),
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
    if any(len(circle.ranges) > MOST_SECTORS for circle in around):
        yield "A grey circle has too many ranges to draw. The node that holds a key's range is named beside the key."
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
    if len(circle.ranges) > MOST_SECTORS:
        yield f'<path d="{_sector(outer, inner, 0, 2 * pi)}" fill="#ccd3da"/>'
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
        yield from _list(circle, y + 22, max(1, min(int((each - 46) // 21), MOST_LISTED)), colours)
        y += each if len(around) > 1 else 0


def _list(circle: Circle, y: float, room: int, colours: Mapping[str, str]) -> Iterator[str]:
    """The nodes with the largest shares; where not all fit, the last line is the smallest's."""
    largest, shares = circle.shares[0].part, circle.shares
    if len(shares) > room:
        yield _text(_PANEL, y + room * 21, f"and {len(shares) - room} more between the last two", "small")
        shares = (*shares[: room - 1], shares[-1])
    for n, share in enumerate(shares):
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
        yield f'<rect x="{x}" y="{_number(y + 61)}" width="11" height="11" rx="2" fill="{colours[node.host]}"/>'
        yield _text(x + 16, y + 71, f"{_short(node.host)} ({_clipped(datacenter, 10)})", "small")
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
