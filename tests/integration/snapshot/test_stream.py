"""A stream copies the rows that tables have already: those from before their log come out equal to the source."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from typer.testing import CliRunner

import tailrace_spark.job.snapshot_run
from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.cli.snapshot import app
from tailrace_spark.job.snapshot_context import SnapshotContext
from tailrace_spark.job.snapshot_run import SnapshotRun
from tailrace_spark.job.snapshot_writing import ReadRound, read_round
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.files.sink_type import FILES
from tailrace_spark.sinks.sink_type import Surroundings
from tailrace_spark.snapshot.progress import State
from tailrace_spark.snapshot.session import Ring
from tests.integration.snapshot.following import KEYS, Place, Running, Writes, done, running
from tests.oracle.comparison import Downstream, Followed
from tests.oracle.stores import LakeTables
from tests.postgres import new_database
from tests.support.waiting import until
from tests.unit.spark.sinks.delta.stores import FollowedDelta
from tests.unit.spark.sinks.files.stores import local

NEVER = 1e9
"""A time in 2001: nothing has expired yet."""


def postgres(directory: Path) -> Followed:
    del directory
    return Downstream(new_database())


def delta(directory: Path) -> Followed:
    return LakeTables(FollowedDelta(DeltaSinkSettings(path=str(directory / "delta"), mode="current")))


@pytest.mark.spine
@pytest.mark.promise("snapshots.equal")
@pytest.mark.parametrize(
    ("new_store", "execution"),
    [
        pytest.param(postgres, "executors", id="postgresql by tasks"),
        pytest.param(delta, "driver", id="delta by the driver", marks=pytest.mark.long),
    ],
)
def test_a_table_with_rows_before_its_log_comes_out_equal_while_it_is_written(
    place: Place, tmp_path: Path, new_store: Callable[[Path], Followed], execution: str
) -> None:
    name = f"orders_{new_store.__name__}_{execution}"
    place.create(name)
    store, settings = new_store(tmp_path), place.settings(name, None, execution=execution)
    connections = closing(store) if isinstance(store, Downstream) else nullcontext()
    with connections, closing(store.open(lambda: NEVER)) as sink, Writes(place, name) as writes:
        with running(place, sink, settings) as stream:
            [snapshot] = stream.until_met(done).tables
            assert snapshot.rows >= KEYS * 3
            assert snapshot.ranges >= 2
            assert snapshot.log_ends
            writes.end()
            place.until_equal(store, name)
        assert store.set_aside() == []
        # It is read once: another start follows the log alone.
        with running(place, sink, settings) as stream:
            place.run(f"INSERT INTO KS.{name} (k, c, v) VALUES (2000, 1, 'later')")
            place.until_equal(store, name)
            assert stream.snapshots.tables == (snapshot,)


@contextmanager
def copied(place: Place, folder: Path, settings: Settings) -> Iterator[tuple[Running, Downstream]]:
    """A stream with these settings that fills a SQLite file, and the file."""
    with (
        closing(Downstream(f"sqlite:///{folder / 'copy.db'}")) as store,
        closing(store.open(lambda: NEVER)) as sink,
        running(place, sink, settings) as stream,
    ):
        yield stream, store


def command(place: Place, sections: dict[str, Any], *arguments: str, code: int = 0) -> str:
    """What a command prints with these settings."""
    config = place.directory / "stream.toml"
    lines = []
    for section, values in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{_toml(key)} = {_toml(value)}" for key, value in values.items()]
    config.write_text("\n".join([*lines, "[sink.local]", 'url = "sqlite:///unused.db"']))
    result = CliRunner().invoke(app, [*arguments, "-c", str(config)])
    assert result.exit_code == code, result.output
    return result.stdout


def _toml(value: object) -> str:
    return json.dumps(value)


@pytest.mark.promise("snapshots.commands")
def test_commands_read_a_partition_a_range_and_rows_by_a_condition_of_a_stream_that_runs(
    place: Place, tmp_path: Path
) -> None:
    place.create("asked")
    sections, name, definition = place.sections("asked", "never"), f"{place.keyspace}.asked", place.table("asked")

    def keys() -> Counter[Any]:
        return Counter(row[0] for row in store.rows(definition))

    with copied(place, tmp_path, place.settings("asked", "never")) as (stream, store):
        command(place, sections, "start", name, "--partition", "7")
        stream.until_done(1)
        assert keys() == {7: 10}
        command(place, sections, "start", name, "--where", "c = 3")
        stream.until_done(2)
        assert keys().keys() >= set(range(KEYS)) - {5}
        assert keys()[8] == 1
        tokens = {row.k: row.t for row in place.run("SELECT k, token(k) AS t FROM KS.asked")}
        low, high = sorted(tokens.values())[5], sorted(tokens.values())[20]
        command(place, sections, "start", name, "--range", f"{low},{high}")
        stream.until_done(3)
        inside = {key for key, token in tokens.items() if low < token <= high}
        assert all(count > 5 for key, count in keys().items() if key in inside and key != 1000)
        command(place, sections, "start", name)
        command(place, sections, "pause", name)
        stream.until_met(lambda value: len(value.tables) == 4)
        until(lambda: stream.snapshots.tables[3].state in (State.PAUSED, State.DONE), "a paused snapshot")
        if stream.snapshots.tables[3].state is State.PAUSED:
            command(place, sections, "resume", name)
        stream.until_met(done)
        place.until_equal(store, "asked")
        lines = command(place, sections, "status", name).splitlines()
        assert len(lines) == 4
        assert '"state": "done", "percent": 100.0' in lines[3]
    assert "has no snapshot that is read" in str(_refused(place, "cancel", name))


def _refused(place: Place, *arguments: str) -> BaseException | None:
    config = place.directory / "stream.toml"
    result = CliRunner().invoke(app, [*arguments, "-c", str(config)])
    assert isinstance(result.exception, SettingsError), result.output
    return result.exception


class Interruption:
    """Does something once, when so many rounds were read and none of them is written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rounds: int, action: Callable[[], object]) -> None:
        self._left = rounds
        self._action = action
        monkeypatch.setattr(tailrace_spark.job.snapshot_run, "read_round", self._read)

    @contextmanager
    def _read(self, *arguments: Any) -> Iterator[ReadRound]:
        with read_round(*arguments) as read:
            self._left -= 1
            if not self._left:
                self._action()
            yield read


