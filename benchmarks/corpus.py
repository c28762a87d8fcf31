"""Segments to measure on: a deterministic load written by a real node, kept per user once made."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.concurrent import execute_concurrent
from cassandra.policies import WhiteListRoundRobinPolicy

from benchmarks.segments import definitions_in
from tailrace.local.cassandra import CassandraSettings, LocalCassandra
from tailrace_common.java.jars import cache_directory
from tailrace_schemas.definitions import Definitions

MUTATIONS: Final = int(os.environ.get("TAILRACE_BENCH_MUTATIONS", "200000"))
_BATCH: Final = 20_000
KEYSPACE: Final = "CREATE KEYSPACE perf WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
_WORDS: Final = (
    "alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliet", "kilo", "lima",
)  # fmt: skip
_KINDS: Final = ("click", "view", "purchase", "refund", "signup")


Work = Callable[[Any, int], Iterator[tuple[Any, tuple[object, ...]]]]


@dataclass(frozen=True, slots=True)
class Corpus:
    """One table in keyspace perf, and what is written to it: (session, how many) -> statements with their values."""

    name: str
    create: str
    work: Work
    table_id: str

    def recorded(self, mutations: int = MUTATIONS) -> tuple[Path, Definitions]:
        """A directory of 32 MiB segments with at least so many mutations, and the definitions of their tables."""
        place = cache_directory() / "benchmarks" / f"{self.name}-{mutations}"
        if not (place / "schema.json").exists():
            _record(self, place, mutations)
        return place, definitions_in(place)


def _record(corpus: Corpus, place: Path, mutations: int) -> None:
    settings = CassandraSettings(segment_mib=32, cdc_total_mib=4096, heap_mib=1024)
    with tempfile.TemporaryDirectory() as scratch, LocalCassandra(Path(scratch), settings) as node:
        profile = ExecutionProfile(load_balancing_policy=WhiteListRoundRobinPolicy([node.address]), request_timeout=60)
        cluster = Cluster([node.address], port=node.port, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
        session = cluster.connect()
        session.execute(KEYSPACE)
        session.execute(f"{corpus.create} WITH cdc = true AND id = {corpus.table_id}")
        work = corpus.work(session, mutations)
        while batch := list(islice(work, _BATCH)):
            for _ in execute_concurrent(session, batch, concurrency=128, results_generator=True):
                pass
        schema = _schema(session)
        cluster.shutdown()
        node.stop()
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for segment in node.commitlog.glob("CommitLog-*.log"):
            shutil.copy(segment, place)
        for segment in node.cdc_raw.glob("CommitLog-*.log"):
            shutil.copy(segment, place)
    (place / "schema.json").write_text(json.dumps(schema))


def _schema(session: Any) -> dict[str, list[dict[str, object]]]:
    tables = session.execute("SELECT keyspace_name, table_name, id, cdc FROM system_schema.tables")
    columns = session.execute(
        "SELECT keyspace_name, table_name, column_name, column_name_bytes, kind, position, clustering_order, type "
        "FROM system_schema.columns"
    )
    return {
        "tables": [{**row._asdict(), "id": str(row.id)} for row in tables],
        "columns": [{**row._asdict(), "column_name_bytes": row.column_name_bytes.hex()} for row in columns],
    }


def _write_events(session: Any, mutations: int) -> Iterator[tuple[Any, tuple[object, ...]]]:
    insert = session.prepare(
        "INSERT INTO perf.events (device_id, ts, seq, kind, user_name, email, amount, qty, total, updated, note) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    update = session.prepare("UPDATE perf.events SET qty = ?, updated = ? WHERE device_id = ? AND ts = ?")
    delete = session.prepare("DELETE FROM perf.events WHERE device_id = ? AND ts = ?")
    rng, base = random.Random(7), 1_700_000_000_000
    keys: list[tuple[int, int]] = []
    for number in range(mutations):
        chance = rng.random()
        if chance < 0.9 or not keys:
            key = (rng.randrange(20_000), base + number)
            if len(keys) < 50_000:
                keys.append(key)
            user = f"{rng.choice(_WORDS)}.{rng.choice(_WORDS)}{rng.randrange(10_000)}"
            note = " ".join(rng.choices(_WORDS, k=rng.randrange(8, 16)))
            yield (
                insert,
                (
                    *key, number, rng.choice(_KINDS), user, f"{user}@example.com", rng.random() * 1000,
                    rng.randrange(100), rng.randrange(1 << 40), base + number * 3, note,
                ),
            )  # fmt: skip
        elif chance < 0.98:
            yield update, (rng.randrange(100), base + number * 3, *rng.choice(keys))
        else:
            yield delete, rng.choice(keys)


def _write_edits(session: Any, mutations: int) -> Iterator[tuple[Any, tuple[object, ...]]]:
    statements = [
        session.prepare(text)
        for text in (
            "INSERT INTO perf.edits (k, c, tags, scores, notes, v) VALUES (?, ?, ?, ?, ?, ?) USING TTL ?",
            "UPDATE perf.edits SET tags = tags + ?, scores[?] = ? WHERE k = ? AND c = ?",
            "UPDATE perf.edits SET notes = notes + ?, tags = tags - ? WHERE k = ? AND c = ?",
            "UPDATE perf.edits USING TTL ? SET v = ?, s = ? WHERE k = ? AND c = ?",
            "DELETE scores, v FROM perf.edits WHERE k = ? AND c = ?",
            "DELETE FROM perf.edits WHERE k = ? AND c >= ? AND c < ?",
            "DELETE FROM perf.edits WHERE k = ?",
        )
    ]
    insert, add, append, expire, remove, cut, drop = statements
    rng = random.Random(11)
    for _ in range(mutations):
        key, chance = (rng.randrange(5_000), rng.randrange(100)), rng.random()
        words = rng.choices(_WORDS, k=3)
        if chance < 0.3:
            scores = {word: rng.randrange(1000) for word in words}
            yield insert, (*key, set(words), scores, words, " ".join(words), rng.choice((0, 3600)))
        elif chance < 0.5:
            yield add, ({words[0]}, words[1], rng.randrange(1000), *key)
        elif chance < 0.7:
            yield append, (words, {words[2]}, *key)
        elif chance < 0.85:
            yield expire, (3600, words[0], words[1], *key)
        elif chance < 0.93:
            yield remove, key
        elif chance < 0.98:
            yield cut, (key[0], key[1], key[1] + 10)
        else:
            yield drop, key[:1]


EVENTS: Final = Corpus(
    "events",
    """CREATE TABLE perf.events (device_id bigint, ts timestamp, seq int, kind text, user_name text,
    email text, amount double, qty int, total bigint, updated timestamp, note text, PRIMARY KEY (device_id, ts))""",
    _write_events,
    "5f1e0c00-0000-11ef-8000-000000000001",
)
"""90 % inserts of 11 columns, 8 % updates of two, 2 % row deletes, from a seed."""

EDITS: Final = Corpus(
    "edits",
    """CREATE TABLE perf.edits (k int, c int, s text static, tags set<text>, scores map<text, int>, notes list<text>,
    v text, PRIMARY KEY (k, c))""",
    _write_edits,
    "5f1e0c00-0000-11ef-8000-000000000002",
)
"""Collections written, added to and taken from, TTLs, statics, deletes of cells, rows, ranges and partitions."""
