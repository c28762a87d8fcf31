"""A snapshot is in progress when the upgrade comes: this version goes on at the range where the last one was."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import pytest
import sqlalchemy as sa

from tailrace_server.meta.tables import snapshot_progress
from tailrace_server.meta.tables import subscribe as subscriptions
from tailrace_spark.snapshot.progress import State, TableSnapshot, snapshots_from_json
from tailrace_spark.snapshot.publication import Announcer
from tailrace_spark.snapshot.ranges import without
from tests.integration.letters import letters_in
from tests.integration.processes import CommandProcess
from tests.integration.server.servers import Site
from tests.integration.server.snapshots import places_of, published
from tests.integration.snapshot.commands import Command, fill, finish, kill_in_the_middle
from tests.integration.snapshot.copies import LIMITS, SECONDS, copied
from tests.integration.snapshot.dying_snapshot import Step
from tests.integration.snapshot.following import KEYS, ROWS, Place, Writes
from tests.integration.targets import POSTGRESQL, TARGETS, Target
from tests.integration.topics import Topics
from tests.integration.upgrades.commands import subscribe
from tests.integration.ways import Ground, Way
from tests.oracle.comparison import Downstream
from tests.postgres import new_database
from tests.upgrades.former import Former

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
SLOW: Final = {"consistency": "ONE", "ranges": 32, "page_rows": 5, "concurrent_ranges": 1, "rows_per_second": 15}
"""Ranges small enough, and slow enough, that the upgrade comes in the middle."""
DYING: Final = "tests/integration/snapshot/dying_snapshot.py"
SINKS: Final[Mapping[str, Way[Target]]] = {
    "postgresql": POSTGRESQL,
    **{name: TARGETS[name] for name in ("kafka", "files", "delta, current")},
}


class Notes:
    """How far snapshots are, read in the meta database beside its servers: no table is brought up to date by that."""

    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url)

    def snapshots(self) -> dict[str, TableSnapshot]:
        """That of each subscription, by its name; none before it has one."""
        query = sa.select(subscriptions.c.name, snapshot_progress.c.ranges).join_from(subscriptions, snapshot_progress)
        with self._engine.connect() as connection:
            noted = {name: snapshots_from_json(text).tables for name, text in connection.execute(query)}
        return {name: tables[0] for name, tables in noted.items() if tables}

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()


def is_in_progress(snapshot: TableSnapshot) -> bool:
    """Whether some ranges are done, but not all."""
    return snapshot.state is State.READING and snapshot.ranges >= 2 and bool(snapshot.remaining)


def require_one_reading(noted: TableSnapshot, done: TableSnapshot) -> None:
    """That a snapshot went on where it was, and has read the table once."""
    assert (done.id, done.began, done.log_ends) == (noted.id, noted.began, noted.log_ends)
    assert (done.state, done.remaining) == (State.DONE, ())
    assert done.ranges > noted.ranges
    assert done.rounds >= noted.rounds + (noted.round is None)  # a round counts when it begins
    # The round that was under way counts once, and the table is written meanwhile.
    assert KEYS * ROWS * 0.5 < done.rows < KEYS * ROWS * 1.3


def end(process: CommandProcess, ending: str) -> None:
    """SIGTERM or kill -9."""
    if ending == "killed":
        process.kill()
    else:
        assert process.stop() == 0, process.words()


@pytest.mark.promise("upgrade.installation")
@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_a_new_server_goes_on_with_the_snapshots_of_an_old_one(
    place: Place, former: tuple[str, ...], tmp_path: Path, ending: str
) -> None:
    """Into PostgreSQL, which merges, and into Kafka, where a row that was read twice would be there twice."""
    table, store, events = f"served_{ending}", Downstream(new_database()), Topics(place.kafka)
    place.create(table)
    name, url = f"{place.keyspace}.{table}", new_database()
    site = site_of(place, tmp_path, url, events)
    (tmp_path / "url").write_text(f"{store.url}\n")
    subscribe(site, former, name, "warehouse", "--type", "sql", "-o", f"url_file={tmp_path / 'url'}")
    subscribe(site, former, name, "events", "--sink", "events")
    with closing(Notes(url)) as notes, Writes(place, table, pause=0.1) as writes, ExitStack() as servers:

        def both(met: Callable[[str, TableSnapshot], bool]) -> bool:
            snapshots = notes.snapshots()
            return snapshots.keys() == {"warehouse", "events"} and all(met(*item) for item in snapshots.items())

        old = servers.enter_context(site.server("former", program=former))
        old.until(lambda: both(lambda _, value: is_in_progress(value)), SECONDS)
        begun = {key: value.id for key, value in notes.snapshots().items()}
        end(old, ending)
        noted = notes.snapshots()
        assert all(map(is_in_progress, noted.values())), noted
        site.declare("warehouse", {"type": "sql", "url": store.url})
        new = servers.enter_context(site.server("now"))
        new.until(lambda: f": subscriptions of {place.prefix} in" in new.words(), SECONDS)
        for key in noted:
            site.tailrace("alter", key, "--target", key)
        counted = writes.count
        assert {key: value.id for key, value in notes.snapshots().items()} == begun
        new.until(lambda: both(lambda key, value: value.ranges > noted[key].ranges), SECONDS)
        assert both(lambda key, value: without(noted[key].done, value.done) == ())
        new.until(lambda: both(lambda _, value: value.state.ended), SECONDS)
        count_at_end = writes.count
        assert count_at_end > counted
        new.until(lambda: writes.count > count_at_end + 20, SECONDS)
        writes.end()
        place.until_equal(store, table, SECONDS)
        new.until(lambda: places_of(events.records()) >= published(place, table), SECONDS)
        for key, value in notes.snapshots().items():
            require_one_reading(noted[key], value)
        assert new.stop() == 0, new.words()
    assert {row["state"] for row in site.states().values()} == {"active"}
    records = events.records()
    log = [record for record in records if "@" not in record["topic"]]
    assert len(places_of(records)) == len(records)  # each change, and each row, once
    assert places_of(log) == published(place, table)
    assert {record["topic"].partition("@")[2] for record in records} == {"", noted["events"].id}
    assert letters_in(place.kafka, place.prefix) == []
    store.close()


def site_of(place: Place, directory: Path, url: str, events: Topics) -> Site:
    """For the place's cluster; [sink.events] writes into Kafka."""
    shared = place.sections("unused")
    sink = {"type": "kafka", "topic": f"{events.prefix}-out.{{table}}"}
    sections: dict[str, Mapping[str, object]] = {
        "cluster": shared["cluster"],
        "tables": shared["tables"],
        "snapshot": SLOW,
        "sink.events": sink,
        "sink.events.kafka": {f'"{name}"': value for name, value in events.config.items()},
    }
    return Site(directory, place.kafka, place.prefix, url, sections, snapshot="initial")


