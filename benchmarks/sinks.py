"""Every sink on its real server in one run: changes a second, and what this process computes for one.

Usage: python -m benchmarks.sinks [seconds] [sink ...]. Each is opened as a section of the settings opens it and has new
rows of eight columns in micro-batches of 5,000, for so many seconds; those that merge then have the same rows changed.
Servers run on this machine and take their part of it: ratios say more than rates. RabbitMQ, MariaDB and OpenSearch are
left out, and said, where they cannot run.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.sql import ORDERS, PIECE, STREAM, WRITTEN, insert_of, key_of
from tailrace.local import LocalCassandra, LocalKafka, LocalRegistry
from tailrace_common.build import describe
from tailrace_common.settings import Settings
from tailrace_schemas.avro.encode import Encoder
from tailrace_schemas.change import Change
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.sinks.protocol import Sink, write_here
from tailrace_spark.sinks.registry import open_sink
from tests import java_sources, mariadb, opensearch, postgres, rabbitmq, s3
from tests.integration.agents import cql, create_keyspace
from tests.unit.spark.cassandra import Log

BATCH: Final = 5_000
LATER: Final = 10**9
"""Microseconds: by so much the same rows are changed later."""


@dataclass(slots=True)
class Servers:
    """What sinks write to, each started when it is first asked for."""

    root: Path
    stack: ExitStack
    _kept: dict[str, Any] = field(default_factory=dict)

    def _once(self, name: str, start: Callable[[], Any]) -> Any:
        if name not in self._kept:
            self._kept[name] = start()
        return self._kept[name]

    @property
    def kafka(self) -> LocalKafka:
        kafka: LocalKafka = self._once("kafka", lambda: self.stack.enter_context(LocalKafka(self.root / "kafka")))
        return kafka

    @property
    def registry(self) -> LocalRegistry:
        made: LocalRegistry = self._once(
            "registry", lambda: self.stack.enter_context(LocalRegistry(self.root / "registry"))
        )
        return made

    @property
    def cassandra(self) -> LocalCassandra:
        made: LocalCassandra = self._once(
            "cassandra", lambda: self.stack.enter_context(LocalCassandra(self.root / "cassandra"))
        )
        return made

    @property
    def endpoint(self) -> str:
        """The address of a process that answers every POST with 204."""
        return str(self._once("endpoint", self._answering))

    def _answering(self) -> str:
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=_answer, args=(there,), daemon=True)
        process.start()
        there.close()  # so that its end is seen
        self.stack.callback(process.terminate)
        return str(here.recv())


def _answer(there: Any) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        there.send(f"http://127.0.0.1:{server.server_port}/changes")
        server.serve_forever()


Section = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Target:
    """A sink as its section says it. `merges`: rows that are there are read, or at least written again."""

    name: str
    section: Callable[[Servers], Section]
    merges: bool = False
    missing: Callable[[], str | None] = lambda: None


def _at(servers: Servers, **more: object) -> Section:
    return {"contact_points": [servers.cassandra.address], "port": servers.cassandra.port, **more}


def _s3(**more: object) -> Section:
    keys = {"access_key": s3.ACCESS_KEY, "secret_key": s3.SECRET_KEY, "region": "us-east-1", "endpoint": s3.endpoint()}
    return {"path": f"s3://{s3.new_bucket()}/lake", **keys, **more}


def _copies(servers: Servers) -> Section:
    with cql(servers.cassandra) as session:
        create_keyspace(session, "copies")
    return _at(servers, type="cassandra", keyspace="copies")


def _rabbit(_: Servers) -> Section:
    return {
        "type": "rabbitmq", "url": rabbitmq.server().url, "username": rabbitmq.USER, "password": rabbitmq.PASSWORD,
        "exchange": "bench", "queues": 4,
    }  # fmt: skip


def _search(_: Servers) -> Section:
    return {"type": "opensearch", "url": opensearch.server().url, "shards": 1, "replicas": 0}


TARGETS: Final[Sequence[Target]] = (
    Target("sql, SQLite", lambda all: {"type": "sql", "url": f"sqlite:///{all.root / 'sink.db'}"}, merges=True),
    Target("sql, PostgreSQL", lambda _: {"type": "sql", "url": postgres.new_database()}, merges=True),
    Target("sql, MariaDB", lambda _: {"type": "sql", "url": mariadb.new_database()}, True, mariadb.missing),
    Target("cassandra", _copies, merges=True),
    Target("kafka, JSON", lambda all: _topic(all, "json")),
    Target("kafka, Avro", lambda all: {**_topic(all, "avro"), "registry": {"url": all.registry.url}}),
    Target("http", lambda all: {"type": "http", "url": all.endpoint}),
    Target("rabbitmq", _rabbit, missing=rabbitmq.missing),
    Target("files, Parquet", lambda all: {"type": "files", "path": str(all.root / "parquet")}),
    Target("files, JSON lines", lambda all: {"type": "files", "path": str(all.root / "jsonl"), "format": "jsonl"}),
    Target("files, Parquet on S3", lambda _: _s3(type="files")),
    Target("delta, history", lambda all: {"type": "delta", "path": str(all.root / "history")}),
    Target("delta, history on S3", lambda _: _s3(type="delta")),
    Target("delta, current", lambda all: _followed(all, "delta"), merges=True),
    Target("iceberg, history", lambda all: {"type": "iceberg", "path": str(all.root / "iceberg")}),
    Target("iceberg, current", lambda all: _followed(all, "iceberg"), merges=True),
    Target("opensearch", _search, True, java_sources.missing),
    Target("console, JSON lines", lambda _: {"type": "console", "format": "json"}),
)


def _followed(servers: Servers, kind: str) -> Section:
    return {"type": kind, "path": str(servers.root / f"{kind}-current"), "mode": "current"}


def _topic(servers: Servers, encoding: str) -> Section:
    return {
        "type": "kafka", "topic": f"{encoding}-{{table}}", "encoding": encoding,
        "kafka": {"bootstrap.servers": servers.kafka.bootstrap},
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rate:
    """How many changes were written, the seconds that passed, and those of CPU in this process."""

    done: int
    passed: float
    own: float


def main(seconds: float = 5.0, *names: str) -> None:
    """One table, a line for each sink of one of these names, or all."""
    chosen = [target for target in TARGETS if not names or any(target.name.startswith(name) for name in names)]
    with TemporaryDirectory(ignore_cleanup_errors=True) as directory, ExitStack() as stack:
        servers = Servers(Path(directory), stack)
        sys.stderr.write(f"rows of 8 columns, {BATCH:,} in a batch, {seconds:g} s each, {describe()}\n")
        print(f"| {'sink':24} | {'changes/s':>10} | {'us here':>8} | {'merged/s':>10} | {'us here':>8} |")
        print(f"| {'---':24} | {'---':>10} | {'---':>8} | {'---':>10} | {'---':>8} |")
        for target in chosen:
            if (trouble := target.missing()) is not None:
                print(f"| {target.name:24} | {trouble}")
                continue
            cells = "".join(f" {cell} |" for cell in _cells(_rates(target, servers, seconds)))
            print(f"| {target.name:24} |{cells}", flush=True)


def _cells(rates: Iterable[Rate | None]) -> Iterator[str]:
    for rate in rates:
        yield "" if rate is None else f"{rate.done / rate.passed:10,.0f}"
        yield "" if rate is None else f"{rate.own / rate.done * 1e6:8.1f}"


def _rates(target: Target, servers: Servers, seconds: float) -> Iterator[Rate | None]:
    settings = Settings.model_validate({"sink": {"bench": target.section(servers)}})
    log, offsets, encoder = Log(ORDERS), count(), Encoder(ORDERS, "t")

    def pieces(changes: Iterable[Change]) -> list[Piece]:
        delivered = tuple(
            Delivered(RecordId("t.shop.orders", 0, offset, encoder.schema_id), one, STREAM, message=encoder.value(one))
            for one, offset in zip(changes, offsets, strict=False)
        )
        return [Piece(delivered[n : n + PIECE]) for n in range(0, len(delivered), PIECE)]

    def inserted() -> Iterator[list[Piece]]:
        for at in count(1, BATCH):
            yield pieces(insert_of(log, n, WRITTEN + n) for n in range(at, at + BATCH))

    def updated() -> Iterator[list[Piece]]:
        for at in range(1, there, BATCH):
            some = range(at, at + BATCH)
            yield pieces(log.update(*key_of(n), WRITTEN + LATER + n, cents=n, note=f"changed {n}") for n in some)

    opened = partial(open_sink, "bench", settings.sink["bench"], "t")
    with contextlib.redirect_stdout(io.StringIO()), closing(opened()) as sink:
        sink.reach()
        write_here(sink, pieces([insert_of(log, 0, WRITTEN)]))  # what is made for a table is there
        rate = _rate(sink, inserted(), seconds)
        yield rate
        there = rate.done
        yield _rate(sink, updated(), seconds) if target.merges else None


def _rate(sink: Sink, batches: Iterable[list[Piece]], seconds: float) -> Rate:
    """The making of places is not in it."""
    done, passed, own = 0, 0.0, 0.0
    for batch in batches:
        began = time.perf_counter(), time.process_time()
        write_here(sink, batch)
        passed += time.perf_counter() - began[0]
        own += time.process_time() - began[1]
        done += sum(len(piece.changes) for piece in batch)
        if passed > seconds:
            break
    return Rate(done, passed, own)


if __name__ == "__main__":
    main(float((sys.argv[1:2] or ["5"])[0]), *sys.argv[2:])
