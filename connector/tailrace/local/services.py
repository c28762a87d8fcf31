"""Cassandra and Kafka together, and a schema registry on request, started side by side."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tailrace.local.cassandra import CassandraSettings, LocalCassandra
from tailrace.local.kafka import KafkaSettings, LocalKafka
from tailrace.local.registry import LocalRegistry, RegistrySettings
from tailrace.local.service import LocalService

_WATCH_SECONDS: Final = 0.5


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
