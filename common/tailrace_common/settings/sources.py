"""Where settings come from, and what to say when they are wrong: file, variable, name, nearest valid name."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeGuard, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr, Tag, ValidationError
from pydantic.fields import FieldInfo

from tailrace_common.properties.names import spelled
from tailrace_common.properties.passthrough import PROPERTY_FAULT, Properties
from tailrace_common.secrets import is_secret_name, redact
from tailrace_schemas.errors import SettingsError

PREFIX: Final = "TAILRACE_"
S = TypeVar("S", bound=BaseModel)
Names = tuple[str, ...]
_IN_PYDANTIC: Final = re.compile(r"^Value error, |, unable to (parse|interpret).*")
# What Kubernetes puts into every container for a service that is called tailrace-<something>.
_SERVICE_LINK: Final = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT_\d+_(TCP|UDP)(_.*)?)")


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable that is a setting: its name, the path of names that it sets, and its value."""

    name: str
    path: Names
    value: object


def load_into(model: type[S], path: Path | None, environ: Mapping[str, str]) -> S:
    """An instance of `model` from TOML file and environment. Raises SettingsError, one line per fault."""
    tree = {} if path is None else _read_toml(path)
    written = {_put(tree, variable): variable.name for variable in read_variables(model, environ)}
    return read_into(model, tree, str(path) if path else None, written)


def read_into(
    model: type[S], tree: Mapping[str, Any], source: str | None, written: Mapping[Names, str] | None = None
) -> S:
    """An instance of `model` from a tree of values, which `source` or the variables of `written` set.

    Raises SettingsError, one line per fault.
    """
    try:
        return model(**tree)
    except ValidationError as error:
        lines = [_explain(model, fault, source, written or {}) for fault in error.errors()]
        raise SettingsError("\n".join(dict.fromkeys(lines))) from None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"{path}: no such file; `tailrace init` writes one") from None
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not TOML: {error}") from None


def read_variables(model: type[BaseModel], environ: Mapping[str, str]) -> Iterable[Variable]:
    """The variables TAILRACE_SECTION__NAME of `environ`, by name. A single underscore after a section is refused.

    Names below [kafka] are librdkafka's, with `_` for `.`: TAILRACE_KAFKA__SASL_PASSWORD is `sasl.password`, and
    TAILRACE_KAFKA__SASL_PASSWORD_FILE is `sasl.password_file`. Capitals and hyphens of other programs' names are found.
    """
    for name in sorted(environ):
        if not name.startswith(PREFIX) or _SERVICE_LINK.fullmatch(name):
            continue
        section, separator, rest = name.removeprefix(PREFIX).partition("__")
        if not separator:
            _refuse_single_underscore(model, name, environ[name])
            continue
        path = _path_of(model, (section.lower(), *(name_part.lower() for name_part in rest.split("__"))))
        yield Variable(name, path, _value_of(model, path, environ[name]))


def _refuse_single_underscore(model: type[BaseModel], name: str, value: str) -> None:
    section = name.removeprefix(PREFIX).split("_")[0].lower()
    if section in model.model_fields and not value.startswith(("tcp://", "udp://")):
        rest = name.removeprefix(f"{PREFIX}{section.upper()}").lstrip("_")
        raise SettingsError(f"{name}: two underscores follow a section: {PREFIX}{section.upper()}__{rest or 'NAME'}")


def _path_of(model: type[BaseModel], names: Names) -> Names:
    """Names below a passed-through table are joined by dots, as the other program spells them."""
    for depth in range(1, len(names)):
        passed = _annotation(model, names[:depth])
        if isinstance(passed, type) and issubclass(passed, Properties):
            return *names[:depth], spelled(".".join(names[depth:]).replace("_", "."), passed.known())
    return names


def _value_of(model: type[BaseModel], path: Names, text: str) -> object:
    """Lists as JSON or with commas, tables as JSON; everything else stays text for the model to read."""
    annotation = _annotation(model, path)
    if get_origin(annotation) is tuple and not text.lstrip().startswith("["):
        return [item.strip() for item in text.split(",") if item.strip()]
    if get_origin(annotation) in (tuple, dict) or _is_model(annotation):
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return text
    return text


def _put(tree: dict[str, Any], variable: Variable) -> Names:
    """Set it, where the file has names in other letters, such as [sink.Warehouse], by these; the path that it has."""
    node, path = tree, list[str]()
    for name in variable.path:
        path.append(name if name in node else next((key for key in node if key.lower() == name.lower()), name))
        if len(path) == len(variable.path):
            break
        below = node.setdefault(path[-1], {})
        if not isinstance(below, dict):
            raise SettingsError(f"{variable.name}: {name} is a value in the file, not a table")
        node = below
    node[path[-1]] = variable.value
    return tuple(path)


