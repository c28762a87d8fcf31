"""`tailrace replay` into a file, of recorded segments: the lines of `tailrace dump`, by position, time and table."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from tailrace.assembly.replay_targets import require_selected, with_announced
from tailrace.assembly.schema_file import chosen
from tailrace.cli.main import complete
from tailrace.cli.support.options import time_of
from tailrace_common.selection import Selection
from tailrace_schemas.avro import Encoder, SchemaEntry, entry_from_record, schema_records
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Table
from tests.unit.commitlog.recorded import KEY, recorded
from tests.unit.tables import table

KIND = "5.0.1/lz4"


def replayed(directory: Path, *options: str) -> Result:
    """The command's result; what it prints goes to standard output."""
    words = ["replay", str(directory), "--schema", str(directory / "schema.jsonl"), "--key", KEY.hex()]
    return CliRunner().invoke(complete(), [*words, "--to", "-", *options])


def lines_of(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [KIND, "4.0-beta4/encrypted", "4.0-beta4/rollover-uncompressed"])
def test_lines_are_those_of_dump(kind: str, tmp_path: Path) -> None:
    """Byte for byte, whichever way they go."""
    paths, schema = recorded(kind).unpack(tmp_path)
    words = ["dump", *map(str, paths), "--schema", str(schema), "--format", "changes", "--key", KEY.hex()]
    dumped = CliRunner().invoke(complete(), words)
    assert dumped.exit_code == 0
    assert dumped.stdout
    assert replayed(tmp_path).stdout == dumped.stdout
    file = tmp_path / "changes.jsonl"
    result = replayed(tmp_path, "--to", str(file))
    assert (result.exit_code, result.stdout) == (0, "")
    assert file.read_text() == dumped.stdout
    assert f"{len(dumped.stdout.splitlines())} changes of " in result.stderr
    again = replayed(tmp_path, "--to", str(file))
    assert (again.exit_code, file.read_text()) == (2, dumped.stdout)
    assert f"--to {file}: is there already; name a new file" in again.stderr


