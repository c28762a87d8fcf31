"""The console sink: the contract of change logs on what it prints, and tables for people."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence

import pytest

from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError
from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.console.outlet import ConsoleOutlet
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.registry import open_sink
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, ChangeLogContract, Topic
from tests.unit.spark.sinks.console.printed import Printed


class TestConsole(ChangeLogContract):
    sink = "console"

    server_name = "a pipe"

    @pytest.fixture
    def stores(self) -> Callable[[], Printed]:
        return Printed


def printed(*, letters: int = 0, values: Sequence[str] = ("one\x1b[2J",)) -> list[str]:
    out = io.StringIO()
    log = Log(PLAIN)
    changes = [log.insert((number,), (), 1_760_000_000_123_456, v=value) for number, value in enumerate(values)]
    sink = ChangeLogSink(ConsoleOutlet(out, tables=True))
    write_here(sink, [Topic().piece(*changes, log.delete((9,), (), 1_760_000_000_123_457), letters=letters)])
    return out.getvalue().splitlines()


def test_a_terminal_shows_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """No control character of a value reaches it."""
    monkeypatch.setenv("COLUMNS", "180")
    lines = printed(letters=1)
    heads, letter, inserted, deleted = (line for line in lines if "│" in line or "┃" in line)
    cells = [cell.strip() for cell in inserted.split("│")[1:-1]]
    assert [head.strip() for head in heads.split("┃")[1:-1]][:3] == ["written", "op", "table"]
    assert cells == [
        "2025-10-09 08:53:20.123456Z", "insert", "shop.plain", "id=0", 'v="one\\u001b[2J"', "t.shop.plain/0/0",
    ]  # fmt: skip
    assert "delete" in deleted
    assert "dead letter" in letter
    assert "no change" in letter


@pytest.mark.slow
def test_a_large_batch_is_several_tables() -> None:
    lines = printed(values=["x"] * 1_200)
    assert sum("written" in line for line in lines) == 3


def test_a_large_value_is_cut() -> None:
    """To wrap it would take half a minute, while all other tables wait."""
    text = "".join(printed(values=["x" * 2_000_000]))
    assert "characters)" in text
    assert len(text) < 100_000


def test_a_reader_that_has_gone_ends_the_stream() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:  # noqa: ARG002 - it is StringIO's
            raise BrokenPipeError

    sink = ChangeLogSink(ConsoleOutlet(Gone(), tables=False))
    with pytest.raises(SettingsError, match="nobody reads stdout"):
        write_here(sink, [Topic().piece(Log(PLAIN).insert((1,), (), 1, v="a"))])


@pytest.mark.parametrize(
    ("chosen", "terminal", "table"),
    [("auto", False, False), ("auto", True, True), ("table", False, True), ("json", True, False)],
)
def test_the_setting_chooses_what_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, chosen: str, terminal: bool, table: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    settings = Settings.model_validate({"sink": {"c": {"type": "console", "format": chosen}}})
    sink = open_sink("c", settings.sink["c"], "t")
    sink.reach()
    write_here(sink, [Topic().piece(Log(PLAIN).insert((1,), (), 1, v="a"))])
    sink.close()
    assert capsys.readouterr().out.startswith("{") is not table
    assert settings.sink["c"].location == "stdout"