MANY = {"ranges": 16, "range_mebibytes": 1, "concurrent_ranges": 1}


@pytest.mark.promise("snapshots.truncated")
def test_rows_that_were_read_before_a_truncation_do_not_survive_it(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.create("truncated")

    def truncate() -> None:
        place.run("TRUNCATE KS.truncated")
        place.run("INSERT INTO KS.truncated (k, c, v) VALUES (3, 3, 'after')")

    Interruption(monkeypatch, 2, truncate)
    with copied(place, tmp_path, place.settings("truncated", limits=MANY)) as (stream, store):
        stream.until_met(done)
        place.until_equal(store, "truncated")
        assert [row[:2] for row in store.rows(place.table("truncated"))] == [(3, 3)]


@pytest.mark.promise("snapshots.changed")
def test_an_altered_table_goes_on_with_its_new_definition(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.create("altered")

    def alter() -> None:
        place.run("ALTER TABLE KS.altered ADD added text")
        place.run("ALTER TABLE KS.altered DROP w")
        place.run("UPDATE KS.altered SET added = 'new' WHERE k = 2 AND c = 2")

    Interruption(monkeypatch, 2, alter)
    with copied(place, tmp_path, place.settings("altered", limits=MANY)) as (stream, store):
        [snapshot] = stream.until_met(done).tables
        place.until_equal(store, "altered")
    assert snapshot.rows > KEYS * 5


@pytest.mark.promise("snapshots.changed")
def test_a_table_that_is_dropped_and_made_again_ends_its_snapshot_and_leaves_no_row_of_it(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.create("dropped")

    def drop() -> None:
        place.run("DROP TABLE KS.dropped")
        place.run("CREATE TABLE KS.dropped (k int PRIMARY KEY, other text) WITH cdc = true")
        place.run("INSERT INTO KS.dropped (k, other) VALUES (1, 'of the new table')")

    Interruption(monkeypatch, 1, drop)
    with copied(place, tmp_path, place.settings("dropped", limits=MANY)) as (stream, store):
        [snapshot] = stream.until_done(1)
        assert snapshot.state is State.DROPPED
        assert "was dropped and created again: `tailrace snapshot start` reads the new table" in snapshot.reason
        assert snapshot.rows == 0
        place.until_equal(store, "dropped")


@pytest.mark.promise("snapshots.once", "snapshots.resumes")
def test_a_round_is_read_again_as_it_was_planned_though_a_node_has_joined_since(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.create("joined")
    section = FilesSinkSettings(path=str(tmp_path / "files"), format="jsonl")
    # Both tasks of a round read a quarter of the ring, and so rows.
    settings = place.settings("joined", "only", limits={"ranges": 4, "range_mebibytes": 1, "concurrent_ranges": 2})
    written, ring = SnapshotRun._written, SnapshotContext.ring

    def dying(self: SnapshotRun, *arguments: Any) -> None:
        del self, arguments
        raise RuntimeError("killed before the round is noted as written")

    def ring_of_two(self: SnapshotContext, table: Table) -> Ring:
        """As if a node had taken over the second half: one of the two tasks is for it now."""
        before = ring(self, table)
        half = len(before.owned) // 2
        taken = [(token_range, (str(UUID(int=1)), *replicas)) for token_range, replicas in before.owned[half:]]
        return replace(before, owned=(*before.owned[:half], *taken))

    for ends in (dying, written):
        monkeypatch.setattr(SnapshotRun, "_written", ends)
        sink: Any = FILES.open("files", section, Surroundings(place.prefix))
        with closing(sink), pytest.raises(RuntimeError, match="killed") if ends is dying else nullcontext():
            place.stream(sink, settings).run()
        monkeypatch.setattr(SnapshotContext, "ring", ring_of_two)
    records = local(tmp_path / "files", format="jsonl").records()
    copied = Counter((record["key"]["k"], record["key"].get("c")) for record in records)
    rows = {(row.k, row.c) for row in place.run("SELECT k, c FROM KS.joined")}
    static = {(key, None) for key in range(0, KEYS, 3)}
    assert copied == Counter(rows | static)