def _explain(model: type[BaseModel], fault: Any, file: str | None, written: Mapping[Names, str]) -> str:
    located = tuple(str(step) for step in fault["loc"])
    path = _without_tags(model, located)
    source = _where(path, file, written)
    name = ".".join(path)
    if fault["type"] == "extra_forbidden":
        return f"{source}: unknown setting {name}; {_nearest(model, located, path)}"
    if fault["type"] == PROPERTY_FAULT:
        return f"{source}: {redact(name)}: {fault['msg']}"
    if fault["type"] == "missing":
        return f"{source}: {name} is not set; {_such_as(model, located)}"
    message = _IN_PYDANTIC.sub("", str(fault["msg"])).replace("Input should be", "must be")
    input_value = fault.get("input")
    if fault["type"] == "tuple_type":
        message = (
            f"must be a list, such as {json.dumps([input_value])}" if isinstance(input_value, str) else "must be a list"
        )
    elif fault["type"] in ("model_type", "dict_type"):
        return f"{source}: {name} must be a table, [{name}]"
    if not name or _is_model(_annotation(model, located)):
        return ": ".join(filter(None, (source, name, message)))
    field = _field(model, located)
    is_hidden = field is not None and not field.repr
    is_secret = is_hidden or _annotation(model, located) is SecretStr or any(map(is_secret_name, path))
    refused_value = "" if is_secret or not isinstance(input_value, str | int | float) else f", not {input_value!r}"
    return f"{source}: {name} {message}{redact(refused_value)}"


def _such_as(model: type[BaseModel], located: Names) -> str:
    """What to give for a setting without a default: its description, and an example."""
    field = _field(model, located)
    examples = json.dumps((field.examples or [None])[0] if field else None)
    return f"give {located[-1]} = {examples} or the like: {field.description}" if field else "give it"


def _field(model: type[BaseModel], located: Names) -> FieldInfo | None:
    """The setting at a place; None for names that another program defines."""
    section = _annotation(model, located[:-1])
    return section.model_fields.get(located[-1]) if _is_model(section) else None


def _where(path: Names, file: str | None, written: Mapping[Names, str]) -> str:
    """The variable that set this path, or something below or above it; else the file."""
    for depth in range(len(path), 0, -1):
        if path[:depth] in written:
            return written[path[:depth]]
    below = [name for set_path, name in written.items() if path and set_path[: len(path)] == path]
    return ", ".join(filter(None, (file, *below))) or "settings"


def _nearest(model: type[BaseModel], located: Names, path: Names) -> str:
    valid = sorted(_names_below(_annotation(model, located[:-1]) if path[1:] else model))
    close = difflib.get_close_matches(path[-1], valid, n=1, cutoff=0.6)
    if close:
        return f"did you mean {'.'.join((*path[:-1], close[0]))}?"
    return f"valid names{' of ' + '.'.join(path[:-1]) if path[1:] else ''}: {', '.join(valid)}"


def _names_below(annotation: object) -> Iterable[str]:
    return annotation.model_fields if _is_model(annotation) else ()


def _annotation(model: type[BaseModel], path: Names) -> object:
    """The type at a path of names, None where there is none. Optional types are unwrapped.

    Where one of several sections may stand, the path may name it by its tag, as pydantic does. Else it is the first one
    that knows the name which follows.
    """
    current: object = model
    for name in path:
        choices = _choices(current)
        if name in choices:
            current = choices[name]
            continue
        current = next((choice for choice in choices.values() if name in choice.model_fields), current)
        if get_origin(current) is dict:
            current = get_args(current)[1]
        elif _is_model(current) and name in current.model_fields:
            current = current.model_fields[name].annotation
        else:
            return None
        if get_origin(current) in (types.UnionType, Union):
            current = next(member for member in get_args(current) if member is not types.NoneType)
    return next(iter(_choices(current).values()), current)


def _choices(annotation: object) -> dict[str, type[BaseModel]]:
    """The sections that may stand at one place, by the tags that tell them apart; empty where there is no choice."""
    if get_origin(annotation) is not Annotated:
        return {}
    parts = [get_args(member) for member in get_args(get_args(annotation)[0])]
    return {
        tag.tag: member[0] for member in parts for tag in member[1:] if isinstance(tag, Tag) and _is_model(member[0])
    }


def _without_tags(model: type[BaseModel], located: Names) -> Names:
    """The names of a place as they stand in files."""
    return tuple(
        name
        for depth, name in enumerate(located)
        if not (depth and name in _choices(_section_type(model, located[:depth])))
    )


def _section_type(model: type[BaseModel], path: Names) -> object:
    """What stands at [NAME.KEY] of a table of sections, choices and all; None elsewhere."""
    field = model.model_fields.get(path[0])
    if len(path) != 2 or field is None or get_origin(field.annotation) is not dict:
        return None
    return get_args(field.annotation)[1]


def _is_model(annotation: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
