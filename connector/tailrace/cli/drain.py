"""`tailrace drain`: waits until everything that a stopped node logged is in Kafka."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Annotated, Any, Final
from urllib.request import ProxyHandler, build_opener

import typer

from tailrace.state import QUARANTINED_CAUSE
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError, SettingsError

_LOG: Final = logging.getLogger("tailrace.drain")
_POLL_SECONDS: Final = 0.25
_ANSWER_SECONDS: Final = 5.0
_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - it is not bound here
# The agent's look at the log may have begun before the node was seen stopped. The next one has begun after it.
_LOOKS: Final = 2
# The agent is beside us: no proxy of the environment reaches it.
_DIRECT: Final = build_opener(ProxyHandler({}))

Status = Callable[[], Mapping[str, Any] | None]
"""What the agent's /status says; None where it does not answer."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """How to wait: by which clock, in seconds, and how to sleep."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def drain(
    config: SettingsFile = None,
    timeout: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to wait at most.")] = 300.0,
    live_node: Annotated[
        bool,
        typer.Option("--live-node", help="Do not wait for the node to stop: what it logged until now is enough."),
    ] = False,
) -> None:
    """Wait until everything that the node logged is in Kafka, before its volume goes away.

    Stop the node first, by `nodetool drain` or its end: the command waits until its CQL port is closed, as changes come
    until then. The node is the first of cluster.contact_points. Then it waits for the agent, which must run with a
    health endpoint. The agent goes on running.

    Exit code 1: not everything is in Kafka in time; cdc_raw keeps the rest. 3: mutations are parked, or segments
    quarantined, and the rest is in Kafka.

    Example: tailrace drain -c tailrace.toml --timeout 600
    """
    settings = settings_of(config)
    if not settings.agent.health_port:
        raise SettingsError("agent.health_port is 0, and drain asks the agent there: set a port")
    address = f"{settings.cluster.contact_points[0]}, port {settings.cluster.port}"
    waiting = Waiting()
    deadline = waiting.clock() + timeout
    if not live_node and not until(lambda: not _listens(settings), deadline, waiting):
        raise ServiceError(f"the node ({address}) still serves CQL after {timeout:g} s: stop it, or use --live-node")
    aside = set_aside(until_published(lambda: _status(settings), deadline, waiting))
    for words in aside:
        _LOG.warning("%s", words)
    if aside:
        raise typer.Exit(3)
    _LOG.info("everything that the node logged is in Kafka")


def until_published(status: Status, deadline: float, waiting: Waiting) -> Mapping[str, Any]:
    """Wait until a look of the agent, which began after this call, left nothing unpublished; what it says then.

    Raises ServiceError at the deadline.
    """
    first = last = None
    while True:
        answer = status()
        looks = None if answer is None else int(answer["counts"].get("all_published", 0))
        if looks is not None and answer is not None:
            last = answer
            if first is None or looks < first:  # the agent was started again
                first = looks
            if looks >= first + _LOOKS:
                return answer
        if waiting.clock() >= deadline:
            raise ServiceError(_unpublished(last))
        waiting.sleep(_POLL_SECONDS)


def set_aside(status: Mapping[str, Any]) -> list[str]:
    """What is not in Kafka all the same, for people: the agent has passed over it, and keeps its files."""
    parked = int(status["gauges"].get("parked_now", 0))
    words = [f"{parked} mutations are parked, and not in Kafka: see `tailrace parked list`"] if parked else []
    quarantined = (item for item in status["degraded"].items() if item[0].startswith(QUARANTINED_CAUSE))
    return [*words, *(f"{cause} is not in Kafka as a whole: {reason}" for cause, reason in quarantined)]


def until(condition: Callable[[], bool], deadline: float, waiting: Waiting) -> bool:
    """Whether the condition holds before the deadline."""
    while not condition():
        if waiting.clock() >= deadline:
            return False
        waiting.sleep(_POLL_SECONDS)
    return True


def _unpublished(status: Mapping[str, Any] | None) -> str:
    if status is None:
        return "the agent does not answer at agent.health_port: cdc_raw keeps what is not published. Start the agent"
    mebibytes = status["gauges"].get("waiting_bytes", 0) / (1 << 20)
    why = "; ".join(status["degraded"].values())
    return (
        f"the agent has not published all that the node logged: {mebibytes:.0f} MiB wait in cdc_raw, and stay there. "
        f"Keep the volume, and let an agent run on it{f': {why}' if why else ''}"
    )


def _listens(settings: Settings) -> bool:
    try:
        with socket.create_connection((settings.cluster.contact_points[0], settings.cluster.port), _ANSWER_SECONDS):
            return True
    except TimeoutError:
        return True  # it hangs, or its machine does: it may log more
    except OSError:
        return False


def _status(settings: Settings) -> Mapping[str, Any] | None:
    address = _ANY.get(settings.agent.health_address, settings.agent.health_address)
    host = f"[{address}]" if ":" in address else address
    url = f"http://{host}:{settings.agent.health_port}/status"
    try:
        with _DIRECT.open(url, timeout=_ANSWER_SECONDS) as answer:
            status: Mapping[str, Any] = json.load(answer)
            return status
    except (OSError, HTTPException, ValueError):
        return None
