"""Reads the few Dockerfile instructions that the tests look at."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SPARK_ENTRY_POINT: Final = ["sh", "/opt/spark/entrypoint.sh"]


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """The instructions of a file, (name, rest of the line), continuation lines joined and comments left out."""

    path: Path
    instructions: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, path: Path) -> Dockerfile:
        lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
        joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
        return cls(path, tuple((name, rest) for name, _, rest in _split(joined)))

    def target(self, name: str) -> Dockerfile:
        """The instructions of a stage, those of the stages that it is made FROM first. Raises KeyError."""
        stages: dict[str, list[tuple[str, str]]] = {}
        lines: list[tuple[str, str]] = []
        for instruction, rest in self.instructions:
            if instruction == "FROM":
                parent, _, stage = rest.partition(" AS ")
                lines = [*stages.get(parent, []), (instruction, rest)]
                stages[stage] = lines
            else:
                lines.append((instruction, rest))
        return Dockerfile(self.path, tuple(stages[name]))

    def all(self, name: str) -> list[str]:
        return [rest for instruction, rest in self.instructions if instruction == name]

    def sources(self) -> list[str]:
        """What COPY takes from the build's context."""
        return [
            source
            for rest in self.all("COPY")
            if "--from=" not in rest
            for source in shlex.split(rest)[:-1]
            if not source.startswith("--")
        ]

    def command(self, name: str) -> list[str]:
        """The last ENTRYPOINT or CMD, in its JSON form. The entry point of the images with Spark is tailrace too."""
        parsed: list[str] = json.loads(self.all(name)[-1])
        return ["tailrace"] if parsed == SPARK_ENTRY_POINT else parsed

    def variables(self) -> dict[str, str]:
        """What ENV sets."""
        return dict(part.split("=", 1) for rest in self.all("ENV") for part in shlex.split(rest))

    def arguments(self) -> dict[str, str]:
        """The ARGs and their defaults."""
        return dict(rest.split("=", 1) for rest in self.all("ARG"))


def _split(text: str) -> list[tuple[str, str, str]]:
    return [line.strip().partition(" ") for line in text.splitlines() if line.strip()]
