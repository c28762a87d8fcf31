"""The picture of a ring: well-formed, its areas in proportion, its keys where they belong."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from math import atan2, hypot, pi
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.cli.cluster.ring_picture import MOST_SECTORS, angle_of, circles, place, ring_svg
from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.streams import Generation, build_generation, stream_for
from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN

ROOT = Path(__file__).parents[4]
SVG = "{http://www.w3.org/2000/svg}"
CENTRE = (340.0, 432.0)
WHOLE = 2**64


def ring_of(nodes: int, tokens: int, datacenters: int = 1, seed: int = 0) -> Ring:
    rng = random.Random(seed)
    return Ring(
        tuple(
            Node(f"host-{n}", f"dc{n % datacenters}", tuple(rng.randrange(-(2**63), 2**63) for _ in range(tokens)))
            for n in range(nodes)
        )
    )


def generation_of(ring: Ring, streams: int = 1) -> Generation:
    return build_generation(ring, streams, timestamp=1_760_000_000_000, seed=3)


def drawn(ring: Ring, *keys: tuple[str, int], streams: int = 1) -> ElementTree.Element:
    """The picture, parsed."""
    return ElementTree.fromstring(ring_svg(ring, generation_of(ring, streams), keys))  # noqa: S314 - our own


def of_class(svg: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [element for element in svg.iter() if element.get("class") == name]


def points(path: str) -> list[tuple[float, float]]:
    """The points of a path: the last two numbers of each of its commands."""
    commands = re.findall(r"[MLA]([^MLAZ]*)", path)
    return [(float(x), float(y)) for x, y in (command.split()[-2:] for command in commands)]


def clockwise(point: tuple[float, float]) -> float:
    """The angle of a point, from the top."""
    x, y = point[0] - CENTRE[0], point[1] - CENTRE[1]
    return atan2(x, -y) % (2 * pi)


def swept(path: str) -> float:
    """How far a sector goes round: its outer arc's two halves."""
    begin, middle, end = (clockwise(point) for point in points(path)[:3])
    return (middle - begin) % (2 * pi) + (end - middle) % (2 * pi)


RINGS = {
    "one token": ring_of(1, 1),
    "one node": ring_of(1, 16),
    "two datacenters": ring_of(6, 16, 2),
    "at the seams": Ring((Node("a", "dc", (MIN_TOKEN, 0)), Node("b", "dc", (MAX_TOKEN,)))),
    "many": ring_of(70, 16, 3),
}


@pytest.mark.parametrize("name", RINGS)
def test_a_sector_is_as_wide_as_its_part_of_the_ring(name: str) -> None:
    ring = RINGS[name]
    svg = drawn(ring)
    owners = {token: node.host for token, node in ring.owner().items()}
    sectors = {int(sector.get("data-end", "")): sector for sector in of_class(svg, "range")}
    assert set(sectors) == set(owners)
    for circle in svg.iter(f"{SVG}g"):
        if circle.get("class") != "datacenter":
            continue
        ends = sorted(int(one.get("data-end", "")) for one in of_class(circle, "range"))
        for start, end in pairwise([ends[-1], *ends]):
            sector = sectors[end]
            part = ((end - start - 1) % WHOLE + 1) / WHOLE
            assert swept(sector.get("d", "")) == pytest.approx(part * 2 * pi, abs=1e-4), end
            assert sector.get("data-host") == owners[end]
        radii = {
            round(hypot(x - CENTRE[0], y - CENTRE[1]), 2) for end in ends for x, y in points(sectors[end].get("d", ""))
        }
        assert len(radii) == 2, "all sectors of a datacenter are of one band"


@pytest.mark.slow
@given(st.integers(1, 8), st.integers(1, 12), st.integers(1, 3), st.integers(MIN_TOKEN + 1, MAX_TOKEN))
def test_a_key_stands_in_the_range_of_its_owner(nodes: int, tokens: int, datacenters: int, token: int) -> None:
    ring = ring_of(nodes, tokens, datacenters, seed=nodes)
    svg = drawn(ring, ("key", token))
    (marker,) = of_class(svg, "marker")
    assert marker.get("data-stream") == str(stream_for(generation_of(ring), token))
    (pointer,), (entry,) = of_class(marker, "pointer"), of_class(marker, "entry")
    inner, outer = points(pointer.get("d", ""))
    at = clockwise(outer)
    assert at == pytest.approx(angle_of(token) % (2 * pi), abs=1e-4) or abs(abs(at - angle_of(token)) - 2 * pi) < 1e-4
    assert clockwise(inner) == pytest.approx(at, abs=1e-3) or abs(abs(clockwise(inner) - at) - 2 * pi) < 1e-3
    ends = ring.tokens
    here = next((end for end in ends if end >= token), ends[0])
    begin = clockwise(points(entry.get("d", ""))[0])
    assert (at - begin) % (2 * pi) <= swept(entry.get("d", "")) + 1e-3 or (begin - at) % (2 * pi) < 1e-3
    owner = ring.owner()[here]
    sectors = [one for one in of_class(svg, "range") if one.get("data-host") == owner.host]
    assert any(
        (at - clockwise(points(one.get("d", ""))[0])) % (2 * pi) <= swept(one.get("d", "")) + 1e-3
        or (clockwise(points(one.get("d", ""))[0]) - at) % (2 * pi) < 1e-3
        for one in sectors
    )
    found = place(generation_of(ring), circles(ring), "key", token)
    assert (found.end, dict(found.owners)[owner.datacenter]) == (here, owner)


@pytest.mark.slow
def test_a_ring_too_large_to_draw_has_its_key_and_who_holds_it() -> None:
    ring = ring_of(40, MOST_SECTORS // 20 + 1, 2)
    svg = drawn(ring, ("key", 5))
    assert of_class(svg, "range") == of_class(svg, "stream") == []
    bands = [element for element in svg.iter(f"{SVG}g") if element.get("class") == "datacenter"]
    assert [[swept(path.get("d", "")) for path in band] for band in bands] == [[pytest.approx(2 * pi)]] * 2
    (marker,) = of_class(svg, "marker")
    words = [element.text for element in svg.iter(f"{SVG}text")]
    for circle in circles(ring):
        assert f"{circle.range_of(5).node.host} ({circle.datacenter})" in words
    assert marker.get("data-token") == "5"


@pytest.mark.slow
def test_a_picture_needs_nothing_from_elsewhere_and_stays_small() -> None:
    small, large = (ring_svg(ring, generation_of(ring)) for ring in (ring_of(1, 16), ring_of(300, 64)))
    assert len(small) < 20_000
    assert len(large) < 500_000
    for text in (small, large):
        assert "<script" not in text
        assert re.findall(r"https?://[^\"]*", text) == ["http://www.w3.org/2000/svg"]
        assert "href" not in text


def test_names_are_data() -> None:
    ring = Ring((Node('<a href="x">', "d&c", (1,)),))
    svg = drawn(ring, ('"><script>', 5))
    assert of_class(svg, "range")[0].get("data-host") == '<a href="x">'
    assert any("d&c" in (text.text or "") for text in svg.iter(f"{SVG}text"))


def test_the_example_of_the_documentation_is_what_the_code_draws() -> None:
    from tailrace.cli.cluster.generations import build_from, read_ring
    from tailrace_schemas.tokens import token

    file = ROOT / "docs" / "ring.json"
    key = "0x00000007", token(bytes.fromhex("00000007"))
    assert (ROOT / "docs" / "ring.svg").read_text() == ring_svg(read_ring(file), build_from(file), [key])
