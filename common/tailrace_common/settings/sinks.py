"""What a [sink.NAME] may be: one section for each type of sink that is installed, told apart by `type`.

The types are the entry points of the group `tailrace.sinks`: `NAME = "package.module:Section"`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from importlib.metadata import EntryPoint, entry_points
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Discriminator, Tag

from tailrace_common.sections.sink import SinkSettings

DEFAULT_TYPE: Final = "sql"
"""The type of a section that names none."""


def installed(points: Iterable[EntryPoint]) -> tuple[dict[str, type[SinkSettings]], dict[str, str]]:
    """The sections of types of sinks by name, and why others cannot be used, by name. The default type comes first."""
    sections: dict[str, type[SinkSettings]] = {}
    broken: dict[str, str] = {}
    for point in sorted(points, key=lambda point: (point.name != DEFAULT_TYPE, point.name)):
        try:
            section = point.load()
        except Exception as error:  # a package of others may raise anything: it must not stop an agent
            broken[point.name] = f"{point.value}: {type(error).__name__}: {error}"
            continue
        if isinstance(section, type) and issubclass(section, SinkSettings):
            sections[point.name] = section
        else:
            broken[point.name] = f"{point.value} is no subclass of SinkSettings"
    return sections, broken


def type_words(sections: Mapping[str, object], broken: Mapping[str, str]) -> str:
    """What `type` must be, as an error says it."""
    *names, last = (f'"{name}"' for name in sections) if sections else ("a type that is installed",)
    words = f"type must be {', '.join(names)} or {last}" if names else f"type must be {last}"
    unusable = "".join(f"; {name} cannot be used: {reason}" for name, reason in broken.items())
    return f"{words}; `tailrace sinks` describes them{unusable}"


_SECTIONS, _BROKEN = installed(entry_points(group="tailrace.sinks"))
SINK_TYPES: Final[Mapping[str, type[SinkSettings]]] = _SECTIONS


def _type_of(section: Any) -> str:
    if isinstance(section, Mapping):
        return str(section.get("type", DEFAULT_TYPE))
    return str(getattr(section, "type", DEFAULT_TYPE))


def any_section(sections: Mapping[str, type[SinkSettings]], broken: Mapping[str, str]) -> Any:
    """The type of a field that takes any of these sections; without any, of one that takes none."""
    if not sections:  # Spark's executors have our packages, and not what says that they are installed
        return SinkSettings
    union = reduce(or_, (Annotated[section, Tag(name)] for name, section in sections.items()))
    words = type_words(sections, broken)
    return Annotated[union, Discriminator(_type_of, custom_error_type="sink_type", custom_error_message=words)]


if TYPE_CHECKING:
    AnySinkSettings = SinkSettings
else:
    # pydantic wants the union when Settings is made: which types are installed is known only then.
    AnySinkSettings = any_section(_SECTIONS, _BROKEN)
