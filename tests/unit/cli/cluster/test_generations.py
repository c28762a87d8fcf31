"""`tailrace generations build` and `lookup`, which need no cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tailrace.cli.main import complete
from tailrace_schemas.ring import Node, Ring, ring_seed
from tailrace_schemas.streams import build_generation, stream_for

RING: dict[str, Any] = {
    "nodes": [{"host": "a", "tokens": [30, 10]}, {"host": "b", "tokens": [20]}],
    "streams_per_entry": 2,
    "ignore_msb": 12,
    "timestamp": 1_760_000_000_000,
    "seed": 42,
}
GENERATION: dict[str, Any] = {
    "timestamp": 7,
    "entries": [
        {"range_end": 10, "ignore_msb": 0, "streams": ["000000000000000a0000000000000001"]},
        {"range_end": 20, "ignore_msb": 0, "streams": ["00000000000000140000000000000011"]},
        {"range_end": 30, "ignore_msb": 0, "streams": ["000000000000001e0000000000000021"]},
    ],
}


def _run(tmp_path: Path, command: str, content: object, given: str = "") -> Result:
    file = tmp_path / "file.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    option = {"build": "--ring", "lookup": "--generation"}[command]
    return CliRunner().invoke(complete(), ["generations", command, option, str(file)], input=given)


def test_build_prints_the_generation_of_the_ring(tmp_path: Path) -> None:
    result = _run(tmp_path, "build", RING)
    assert result.exit_code == 0
    ring = Ring((Node("a", "", (10, 30)), Node("b", "", (20,))))
    expected = build_generation(ring, 2, 12, timestamp=1_760_000_000_000, seed=42)
    assert json.loads(result.stdout) == {
        "timestamp": 1_760_000_000_000,
        "entries": [
            {"range_end": entry.token_range_end, "ignore_msb": 12, "streams": [s.value.hex() for s in entry.streams]}
            for entry in expected.entries
        ],
    }


def test_build_without_the_optional_fields_is_a_first_generation(tmp_path: Path) -> None:
    ring = Ring((Node("a", "dc1", (10,)),))
    result = _run(tmp_path, "build", {"nodes": [{"host": "a", "tokens": [10], "datacenter": "dc1"}], "timestamp": 5})
    (entry,) = build_generation(ring, timestamp=5, seed=ring_seed(ring, None)).entries
    assert json.loads(result.stdout)["entries"] == [
        {"range_end": 10, "ignore_msb": 0, "streams": [entry.streams[0].value.hex()]}
    ]


def test_lookup_of_keys_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "generation.json"
    file.write_text(json.dumps(GENERATION))
    result = CliRunner().invoke(
        complete(), ["generations", "lookup", "--generation", str(file), "0x00000007", "0x00000001"]
    )
    assert result.exit_code == 0, result.stderr
    first, second = map(json.loads, result.stdout.splitlines())
    assert first == {
        "key": "0x00000007",
        "token": 1634052884888577606,
        "stream": GENERATION["entries"][0]["streams"][0],
        "generation": 7,
        "after": 30,
        "up_to": 10,
    }
    assert (second["key"], second["token"]) == ("0x00000001", -4069959284402364209)


@pytest.mark.slow
def test_lookup_of_nothing_says_what_it_takes() -> None:
    result = CliRunner().invoke(complete(), ["generations", "lookup"])
    assert result.exit_code == 2
    assert "name a KEY, or give --generation FILE" in result.stderr
    result = CliRunner().invoke(complete(), ["generations", "lookup", "7"])
    assert result.exit_code == 2
    assert "give --table KEYSPACE.TABLE" in result.stderr


@pytest.mark.slow
def test_a_ring_of_a_file_is_drawn(tmp_path: Path) -> None:
    file, drawn = tmp_path / "ring.json", tmp_path / "ring.svg"
    file.write_text(json.dumps(RING))
    words = ["generations", "picture", "--ring", str(file), "-o", str(drawn), "--key", "0x01", "--key", "0x02"]
    result = CliRunner().invoke(complete(), words)
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"{drawn}: the ring of generation {RING['timestamp']}" in result.stderr
    assert drawn.read_text().count('class="range"') == 3
    assert drawn.read_text().count('class="marker"') == 2
    result = CliRunner().invoke(complete(), [*words[:5], str(tmp_path / "none" / "x.svg")])
    assert result.exit_code == 2
    assert "No such file or directory" in result.stderr


@pytest.mark.slow
def test_lookup_reads_what_build_printed(tmp_path: Path) -> None:
    ring = Ring((Node("a", "", (10, 30)), Node("b", "", (20,))))
    built = build_generation(ring, 2, 12, timestamp=1_760_000_000_000, seed=42)
    tokens = range(-20, 40)
    result = _run(tmp_path, "lookup", _run(tmp_path, "build", RING).stdout, "\n".join(map(str, tokens)))
    assert result.stdout.splitlines() == [stream_for(built, token).value.hex() for token in tokens]


def _ring(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in {**RING, **changes}.items() if value is not None}


BAD_RINGS: list[tuple[object, str]] = [
    ("{", "Invalid JSON"),
    (_ring(nodes=[]), "the ring has no tokens"),
    (_ring(nodes=[{"host": "a", "tokens": [True]}]), "nodes.0.tokens.0: Input should be a valid integer"),
    (_ring(nodes=[{"host": "a", "tokens": [2**63]}]), "nodes.0.tokens.0: Input should be less than or equal"),
    (_ring(timestamp=None), "timestamp: Field required"),
    # Microseconds: their year is one that no calendar has, and the picture ended with a traceback.
    (_ring(timestamp=1_760_000_000_000_000), "timestamp: Input should be less than or equal to 253402300799999"),
    (_ring(streams_per_entry=0), "streams_per_entry: Input should be greater than or equal to 1"),
    (_ring(ignore_msb=64), "ignore_msb: Input should be less than or equal to 63"),
    (_ring(seeds=1), "seeds: Extra inputs are not permitted"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("content", "words"), BAD_RINGS)
def test_a_bad_ring_is_named(tmp_path: Path, content: object, words: str) -> None:
    result = _run(tmp_path, "build", content)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{tmp_path / 'file.json'}: " in result.stderr
    assert words in result.stderr


def _generation(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"timestamp": 7, "entries": list(entries)}


ONE, TWO, _ = GENERATION["entries"]
BAD_GENERATIONS = [
    (_generation(TWO, ONE), "not sorted: range end 10 stands after 20"),
    (_generation({**ONE, "streams": []}), "token 10 has no streams"),
    (_generation({**ONE, "streams": ["00"]}), "32 hexadecimal digits"),
    (_generation({**ONE, "range_end": None}), "entries.0.range_end: Input should be a valid integer"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("content", "words"), BAD_GENERATIONS)
def test_a_bad_generation_is_named(tmp_path: Path, content: object, words: str) -> None:
    result = _run(tmp_path, "lookup", content, "1\n")
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "x", "1.0", "0x1", "9223372036854775808", "-9223372036854775809", "1 2", "٣"])
def test_a_bad_token_is_named(tmp_path: Path, text: str) -> None:
    result = _run(tmp_path, "lookup", GENERATION, f"1\n{text}\n")
    assert (result.exit_code, result.stdout) == (2, f"{ONE['streams'][0]}\n")
    assert f"standard input, line 2: {text!r} is no token" in result.stderr


@pytest.mark.slow
def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for command, option in (("build", "--ring"), ("lookup", "--generation")):
        result = CliRunner().invoke(complete(), ["generations", command, option, str(tmp_path / "none")])
        assert result.exit_code == 2
        assert f"{tmp_path / 'none'}: No such file" in result.stderr
