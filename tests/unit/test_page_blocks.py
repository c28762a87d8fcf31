"""Blocks of pages: which there are, what they say is done with them, and which output fits."""

from __future__ import annotations

import pytest

from tests.pages.blocks import Block, Command, blocks, commands, fits

PAGE = """\
# A page

<!-- run: write a.toml -->

```toml
[stream]
```

```sql
SELECT 1
```

<!-- run -->

Words between a mark and a block take the mark away.

```console
$ ls
```

<!-- run: stop -->

<!-- not run: it takes a day -->

````text
```
inner
```
````
"""


def test_each_block_has_the_mark_before_it() -> None:
    assert list(blocks(PAGE)) == [
        Block(5, "toml", "[stream]\n", "run: write a.toml"),
        Block(9, "sql", "SELECT 1\n"),
        Block(17, "console", "$ ls\n"),
        Block(21, "", "", "run: stop"),
        Block(25, "text", "```\ninner\n```\n", "not run: it takes a day"),
    ]


def test_a_command_has_its_continuations_and_its_output() -> None:
    text = "$ echo a \\\n    b\na b\n$ true\n$ cat x\n\n 1\n\n2\n"
    assert commands(text) == [
        Command("echo a \\\n    b", "a b"),
        Command("true", ""),
        Command("cat x", " 1\n\n2"),
    ]
    with pytest.raises(ValueError, match="begins with a command"):
        commands("a\n$ ls\n")


@pytest.mark.parametrize(
    ("expected", "output", "is_fit"),
    [
        ("a", "a\n", True),
        ("a", "a\nb\n", False),
        ("a ... c", "a b c\n", True),
        ("a ... c", "a b d\n", False),
        ("...\nb", "1\n2\nb\n", True),
        ("...\nb\n...", "b", True),
        ("...\nb\n...", "c", False),
        (" id | note\n  1 |", " id | note \n  1 | \n", True),
        ("a.c", "abc", False),
    ],
)
def test_dots_stand_for_anything(expected: str, output: str, is_fit: bool) -> None:
    assert fits(expected, output) is is_fit
