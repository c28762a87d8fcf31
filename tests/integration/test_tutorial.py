"""The tutorial and the README, block by block, as a reader types them; how-tos that go on where the tutorial ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tailrace.local.ports import free_port
from tests.pages.blocks import Block, Command, blocks
from tests.pages.terminal import Terminal

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(3_000)]

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PORTS: Final = ("19042", "19092", "8083", "8084")
"""The ports of the pages, which are Cassandra's, Kafka's, the agent's and the stream's; each run has others."""
HOW_TOS: Final = ("howto/add-a-table.md",)
_BEFORE: Final = Command(
    """cqlsh -e "CREATE TABLE shop.customers (id int PRIMARY KEY, name text); """
    """INSERT INTO shop.customers (id, name) VALUES (1, 'Ann')\"""",
    "",
)


def blocks_of(name: str) -> list[Block]:
    """The blocks of a page. All say whether they are run."""
    found = list(blocks((DOCS / name).read_text(encoding="utf-8")))
    assert [block.line for block in found if not block.mark and block.language not in ("toml", "mermaid")] == []
    return [block for block in found if block.mark.startswith("run")]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """In an empty directory, with this environment's commands.

    Not in pytest's, whose parent only root may enter: as root, PostgreSQL runs as another user.
    """
    (tmp_path / "runtime").mkdir(mode=0o700)
    directory = Path(tempfile.mkdtemp(prefix="tailrace-tutorial-"))
    directory.chmod(0o755)
    ports = {port: str(free_port("127.0.0.1")) for port in PORTS}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": path,
        "XDG_RUNTIME_DIR": str(tmp_path / "runtime"),
        "COLUMNS": "200",
        "CQLSH_HOST": "127.0.0.1",
        "CQLSH_PORT": ports["19042"],
        "TAILRACE_AGENT__HEALTH_PORT": ports["8083"],
        "TAILRACE_STREAM__METRICS_PORT": ports["8084"],
    }
    with Terminal(directory, ports, environment) as terminal:
        yield terminal
        terminal.stop()
        for command in (
            "tailrace local down",
            'test ! -e postgres/postmaster.pid || kill "$(head -1 postgres/postmaster.pid)"',
        ):
            subprocess.run(["bash", "-c", command], cwd=directory, env=environment, check=False, timeout=600)
        shutil.rmtree(directory, ignore_errors=True)


def test_a_reader_sees_what_the_pages_show(terminal: Terminal) -> None:
    tutorial = blocks_of("tutorial.md")
    stop = next(index for index, block in enumerate(tutorial) if block.mark == "run: stop")
    for block in tutorial[:stop]:
        terminal.run(block)
    terminal.type(_BEFORE, "a table from before")
    for page in HOW_TOS:
        for block in blocks_of(page):
            terminal.run(block)
    for block in tutorial[stop:]:
        terminal.run(block)


def test_a_reader_tries_what_the_readme_shows(terminal: Terminal) -> None:
    readme = blocks_of("../README.md")
    assert len(readme) >= 6
    for block in readme:
        terminal.run(block)
