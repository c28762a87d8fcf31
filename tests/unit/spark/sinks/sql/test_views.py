"""Rights on a view in PostgreSQL, its comments, options, owner and what is built on it outlive every ALTER and DROP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final
from uuid import UUID, uuid4

import pytest

from tailrace_schemas.change import Change
from tailrace_schemas.table import Table
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.sql.catalog import OnDrop
from tailrace_spark.sinks.sql.sink import SqlSink
from tests import mariadb, postgres
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database, piece
from tests.unit.tables import table

pytestmark = pytest.mark.slow

BEGIN: Final = UUID("11111111-0000-1000-8000-000000000000")


def people(*regular: str, dropped: tuple[str, ...] = (), static: tuple[str, ...] = (), table_id: UUID = BEGIN) -> Table:
    """The table of this moment; all columns but the key's are texts."""
    return table(
        {"id": "int"}, {"c": "int"}, dict.fromkeys(static, "text"), dict.fromkeys(regular, "text"),
        keyspace="shop", name="people", table_id=table_id, dropped=dict.fromkeys(dropped, ("text", 5)),
    )  # fmt: skip


OLD: Final = people("name", "town")


class Watched(Database):
    """A database in which a view has been given away, by names of roles of its own."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.reader, self.other, self.owner = (f"{name}_{uuid4().hex[:8]}" for name in ("reader", "Other", "owner"))
        self.run(*[f'CREATE ROLE "{role}"' for role in self.roles], f'GRANT CREATE ON SCHEMA public TO "{self.owner}"')

    @property
    def roles(self) -> tuple[str, ...]:
        return self.reader, self.other, self.owner

    def run(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def give(self) -> None:
        """What an administrator does once the view is there. Its new owner reads the tables below by his own rights."""
        self.run(
            f'GRANT SELECT ON ALL TABLES IN SCHEMA public TO "{self.owner}"',
            f'ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO "{self.owner}"',
            f'REVOKE ALL ON shop_people FROM "{self.owner}"',
            f'GRANT SELECT ON shop_people TO "{self.reader}" WITH GRANT OPTION',
            f'GRANT SELECT (id, name) ON shop_people TO "{self.other}"',
            "GRANT SELECT ON shop_people TO PUBLIC",
            "COMMENT ON VIEW shop_people IS 'it''s 100 %% ours'",
            "COMMENT ON COLUMN shop_people.name IS 'a name'",
            "ALTER VIEW shop_people SET (security_barrier = true)",
            f'ALTER VIEW shop_people OWNER TO "{self.owner}"',
            f'ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT INSERT ON TABLES TO "{self.other}"',
        )

    def given(self, view: str = "shop_people") -> tuple[Any, ...]:
        """What there is of it."""
        one = f"SELECT CAST(%s AS text) FROM pg_class WHERE oid = '{view}'::regclass"
        [(acl,)] = self.select(one % "relacl")
        [(options,)] = self.select(one % "reloptions")
        [(comment,)] = self.select(one % "obj_description(oid)")
        [(owner,)] = self.select(one % "pg_get_userbyid(relowner)")
        columns = self.select(
            f"SELECT attname, CAST(attacl AS text), col_description(attrelid, attnum) FROM pg_attribute "
            f"WHERE attrelid = '{view}'::regclass AND (attacl IS NOT NULL OR col_description(attrelid, attnum) <> '')"
        )
        return sorted(acl.strip("{}").split(",")), options, comment, owner, columns


@pytest.fixture
def database() -> Iterator[Watched]:
    """PostgreSQL's; the others' rights are those of a name, or there are none."""
    watched = Watched(postgres.new_database())
    yield watched
    watched.run(
        *[f'DROP OWNED BY "{role}" CASCADE' for role in watched.roles],
        *[f'DROP ROLE "{role}"' for role in watched.roles],
    )
    watched.close()


def write(database: Database, *changes: Change, on_drop: OnDrop = "keep", announced: int = 0) -> None:
    with closing(SqlSink(database.url, on_drop=on_drop)) as sink:
        done = write_here(sink, [piece(changes, announced=announced)])
    assert done.deferred == 0, done.refused


def insert(of: Table, number: int = 1, **values: str) -> Change:
    return Log(of).insert((number,), (1,), 10 * number, **values)


def test_a_view_that_gets_a_column_stays_the_same_object(database: Watched) -> None:
    """Security labels, publications of other tools and who waits for its lock know it by that."""
    oid = "SELECT CAST('shop_people'::regclass AS oid)"
    write(database, insert(OLD, name="Ada", town="London"))
    before = database.select(oid)
    write(database, insert(people("name", "town", "street"), 2, name="Bo", street="High"))
    assert database.select(oid) == before
    assert database.select("SELECT id, street FROM shop_people ORDER BY id") == [(1, None), (2, "High")]


ALTERED: Final = {
    "a column is added": people("name", "town", "street"),
    "a static column is added": people("name", "town", static=("firm",)),
    "a column is dropped": people("name", dropped=("town",)),
    "one is dropped, and others are added": people("name", "a", "b", dropped=("town",), static=("firm",)),
}


@pytest.mark.parametrize("built", [False, True], ids=["alone", "with a view built on it"])
@pytest.mark.parametrize("altered", ALTERED.values(), ids=ALTERED)
def test_an_altered_table_leaves_rights(database: Watched, altered: Table, built: bool) -> None:
    write(database, insert(OLD, name="Ann", town="Rome"))
    database.give()
    before = database.given()
    if built:
        database.run("CREATE VIEW mine AS SELECT id, name FROM shop_people")
    write(database, insert(altered, 2, name="Bob"), announced=1)
    assert database.given() == before
    assert database.select("SELECT id, name FROM shop_people") == [(1, "Ann"), (2, "Bob")]
    if built:
        assert database.select("SELECT * FROM mine") == [(1, "Ann"), (2, "Bob")]


@pytest.mark.parametrize("built", [False, True], ids=["alone", "with a view built on it"])
@pytest.mark.parametrize("columns", [("name", "town"), ("name",), ("a", "name")], ids=["as before", "fewer", "others"])
@pytest.mark.parametrize("on_drop", ["keep", "clear"])
def test_a_table_made_again_leaves_rights(
    database: Watched, on_drop: OnDrop, columns: tuple[str, ...], built: bool
) -> None:
    write(database, insert(OLD, name="Ann", town="Rome"), on_drop=on_drop)
    database.give()
    before = database.given()
    if built:
        database.run("CREATE VIEW mine AS SELECT id, name FROM shop_people")
    again = people(*columns, table_id=uuid4())
    write(database, insert(again, 2, name="Bob"), on_drop=on_drop, announced=1)
    assert database.given() == before
    assert database.select("SELECT id, name FROM shop_people") == [(2, "Bob")]
    if built:
        assert database.select("SELECT * FROM mine") == [(2, "Bob")]
    if on_drop == "keep":
        kept = f"shop_people__dropped_{BEGIN.hex[:8]}"
        assert database.given(kept) == before
        assert database.select(f"SELECT id, name, town FROM {kept}") == [(1, "Ann", "Rome")]


def test_what_is_built_on_a_column_that_is_of_another_type_is_named(database: Watched) -> None:
    """Nobody can build it again but who built it; the changes wait for that."""
    write(database, insert(OLD, name="Ann", town="Rome"))
    database.run("CREATE VIEW mine AS SELECT id, name FROM shop_people")
    again = table({"id": "int"}, {"c": "int"}, {}, {"name": "int"}, keyspace="shop", name="people", table_id=uuid4())
    with closing(SqlSink(database.url)) as sink:
        done = write_here(sink, [piece([Log(again).insert((2,), (1,), 20, name=5)], announced=1)])
    assert done.refused == {
        "shop.people": 'cannot change data type of view column "name" from text to integer: drop what was built on it, '
        "and create that again afterwards"
    }
    assert database.select("SELECT * FROM mine") == [(1, "Ann")]


@pytest.mark.long
def test_mysql_keeps_whose_rights_a_view_has() -> None:
    if trouble := mariadb.missing():
        pytest.skip(trouble)
    database = Database(mariadb.new_database())
    write(database, insert(OLD, name="Ann", town="Rome"))
    with database.engine.begin() as connection:
        [(_, made, *_)] = connection.exec_driver_sql("SHOW CREATE VIEW shop_people").all()
        connection.exec_driver_sql(
            made.replace("SQL SECURITY DEFINER", "SQL SECURITY INVOKER").replace("CREATE", "CREATE OR REPLACE", 1)
        )
    write(database, insert(ALTERED["a column is added"], 2, name="Bob"), announced=1)
    security = "SELECT security_type FROM information_schema.views WHERE table_schema = database()"
    assert database.select(security) == [("INVOKER",)]
    assert database.select("SELECT id, name FROM shop_people") == [(1, "Ann"), (2, "Bob")]
    database.close()
