"""docs/tutorial.md, block by block: from nothing to a changed row in PostgreSQL, as a reader types it."""

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
from tests.pages.blocks import Block, blocks
from tests.pages.terminal import Terminal

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(3_000)]

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PORTS: Final = ("19042", "19092")
"""The ports of the page; each run has others."""


def blocks_of(name: str) -> list[Block]:
    """The blocks of a page. All say whether they are run."""
    found = list(blocks((DOCS / name).read_text(encoding="utf-8")))
    assert [block.line for block in found if not block.mark] == []
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
    environment = {**os.environ, "PATH": path, "XDG_RUNTIME_DIR": str(tmp_path / "runtime"), "COLUMNS": "200"}
    with Terminal(directory, ports, environment) as terminal:
        yield terminal
        terminal.stop()
        for command in (
            "tailrace local down",
            'test ! -e postgres/postmaster.pid || kill "$(head -1 postgres/postmaster.pid)"',
        ):
            subprocess.run(["bash", "-c", command], cwd=directory, env=environment, check=False, timeout=300)
        shutil.rmtree(directory, ignore_errors=True)


def test_a_reader_sees_what_the_tutorial_shows(terminal: Terminal) -> None:
    for block in blocks_of("tutorial.md"):
        terminal.run(block)
