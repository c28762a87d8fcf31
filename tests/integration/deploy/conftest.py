"""The images, built once for all tests that run containers."""

from __future__ import annotations

import logging
import os
import time

import pytest

from tests.integration.deploy.podman import PROGRAMS, Podman
from tests.integration.deploy.tools import require

_LOG = logging.getLogger("tailrace.test")
NEWEST_PYTHON_RELEASE = "forky"
"""The release of Debian whose python3 is 3.14."""


@pytest.fixture(scope="session")
def podman() -> Podman:
    require(*PROGRAMS)
    if os.geteuid() != 0:
        pytest.skip("images are built and run as root here")
    return Podman.open()


@pytest.fixture(scope="session")
def agent_image(podman: Podman) -> str:
    return _built(podman, "agent")


@pytest.fixture(scope="session")
def newest_agent_image(podman: Podman) -> str:
    """The agent's image on the newest Python that it is for."""
    return _built(podman, "agent", NEWEST_PYTHON_RELEASE)


@pytest.fixture(scope="session")
def stream_image(podman: Podman) -> str:
    return _built(podman, "stream")


@pytest.fixture(scope="session")
def server_image(podman: Podman) -> str:
    return _built(podman, "server")


def _built(podman: Podman, target: str, release: str | None = None) -> str:
    began = time.monotonic()
    image = podman.build(target, release)
    _LOG.info("%s: built in %.0f s, %.0f MB", target, time.monotonic() - began, podman.megabytes(image))
    return image
