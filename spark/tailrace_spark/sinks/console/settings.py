"""The section of a [sink.NAME] of type "console"."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tailrace_common.sections.sink import ImagesSection


class ConsoleSinkSettings(ImagesSection):
    """Changes on stdout: a table on a terminal, JSON lines when piped."""

    type: Literal["console"] = Field(default="console", description="What kind of sink this is")
    format: Literal["auto", "table", "json"] = Field(
        default="auto", description='"table", "json", or "auto": as stdout is a terminal or not'
    )

    @property
    def location(self) -> str:
        """Where it writes, for people."""
        return "stdout"
