"""A server of the last version and this one on one meta database, with snapshots under way when the upgrade comes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import pytest
import sqlalchemy as sa

from tailrace_server.meta.tables import snapshot_progress
from tailrace_server.meta.tables import subscribe as subscriptions
from tailrace_spark.snapshot.progress import State, TableSnapshot, snapshots_from_json
from tailrace_spark.snapshot.ranges import without
from tests.integration.letters import letters_in
from tests.integration.server.servers import Site
from tests.integration.server.snapshots import places_of, published, site_of
from tests.integration.snapshot.following import KEYS, ROWS, Place, Writes
from tests.integration.topics import Topics
from tests.oracle.comparison import Downstream
from tests.postgres import new_database

SECONDS: Final = 900  # of a machine that has more to do


def subscribe(site: Site, program: tuple[str, ...], table: str, target: str) -> None:
    """`tailrace subscribe` of a version: this one's would bring the meta database up to date before its time."""
    words = ["subscribe", table, "--name", target, "--target", target, "-c", str(site.config)]
    answer = subprocess.run(
        [sys.executable, *program, *words],
        cwd=site.directory, env=dict(os.environ), capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr


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
    assert without(noted.done, done.done) == ()
    assert done.ranges > noted.ranges
    assert done.rounds >= noted.rounds + (noted.round is None)  # a round counts when it begins
    # The round that was under way counts once, and the table is written meanwhile.
    assert KEYS * ROWS * 0.5 < done.rows < KEYS * ROWS * 1.3


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.promise("upgrade.installation")
def test_a_new_server_goes_on_with_what_an_old_one_ran(place: Place, former: tuple[str, ...], tmp_path: Path) -> None:
    """Into PostgreSQL, which merges, and into Kafka, where a row that was read twice would be there twice."""
    table, store, events, url = "served", Downstream(new_database()), Topics(place.kafka), new_database()
    place.create(table)
    site = site_of(place, tmp_path, url=url, rows_per_second=15)
    site.declare("warehouse", {"type": "sql", "url": store.url})
    site.declare("events", {"type": "kafka", "topic": f"{events.prefix}-out.{{table}}", "kafka": events.config})
    for target in ("warehouse", "events"):
        subscribe(site, former, f"{place.keyspace}.{table}", target)
    with closing(Notes(url)) as notes, Writes(place, table, pause=0.1) as writes, ExitStack() as servers:

        def both(met: Callable[[TableSnapshot], bool]) -> bool:
            snapshots: Mapping[str, TableSnapshot] = notes.snapshots()
            return snapshots.keys() == {"warehouse", "events"} and all(map(met, snapshots.values()))

        old = servers.enter_context(site.server("former", program=former))
        old.until(lambda: both(is_in_progress), SECONDS)
        old.kill()
        noted = notes.snapshots()
        assert all(map(is_in_progress, noted.values())), noted
        new = servers.enter_context(site.server("now"))
        new.until(lambda: both(lambda snapshot: snapshot.state.ended), SECONDS)
        ended = writes.count
        new.until(lambda: writes.count > ended + 20, SECONDS)
        writes.end()
        place.until_equal(store, table, SECONDS)
        new.until(lambda: places_of(events.records()) >= published(place, table), SECONDS)
        for name, snapshot in notes.snapshots().items():
            require_one_reading(noted[name], snapshot)
        assert new.stop() == 0, new.words()
    assert {row["state"] for row in site.states().values()} == {"active"}
    records = events.records()
    log = [record for record in records if "@" not in record["topic"]]
    assert len(places_of(records)) == len(records)  # each change, and each row, once
    assert places_of(log) == published(place, table)
    assert {record["topic"].partition("@")[2] for record in records} == {"", noted["events"].id}
    assert letters_in(place.kafka, place.prefix) == []
    store.close()
