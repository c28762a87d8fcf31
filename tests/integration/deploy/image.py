"""What tests of the image have in common: its user, its address, waiting for a container."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable

from tailrace.local import LocalCassandra
from tests.integration.deploy.podman import Container
from tests.support.waiting import text_of, until

USER = 999
ELSEWHERE = "127.0.0.2"
"""Loopback too, but no address that a process which listens on 127.0.0.1 is reached at."""


def open_to_the_image(node: LocalCassandra) -> None:
    """Let the image's user delete segments, as the node runs as another one."""
    for folder in (node.directory / "data", node.cdc_raw, node.commitlog):
        folder.chmod(0o777)


def answers(url: str) -> bool:
    """Whether a URL answers 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - http, of this machine
            return bool(answer.status == 200)
    except OSError:
        return False


def wait(container: Container, condition: Callable[[], bool], seconds: float = 600) -> None:
    """Wait for the condition; fails with the container's log where it does not come, or the container ends."""
    until(condition, text_of(condition), seconds, over=container.ended, state=lambda: container.log()[-6000:])
