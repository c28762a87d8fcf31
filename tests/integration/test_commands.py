"""The commands for operators on a real Cassandra, a real Kafka and a real agent."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from cassandra.cluster import Session
from typer.testing import CliRunner

from tailrace.capture.cdcraw import CdcRaw
from tailrace.cli.main import complete
from tailrace.cluster import LiveCluster
from tailrace.commitlog.frames import Entry
from tailrace.commitlog.mutation import first_table
from tailrace.local import LocalCassandra, LocalKafka
from tailrace.state import Resume
from tailrace_schemas.change import Origin
from tailrace_schemas.definitions import schema_row_to_json
from tests.integration.agents import (
    AgentProcess,
    Published,
    contact_of_node,
    cql,
    create_keyspace,
    ints,
    published,
    settings_for,
)
from tests.support.waiting import until
from tests.unit.capture.segments import SegmentWriter

_OVERRIDES = [name for name in os.environ if name.startswith("TAILRACE_")]
_PROGRAM = (sys.executable, "-c", "from tailrace.cli.main import run; run()")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command said, and its exit code."""

    code: int
    out: str
    words: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Its JSON lines, where it is done."""
        assert self.code == 0, self.words
        return [json.loads(line) for line in self.out.splitlines()]


class Bench:
    """A keyspace with a table, its mutations as Cassandra logged them, and a host whose segments are the test's own.

    The segments are laid down below `root` with the payloads of the real node: what lies in which segment, and what
    an index releases, is then for the test to say.
    """

    def __init__(self, session: Session, cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, directory: Path):
        self.keyspace = f"ks_{uuid4().hex[:12]}"
        self.prefix = prefix
        self.kafka = kafka
        self.root = directory
        self._session = session
        self._cassandra = cassandra
        self._written = 0
        create_keyspace(session, self.keyspace)
        session.execute(f"CREATE TABLE {self.keyspace}.t (k int PRIMARY KEY, v text) WITH cdc = true")
        with closing(LiveCluster(contact_of_node(cassandra))) as live:
            self.host = live.check().host
            tables = live.definitions().tables
            self._table = next(table.id for table in tables if str(table) == f"{self.keyspace}.t")
        self.settings = settings_for(cassandra, kafka, prefix, self.keyspace)
        self.settings["agent"]["cdc_raw_directory"] = str(directory / "cdc_raw")
        self.topic = f"{prefix}.{self.keyspace}.t"

    def alter(self, what: str) -> None:
        """ALTER TABLE."""
        self._session.execute(f"ALTER TABLE {self.keyspace}.t {what}")

    def payloads(self, number: int) -> list[bytes]:
        """So many rows, written to the node, as they stand in its log; keys go on from one call to the next."""
        first, self._written = self._written, self._written + number
        for key in range(first, self._written):
            self._session.execute(f"INSERT INTO {self.keyspace}.t (k, v) VALUES (%s, 'v')", (key,))
        found: list[bytes] = []
        with closing(CdcRaw(self._cassandra.cdc_raw, Resume())) as capture:

            def seen() -> bool:
                while entries := capture.read(1000):
                    found.extend(entry.payload for entry in entries if self._is_ours(entry))
                return len(found) >= self._written

            until(seen, "all that was written in the log")
        assert len(found) == self._written
        return found[first:]

    def _is_ours(self, entry: Entry) -> bool:
        assert entry.version == 7  # as SegmentWriter writes
        return first_table(entry.payload, entry.version)[1] == self._table

    def retold(self, payload: bytes, table: UUID) -> bytes:
        """A mutation as if it were of another table of the same columns."""
        assert payload.count(self._table.bytes) == 1
        return payload.replace(self._table.bytes, table.bytes)

    def schema_of_ghost(self, table: UUID) -> Path:
        """A file of definitions with such a table, named ghost."""
        with closing(LiveCluster(contact_of_node(self._cassandra))) as live:
            rows = [one for one in live.schema_rows() if one.owner == (self.keyspace, "t")]
        file = self.root / "schema.jsonl"
        with file.open("w") as out:
            for one in rows:
                row = {**one.row, "table_name": "ghost", **({"id": table} if one.table == "tables" else {})}
                out.write(json.dumps({"table": one.table, "row": schema_row_to_json(row)}) + "\n")
        return file

    def agent(self) -> AgentProcess:
        """The host's agent, not started."""
        return AgentProcess(self.root, self.settings)

    def publish(self, number: int) -> None:
        """Let an agent publish so many changes, and stop it."""
        with self.agent() as agent:
            agent.until(lambda: agent.count("changes") >= number)
            assert agent.stop() == 0, agent.words()

    def run(self, *words: str) -> Answer:
        """A command with the agent's settings, in this process."""
        return Answer(*self.bare(*self._configured(words)))

    def bare(self, *words: str) -> tuple[int, str, str]:
        """A command without settings: its exit code, and what it printed."""
        root = logging.getLogger()
        handlers, level = list(root.handlers), root.level
        try:
            done = CliRunner(env=dict.fromkeys(_OVERRIDES)).invoke(complete(), list(words))
        finally:
            root.handlers[:], root.level = handlers, level
        return done.exit_code, done.stdout, done.stderr

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """The same, still running; killed at the exit."""
        process = subprocess.Popen(
            [*_PROGRAM, *self._configured(words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if name not in _OVERRIDES},
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def _configured(self, words: tuple[str, ...]) -> list[str]:
        self.agent()  # writes the file
        return [*words, "-c", str(self.root / "agent.toml")]

    def records(self) -> list[Published]:
        """What a read_committed reader finds in the table's topic."""
        return published(self.kafka, self.prefix, self.topic)

    def position(self) -> tuple[int, int, int]:
        """Where `offsets show` says that the host is."""
        (row,) = self.run("offsets", "show", "--host", self.host).rows
        at = row["position"]
        return at["epoch"], at["segment"], at["offset"]


@pytest.fixture
def bench(cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, tmp_path: Path) -> Iterator[Bench]:
    with cql(cassandra) as session:
        yield Bench(session, cassandra, kafka, prefix, tmp_path)


@pytest.mark.promise("agent.moved-by-hand")
def test_a_position_is_moved_back_and_forward_and_a_new_log_adopted(bench: Bench) -> None:
    """Back: published twice. Forward: never. Another log: the agent stops, until it is adopted."""
    payloads = bench.payloads(14)
    segment = SegmentWriter(bench.root, 1000, size=1 << 20)
    ends = segment.write(*payloads[:6])
    segment.sync()
    with bench.agent() as agent:
        agent.until(lambda: agent.count("changes") >= 6)
        _move_back(bench, ends)
        # What it has in hand now it can commit no more.
        segment.write(*payloads[6:9])
        segment.sync()
        assert agent.ended() == 5, agent.words()
    bench.publish(7)
    back = Counter({0: 1, 1: 1, 2: 2, 3: 2, 4: 2, 5: 2, 6: 1, 7: 1, 8: 1})
    assert ints(bench.records()) == back

    # The rest of one segment, and the beginning of another that no agent saw.
    segment.write(payloads[9])
    segment.sync(completed=True)
    later = SegmentWriter(bench.root, 2000, size=1 << 20)
    passed = later.write(*payloads[10:12])
    later.sync()
    forward = bench.run("offsets", "set", f"1/2000:{passed[0]}", "--fence", "--yes")
    assert forward.code == 0, forward.words
    assert "2 mutations in 2 segments, of all tables, are never published (a gap)" in forward.words
    bench.publish(1)
    assert ints(bench.records()) == back + Counter({11: 1})
    assert not segment.link.exists()

    _another_log(bench, later, payloads[12:])


@pytest.mark.promise("agent.parked-by-hand")
def test_what_nothing_explains_is_parked_told_and_published_by_hand(bench: Bench) -> None:
    """A table of which there is no trace: everything else goes on, its segment is kept, a dead letter tells of it; a
    file of definitions brings it back, once, and what is given up lets its segment go."""
    ghost, lost = uuid4(), uuid4()
    known = bench.payloads(6)
    unknown = [bench.retold(known[0], ghost), bench.retold(known[1], ghost), bench.retold(known[2], lost)]
    first = SegmentWriter(bench.root, 1000, size=1 << 20)
    ends = first.write(known[0], unknown[0], known[1], unknown[1])
    first.sync(completed=True)
    second = SegmentWriter(bench.root, 2000, size=1 << 20)
    second.write(known[2], unknown[2])
    second.sync(completed=True)
    bench.settings["agent"]["park_seconds"] = 1
    with bench.agent() as agent:
        agent.until(lambda: agent.count("changes") >= 3 and agent.count("dead_letters") >= 2)
        assert "parked" in agent.status()["degraded"]
        rows = bench.run("parked", "list").rows
        assert [(row["segment"], row["table_id"], row["mutations"], row["state"]) for row in rows] == [
            (1000, str(ghost), 2, "dead"),
            (2000, str(lost), 1, "dead"),
        ]
        letters = bench.run("dead-letters", "--host", bench.host).rows
        assert [one["segment"] for one in letters] == [1000, 2000]
        assert [at for at, _ in letters[0]["mutations"]] == [ends[1], ends[3]]
        refused = bench.run("parked", "retry", "--yes")
        assert (refused.code, "runs. Stop it" in refused.words) == (1, True), refused.words
        moved = bench.run("offsets", "set", "1000:0", "--yes")
        assert (moved.code, "runs. Stop it" in moved.words) == (1, True), moved.words
        agent.stop()
    assert (ints(bench.records()), first.link.exists()) == (Counter({0: 1, 1: 1, 2: 1}), True)

    schema = bench.schema_of_ghost(ghost)
    partly = bench.run("parked", "retry", "--schema", str(schema), "--fence", "--yes")
    assert (partly.code, "2 mutations published, 2 changes" in partly.words) == (3, True), partly.words
    ghosts = published(bench.kafka, bench.prefix, f"{bench.prefix}.{bench.keyspace}.ghost")
    assert ints(ghosts) == Counter({0: 1, 1: 1})
    assert {one.change.source and one.change.source.origin for one in ghosts} == {Origin.PARKED}
    again = bench.run("parked", "retry", "--schema", str(schema), "--table-id", str(ghost), "--fence", "--yes")
    assert (again.code, "nothing of that is parked" in again.words) == (2, True)

    dropped = bench.run("parked", "drop", "--table-id", str(lost), "--fence", "--yes")
    assert (dropped.code, "1 mutation" in dropped.words) == (0, True), dropped.words
    with bench.agent() as agent:
        agent.until(lambda: not first.link.exists() and not second.link.exists())
        agent.stop()
    assert ints(published(bench.kafka, bench.prefix, f"{bench.prefix}.{bench.keyspace}.ghost")) == Counter({0: 1, 1: 1})


def _move_back(bench: Bench, ends: list[int]) -> None:
    assert bench.position() == (1, 1000, ends[-1])
    asking = bench.run("offsets", "set", f"1000:{ends[1]}", "--host", bench.host, "--fence")
    assert (asking.code, "give --yes" in asking.words) == (2, True), asking.words
    back = bench.run("offsets", "set", f"1000:{ends[1]}", "--fence", "--yes")
    assert back.code == 0, back.words
    assert "4 mutations in 1 segment, of all tables, are read again" in back.words
    assert bench.position() == (1, 1000, ends[1])


def _another_log(bench: Bench, old: SegmentWriter, payloads: list[bytes]) -> None:
    """The disk was replaced: the old log's segments are gone, and the new one counts from below."""
    for path in (old.link, old.index, old.commitlog):
        path.unlink()
    new = SegmentWriter(bench.root, 500, size=1 << 20)
    ends = new.write(*payloads)
    new.sync()
    with bench.agent() as agent:
        assert agent.ended() == 1
    assert f"{new.link.name} is at or below the published position" in agent.words()
    assert "`tailrace offsets adopt --new-log`" in agent.words()
    before = len(bench.records())

    adopted = bench.run("offsets", "adopt", "--new-log", "--host", bench.host, "--fence", "--yes")
    assert adopted.code == 0, adopted.words
    bench.publish(2)
    assert bench.position() == (2, 500, ends[-1])
    records = bench.records()
    assert len(records) == before + 2
    newest = [
        record.change.source for record in records if record.change.source and record.change.source.position.epoch == 2
    ]
    assert sorted(source.position.offset for source in newest) == ends


def test_kept_segments_are_replayed_and_a_topic_is_followed(bench: Bench) -> None:
    """Into Kafka: the same digests, once more, with origin = replay; the position stays. Into a file: the same."""
    payloads = bench.payloads(8)
    segment = SegmentWriter(bench.root, 1000, size=1 << 20)
    ends = segment.write(*payloads)
    segment.sync()
    bench.publish(8)
    kept = bench.root / "kept"
    kept.mkdir()
    os.link(segment.link, kept / segment.link.name)
    before, position, name = bench.records(), bench.position(), f"{bench.keyspace}.t"
    shown = bench.run("tail", name, "--from-beginning", "--max", "8").rows
    assert {row["digest"] for row in shown} == {one.change.digest.hex() for one in before}
    assert {(row["table"], row["columns"]["v"], row["source"]["origin"]) for row in shown} == {(name, "v", "log")}

    with bench.running("tail", name) as following:
        assert following.stdout is not None
        assert following.stderr is not None
        # A busy Kafka may be told of before.
        assert any(f"following {bench.topic}" in line for line in following.stderr)
        # What was written before is read by the definition of the time, whatever the table is now.
        bench.alter("DROP v")
        replayed = bench.run("replay", str(kept), "--since", f"1000:{ends[1]}", "--table", name)
        assert replayed.code == 0, replayed.words
        assert "by the definitions of the time" in replayed.words
        assert "6 changes of 6 mutations in 1 segment replayed" in replayed.words
        followed = [json.loads(following.stdout.readline()) for _ in range(6)]
        following.send_signal(signal.SIGINT)
        assert following.wait(60) == 0, following.stderr.read()
        assert following.stdout.read() == ""
    assert {row["source"]["origin"] for row in followed} == {"replay"}

    again = [one for one in bench.records() if _origin(one) is Origin.REPLAY]
    assert len(again) == 6
    _assert_equal_but_for_origin(before, again)
    assert {one.change.digest.hex() for one in again} == {row["digest"] for row in followed}
    assert len(bench.records()) == len(before) + 6
    assert bench.position() == position
    lines = bench.run("replay", str(kept), "--to", "-").rows
    assert {line["digest"] for line in lines} == {row["digest"] for row in shown}
    present = bench.run("replay", str(kept), "--present-schema")
    assert "by the definitions that hold now" in present.words
    assert {len(one.change.table.regular) for one in bench.records()} == {0, 1}


def _origin(record: Published) -> Origin | None:
    return None if record.change.source is None else record.change.source.origin


def _assert_equal_but_for_origin(before: list[Published], again: list[Published]) -> None:
    first = {one.change.digest: one for one in before}
    for one in again:
        other = first[one.change.digest]
        assert (one.key, one.partition) == (other.key, other.partition)
        assert one.change.source is not None
        assert other.change.source is not None
        source = replace(one.change.source, origin=Origin.LOG, seen=other.change.source.seen)
        assert replace(one.change, source=source) == other.change