@pytest.mark.promise("upgrade.installation")
@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_a_new_stream_goes_on_with_the_snapshot_of_an_old_one(
    place: Place, former_version: Former, tmp_path: Path, ground: Ground, sink: str, ending: str
) -> None:
    """An old one that is killed has just written a round, and not noted it: this version reads that round again."""
    table, target = f"{ending}_{'_'.join(sink.replace(',', '').split())}", SINKS[sink].new(ground)
    limits = SLOW if ending == "stopped" else LIMITS
    with copied(place, table, tmp_path, target, execution="driver", pause=0.1, limits=limits) as copy:
        if ending == "stopped":
            with copy.stream("former", former_version.program) as old:
                old.until(lambda: any(map(is_in_progress, copy.progress.tables)), SECONDS)
                end(old, ending)
        else:
            with copy.stream("former", (*former_version.script(DYING), Step.WRITTEN, "2")) as old:
                assert old.ended(SECONDS) == -signal.SIGKILL, old.words()
        [noted] = copy.progress.tables
        assert is_in_progress(noted), noted
        assert noted.round is not None or ending == "stopped"
        with copy.stream("now") as new:
            new.until(lambda: copy.progress.tables[0].ranges > noted.ranges, SECONDS)
            going_on = copy.progress.tables[0]
            assert without(noted.done, going_on.done) == ()
            assert noted.round is None or without(noted.round.tokens, going_on.done) == ()
            copy.finish(new)
            [done] = copy.progress.tables
            require_one_reading(noted, done)
            assert new.stop() == 0, new.words()


@pytest.mark.promise("upgrade.installation")
def test_a_new_command_goes_on_with_what_an_old_one_has_published(
    place: Place, former: tuple[str, ...], tmp_path: Path
) -> None:
    table, settings = fill(place.session, place.keyspace), place.settings("t")
    Announcer(settings).prepare()  # so that the topics are there to be looked at
    old = Command(tmp_path, settings, table, "--rows-per-second", "600", program=former)
    snapshot = kill_in_the_middle(old, settings)
    finish(Command(tmp_path, settings, table), settings, place.kafka, table, snapshot)
