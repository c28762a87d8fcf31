"""`tailrace token`: one key in, one token out, whichever way they come."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from tailrace.cli.main import complete
from tests.support.tokens import CASES

KEYS = [key.hex() for key, _, _ in CASES]
TOKENS = "".join(f"{token}\n" for _, token, _ in CASES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (KEYS, ""),
        ([key.upper() for key in KEYS], ""),
        ([f"0x{key}" for key in KEYS], ""),
        ([], "\n".join(KEYS)),
        ([], "\r\n".join(KEYS) + "\r\n"),
    ],
)
def test_tokens_of_arguments_or_lines(arguments: list[str], given: str) -> None:
    result = CliRunner().invoke(complete(), ["token", *arguments], input=given)
    assert (result.exit_code, result.stdout) == (0, TOKENS)


def test_no_lines_are_no_tokens() -> None:
    result = CliRunner().invoke(complete(), ["token"], input="")
    assert (result.exit_code, result.stdout) == (0, "")


def test_each_line_has_an_answer_the_empty_key_too() -> None:
    result = CliRunner().invoke(complete(), ["token"], input="313233\n\n313233\n")
    assert result.stdout.splitlines() == ["-7468325962851647638", "-9223372036854775808", "-7468325962851647638"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "given", "printed", "words"),
    [
        (["313233", "123"], "", "", "argument 2: '123': an odd number of hexadecimal digits"),
        (["0x1"], "", "", "argument 1: '0x1': an odd number"),
        (["xyz"], "", "", "argument 1: 'xyz': not hexadecimal digits only"),
        (["31 32"], "", "", "not hexadecimal digits only"),
        ([], "313233\n1\n", "-7468325962851647638\n", "standard input, line 2: '1': an odd number"),
    ],
)
def test_bad_keys_are_named(arguments: list[str], given: str, printed: str, words: str) -> None:
    result = CliRunner().invoke(complete(), ["token", *arguments], input=given)
    assert result.exit_code == 2
    assert result.stdout == printed
    assert words in result.stderr
