from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tailrace.cluster import LiveCluster
from tailrace.local import LocalCassandra
from tests.integration.agents import contact_of_node
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-c", "from tailrace.cli.main import run; run()", "demo")


def children(pid: int) -> set[int]:
    """Every process that descends from this one."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread may end meanwhile
            found |= {int(text) for text in task.read_text().split()}
    return found.union(*(children(child) for child in found))


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


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


@pytest.mark.long
def test_a_closed_terminal_ends_everything_and_leaves_nothing(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    # The terminal is the controlling one of a session of its own, as in a window; nohup around the tests is not.
    terminal = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
    window = f"{terminal}; import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"
    demo = subprocess.Popen(
        [sys.executable, "-c", f"{window}; {PROGRAM[2]}", "demo"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "TERM": "xterm"},
    )
    os.close(theirs)
    shown = b""
    while b"stream" not in shown:
        shown += os.read(ours, 4096)
    until(lambda: len(children(demo.pid)) >= 3, "three processes of the demo")
    started = children(demo.pid)
    assert len(list(tmp_path.iterdir())) == 1
    os.close(ours)
    assert demo.wait(60) == 130
    assert list(tmp_path.iterdir()) == []
    until(lambda: not any(map(alive, started)), "the end of all processes")


def test_the_script_of_the_compose_file_runs(cassandra: LocalCassandra) -> None:
    lines = (ROOT / "deploy" / "demo.cql").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("--"))
    with closing(LiveCluster(contact_of_node(cassandra))) as cluster:
        rows = [cluster.execute(statement) for statement in text.split(";\n") if statement.strip()][-1]
        cluster.execute("DROP KEYSPACE shop")
    assert {(row["customer"], row["number"]) for row in rows} == {("ada", 1), ("ada", 2), ("bob", 1)}
