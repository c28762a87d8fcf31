"""The command line as a whole: help, version, errors, log set-up, commands of other packages."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main
from click.testing import CliRunner as ClickRunner
from typer.testing import CliRunner

from tailrace.cli import main
from tailrace.cli.main import HEADINGS, complete
from tailrace_common.cli import program
from tailrace_common.cli.program import logging_first
from tailrace_schemas.errors import CorruptError, SettingsError, TailraceError


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*words, name))


WHOLE: Any = typer.main.get_command(main.complete())
"""Made once: it takes a tenth of a second."""


@pytest.mark.parametrize("words", list(commands(WHOLE)), ids=" ".join)
def test_every_command_has_help_with_an_example(words: tuple[str, ...]) -> None:
    answer = ClickRunner().invoke(WHOLE, [*words, "--help"], prog_name="tailrace")
    assert answer.exit_code == 0
    assert "Example" in answer.output
    assert f"tailrace {words[0]}" in answer.output.partition("Example")[2] if words else True


@pytest.mark.parametrize("words", list(commands(WHOLE)), ids=" ".join)
def test_every_option_says_what_it_does(words: tuple[str, ...]) -> None:
    command = WHOLE
    for word in words:
        command = command.commands[word]
    for parameter in command.params:
        assert getattr(parameter, "help", None), parameter.name


def test_version_says_which_code_is_active() -> None:
    answer = CliRunner().invoke(main.complete(), ["--version"])
    assert answer.exit_code == 0
    assert "(pure Python)" in answer.output or "(compiled: " in answer.output


def test_wrong_usage_is_exit_code_2() -> None:
    answer = CliRunner().invoke(main.complete(), ["chekc"])
    assert answer.exit_code == 2
    assert "Did you mean 'check'?" in answer.output


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (SettingsError("a: wrong\nb: wrong"), 2, "tailrace: a: wrong\ntailrace: b: wrong\n"),
        (CorruptError("bad CRC", file="x.log", offset=7), 3, "tailrace: x.log:7: bad CRC\n"),
        (TailraceError("no postgresql://u:hunter2@h/d"), 1, "tailrace: no postgresql://u:**********@h/d\n"),
        (TailraceError(), 1, "tailrace: TailraceError\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_error_is_its_message_and_its_exit_code(error: BaseException, code: int, said: str) -> None:
    """An interrupt says nothing."""
    app = typer.Typer(cls=program.Commands)

    @app.callback()
    def group() -> None: ...

    @app.command()
    def fail() -> None:
        raise error

    answer = CliRunner().invoke(app, ["fail"])
    assert (answer.exit_code, answer.stderr, answer.stdout) == (code, said, "")


# What these commands want before they read settings.
FURTHER = {
    ("generations", "lookup"): ("1",),
    ("offsets", "adopt"): ("--new-log",),
    ("dump",): ("/dev/null",),
    ("replay",): ("/",),
    ("sql",): ("SHOW SUBSCRIPTIONS",),
}


def settings_readers() -> Iterator[tuple[str, ...]]:
    """The words of each command that reads settings, with values for what it requires."""
    for words in commands(WHOLE):
        command = WHOLE
        for word in words:
            command = command.commands[word]
        if any(parameter.name == "config" for parameter in command.params):
            required = [parameter for parameter in command.params if parameter.required]
            values = [(*parameter.opts[:1], "1") if parameter.opts[0][0] == "-" else ("1",) for parameter in required]
            yield (*words, *FURTHER.get(words, [word for value in values for word in value]))


@pytest.mark.slow
@pytest.mark.promise("settings.wrong-property")
@pytest.mark.parametrize("words", list(settings_readers()), ids=" ".join)
def test_a_wrong_property_of_kafka_ends_every_command_at_once(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.toml"
    path.write_text('[kafka]\nbootstrap_servers = "127.0.0.1:1"\n')
    with pytest.raises(SystemExit) as ended:
        WHOLE(args=[*words, "-c", str(path)], prog_name="tailrace")
    assert ended.value.code == 2
    wanted = 'kafka.bootstrap_servers: librdkafka has no such property; did you mean "bootstrap.servers"?'
    assert capsys.readouterr().err == f"tailrace: {path}: {wanted}\n"


@pytest.mark.slow
def test_the_console_script_runs() -> None:
    script = Path(sys.executable).with_name("tailrace")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.startswith("tailrace ")


def test_a_command_whose_package_is_missing_says_what_to_install() -> None:
    app = typer.Typer(cls=program.Commands)
    point = EntryPoint(name="fly", value="tailrace_air.cli:fly", group=program.COMMANDS)
    program.mount_entry_points(app, [point])

    @app.callback()
    def group() -> None: ...

    answer = CliRunner().invoke(app, ["fly", "--to", "moon"])
    assert answer.exit_code == 2
    assert answer.stderr == "tailrace: fly needs tailrace_air: pip install 'tailrace[air]'\n"
    assert "Example" in CliRunner().invoke(app, ["fly", "--help"]).output


def test_log_lines_can_be_json(capsys: pytest.CaptureFixture[str]) -> None:
    main.tailrace(program.LogLevel.DEBUG, program.LogFormat.JSON)
    logging.getLogger("tailrace.agent").debug("read %d", 3, extra={"segment": 5})
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["logger"], line["message"], line["segment"]) == ("debug", "tailrace.agent", "read 3", 5)


@pytest.mark.parametrize(
    ("words", "loaded"),
    [
        (["agent", "-c", "t.toml"], {"agent"}),
        (["--log-level", "debug", "stream"], {"stream"}),
        (["offsets", "restore"], {"offsets"}),
        (["--version"], set()),
    ],
)
def test_a_command_line_loads_its_command_alone(words: list[str], loaded: set[str]) -> None:
    assert {names[0] for names in commands(typer.main.get_command(main.chosen(words))) if names} == loaded


@pytest.mark.parametrize("words", [[], ["--help"], ["agnet"]])
def test_help_and_suggestions_know_all_commands(words: list[str]) -> None:
    assert main.chosen(words) is main.complete()


@pytest.mark.slow
def test_an_agent_loads_nothing_of_other_packages() -> None:
    """They bring pandas, pyarrow and SQLAlchemy with them: as much memory again as the agent needs."""
    agent = "import sys; from tailrace.cli.main import run; sys.argv = ['tailrace', 'agent', '--help']; run()"
    heavy = "{'pandas', 'pyarrow', 'pyspark', 'sqlalchemy'}"
    agent = f"import atexit, sys; atexit.register(lambda: print({heavy} & set(sys.modules) or 'none')); {agent}"
    done = subprocess.run([sys.executable, "-c", agent], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "none"


def test_the_design_lists_the_commands_that_exist_and_no_others() -> None:
    design = (Path(__file__).resolve().parents[3] / "docs" / "design.md").read_text("utf-8")
    section = design.partition("## 4. Command line")[2]
    listed = {
        word
        for words in re.findall(r"(?m)^    tailrace .*$", section)
        for word in re.findall(r"tailrace ([a-z-]+)(?=[ |]|$)", words)
    }
    exist = {words[0] for words in commands(WHOLE) if words}
    assert listed == exist


def test_every_command_has_a_heading() -> None:
    shown = CliRunner().invoke(complete(), ["--help"]).output
    assert [f"\n{heading}:\n" in shown for heading in HEADINGS] == [True] * len(HEADINGS)
    assert "Others:" not in shown
    assert "Commands:" not in shown


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["local"], ["generations"], ["sink-letters"]], ids=" ".join)
def test_no_summary_is_cut(words: list[str]) -> None:
    assert "..." not in CliRunner().invoke(complete(), [*words, "--help"]).output.partition("Options:")[2]


@pytest.mark.parametrize(
    ("words", "ordered"),
    [
        (["agent", "--log-level", "debug", "-c", "x"], ["--log-level", "debug", "agent", "-c", "x"]),
        (["agent", "--log-format=json"], ["--log-format=json", "agent"]),
        (["--log-level", "info", "agent"], ["--log-level", "info", "agent"]),
        (["token", "--", "--log-level", "x"], ["token", "--", "--log-level", "x"]),
        (["agent", "--log-level"], ["--log-level", "agent"]),
        ([], []),
    ],
)
def test_options_of_logging_come_first(words: list[str], ordered: list[str]) -> None:
    assert logging_first(words) == ordered


@pytest.mark.slow
def test_a_command_takes_options_of_logging() -> None:
    answer = CliRunner().invoke(complete(), ["token", "0001", "--log-level", "error"])
    assert (answer.exit_code, logging.getLogger("tailrace").level) == (0, logging.ERROR)
    assert CliRunner().invoke(complete(), ["token", "--log-level", "loud", "00"]).exit_code == 2


def test_the_shell_completes_commands() -> None:
    environ = {"_TAILRACE_COMPLETE": "complete_bash", "COMP_WORDS": "tailrace off", "COMP_CWORD": "1"}
    assert CliRunner(env=environ).invoke(complete(), [], prog_name="tailrace").output.strip() == "offsets"
