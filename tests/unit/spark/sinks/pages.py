"""Blocks of the sinks' pages, run as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from tailrace_common.properties.passthrough import Scalar
from tailrace_common.settings import load_settings
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.registry import open_sink
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, Topic

PAGES = Path(__file__).parents[4] / "docs/sinks"


def example(name: str, language: str = "python", number: int = 0) -> str:
    """A block of a page in a language, counted from 0."""
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    return str(re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)[number])


def write_by_page(page: str, folder: Path, kafka: Mapping[str, Scalar] | None = None, /, **changed: object) -> None:
    """One change, written by the sink of a page's settings, some of them changed: `tailrace stream` without Spark."""
    path = folder / "page.toml"
    path.write_text(example(page, "toml"), encoding="utf-8")
    name, section = load_settings(path, {}).stream_sink()
    section = type(section).model_validate({**section.model_dump(exclude_unset=True), **changed})
    change = Log(PLAIN).insert((1,), (), 1_760_000_000_000_000, v="a")
    with closing(open_sink(name, section, "tailrace", kafka=kafka or {})) as sink:
        write_here(sink, [Topic().piece(change)])


def run(page: str, number: int = 0, /, **given: object) -> dict[str, object]:
    """Run a page's Python block of a number with some names given; all names that it leaves."""
    names = dict(given)
    exec(compile(example(page, number=number), f"docs/sinks/{page}.md", "exec"), names)  # noqa: S102 - it is ours
    return names
