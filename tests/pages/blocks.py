"""The fenced blocks of a page, with the marks that say what a test does with them; what output a block expects.

A mark is a comment on the line before the block, invisible to readers:

- `<!-- run -->`: each `$ ` line is a command, what follows it is its output; `...` stands for anything.
- `<!-- run: until -->`: the same, tried again until the output fits.
- `<!-- run: background -->`: its command keeps running until `<!-- run: stop -->`, which has no block.
- `<!-- run: write NAME -->`, `<!-- run: append NAME -->`: the block is a file's text.
- `<!-- not run: WHY -->`: its commands' options are checked all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_MARK: Final = re.compile(r"<!-- (run|not run)(?:: (.*?))? -->")
_FENCE: Final = re.compile(r"( *)(```+)(\w*)")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: the line of its fence, its language and text; `mark` is empty for a block without one."""

    line: int
    language: str
    text: str
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """A command as it is typed, and the output below it."""

    text: str
    output: str


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page in order; a mark without a block gives one without language and text."""
    lines = iter(enumerate(page.splitlines(), 1))
    mark = ""
    for number, line in lines:
        fence = _FENCE.match(line)
        if fence:
            indent, end, language = fence.groups()
            text = []
            for _, inner in lines:
                if inner.strip() == end:
                    break
                text.append(inner.removeprefix(indent))
            yield Block(number, language, "".join(f"{inner}\n" for inner in text), mark)
            mark = ""
        elif comment := _MARK.fullmatch(line.strip()):
            mark = comment[1] if comment[2] is None else f"{comment[1]}: {comment[2]}"
            if mark == "run: stop":
                yield Block(number, "", "", mark)
                mark = ""
        elif line.strip():
            mark = ""


def commands(text: str) -> list[Command]:
    """The commands of a console block: `$ ` begins one, a backslash at a line's end continues it."""
    found: list[tuple[list[str], list[str]]] = []
    continues = False
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif continues:
            found[-1][0].append(line)
        elif found:
            found[-1][1].append(line)
        else:
            raise ValueError(f"a console block begins with a command, not with {line!r}")
        continues = line.endswith("\\") and not found[-1][1]
    return [Command("\n".join(typed), "\n".join(shown).strip("\n")) for typed, shown in found]


def fits(expected: str, output: str) -> bool:
    """Whether output is what a page shows: `...` stands for anything in its line, and alone for any lines."""
    pattern = "".join(
        r"(?:.*\n)*" if line.strip() == "..." else r".*".join(map(re.escape, line.rstrip().split("..."))) + r" *\n"
        for line in expected.splitlines()
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in output.strip("\n").splitlines())) is not None
