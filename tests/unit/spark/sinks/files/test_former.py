"""Directories of versions with manifests: what counted there stays, what did not goes, and the stream goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

import pytest

from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.batch.delivery import RecordId, Summary
from tailrace_spark.sinks.writing import write_here
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, Topic, deliver
from tests.unit.spark.sinks.files.stores import Stored, local, names

TOPIC = "t.shop.plain"
DAY = "shop.plain/day=1970-01-01"


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def name(number: int, index: int = 0, *, pack: str = "") -> str:
    return f"{DAY}/{number:020}-{pack}0123456789ab-{index}-0.jsonl"


def lines(*offsets: int) -> str:
    return "".join(
        json.dumps({"table": "shop.plain", **RecordId(TOPIC, 0, offset).to_json(), "columns": {}}) + "\n"
        for offset in offsets
    )


def former(root: Path) -> Stored:
    """Offsets 0 to 3 are packed, 4 and 5 committed; a crash left others."""
    stored = local(root, format="jsonl", compress=False)
    files = {
        name(1, pack="pack-"): lines(0, 1, 3), name(0): lines(0), name(1): lines(1, 3), name(2): lines(5),
        name(3).replace("1/", "1/."): lines(4), name(4): lines(6), name(5).replace("1/", "1/."): lines(7),
        f"{DAY}/own.jsonl": "",
    }  # fmt: skip
    for path, text in files.items():
        write(root, path, text or lines(99))

    def commit(number: int, of: Mapping[str, object]) -> None:
        value = {"format": 2, "whole": False, "files": [], "ends": {}, **of}
        write(root, f"_tailrace/commits/{number:020}.json", json.dumps(value))

    pack = {
        "format": 2, "first": 0, "last": 1, "files": [{"path": name(1, pack="pack-")}], "ends": {TOPIC: {"0": 4}},
    }  # fmt: skip
    for first, last, of in ((0, 1, pack), (0, 0, {**pack, "last": 0, "files": [{"path": name(0)}]})):
        write(root, f"_tailrace/packs/{first:020}-{last:020}-0123456789ab.json", json.dumps(of))
    commit(1, {"files": [{"path": name(1)}], "ends": {TOPIC: {"0": 4}}})
    commit(2, {"files": [{"path": name(2)}], "ends": {TOPIC: {"0": 6}}})
    commit(3, {"files": [{"path": name(3)}]})
    write(root, "_tailrace/writer.json", json.dumps({"format": 2, "writer": "0123456789ab"}))
    return stored


@pytest.mark.slow
@pytest.mark.promise("upgrade.records")
def test_what_counted_stays_and_the_stream_goes_on(tmp_path: Path) -> None:
    """Cut off at each step, and begun again."""
    topic, log = Topic(), Log(PLAIN)
    pieces = [topic.piece(log.insert((0,), (), number, v="x")) for number in range(9)]
    for step in count():
        root = tmp_path / str(step)
        stored, died = former(root), True
        with closing(stored.open(dies_after=step)) as sink, suppress(ServiceError):
            write_here(sink, pieces[5:7])
            died = False
        assert deliver(stored, *pieces[3:8]) == Summary(5, 2)
        offsets = [record["offset"] for record in stored.records()]
        assert offsets == [0, 1, 3, 4, 5, 6, 7, 99], f"died after {step} steps"
        assert set(names(root)) == {
            name(1, pack="pack-"), name(2), name(3), f"{DAY}/own.jsonl", f"{DAY}/{TOPIC}-0-{6:020}-{7:020}.jsonl"
        }  # fmt: skip
        if not died:
            assert step > 10
            assert not any((root / "_tailrace" / gone).exists() for gone in ("commits", "packs"))
            return


@pytest.mark.promise("upgrade.later-records")
def test_manifests_of_a_later_form_are_refused(tmp_path: Path) -> None:
    stored = former(tmp_path)
    write(tmp_path, f"_tailrace/commits/{4:020}.json", json.dumps({"format": 3}))
    before = names(tmp_path)
    with pytest.raises(SettingsError, match=r"newer Tailrace \(format 3; this one reads up to 2"):
        deliver(stored, Topic().piece(letters=1))
    assert names(tmp_path) == before
