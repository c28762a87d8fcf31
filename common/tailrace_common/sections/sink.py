"""What every [sink.NAME] has, whatever its type."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from tailrace_common.sections.section import Section


class SinkSettings(Section):
    """Where a stream writes. The section of each type is in the package of its store, as an entry point of
    `tailrace.sinks` in pyproject.toml names it."""

    type: str = Field(examples=["sql"], description="What kind of sink this is")

    @property
    def location(self) -> str:
        """Where it writes, for people: without secrets."""
        raise NotImplementedError

    @property
    def identity(self) -> str:
        """What tells its store from others; not to be shown, as it may have a token."""
        return self.location

    @property
    def routed_by(self) -> Mapping[str, tuple[str, ...]]:
        """By the name of a setting, the columns of the partition key whose values it puts into names."""
        return {}
