"""`tailrace local up|status|down`: a real Cassandra and a real Kafka on this machine."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli.support.fetching import fetch_with_progress
from tailrace.local import CassandraSettings, KafkaSettings, RegistrySettings, Services
from tailrace.local.process import tail
from tailrace.local.services import ServiceState, end, hold, is_used, owner, record, states
from tailrace_common.cli.console import on_terminal, print_rows, say
from tailrace_common.cli.signals import stopped_by_signals
from tailrace_schemas.errors import ServiceError

_WATCH_SECONDS = 0.5
_QUOTED_LINES = 40  # the error, and the end of the service's log that it quotes

app = typer.Typer(
    no_args_is_help=True,
    help="Run a real Cassandra and Kafka on this machine, to try things out.\n\nExample: tailrace local up",
)

Directory = Annotated[
    Path,
    typer.Option("--directory", "-d", metavar="DIR", help="Directory for the services' data, logs and state."),
]
_DIRECTORY = Path(".tailrace/local")


@app.command()
def up(
    directory: Directory = _DIRECTORY,
    cassandra_port: Annotated[int, typer.Option(help="Cassandra's CQL port; 0 for a free one.")] = 0,
    kafka_port: Annotated[int, typer.Option(help="Kafka's port; 0 for a free one.")] = 0,
    registry: Annotated[
        bool, typer.Option("--registry", help="Also start a schema registry with Confluent's API.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when the services answer, and leave them running.")
    ] = False,
) -> None:
    """Start Cassandra and Kafka, print their addresses, and keep them running until Ctrl-C, SIGTERM or SIGHUP.

    If a service has died, the others are stopped, and all are started again. The first run fetches their jars. The
    directory keeps data, and ports if they are free, for the next run.

    Example: tailrace local up --detach
    """
    directory = directory.absolute()
    end_remains(directory)
    third = RegistrySettings() if registry else None
    services = Services(directory, CassandraSettings(port=cassandra_port), KafkaSettings(port=kafka_port), third)
    if detach:
        options = ["--cassandra-port", str(cassandra_port), "--kafka-port", str(kafka_port)]
        _start_detached(services, [*options, *(["--registry"] if registry else [])])
        _show(states(directory), directory)
        return
    with stopped_by_signals(), hold(directory):
        try:
            _fetch(services)
            services.start()
            _show(record(services), directory)
            say("running; Ctrl-C stops them")
            _watch(services)
        except KeyboardInterrupt:
            say("stopping")
        finally:
            _ignore_signals()
            services.stop()


@app.command()
def status(directory: Directory = _DIRECTORY) -> None:
    """Print the services of a directory with address and state; exit code 1 unless all run.

    Example: tailrace local status
    """
    services = states(directory.absolute())
    _show(services, directory.absolute())
    if not services:
        say(f"nothing is up in {directory}; `tailrace local up` starts it")
    if not services or any(state.state != "running" for state in services):
        raise typer.Exit(1)


@app.command()
def down(directory: Directory = _DIRECTORY) -> None:
    """Stop the services of a directory and wait for their end; their data stays.

    Example: tailrace local down
    """
    say("stopped" if end(directory.absolute()) else f"nothing was up in {directory}")


def end_remains(directory: Path) -> None:
    """Where a service has died, end what is left of its run: its keeper is ending anyhow, or is gone."""
    died = [state.service for state in states(directory) if state.state != "running"]
    if died and is_used(directory):
        say(f"{' and '.join(died)} died: stopping what else runs in {directory}, then starting all of it again")
        end(directory)


def _fetch(services: Services) -> None:
    fetch_with_progress(*(service.name for service in services.all))


def _show(services: tuple[ServiceState, ...], directory: Path) -> None:
    """JSON lines with everything; on a terminal what fits its width, and the paths in words."""
    if not on_terminal():
        print_rows([asdict(state) for state in services])
    elif services:
        print_rows(
            [
                {"service": service.service, "state": service.state, "address": service.address, "pid": service.pid}
                for service in services
            ]
        )
        say(f"data and logs are in {directory}")


def _ignore_signals() -> None:
    for signal_number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signal_number, signal.SIG_IGN)


def _watch(services: Services) -> None:
    """Return never; raise ServiceError when a service ends by itself."""
    while True:
        time.sleep(_WATCH_SECONDS)  # the services' ends are asked for one by one
        for service in services.all:
            service.require_running()


def _start_detached(services: Services, options: list[str]) -> None:
    """Start `tailrace local up` in a session of its own, and wait until it has recorded its services."""
    directory = services.directory
    hold(directory).close()  # says what runs there, before anything is fetched
    _fetch(services)
    log = directory / "up.log"
    program = "from tailrace.cli.main import run; run()"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - this interpreter, no shell
            [sys.executable, "-c", program, "local", "up", "--directory", str(directory), *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while owner(directory) != process.pid or not states(directory):
            if process.poll() is not None:
                raise ServiceError(
                    f"the services did not start. The log is {log}, which ends:\n{tail(log, _QUOTED_LINES)}"
                )
            time.sleep(0.05)  # the record is a file of another process, which reports nothing
    except BaseException:
        process.terminate()
        process.wait()
        raise
