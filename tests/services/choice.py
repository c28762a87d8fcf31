"""What serves the integration tests: TAILRACE_TEST_SERVICES=local (child processes, the default) or containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from enum import Enum

import docker
from docker.errors import DockerException

VARIABLE = "TAILRACE_TEST_SERVICES"


class Means(Enum):
    """How the services are run; the values are those of TAILRACE_TEST_SERVICES."""

    LOCAL = "local"
    CONTAINERS = "containers"


class ChoiceError(Exception):
    """TAILRACE_TEST_SERVICES asks for what is not there."""


def engine_trouble() -> str | None:
    """Why no container engine answers, or None when one does. A `docker` command alone proves nothing: it is asked."""
    try:
        with closing(docker.from_env(timeout=2)) as client:
            client.ping()
    except DockerException as error:
        return str(error)
    return None


def choose(environ: Mapping[str, str], trouble: Callable[[], str | None] = engine_trouble) -> Means:
    """What the environment asks for; the engine is asked only for containers. Raises ChoiceError."""
    wanted = environ.get(VARIABLE) or Means.LOCAL.value
    try:
        means = Means(wanted)
    except ValueError:
        known = " or ".join(choice.value for choice in Means)
        raise ChoiceError(f"{VARIABLE} is {wanted!r}, not {known}") from None
    if means is Means.CONTAINERS and (why := trouble()) is not None:
        raise ChoiceError(
            f"{VARIABLE} is {wanted!r}, but no container engine answers ({why}): start one, set DOCKER_HOST to it, "
            f"or unset {VARIABLE} to use child processes"
        )
    return means
