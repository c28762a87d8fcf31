"""Rows a second into OpenSearch: new ones, the same again, rows merged; and bare bulk requests of the same documents.

Usage: python -m benchmarks.opensearch [changes] [rounds]. Beside the rate of each stands this process's CPU for a row,
without the server's. In one run, on a node of its own on loopback. The bare
requests have documents that are made already, as many in each, with the write time as external version: the limit of
what the server does at all, and what loses partial updates.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2

from benchmarks.delta import STREAM, _insert, _key, _pieces, _values
from benchmarks.sql import ORDERS, WRITTEN
from tailrace_common.build import describe
from tailrace_schemas.change import Change
from tailrace_spark.batch.delivery import Delivered, RecordId
from tailrace_spark.sinks.opensearch.client import SearchClient
from tailrace_spark.sinks.opensearch.documents import Documents
from tailrace_spark.sinks.opensearch.settings import OpensearchSinkSettings
from tailrace_spark.sinks.opensearch.sink import OpensearchSink
from tailrace_spark.sinks.protocol import write_here
from tests.opensearch import OpenSearch
from tests.unit.spark.cassandra import Log

BATCH = 20_000
BULK = 2_000


def main(changes: int = 60_000, rounds: int = 2) -> None:
    """Print one line for each way, the best of some rounds on one node, which is warm from the second on."""
    print(f"{changes:,} changes of rows of 8 columns, {BATCH:,} in a batch, {describe()}\n")
    best: dict[str, tuple[float, float]] = {}
    with TemporaryDirectory() as directory, OpenSearch(Path(directory) / "node", heap_mib=1024, jvm=()) as node:
        for number in range(rounds):
            for name, (seconds, own) in _round(node.url, f"bench{number}", changes):
                former = best.get(name, (seconds, own))
                best[name] = min(seconds, former[0]), min(own, former[1])
    print(f"{'':52}{'rows/s':>10}{'us here':>10}")
    for name, (seconds, own) in best.items():
        print(f"{name:52}{changes / seconds:10,.0f}{own / changes * 1e6:10.1f}")


def _round(url: str, prefix: str, changes: int) -> Iterator[tuple[str, tuple[float, float]]]:
    log = Log(ORDERS)
    settings = OpensearchSinkSettings(
        url=url, index=prefix + ".{keyspace}.{table}", shards=1, replicas=0, bulk_documents=BULK
    )
    inserted = [_insert(log, n) for n in range(changes)]
    with closing(OpensearchSink(SearchClient("bench", settings), settings)) as sink:
        yield "new rows", _timed(sink, inserted)
        yield "the same again, nothing changes", _timed(sink, inserted)
        del inserted
        updated = [log.update(*_key(n), WRITTEN + changes + n, cents=n, note=f"changed {n}") for n in range(changes)]
        yield "rows that are there, merged", _timed(sink, updated)
    documents = [(json.dumps(list(_key(n))), {"customer": _key(n)[0][0], **_values(n)}) for n in range(changes)]
    mapping = {"dynamic": False, "properties": Documents(ORDERS).properties}
    with httpx2.Client(base_url=url, timeout=60) as client:
        body = {"settings": {"number_of_shards": 1, "number_of_replicas": 0}, "mappings": mapping}
        client.put(f"/{prefix}.bare", json=body).raise_for_status()
        for name, at in (("new", 0), ("the same again, all 409", 0), ("newer ones", changes)):
            bodies = [_bare(documents[n : n + BULK], WRITTEN + at + n) for n in range(0, changes, BULK)]
            yield f"bare _bulk, external versions: {name}", _seconds(lambda: _send(client, prefix, bodies))  # noqa: B023


def _bare(documents: Sequence[tuple[str, Any]], version: int) -> bytes:
    lines = []
    for number, (identity, document) in enumerate(documents):
        action = {"_id": identity, "version": version + number, "version_type": "external"}
        lines += [json.dumps({"index": action}), json.dumps(document)]
    return ("\n".join(lines) + "\n").encode()


def _send(client: httpx2.Client, prefix: str, bodies: Sequence[bytes]) -> None:
    for body in bodies:
        answer = client.post(f"/{prefix}.bare/_bulk", content=body, headers={"Content-Type": "application/x-ndjson"})
        answer.raise_for_status().json()


def _timed(sink: OpensearchSink, changes: Sequence[Change]) -> tuple[float, float]:
    delivered = [Delivered(RecordId("t", 0, at, b"12345678"), change, STREAM) for at, change in enumerate(changes)]
    batches = [_pieces(delivered[at : at + BATCH]) for at in range(0, len(delivered), BATCH)]
    return _seconds(lambda: [write_here(sink, batch) for batch in batches])


def _seconds(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds that pass, and those of CPU of this process."""
    began = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - began[0], time.process_time() - began[1]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
