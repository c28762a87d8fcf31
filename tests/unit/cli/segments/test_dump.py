"""`tailrace dump`: whole fixtures against Cassandra's own dump, and what it does with what it cannot show."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from operator import itemgetter
from pathlib import Path
from typing import Any

import fastavro
import pytest
import typer

from tailrace.cli.segments.dump import dump
from tailrace.commitlog.frames import frames
from tailrace.segments.printing import Format
from tailrace_schemas.avro import Encoder
from tailrace_schemas.change import Change
from tailrace_schemas.errors import SettingsError
from tests.unit.changes.recorded import changes_in
from tests.unit.commitlog.recorded import KEY, KINDS, recorded, sections_of
from tests.unit.commitlog.segments import frame, marker

LZ4 = "5.0.1/lz4"
PLAIN = "4.0-beta4/uncompressed"


def run(capsys: pytest.CaptureFixture[str], *arguments: Any, **options: Any) -> tuple[list[dict[str, Any]], str, int]:
    """(JSON lines, words, exit code) of the command's own function."""
    code = 0
    try:
        dump(*arguments, **options)
    except typer.Exit as end:
        code = end.exit_code
    out, err = capsys.readouterr()
    return [json.loads(line) for line in out.splitlines()], err, code


def hashed(value: Any) -> Any:
    """As the rollover dumps have it: values of more than 1000 bytes by length and SHA-256."""
    if isinstance(value, list):
        return [hashed(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value.get("val") or "") > 2000:
        data = bytes.fromhex(value["val"])
        value = value | {"val": None, "val_len": len(data), "val_sha256": hashlib.sha256(data).hexdigest()}
    return {name: hashed(item) for name, item in value.items()}


def by_table(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mutations whose updates are sorted by table id."""
    return [line | {"updates": sorted(line.get("updates", []), key=itemgetter("id"))} for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_whole_segments_equal_what_cassandra_reads(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = recorded(kind)
    segments, schema = folder.unpack(tmp_path)
    shown, words, code = run(capsys, segments, schema, key=KEY.hex())
    expected = list(folder.expected)
    # The dumps of all keyspaces end with the list of unknown tables, which has no counterpart here: it is empty.
    if expected[-1] == {"invalid": "[]"}:
        expected.pop()
    if "rollover" in kind:
        # The third segment was empty and is not kept; long values stand as hashes.
        assert expected.pop() == {"file": "CommitLog-7-1795246980070.log", "len": 1048576}
        shown = hashed(shown)
    if not kind.endswith("/uncompressed"):
        # These dumps were made of keyspace ks alone.
        shown = [value for value in shown if value.get("ks", "ks") == "ks"]
    if kind.startswith("3.11"):
        # Its reader puts the updates of a mutation into a hash map: they have lost the order of the file.
        shown, expected = by_table(shown), by_table(expected)
    assert shown == expected
    assert (words, code) == ("", 0)


def test_dropped_cells_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segments, schema = recorded(LZ4).unpack(tmp_path)

    def names(*, dropped: bool) -> list[list[str]]:
        shown, _, _ = run(capsys, segments, schema, table=["ks.drp"], dropped=dropped)
        rows = [item for value in shown[1:] for update in value["updates"] for item in update["items"]]
        return [[column["n"] for column in row["cols"]] for row in rows]

    # Cassandra's reader leaves them out, as column b was dropped after the first row was written.
    assert names(dropped=False) == [["a", "l"], ["a", "nn"]]
    assert names(dropped=True) == [["a", "b", "l"], ["a", "nn"]]


def test_one_table_of_a_mutation_of_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recorded(LZ4)
    segments, schema = folder.unpack(tmp_path)
    shown, _, code = run(capsys, segments, schema, table=["ks.nocdc"])
    expected = [
        value | {"updates": [update for update in value["updates"] if update["table"] == "nocdc"]}
        for value in folder.expected[1:]
        if any(update["table"] == "nocdc" for update in value["updates"])
    ]
    assert [value["updates"] for value in shown[1:]] == [value["updates"] for value in expected]
    assert len(expected) == 2
    assert code == 0


def test_a_table_that_is_not_defined(tmp_path: Path) -> None:
    segments, schema = recorded(LZ4).unpack(tmp_path)
    with pytest.raises(SettingsError, match=r"--table ks\.simpel: .* did you mean ks\.simple\?"):
        dump(segments, schema, table=["ks.simpel"])


def test_unknown_tables_are_counted_and_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segments, _ = recorded(LZ4).unpack(tmp_path)
    shown, words, code = run(capsys, segments)
    assert {value["ks"] for value in shown[1:]} == {"system", "system_schema"}
    assert "table id 32696010-e57f-11f1-a39c-77c4381b35a5 is in no known schema; 16 mutations left out" in words
    assert "68656c6c6f" not in words + json.dumps([v for v in shown if v.get("ks") != "system"])
    assert code == 3


def test_unknown_tables_that_were_not_asked_for_are_no_matter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segments, _ = recorded(LZ4).unpack(tmp_path)
    shown, words, code = run(capsys, segments, table=["system.local"])
    assert len(shown) == 23
    # Only a mutation of several tables has to be decoded to know.
    assert words.count("\n") <= 1
    assert code == (3 if words else 0)


def test_everything_before_damage_is_shown_and_other_files_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = recorded(PLAIN)
    (path,), schema = folder.unpack(tmp_path)
    third = sections_of(folder.segment)[2]
    damaged = bytearray(folder.segment)
    damaged[third.end.marker - 1] ^= 1
    broken = tmp_path / "broken" / path.name
    broken.parent.mkdir()
    broken.write_bytes(damaged)
    shown, words, code = run(capsys, [broken, path], schema)
    again = next(place for place, value in enumerate(shown[1:], 1) if "file" in value)
    assert shown[again:] == list(folder.expected[:-1])
    assert shown[:again] == list(folder.expected[:again])
    assert shown[again - 1]["pos"] < third.end.logical <= folder.expected[again]["pos"]
    assert words.startswith(f"{path.name}:")
    assert "wrong checksum" in words
    assert code == 3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "0 bytes of at least 20"),
        (bytes(1024), "not written yet"),
        (b"#!/bin/sh\necho no segment\n", "this is no segment"),
    ],
)
def test_files_that_are_no_segments(
    content: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "CommitLog-7-1.log"
    path.write_bytes(content)
    shown, said, code = run(capsys, [path])
    assert shown == [{"file": path.name, "len": len(content)}]
    assert said.startswith("CommitLog-7-1.log:")
    assert words in said
    assert code == 3


def test_encrypted_segments_without_their_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segments, _ = recorded("4.0-beta4/encrypted").unpack(tmp_path)
    shown, words, code = run(capsys, segments)
    assert len(shown) == 1
    assert "there is no key for alias 'testing:1'" in words
    assert code == 3
    other = bytes(16).hex()
    shown, words, code = run(capsys, segments, key=other)
    assert len(shown) == 1
    assert "a wrong key, or damage" in words
    assert other not in words
    assert code == 3


def test_a_file_under_another_segments_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "CommitLog-7-5.log"
    path.write_bytes(recorded(PLAIN).segment)
    _, words, code = run(capsys, [path])
    assert "the header is that of CommitLog-7-1795246977430.log" in words
    assert code == 3
    copy = tmp_path / "copy.bin"
    copy.write_bytes(recorded(PLAIN).segment)
    shown, _, _ = run(capsys, [copy], table=["system.local"])
    assert len(shown) == 22


def test_a_mutation_that_does_not_fit_its_definition_does_not_stop_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = recorded("4.0-beta4/rollover-uncompressed")
    _, schema = folder.unpack(tmp_path)
    # Column b is missing from the rows: as if the file was older than the table.
    lines = [line for line in folder.schema if '"column_name": "b"' not in line]
    schema.write_text("".join(lines), encoding="utf-8")
    shown, words, code = run(capsys, [tmp_path / name for name in folder.segments], schema, table=["ks.*"])
    assert [value["updates"][0]["table"] for value in shown if "seg" in value] == ["nocdc", "nock"]
    assert words.count("column b'b' of ks.nock is not in the known definition") == 2
    assert "3 mutations left out" in words
    assert "2 mutations left out" in words
    assert code == 3


def test_a_payload_of_nonsense_with_right_checksums(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recorded(PLAIN)
    first = sections_of(folder.segment)[0]
    head = folder.segment[: first.start.marker]
    content = frame(b"\x01\x02\x03nonsense") + first.data
    at = len(head)
    path = tmp_path / "CommitLog-7-1795246977430.log"
    path.write_bytes(head + marker(1795246977430, at, at + 8 + len(content)) + content)
    shown, words, code = run(capsys, [path])
    assert len(shown) == 4
    assert f"{path.name}:{at + 8 + 23}: mutation: ends inside of a table id; 1 mutation left out" in words
    assert code == 3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe", "not UTF-8 text"),
        (gzip.compress(b"{}\n" * 100)[:-9], "broken gzip: Compressed file ended"),
        (gzip.compress(b"{}\n" * 100)[:-8] + b"12345678", "broken gzip: CRC check failed"),
        (b"\x1f\x8b\x08" + b"\0" * 7 + b"\xff" * 20, "broken gzip: "),
        (gzip.compress(b'{"table":"columns"}\n'), "line 1: not a row"),
        (b'{"table":"columns","row":{}}\n', "a row of system_schema lacks its key"),
    ],
    ids=["text", "cut off", "checksum", "deflate", "row in gzip", "row"],
)
def test_schema_files_that_cannot_be_read(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "schema.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=rf"^{path}: {words}"):
        dump([], path)


def test_a_schema_file_compressed_by_gzip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Read as it is; a segment that gzip made is called that."""
    segments, schema = recorded(LZ4).unpack(tmp_path)
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(schema.read_bytes()))
    assert run(capsys, segments, packed) == run(capsys, segments, schema)
    segments[0].write_bytes(gzip.compress(segments[0].read_bytes()))
    _, words, code = run(capsys, segments[:1], packed)
    assert f"{segments[0].name}:0: compressed by gzip: gunzip it first" in words
    assert code == 3


def places(values: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(value["seg"], value["pos"]) for value in values if "seg" in value]


@pytest.mark.slow
def test_positions_cut_the_log_behind_and_up_to_a_mutation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recorded("4.0-beta4/rollover-uncompressed")
    segments, schema = folder.unpack(tmp_path)
    whole = places(run(capsys, segments, schema)[0])
    assert len({segment for segment, _ in whole}) == 2
    for number, (segment, offset) in enumerate(whole):
        position = f"{segment}:{offset}"
        shown, words, code = run(capsys, segments, schema, since=position)
        assert places(shown) == whole[number + 1 :]
        assert places(run(capsys, segments, schema, until=position)[0]) == whole[: number + 1]
        assert places(run(capsys, segments, schema, since=position, until=f"1/{segment}:{offset + 1}")[0]) == []
        # Between two mutations: all that end behind it.
        assert places(run(capsys, segments, schema, since=f"{segment}:{offset - 1}")[0]) == whole[number:]
        assert (words, code) == ("", 0)


def test_a_segment_alone_is_its_beginning_or_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recorded("4.0-beta4/rollover-uncompressed")
    segments, schema = folder.unpack(tmp_path)
    whole = places(run(capsys, segments, schema)[0])
    first, second = sorted({segment for segment, _ in whole})
    for since, until, ids in (
        (None, first, {first}),
        (second, None, {second}),
        (first, second, {first, second}),
        (first, first, {first}),
        (second + 1, None, set()),
    ):
        given = {"since": since and str(since), "until": until and str(until)}
        shown, _, code = run(capsys, segments, schema, **given)
        assert places(shown) == [place for place in whole if place[0] in ids]
        # Of a segment that is not asked for nothing is read, and so nothing shown.
        assert len([value for value in shown if "file" in value]) == len(ids)
        assert code == 0


def test_damage_behind_what_was_asked_for_is_no_matter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recorded(PLAIN)
    (path,), schema = folder.unpack(tmp_path)
    third = sections_of(folder.segment)[2]
    damaged = bytearray(folder.segment)
    damaged[third.end.marker - 1] ^= 1
    path.write_bytes(damaged)
    until = max(place for place in places(list(folder.expected)) if place[1] <= third.logical)
    shown, words, code = run(capsys, [path], schema, until=f"{until[0]}:{until[1]}")
    assert places(shown)[-1] == until
    assert (words, code) == ("", 0)


@pytest.mark.parametrize("text", ["", "x", "1:", "1:2:3", "-1", "1/", "1.5", "\u0661"])
def test_positions_that_are_none(text: str) -> None:
    with pytest.raises(SettingsError, match=r"--since .*: a position is SEGMENT\[:OFFSET\]"):
        dump([], since=text)


def test_an_empty_stretch() -> None:
    with pytest.raises(SettingsError, match="nothing can be behind --since 5:9 and not behind --until 5:9"):
        dump([], since="5:9", until="5:9")


def test_unknown_tables_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recorded(LZ4)
    segments, _ = folder.unpack(tmp_path)
    shown, words, code = run(capsys, segments, unknown=True)
    unknown = [value for value in shown if "unknown" in value]
    payloads = {frame.end: frame.payload for section in sections_of(folder.segment) for frame in frames(section)}
    assert len(unknown) > 16
    for value in unknown:
        assert value["unknown"].endswith("is in no known schema")
        assert bytes.fromhex(value["payload"]) == payloads[value["pos"]]
        assert value["size"] == len(payloads[value["pos"]])
    assert (words, code) == ("", 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_changes_are_what_an_agent_publishes(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recorded(kind)
    segments, schema = folder.unpack(tmp_path)
    shown, words, code = run(capsys, segments, schema, Format.CHANGES, key=KEY.hex())
    expected = []
    for change in changes_in(kind):
        table = change.table
        record = decode_record(Encoder(table, "p"), change)
        source = {name: record["source"][name] for name in ("segment", "offset", "index", "count")}
        expected.append({"table": str(table), **record, "source": source})
    # The changes of the oracle all say segment 1.
    for value in shown:
        assert value["source"]["segment"] in {int(path.stem.split("-")[2]) for path in segments}
        value["source"]["segment"] = 1
    assert [without_null(value) for value in shown] == [without_null(value) for value in expected]
    assert (words, code) == ("", 0)


def without_null(value: Any) -> Any:
    """Avro has a null for every column that is not there."""
    if isinstance(value, dict):
        return {name: without_null(item) for name, item in value.items() if item is not None}
    return [without_null(item) for item in value] if isinstance(value, list) else value


def decode_record(encoder: Encoder, change: Change) -> dict[str, Any]:
    """The record as fastavro reads it from the message, as JSON has it."""
    schema = json.loads(encoder.schema_text)
    record: Any = fastavro.schemaless_reader(io.BytesIO(encoder.value(change)[10:]), schema, None)
    return dict(json.loads(json.dumps(record, default=bytes.hex)))
