"""The data source's options: what is wrong is named, and no secret is among them or in what is shown of them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tailrace_common.settings import Settings, settings_from
from tailrace_schemas.errors import SettingsError
from tailrace_spark.cli import support
from tailrace_spark.job import snapshot_context
from tailrace_spark.snapshot.ranges import TokenRange
from tailrace_spark.snapshot.settings import settings_of

SECRET = "tr0ub4dor"  # noqa: S105 - of no account


def test_options_are_text_of_any_case() -> None:
    settings = settings_of(
        {"path": "shop.orders", "Contact_Points": "10.0.0.1, 10.0.0.2", "PORT": "9142", "columns": "id,total",
         "details": "false", "concurrent_ranges": "4", "rows_per_second": "1000"}, {},
    )  # fmt: skip
    assert settings.name == ("shop", "orders")
    assert settings.contact_points == ("10.0.0.1", "10.0.0.2")
    assert (settings.port, settings.columns, settings.details) == (9142, ("id", "total"), False)
    assert (settings.rows_per_second, settings.within) == (1000, (TokenRange(),))


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, "option table: "),
        ({"table": "orders"}, "option table: must be KEYSPACE.TABLE"),
        ({"table": "a.b", "colums": "x"}, "unknown option colums; did you mean columns?"),
        ({"table": "a.b", "zzz": "x"}, "unknown option zzz; options are contact_points, port, "),
        ({"table": "a.b", "consistency": "SOME"}, "option consistency: "),
        ({"table": "a.b", "page_rows": "0"}, "option page_rows: "),
        ({"table": "a.b", "rows_per_second": "5"}, "rows_per_second needs concurrent_ranges"),
        ({"table": "a.b", "username": "u"}, "username needs password or password_file"),
        ({"table": "a.b", "username": "u", "password_env": "NO_SUCH"}, "there is no variable NO_SUCH"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], fault: str) -> None:
    with pytest.raises(SettingsError) as raised:
        settings_of(options, {})
    assert fault in str(raised.value)


@pytest.mark.parametrize("name", ["password", "Password", "tls_key_password"])
def test_a_secret_is_no_option_because_spark_shows_options(name: str) -> None:
    with pytest.raises(SettingsError, match=f"give {name.lower()}_file, a file, or {name.lower()}_env") as raised:
        settings_of({"table": "a.b", "username": "u", name: SECRET}, {})
    assert SECRET not in str(raised.value)


def test_secrets_come_from_files_and_variables_travel_to_executors_and_are_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    for options in ({"password_file": str(file)}, {"password_env": "SNAPSHOT_PASSWORD"}):
        settings = settings_of({"table": "a.b", "username": "u", **options}, {"SNAPSHOT_PASSWORD": SECRET})
        again = pickle.loads(pickle.dumps(settings))  # noqa: S301 - as Spark does
        assert again.password is not None
        assert again.password.get_secret_value() == SECRET
        assert SECRET not in repr(again) + str(again)


@pytest.mark.promise("snapshot.masked")
@pytest.mark.parametrize("allowed", [False, True])
def test_commands_and_streams_take_masked_values_as_the_settings_say(allowed: bool) -> None:
    settings: Settings = settings_from({"snapshot": {"allow_masked_values": allowed}}, "the test")
    by_command = support.read_settings(settings, table="shop.orders")
    by_stream = snapshot_context.stream_settings(settings, table="shop.orders")
    assert (by_command.allow_masked_values, by_stream.allow_masked_values) == (allowed, allowed)
