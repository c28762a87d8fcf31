"""`tailrace agent`: runs the agent of the settings until a signal ends it."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Annotated, Final

import typer

from tailrace.assembly.agent import AgentStart, Stop
from tailrace.assembly.cdc_raw import exit_code
from tailrace.capture.cdcraw import Signal
from tailrace.ops.health import HealthBoard
from tailrace.ops.server import HealthServer
from tailrace.segments.keys import keys_of_settings
from tailrace_common.build import log_build
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_common.cli.signals import ending_signals
from tailrace_common.http_server import serving
from tailrace_common.settings import HEALTH_PORT
from tailrace_schemas.errors import FencedError

_LOG: Final = logging.getLogger("tailrace.agent")


def agent(
    config: SettingsFile = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Take cdc_raw over from a stopped agent that owned it.")
    ] = False,
) -> None:
    """Publish this node's changes to Kafka until SIGTERM, SIGINT or SIGHUP. One agent runs beside each Cassandra node.

    It reads cdc_raw, releases published segments, and resumes at its last position. Exit code 3: it ended in order,
    with quarantined segments or dead letters. 4: it ended in order, and changes were lost. 5: another agent was started
    for this node, or owns its cdc_raw; do not restart it in a loop.

    One agent owns a cdc_raw. After a change of topics.prefix, or of the node's host id, start it once with --take-over.

    Example: tailrace agent -c tailrace.toml
    """
    settings = settings_of(config)
    log_build(_LOG)
    keys = keys_of_settings(settings.agent)
    wakeup = Signal()
    stop = Stop(wakeup)
    with _on_signals(stop), ExitStack() as stack:
        health = HealthBoard(time.monotonic)
        listen = partial(HealthServer, health, settings.agent.health_address)
        stack.enter_context(serving(listen, settings.agent.health_port, HEALTH_PORT))
        AgentStart(settings, keys, wakeup, stop, health, stack, take_over).run()
        if stop.reason is not None:
            raise FencedError(stop.reason)
        code = exit_code(health.now)
    if code:
        raise typer.Exit(code)


@contextmanager
def _on_signals(stop: Stop) -> Iterator[None]:
    handlers = {signal_number: signal.signal(signal_number, stop.ask) for signal_number in ending_signals()}
    try:
        yield
    finally:
        for signal_number, handler in handlers.items():
            signal.signal(signal_number, handler)
