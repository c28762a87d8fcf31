"""A terminal for the commands of a page: one bash, so that `cd` and `export` last; programs in the background."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.pages.blocks import Block, Command, commands, fits
from tests.support.waiting import until

PATIENCE: Final = 600.0
"""Seconds for a command, and for output to become what a page shows: machines are busy."""


@dataclass(slots=True)
class Terminal:
    """Runs blocks in a directory. `replaced`: texts of the pages, such as ports, that are others in this run."""

    directory: Path
    replaced: Mapping[str, str]
    environment: Mapping[str, str]
    background: list[subprocess.Popen[bytes]] = field(default_factory=list)
    bash: subprocess.Popen[bytes] = field(init=False)

    def __enter__(self) -> Self:
        self.bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self.directory,
            env=dict(self.environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        with suppress(ProcessLookupError):
            os.killpg(self.bash.pid, signal.SIGKILL)
        self.bash.communicate()

    def run(self, block: Block) -> None:
        """Does what a block's mark says. Raises AssertionError where the page says something else."""
        action, _, name = block.mark.removeprefix("run").removeprefix(": ").partition(" ")
        text = block.text
        for old, new in self.replaced.items():
            text = text.replace(old, new)
        if action in ("write", "append"):
            with (self.directory / name).open("w" if action == "write" else "a", encoding="utf-8") as file:
                file.write(text)
        elif action == "stop":
            self.stop()
        elif action == "background":
            for command in commands(text):
                self._start(command.text)
        else:
            for command in commands(text):
                self.type(command, f"line {block.line}", patience=PATIENCE if action == "until" else 0)

    def type(self, command: Command, where: str, *, patience: float = 0) -> None:
        """Types a command, again within so many seconds, until it ends well and prints what is expected."""
        said = ""

        def is_right() -> bool:
            nonlocal said
            code, printed, errors = self._typed(command.text)
            said = f"exit code {code}; it printed\n{printed}{errors}\nand the page shows\n{command.output}"
            return code == 0 and (not command.output or any(fits(command.output, out) for out in (printed, errors)))

        until(is_right, f"{where}: {command.text}", patience, state=lambda: f"{said}\n{self.logs()}", every=0.5)

    def stop(self) -> None:
        """Ends what runs in the background, the last one first. In a background of its own, a test ignores SIGINT."""
        while self.background:
            process = self.background.pop()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def logs(self) -> str:
        """The ends of what the programs in the background printed."""
        return "\n".join(f"{path.name}:\n{path.read_text()[-3_000:]}" for path in self.directory.glob("*.background"))

    def _start(self, command: str) -> None:
        path = self.directory / f"{len(list(self.directory.glob('*.background')))}.background"
        with path.open("wb") as log:
            started = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.directory,
                env=dict(self.environment),
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.background.append(started)

    def _typed(self, command: str) -> tuple[int, str, str]:
        """The exit code of a command, what it printed, and its errors."""
        assert self.bash.stdin is not None
        assert self.bash.stdout is not None
        printed, errors = self.directory / ".printed", self.directory / ".errors"
        self.bash.stdin.write(f"{{ {command}\n}} < /dev/null > '{printed}' 2> '{errors}'\nprintf '%s\\n' $?\n".encode())
        self.bash.stdin.flush()
        ready, _, _ = select.select([self.bash.stdout], [], [], PATIENCE)
        assert ready, f"{command}: no end within {PATIENCE:g} s\n{self.logs()}"
        code = int(self.bash.stdout.readline())
        return code, printed.read_text("utf-8"), errors.read_text("utf-8")
