"""An installation of the last version goes on under this one: agent, log, topics, stream, checkpoint and database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from cassandra.cluster import Session

from tailrace.local import LocalCassandra, LocalKafka
from tests.integration.agents import AgentProcess, cql, create_keyspace, in_log_order, published, settings_for
from tests.integration.letters import letters_in
from tests.integration.processes import PROGRAM
from tests.integration.streams import StreamProcess
from tests.unit.spark.sinks.contract import Database

Row = tuple[object, ...]

_PHASE: Final = 50
"""Rows that are written between one step of the upgrade and the next."""


class Source:
    """`shop.t (k int PRIMARY KEY, a int, b text)`, into which each phase writes new rows and into earlier ones."""

    def __init__(self, session: Session) -> None:
        create_keyspace(session, "shop")
        session.execute("CREATE TABLE shop.t (k int PRIMARY KEY, a int, b text) WITH cdc = true")
        self._session = session
        self._phases = 0
        self.writes: Counter[int] = Counter()
        """How often each key was written or deleted."""

    def write(self) -> None:
        """A phase: new rows; then half of each of some rows of before, and the deletion of another of them."""
        phase, first = self._phases, self._phases * _PHASE
        self._phases += 1
        for key in range(first, first + _PHASE):
            self._write("INSERT INTO shop.t (a, b, k) VALUES (%s, %s, %s)", (phase, f"of {phase}"), key)
        for key in range(phase, first, 9):
            self._write("UPDATE shop.t SET b = %s WHERE k = %s", (f"again in {phase}",), key)
        if phase:
            self._write("DELETE FROM shop.t WHERE k = %s", (), first - 1)

    def _write(self, statement: str, values: tuple[object, ...], key: int) -> None:
        self._session.execute(statement, (*values, key))
        self.writes[key] += 1

    def rows(self) -> list[Row]:
        """What `SELECT` answers."""
        return sorted(map(tuple, self._session.execute("SELECT k, a, b FROM shop.t")))


class Copy:
    """A SQLite file that a stream fills with `shop.t`, beside the stream's own files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = f"sqlite:///{directory / 'copy.db'}"
        self.database = Database(self.url)

    def rows(self) -> list[Row]:
        return sorted(self.database.select("SELECT k, a, b FROM shop_t")) if "shop_t" in self.database.names() else []


@contextmanager
def copy_in(directory: Path) -> Iterator[Copy]:
    """A copy and its stream's files, in a directory of their own."""
    directory.mkdir()
    copy = Copy(directory)
    yield copy
    copy.database.close()


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.promise("upgrade.installation")
@pytest.mark.usefixtures("as_processes")
def test_what_the_last_version_kept_goes_on(
    former: tuple[str, ...], kafka: LocalKafka, prefix: str, tmp_path: Path
) -> None:
    """In the order of the guide: the stream first, beside the old agent; then the agent. At last an old stream reads
    what both agents have published."""
    with (
        LocalCassandra(tmp_path / "node") as node,
        cql(node) as session,
        copy_in(tmp_path / "kept") as kept,
        copy_in(tmp_path / "late") as late,
    ):
        source = Source(session)
        settings = settings_for(node, kafka, prefix)

        def agent(name: str, program: tuple[str, ...] = PROGRAM) -> AgentProcess:
            return AgentProcess(tmp_path, settings, name, program)

        def stream(copy: Copy, name: str, program: tuple[str, ...] = PROGRAM) -> StreamProcess:
            return StreamProcess(copy.directory, kafka, prefix, copy.url, name=name, program=program)

        def shown(copy: Copy, process: StreamProcess) -> None:
            process.until(lambda: copy.rows() == source.rows())

        with agent("former", former) as old_agent:
            old_agent.until_ready().until_covered()
            source.write()
            with stream(kept, "former", former) as old_stream:
                shown(kept, old_stream)
                assert old_stream.stop() == 0, old_stream.words()
            source.write()
            with stream(kept, "now") as new_stream:
                shown(kept, new_stream)
                source.write()
                shown(kept, new_stream)
                assert old_agent.stop() == 0, old_agent.words()
                source.write()
                with agent("now") as new_agent:
                    new_agent.until_ready()
                    source.write()
                    shown(kept, new_stream)
                    assert new_stream.stop() == 0, new_stream.words()
                    with stream(late, "former", former) as old_reader:
                        shown(late, old_reader)
                        source.write()
                        shown(late, old_reader)
                        assert old_reader.stop() == 0, old_reader.words()
                    assert new_agent.stop() == 0, new_agent.words()
        assert letters_in(kafka, prefix) == []
    records = published(kafka, prefix, f"{prefix}.shop.t")
    assert in_log_order(records)
    keys = Counter(int.from_bytes(record.change.key or b"", "big") for record in records)
    assert keys == source.writes
