from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = (sys.executable, "-c", "from tailrace.cli.main import run; run()", "demo")


def test_every_change_arrives_and_compare_finds_the_copy_equal(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "--changes", "120", "--seed", "7", "--directory", tmp_path],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *changes, outcome = [json.loads(line) for line in done.stdout.splitlines()]
    assert outcome["identical"] is True
    assert outcome["rows"] > 20
    assert (outcome["statements"], outcome["changes"]) == (122, len(changes))
    for table in ("shop.orders", "shop.readings"):
        assert re.search(rf"^{table}: [1-9][0-9]* rows and static rows read, 0 differ$", done.stderr, re.MULTILINE)
    assert f"identical: {outcome['rows']} rows" in done.stderr
    _check_changes(changes)


def _check_changes(changes: list[dict[str, Any]]) -> None:
    places = [(change["topic"], change["partition"], change["offset"]) for change in changes]
    assert len(set(places)) == len(places)
    assert {change["topic"] for change in changes} == {"demo.shop.orders", "demo.shop.readings"}
    assert {change["op"] for change in changes} >= {"insert", "update", "delete", "delete_range"}
    assert all(change["stream_id"].startswith("0x") and len(change["stream_id"]) == 34 for change in changes)
    last = changes[-1]
    assert (last["table"], last["key"]["site"], last["row"]["site"]) == ("shop.readings", "the end", "the end")
