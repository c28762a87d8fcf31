"""Every kind of record that Tailrace keeps, as earlier versions wrote it: read as it was meant; later ones refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tailrace_schemas.errors import TailraceError
from tests.upgrades.records import KINDS

RECORDED = sorted(Path(__file__).parents[2].joinpath("fixtures", "versions").glob("*.json"))
VERSIONED = [name for name, kind in KINDS.items() if kind.version]


@pytest.mark.promise("upgrade.records")
@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
@pytest.mark.parametrize("name", KINDS)
def test_what_an_earlier_version_wrote_is_read(file: Path, name: str) -> None:
    assert KINDS[name].read(json.loads(file.read_text("utf-8"))[name]) == KINDS[name].value


@pytest.mark.parametrize("name", KINDS)
def test_what_this_version_writes_is_read(name: str) -> None:
    assert KINDS[name].read(KINDS[name].write()) == KINDS[name].value


@pytest.mark.promise("upgrade.later-records")
@pytest.mark.parametrize("name", VERSIONED)
@pytest.mark.parametrize("number", [0, 99])
def test_what_another_version_wrote_is_refused(name: str, number: int) -> None:
    """By its version alone: the rest of it may mean something else."""
    kind = KINDS[name]
    members = json.loads(kind.write())
    assert isinstance(members[kind.version], int)
    with pytest.raises(TailraceError, match=rf"format {number}; this one reads .*Install that version"):
        kind.read(json.dumps({**members, kind.version: number}))


def test_the_examples_of_the_topics_page_are_what_is_written() -> None:
    page = RECORDED[0].parents[3].joinpath("docs", "reference", "topics.md").read_text("utf-8")
    examples = re.findall(r"<!-- record: (\S+) -->.*?```json\n(.*?)```", page, re.DOTALL)
    assert len(examples) >= 6
    for name, text in examples:
        assert json.loads(text) == json.loads(KINDS[name].write()), name
