"""docs/format.md: its versions and compressors are those of the code, and every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

from tailrace.commitlog.blocks import CODECS
from tailrace.commitlog.descriptor import VERSIONS

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "format.md").read_text(encoding="utf-8")


def rows(head: str) -> list[list[str]]:
    """The cells of the table under this first head."""
    lines = TEXT[TEXT.index(f"\n| {head} |") + 1 :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_versions() -> None:
    known = {(str(version.number), version.release) for version in VERSIONS.values()}
    assert {(number, release) for number, release, *_ in rows("version")} == known
    for number, _, deletions, mutation, _ in rows("version"):
        version = VERSIONS[int(number)]
        assert deletions == f"{'unsigned' if version.unsigned_deletion_times else 'signed'} 32 bits"
        assert bool(mutation) == version.metadata_epochs


def test_compressors() -> None:
    assert [name for name, _ in rows("class")] == list(CODECS)


def test_every_test_exists() -> None:
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(named) > 30
    assert named <= defined
