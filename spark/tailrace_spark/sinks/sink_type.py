"""What a type of sink says of itself: its settings, its kind, what it guarantees, what it needs, how it is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from importlib.util import find_spec
from typing import Any

from tailrace_common.properties.passthrough import Scalar
from tailrace_common.sections.sink import SinkSettings
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.protocol import ReachableSink


class Kind(Enum):
    """How a sink takes changes in (docs/contracts.md 6); each kind has a contract suite of its own."""

    MERGING = "merging"
    CHANGE_LOG = "change log"
    CASSANDRA = "Cassandra"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a sink may need to know besides its own settings.

    The topics' prefix, the ring delay in seconds, the stream's own Kafka by librdkafka's names, with its passwords, and
    where its dead letters go.
    """

    prefix: str
    ring_delay: float = 0.0
    kafka: Mapping[str, Scalar] = field(default_factory=dict, repr=False)
    letters: Letters = LOGGED


Opener = Callable[[str, Any, Surroundings], ReachableSink]
"""Makes the sink of [sink.NAME] of its name, its section (of the type's own settings) and what is around it.

The vendor's package is imported here and not before. It connects when it is first used. Raises SettingsError.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkType:
    """One type of sink. `name` is the `type` of its section, `where` its setting that says where it writes, if any.

    `kinds` are those of its modes, the default's first. `guarantee` is a sentence; `packages` are those of `extra` in
    pyproject.toml that the sink imports. `drivers` are packages that it imports for some stores and not for others.
    """

    name: str
    settings: type[SinkSettings]
    kinds: tuple[Kind, ...]
    guarantee: str
    extra: str
    packages: tuple[str, ...]
    drivers: tuple[str, ...] = ()
    document: str
    open: Opener
    where: str = ""

    @property
    def kind(self) -> str:
        """Its kinds, for people."""
        return ", ".join(kind.value for kind in self.kinds)

    @property
    def install(self) -> str:
        """The command that brings what the sink needs."""
        return f"pip install 'tailrace[{self.extra}]'"

    def missing(self) -> tuple[str, ...]:
        """Those of its packages that are not installed; nothing is imported."""
        return tuple(package for package in self.packages if find_spec(package) is None)
