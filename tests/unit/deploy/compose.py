"""What must hold in a compose file, as a list of what does not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from typer.main import get_command

from tailrace.cli.main import complete
from tailrace_common.cli.program import LogFormat, LogLevel
from tailrace_common.java.find import VARIABLE as JAVA
from tailrace_common.java.jars import CACHE_VARIABLE
from tailrace_common.java.jars import VARIABLE as MAVEN_REPOSITORY
from tailrace_common.settings import load_settings
from tailrace_schemas.errors import SettingsError
from tests.unit.deploy.dockerfile import Dockerfile

CONDITIONS: Final = {"service_started", "service_healthy", "service_completed_successfully"}
# Variables of ours that are not settings, and what they may hold.
OTHER_VARIABLES: Final[dict[str, set[str] | None]] = {
    "TAILRACE_LOG_FORMAT": set(LogFormat),
    "TAILRACE_LOG_LEVEL": set(LogLevel),
    CACHE_VARIABLE: None,
    JAVA: None,
    MAVEN_REPOSITORY: None,
}
_VARIABLE: Final = re.compile(r"\$\{\w+:-([^}]*)\}")
_DURATION: Final = re.compile(r"(\d+(ms|s|m|h))+")
_OFFICIAL: Final = re.compile(r"((apache|grafana|prom)/)?[a-z]+:v?\d+(\.\d+){1,2}")


def interpolated(value: Any) -> Any:
    """The file as it is without any variable set."""
    if isinstance(value, dict):
        return {name: interpolated(below) for name, below in value.items()}
    if isinstance(value, list):
        return [interpolated(below) for below in value]
    return _VARIABLE.sub(r"\1", value) if isinstance(value, str) else value


def faults(compose: Mapping[str, Any], root: Path) -> Iterator[str]:
    """What is wrong with a parsed compose file; paths are looked for below `root`."""
    compose = interpolated(compose)
    services, volumes = compose["services"], set(compose.get("volumes", ()))
    used: set[str] = set()
    for name, service in services.items():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            if source.startswith("."):
                yield from _missing(name, root / source)
            else:
                used.add(source)
        yield from _dependencies(name, service, services)
        yield from _image(name, service, root)
        if "profiles" not in service:
            yield from _health(name, service)
        if "build" in service:
            yield from _ours(name, service, root)
    yield from (f"volume {volume} is used and not declared" for volume in used - volumes)
    yield from (f"volume {volume} is declared and not used" for volume in volumes - used)


def _missing(name: str, path: Path) -> Iterator[str]:
    if not path.exists():
        yield f"{name}: {path} does not exist"


def _dependencies(name: str, service: Mapping[str, Any], services: Mapping[str, Any]) -> Iterator[str]:
    for other, wanted in service.get("depends_on", {}).items():
        if other not in services:
            yield f"{name}: depends on {other}, which is no service"
        elif wanted["condition"] not in CONDITIONS:
            yield f"{name}: unknown condition {wanted['condition']}"
        elif wanted["condition"] == "service_healthy" and "healthcheck" not in services[other]:
            yield f"{name}: waits for the health of {other}, which has no check"


def _image(name: str, service: Mapping[str, Any], root: Path) -> Iterator[str]:
    build = service.get("build")
    if build is None:
        if not _OFFICIAL.fullmatch(service["image"]):
            yield f"{name}: {service['image']} is not a pinned official image"
        return
    path = root / build["context"] / build["dockerfile"]
    if not path.exists():
        yield f"{name}: {path} does not exist"
        return
    for source in Dockerfile.read(path).sources():
        yield from _missing(f"{path.name}: COPY", root / build["context"] / source)


def _health(name: str, service: Mapping[str, Any]) -> Iterator[str]:
    check = service.get("healthcheck")
    if check is None:
        yield f"{name}: has no health check"
        return
    if check["test"][0] not in {"CMD", "CMD-SHELL"}:
        yield f"{name}: its health check is not a CMD"
    for field in ("interval", "timeout", "start_period"):
        if not _DURATION.fullmatch(check[field]):
            yield f"{name}: {field} {check[field]} is not a duration"


def _ours(name: str, service: Mapping[str, Any], root: Path) -> Iterator[str]:
    """Command line, variables and settings file of one of our own images."""
    path = root / service["build"]["context"] / service["build"]["dockerfile"]
    if not path.exists():
        return
    try:
        image = Dockerfile.read(path).target(service["build"]["target"])
    except KeyError as missing:
        yield f"{name}: {path.name} has no target {missing}"
        return
    for arguments in (service["command"], image.command("CMD")):
        yield from (f"{name}: {fault}" for fault in command_faults([*image.command("ENTRYPOINT"), *arguments]))
    environ = {**image.variables(), **service.get("environment", {})}
    for variable, allowed in OTHER_VARIABLES.items():
        value = environ.pop(variable, None)
        if value is not None and allowed is not None and value not in allowed:
            yield f"{name}: {variable} may not be {value}"
    for variable in environ:
        if variable.startswith("TAILRACE_") and "__" not in variable:
            yield f"{name}: {variable} is neither a setting nor a known variable"
    file = service["command"][service["command"].index("-c") + 1]
    mounted = dict(reversed(mount.split(":")[:2]) for mount in service["volumes"])
    if file not in mounted:
        yield f"{name}: {file} is not mounted"
        return
    try:
        load_settings(root / mounted[file], environ)
    except SettingsError as error:
        yield f"{name}: {error}"


def command_faults(line: list[str]) -> Iterator[str]:
    """Whether a command line of `tailrace` parses; nothing is run."""
    program, *arguments = line
    if program != "tailrace":
        yield f"{program} is not tailrace"
        return
    group: Any = get_command(complete())  # typer does not make its vendored click classes public
    try:
        context = group.make_context(program, arguments)
        name, command, rest = group.resolve_command(context, context._protected_args + context.args)
        command.make_context(name, rest, parent=context)
    except Exception as error:
        yield f"{' '.join(line)}: {getattr(error, 'message', None) or type(error).__name__}"
