"""Rows that Cassandra does not give, or gives otherwise than they are stored: by each way of reading them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable, Session
from cassandra.concurrent import execute_concurrent_with_args

from tailrace.cli.checks.cassandra import check_cassandra
from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tailrace_common.settings import Settings
from tailrace_schemas.change import Change
from tailrace_schemas.errors import ServiceError
from tailrace_spark.cli.snapshot import definition_of
from tailrace_spark.cli.support import read_settings
from tailrace_spark.comparison.source import source_rows
from tailrace_spark.snapshot.progress import State
from tailrace_spark.snapshot.publication import Publication, estimated
from tailrace_spark.snapshot.reading import UnreadableError
from tailrace_spark.snapshot.session import survey
from tailrace_spark.snapshot.settings import SnapshotSettings
from tests.integration.agents import create_keyspace, published, settings_for
from tests.integration.snapshot.comparing import run_here
from tests.integration.snapshot.following import placed
from tests.oracle.comparison import Downstream
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.long]

THRESHOLD: Final = 1000
"""More tombstones end a page, and its read."""
ROWS: Final = 20
SPARSE: Final = 200
"""Tombstones before each row: pages of four rows pass, and those of ten do not."""
TOMBSTONES: Final = CassandraSettings(
    yaml={"tombstone_warn_threshold": THRESHOLD // 2, "tombstone_failure_threshold": THRESHOLD}
)
MASKS: Final = CassandraSettings(
    yaml={
        "authenticator": "PasswordAuthenticator",
        "authorizer": "CassandraAuthorizer",
        "role_manager": "CassandraRoleManager",
        "dynamic_data_masking_enabled": True,
    }
)
CLEAR: Final = [(key, f"person {key}", key) for key in range(ROWS)]
COLUMNS: Final = "shop.people.age, shop.people.name"
MASKED: Final = f"Cassandra masks {COLUMNS} for this role: .* GRANT UNMASK ON TABLE shop.people"


def reading(settings: Settings, table: str, **options: object) -> SnapshotSettings:
    limits = {"consistency": "ONE", "concurrent_ranges": 2, "ranges": 4, "attempts": 2, **options}
    return read_settings(settings, table=table, rows="changes", prefix=settings.topics.prefix, **limits)


def changes(settings: SnapshotSettings) -> Iterator[Change]:
    """The rows of a table as tasks read them; nobody looks at it before."""
    with_masks = survey(settings.model_copy(update={"allow_masked_values": True}))
    source = replace(with_masks.reading, settings=settings)
    return (row.change for row in source_rows(source, with_masks.splits(), 1))


def fill(session: Session, table: str, tombstones: int) -> None:
    """Rows of one partition, each behind so many deleted ones."""
    session.execute(f"CREATE TABLE {table} (k int, c int, v text, PRIMARY KEY (k, c))")
    delete = session.prepare(f"DELETE FROM {table} WHERE k = 1 AND c = ?")
    insert = session.prepare(f"INSERT INTO {table} (k, c, v) VALUES (1, ?, 'v')")
    step = tombstones + 1
    gone = [(row * step + number,) for row in range(ROWS) for number in range(tombstones)]
    execute_concurrent_with_args(session, delete, gone, concurrency=64)
    execute_concurrent_with_args(session, insert, [(row * step + tombstones,) for row in range(ROWS)])
    session.execute(f"ALTER TABLE {table} WITH cdc = true")


@pytest.mark.promise("snapshot.unreadable")
def test_one_range_behind_too_many_tombstones_is_its_tables_failure_and_no_others(
    kafka: LocalKafka, spark: SparkSession, tmp_path: Path
) -> None:
    with (
        LocalCassandra(tmp_path / "node", TOMBSTONES) as node,
        placed(node, kafka, tmp_path, spark) as place,
    ):
        dead, plain, sparse = (f"{place.keyspace}.{name}" for name in ("dead", "plain", "sparse"))
        fill(place.session, dead, THRESHOLD + 10)
        fill(place.session, plain, 0)
        fill(place.session, sparse, SPARSE)
        limits = {"page_rows": 5000, "attempts": 2}
        settings = place.settings("(dead|plain|sparse)", "only", limits=limits)
        store = Downstream(f"sqlite:///{tmp_path / 'copy.db'}")
        with closing(store), closing(store.open(lambda: 1e9)) as sink:
            stream = place.stream(sink, settings)
            stream.run()
            states = {snapshot.table: snapshot for snapshot in stream.snapshots.tables}
            assert {name: snapshot.state for name, snapshot in states.items()} == {
                dead: State.REFUSED,
                plain: State.DONE,
                sparse: State.DONE,
            }
            words = states[dead].reason
            assert f"of {dead} cannot be read, not even a row at a time: " in words
            assert "tombstone" in words.lower()
            assert "raise that, or compact the table" in words
            assert len(store.rows(place.table("plain"))) == len(store.rows(place.table("sparse"))) == ROWS
        # The other ways pass the same reader.
        assert len(list(changes(reading(settings, sparse)))) == ROWS
        assert estimated(reading(settings, sparse)).rows is not None
        with pytest.raises(UnreadableError, match=f"of {dead} cannot be read"):
            list(changes(reading(settings, dead)))
        publication = Publication(settings, reading(settings, dead, ranges=16))
        with pytest.raises(ServiceError, match=f"range .* of {dead}: .* cannot be read, not even a row at a time"):
            publication.publish(run_here)
        totals, left = publication.totals()
        assert (totals.done, len(left)) == (totals.ranges - 1, 1)


@contextmanager
def login(node: LocalCassandra, user: str, password: str) -> Iterator[Session]:
    """A session of a role. Its superuser is made by a node some time behind its start."""

    def connected() -> Session | None:
        cluster = Cluster(
            [node.address], port=node.port, auth_provider=PlainTextAuthProvider(user, password), protocol_version=5
        )
        try:
            return cluster.connect()
        except NoHostAvailable:
            cluster.shutdown()
            return None

    session = until(connected, f"a session of {user}", 120)
    assert session is not None
    try:
        yield session
    finally:
        session.cluster.shutdown()


@pytest.fixture(scope="module")
def masking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalCassandra, Session]]:
    """A node that masks, with a session of its superuser."""
    with (
        LocalCassandra(tmp_path_factory.mktemp("masking") / "node", MASKS) as node,
        login(node, "cassandra", "cassandra") as session,
    ):
        create_keyspace(session, "shop")
        session.execute(
            "CREATE TABLE shop.people (id int PRIMARY KEY, name text MASKED WITH mask_inner(1, null), "
            "age int MASKED WITH DEFAULT) WITH cdc = true"
        )
        for row in CLEAR:
            session.execute("INSERT INTO shop.people (id, name, age) VALUES (%s, %s, %s)", row)
        yield node, session


@pytest.fixture
def role(masking: tuple[LocalCassandra, Session], keyspace_name: str) -> Iterator[str]:
    """A role that may read, and no more."""
    _, session = masking
    session.execute(f"CREATE ROLE {keyspace_name} WITH PASSWORD = 'p' AND LOGIN = true")
    for keyspace in ("shop", "system", "system_schema"):
        session.execute(f"GRANT SELECT ON KEYSPACE {keyspace} TO {keyspace_name}")
    yield keyspace_name
    session.execute(f"DROP ROLE {keyspace_name}")


def settings_of(
    node: LocalCassandra, kafka: LocalKafka, prefix: str, role: str, **sections: Mapping[str, object]
) -> Settings:
    given = settings_for(node, kafka, prefix, "shop")
    given["cluster"] |= {"username": role, "password": "p"}
    return Settings.model_validate({**given, **sections})


def people(settings: SnapshotSettings) -> list[tuple[int, str, int]]:
    """What a read gives of them."""
    rows = []
    for change in changes(settings):
        cells = {cell.column.name: cell.value or b"" for cell in change.cells}
        age = int.from_bytes(cells["age"], "big", signed=True)
        rows.append((int.from_bytes(change.key or b"", "big"), cells["name"].decode(), age))
    return sorted(rows)


def given(settings: SnapshotSettings) -> bool:
    """Whether a read gives what is stored; what it gives is never anything else, though nodes keep rights for 2 s."""
    try:
        rows = people(settings)
    except ServiceError:
        return False
    assert rows == CLEAR
    return True


@pytest.mark.promise("snapshot.masked")
def test_masked_values_are_taken_for_data_by_nobody(
    masking: tuple[LocalCassandra, Session], kafka: LocalKafka, prefix: str, role: str
) -> None:
    node, session = masking
    settings = settings_of(node, kafka, prefix, role, stream={"snapshot": "initial"})
    asked = reading(settings, "shop.people")
    for read in (survey, estimated, people):
        with pytest.raises(UnreadableError, match=MASKED):
            read(asked)
    with pytest.raises(UnreadableError, match=MASKED):
        Publication(settings, asked)
    with pytest.raises(UnreadableError, match=MASKED):
        definition_of(settings, "shop.people")
    failed = [row for row in check_cassandra(settings) if row.name == "masked columns"]
    assert [row.ok for row in failed] == [False]
    assert COLUMNS in failed[0].detail
    # Whoever gets masked values by asking for them has them.
    allowed = settings_of(node, kafka, prefix, role, snapshot={"allow_masked_values": True})
    [*_, (_, name, age)] = people(reading(allowed, "shop.people"))
    assert (name[0], set(name[1:]), age) == ("p", {"*"}, 0)
    assert not [row for row in check_cassandra(allowed) if row.name == "masked columns"]
    session.execute(f"GRANT UNMASK ON KEYSPACE shop TO {role}")
    until(lambda: given(asked), "a grant that counts")
    assert not [row for row in check_cassandra(settings) if row.name == "masked columns"]
    publication = Publication(settings, asked)
    publication.publish(run_here)
    records = published(kafka, prefix, f"{prefix}.shop.people")
    values = {cell.value for record in records for cell in record.change.cells}
    assert {name.encode() for _, name, _ in CLEAR} <= values


@pytest.mark.promise("snapshot.masked")
def test_rights_count_wherever_they_come_from(
    masking: tuple[LocalCassandra, Session], kafka: LocalKafka, prefix: str, role: str
) -> None:
    node, session = masking
    asked = reading(settings_of(node, kafka, prefix, role), "shop.people")
    session.execute(f"CREATE ROLE {role}_group")
    for grant, revoke in (
        (f"GRANT UNMASK ON TABLE shop.people TO {role}", f"REVOKE UNMASK ON TABLE shop.people FROM {role}"),
        (f"GRANT UNMASK ON ALL KEYSPACES TO {role}", f"REVOKE UNMASK ON ALL KEYSPACES FROM {role}"),
        (f"GRANT {role}_group TO {role}", f"REVOKE {role}_group FROM {role}"),
        (f"ALTER ROLE {role} WITH SUPERUSER = true", f"ALTER ROLE {role} WITH SUPERUSER = false"),
    ):
        session.execute(f"GRANT UNMASK ON TABLE shop.people TO {role}_group")
        session.execute(grant)
        until(lambda: given(asked), grant)
        session.execute(revoke)
        until(lambda: not given(asked), revoke)
        with pytest.raises(UnreadableError, match=MASKED):
            people(asked)
    session.execute(f"GRANT SELECT_MASKED ON TABLE shop.people TO {role}")  # of conditions: values stay masked
    with pytest.raises(UnreadableError, match=MASKED):
        people(asked)
    session.execute(f"DROP ROLE {role}_group")


@pytest.mark.promise("snapshot.masked")
def test_a_mask_that_comes_while_a_range_is_read_ends_the_read(
    masking: tuple[LocalCassandra, Session], kafka: LocalKafka, prefix: str, role: str
) -> None:
    node, session = masking
    session.execute("CREATE TABLE shop.later (k int, c int, v text, PRIMARY KEY (k, c))")
    for number in range(50):
        session.execute("INSERT INTO shop.later (k, c, v) VALUES (1, %s, 'clear')", (number,))
    rows = changes(reading(settings_of(node, kafka, prefix, role), "shop.later", page_rows=5))
    values = {cell.value for _ in range(5) for cell in next(rows).cells}
    session.execute("ALTER TABLE shop.later ALTER v MASKED WITH DEFAULT")
    with pytest.raises(UnreadableError, match=r"masks shop\.later\.v"):
        values.update(cell.value for change in rows for cell in change.cells)
    assert values == {b"clear"}
