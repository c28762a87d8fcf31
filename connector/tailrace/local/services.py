"""Cassandra and Kafka together, and a schema registry on request, started side by side."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from tailrace.local.cassandra import CassandraSettings, LocalCassandra
from tailrace.local.kafka import KafkaSettings, LocalKafka
from tailrace.local.process import directory_lock, is_held, wait_until
from tailrace.local.registry import LocalRegistry, RegistrySettings
from tailrace.local.service import LocalService
from tailrace_schemas.errors import ServiceError

_WATCH_SECONDS: Final = 0.5
_NAME = "up"
_STATE = "state.json"
_END_SECONDS = 60.0
_FORCED_SECONDS = 10.0


class Services:
    """One Cassandra in `directory`/cassandra and one Kafka in `directory`/kafka; a context manager.

    With settings for it, a schema registry in `directory`/registry, too.
    """

    def __init__(
        self,
        directory: Path,
        cassandra: CassandraSettings | None = None,
        kafka: KafkaSettings | None = None,
        registry: RegistrySettings | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.cassandra = LocalCassandra(self.directory / "cassandra", cassandra)
        self.kafka = LocalKafka(self.directory / "kafka", kafka)
        self.registry = None if registry is None else LocalRegistry(self.directory / "registry", registry)

    @property
    def all(self) -> tuple[LocalService, ...]:
        """All of them, in the order in which they are shown."""
        return (self.cassandra, self.kafka, *(() if self.registry is None else (self.registry,)))

    def start(self) -> Self:
        """Start all at once. When one fails, or the wait is interrupted, all are stopped before the error leaves."""
        pool = ThreadPoolExecutor(len(self.all), thread_name_prefix="start")
        try:
            await_all({pool.submit(service.start): service for service in self.all})
        except BaseException:
            self.stop()  # ends the others' start at once
            pool.shutdown()
            self.stop()  # and what it had not yet begun then
            raise
        pool.shutdown()
        return self

    def stop(self) -> None:
        """Stop all at once; their directories stay."""
        stop_all(self.all)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def stop_all(services: Sequence[LocalService]) -> None:
    """Stop services at once."""
    with ThreadPoolExecutor(len(services), thread_name_prefix="stop") as pool:
        for future in [pool.submit(service.stop) for service in services]:
            future.result()


def await_all(starting: dict[Future[Any], LocalService]) -> None:
    """Return when all are ready. Raises ServiceError where one fails, or ends again while others still start."""
    ready: list[LocalService] = []
    while starting:
        done, _ = wait(starting, timeout=_WATCH_SECONDS, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
            ready.append(starting.pop(future))
        for service in ready:
            service.require_running()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """One service as it was started. `state` is `running` or `stopped`; `cdc_raw` is Cassandra's only;
    `address` is host:port, the registry's its URL."""

    service: str
    state: str
    address: str
    pid: int
    log: str
    cdc_raw: str | None = None


def hold(directory: Path) -> BinaryIO:
    """Become the one process that keeps services in `directory`, until the file is closed or the process ends.

    Raises ServiceError that says what runs there when another one is.
    """
    try:
        lock = directory_lock(directory, _NAME, seconds=0.2)
    except ServiceError as error:
        running = [state for state in states(directory) if state.state == "running"]
        services = ", ".join(f"{state.service} on {state.address}" for state in running) or "services that are starting"
        raise ServiceError(
            f"{directory} is in use: {services}. `tailrace local down --directory {directory}` ends it"
        ) from error
    _write(directory, ())
    return lock


def record(services: Services) -> tuple[ServiceState, ...]:
    """Write down, for `states` and `end`, what this process has started."""
    cassandra, kafka, registry = services.cassandra, services.kafka, services.registry
    started: tuple[ServiceState, ...] = (
        ServiceState(
            service=cassandra.name,
            state="running",
            address=f"{cassandra.address}:{cassandra.port}",
            pid=cassandra.pid,
            log=str(cassandra.log),
            cdc_raw=str(cassandra.cdc_raw),
        ),
        ServiceState(service=kafka.name, state="running", address=kafka.bootstrap, pid=kafka.pid, log=str(kafka.log)),
    )
    if registry is not None:
        of = ServiceState(
            service=registry.name, state="running", address=registry.url, pid=registry.pid, log=str(registry.log)
        )
        started += (of,)
    _write(services.directory, started)
    return started


def owner(directory: Path) -> int | None:
    """The process that keeps the services in `directory`, or is starting them; None when there is none."""
    return _read(directory)[0] if is_held(directory, _NAME) else None


def states(directory: Path) -> tuple[ServiceState, ...]:
    """The services last started in `directory`, with whether each is still there; none is known: empty."""
    _, recorded = _read(directory)
    return tuple(
        replace(state, state="running" if _is_running(directory, state.service) else "stopped") for state in recorded
    )


def end(directory: Path) -> bool:
    """Stop what runs in `directory` and wait until it is gone; whether there was anything.

    The process that keeps the services up stops them in order; services that it left behind are ended by force.
    Raises ServiceError when they stay all the same.
    """
    if not is_used(directory):
        return False
    if (pid := owner(directory)) is not None:
        _send(pid, signal.SIGTERM)
    if not wait_until(lambda: not is_used(directory), _END_SECONDS):
        for state in states(directory):
            if state.state == "running":
                _send(state.pid, signal.SIGKILL)
        if not wait_until(lambda: not is_used(directory), _FORCED_SECONDS):
            raise ServiceError(f"the services in {directory} do not end; their logs are there")
    return True


def is_used(directory: Path) -> bool:
    """Whether a process keeps services in `directory`, or one of them runs."""
    _, recorded = _read(directory)
    return is_held(directory, _NAME) or any(_is_running(directory, state.service) for state in recorded)


def _is_running(directory: Path, service: str) -> bool:
    """The server inherited its directory's lock, so this holds even when whoever started it is gone."""
    return is_held(directory / service, service)


def _write(directory: Path, started: tuple[ServiceState, ...]) -> None:
    file = directory / _STATE
    unfinished = file.with_suffix(".part")
    unfinished.write_text(json.dumps({"pid": os.getpid(), "services": [asdict(state) for state in started]}, indent=1))
    unfinished.replace(file)


def _read(directory: Path) -> tuple[int | None, tuple[ServiceState, ...]]:
    try:
        state = json.loads((directory / _STATE).read_text())
    except FileNotFoundError:
        return None, ()
    return state["pid"], tuple(ServiceState(**entry) for entry in state["services"])


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