@pytest.mark.slow
def test_positions_cut_it(tmp_path: Path) -> None:
    """Behind one, up to another: each change once."""
    recorded(KIND).unpack(tmp_path)
    everything = lines_of(replayed(tmp_path))
    middle = everything[len(everything) // 2]["source"]
    position = f"{middle['segment']}:{middle['offset']}"
    before, after = lines_of(replayed(tmp_path, "--until", position)), lines_of(replayed(tmp_path, "--since", position))
    assert before
    assert after
    assert before + after == everything
    assert before[-1]["source"]["offset"] == middle["offset"]
    assert lines_of(replayed(tmp_path, "--since", str(middle["segment"] + 1))) == []


@pytest.mark.slow
def test_write_times_cut_it(tmp_path: Path) -> None:
    """At or after one, before another."""
    recorded(KIND).unpack(tmp_path)
    everything = lines_of(replayed(tmp_path))
    times = sorted({line["written"] for line in everything})
    low, high = times[len(times) // 3], times[2 * len(times) // 3]
    found = lines_of(replayed(tmp_path, "--written-since", str(low), "--written-until", str(high)))
    assert found == [line for line in everything if low <= line["written"] < high]
    assert 0 < len(found) < len(everything)


@pytest.mark.slow
def test_tables_cut_it(tmp_path: Path) -> None:
    """One with cdc = true, and one without that is named all the same."""
    folder = recorded(KIND)
    folder.unpack(tmp_path)
    names = Counter(line["table"] for line in lines_of(replayed(tmp_path)))
    name = min(names)
    found = Counter(line["table"] for line in lines_of(replayed(tmp_path, "--table", name)))
    assert found == {name: names[name]}
    result = replayed(tmp_path, "--table", f"{name}x")
    assert result.exit_code == 2
    assert f"--table {name}x: no such table is defined; did you mean {name}?" in result.stderr


@pytest.mark.slow
def test_damage_ends_a_segment_only(tmp_path: Path) -> None:
    """What stands before it is there, the next segment too; exit code 3."""
    paths, _ = recorded("4.0-beta4/rollover-uncompressed").unpack(tmp_path)
    everything = replayed(tmp_path).stdout.splitlines()
    data = bytearray(paths[0].read_bytes())
    data[len(data) // 2] ^= 1
    paths[0].write_bytes(data)
    result = replayed(tmp_path)
    assert result.exit_code == 3
    assert f"{paths[0].name}:" in result.stderr
    found = result.stdout.splitlines()
    assert set(found) < set(everything)
    segments = [{json.loads(line)["source"]["segment"] for line in lines} for lines in (found, everything)]
    assert segments[0] == segments[1]


def test_what_no_definition_explains_is_counted(tmp_path: Path) -> None:
    """By its reason; the rest is there. Exit code 3."""
    recorded(KIND).unpack(tmp_path)
    (tmp_path / "schema.jsonl").write_text("")
    result = replayed(tmp_path)
    assert (result.exit_code, result.stdout) == (3, "")
    assert "is in no known schema" in result.stderr
    assert "left out" in result.stderr


@pytest.mark.slow
def test_an_index_limits_its_segment(tmp_path: Path) -> None:
    """Until it is closed, what stands behind it was never released."""
    (path,), _ = recorded("5.0.1/uncompressed").unpack(tmp_path)
    everything = lines_of(replayed(tmp_path))
    index = path.with_name(f"{path.stem}_cdc.idx")
    index.write_text("0")
    assert lines_of(replayed(tmp_path)) == []
    index.write_text("0\nCOMPLETED")
    assert lines_of(replayed(tmp_path)) == everything


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--written-since", "yesterday"], "--written-since yesterday: a time is such as 2026-11-21T17:00:00Z"),
        (["--written-since", "7", "--written-until", "7"], "no write time is at or after 7 and before 7"),
        (["--since", "x"], "--since x: a position is"),
    ],
)
def test_wrong_bounds_are_named(options: list[str], words: str, tmp_path: Path) -> None:
    recorded(KIND).unpack(tmp_path)
    result = replayed(tmp_path, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


def test_a_directory_without_segments_is_named(tmp_path: Path) -> None:
    (tmp_path / "schema.jsonl").touch()
    result = replayed(tmp_path)
    assert result.exit_code == 2
    assert f"{tmp_path}: no CommitLog-*.log is in it" in result.stderr


def test_without_cluster_kafka_has_to_be_told_the_host(tmp_path: Path) -> None:
    """A change names its host; nothing is guessed."""
    recorded(KIND).unpack(tmp_path)
    words = ["replay", str(tmp_path), "--schema", str(tmp_path / "schema.jsonl")]
    result = CliRunner().invoke(complete(), words)
    assert result.exit_code == 2
    assert "give --host too" in result.stderr


SHOP = table({"k": "int"}, {}, {}, {"v": "text"})
OTHER = replace(SHOP, id=uuid4(), name="other", cdc=False)


def announced(of: Table, at: int) -> SchemaEntry:
    key, value = schema_records(Encoder(of, "p"), "t")[0]
    return replace(entry_from_record(key, value), announced=at)


def test_a_table_that_was_dropped_has_the_last_definition_announced() -> None:
    """Of one that is there, the cluster's counts."""
    old, new = replace(OTHER, regular=()), OTHER
    entries = [announced(new, 7), announced(replace(SHOP, regular=()), 8), announced(old, 3)]
    assert with_announced((SHOP,), entries) == (new, SHOP)


def test_what_is_named_counts_as_published() -> None:
    """And what the settings keep out of Kafka is not sneaked in."""
    assert chosen((SHOP, OTHER), None) == (None, (SHOP, OTHER))
    wanted, tables = chosen((SHOP, OTHER), [str(OTHER)])
    assert wanted == frozenset({OTHER.id})
    assert tables == (SHOP, replace(OTHER, cdc=True))
    require_selected(tables, wanted, Selection())
    require_selected(tables, wanted, Selection(exclude=(str(SHOP),)))
    require_selected(tables, None, Selection(exclude=("*.*",)))
    with pytest.raises(SettingsError, match=rf"\[tables\] of the settings leaves {OTHER} out; --to FILE"):
        require_selected(tables, wanted, Selection(exclude=(str(OTHER),)))


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        (None, None),
        ("1760000000123456", 1_760_000_000_123_456),
        ("-5", -5),
        ("2025-10-09T08:53:20.123456Z", 1_760_000_000_123_456),
        ("2025-10-09T08:53:20.123456", 1_760_000_000_123_456),
        ("2025-10-09T10:53:20+02:00", 1_760_000_000_000_000),
        ("2025-10-09", 1_759_968_000_000_000),
        ("20251009", 1_759_968_000_000_000),  # ISO 8601 too, and not 20 s after the beginning of 1970
    ],
)
def test_a_time_is_iso_or_microseconds(text: str | None, micros: int | None) -> None:
    assert time_of("--written-since", text) == micros


@pytest.mark.parametrize("text", ["", "x", "2025-13-01", "20251301", "1.5", "\u0663"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"--written-since .*: a time is"):
        time_of("--written-since", text)
