"""What is refused before it is kept, and in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace_common.settings import Settings, settings_from
from tailrace_server.model.errors import RefusedRequestError
from tailrace_server.model.subscription import Shape, TableName
from tailrace_server.operations.asking import Asked, checked, refuse_files
from tailrace_server.operations.sections import section_of
from tests.unit.server.requests import SECRET

SQL = {"type": "sql", "url": f"postgresql://u:{SECRET}@host/d"}


def asked(**more: Any) -> Asked:
    return Asked(**{"table": "shop.orders", "name": "warehouse", "sink": SQL, **more})


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"sink": {**SQL, "tabel": "x"}}, "unknown setting sink.warehouse.tabel; did you mean sink.warehouse.table?"),
        ({"sink": {"type": "sqll"}}, 'type must be "sql"'),
        ({"sink": {**SQL, "on_drop": "explode"}}, "on_drop must be 'keep', 'clear' or 'new-table', not"),
        ({"sink": {"type": "kafka", "topic": "{tabel}"}}, "sink.warehouse"),
        ({"sink": {"type": "console"}}, "prints where the worker runs"),
        ({"sink": {"type": "log-tables", "contact_points": ["h"]}, "where": "id > 1"}, "where is not for log tables"),
        ({"where": "  "}, "a condition is missing"),
        ({"columns": {"email": "hide"}}, "email"),
        ({"columns": {"email": "hash"}}, "need hash_key"),
        ({"stream": {"trigger_second": 1}}, "unknown setting stream.trigger_second; did you mean trigger_seconds?"),
        ({"stream": {"checkpoint": "x"}}, "unknown setting stream.checkpoint; a subscription may set accept_early"),
        ({"stream": {"trigger_seconds": "soon"}}, "stream.trigger_seconds must be a valid number"),
        ({"start": "yesterday"}, 'start "yesterday": must be earliest, latest, or a time'),
        ({"table": "orders"}, 'table "orders": must be KEYSPACE.TABLE'),
        ({"name": "a b"}, 'name "a b": may have letters'),
    ],
)  # fmt: skip
@pytest.mark.promise("subscription.checked")
def test_what_is_wrong_is_refused_with_its_name(more: dict[str, Any], words: str) -> None:
    with pytest.raises(RefusedRequestError) as refused:
        checked(asked(**more), Settings())
    assert words in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_request_has_its_secrets_apart(tmp_path: Path) -> None:
    (tmp_path / "url").write_text(f"postgresql://u:{SECRET}@host/d\n")
    for sink in (SQL, {"type": "sql", "url_file": str(tmp_path / "url")}):
        request = checked(asked(sink=sink), Settings())
        assert request.settings == SQL
        assert request.sink.target == "postgresql://host/d"
        assert request.sink.shown == {"type": "sql", "url": "**********"}
        assert SECRET not in repr(request)


def test_passed_through_settings_have_their_secrets_hidden() -> None:
    sink = {"type": "kafka", "kafka": {"bootstrap.servers": "other:9092", "sasl.password": SECRET}}
    request = checked(asked(sink=sink), Settings())
    assert request.settings == sink
    assert request.sink.shown["kafka"] == {"bootstrap.servers": "other:9092", "sasl.password": "**********"}


def test_hashed_columns_take_the_servers_key() -> None:
    base = settings_from({"stream": {"hash_key": SECRET}}, "test")
    assert checked(asked(columns={"email": "hash"}), base).shape.columns == {"email": "hash"}


def test_targets_may_be_limited() -> None:
    base = settings_from({"server": {"targets": ["postgresql://host/*"]}}, "test")
    assert checked(asked(), base).sink.target == "postgresql://host/d"
    elsewhere = {"type": "sql", "url": "sqlite:///etc/passwd"}
    with pytest.raises(RefusedRequestError, match=r"writes to sqlite:///etc/passwd, and this server allows only"):
        checked(asked(sink=elsewhere), base)


@pytest.mark.parametrize(
    ("sink", "name"),
    [
        ({"url_file": "/etc/shadow"}, "sink.url_file: .* as url"),
        ({"kafka": {"sasl.password_file": "/etc/shadow"}}, r"sink.kafka.sasl.password_file"),
    ],
)
def test_no_file_of_the_server_is_named_over_http(sink: dict[str, Any], name: str) -> None:
    with pytest.raises(RefusedRequestError, match=name):
        refuse_files(sink)


def test_a_servers_own_stream_settings_hold_but_for_snapshots() -> None:
    """Those are for `tailrace stream`; server.snapshot is for subscriptions, once when they are made."""
    base = settings_from({"stream": {"snapshot": "initial", "trigger_seconds": 7}}, "test")
    table = TableName.parse("tailrace", "shop.orders")
    _, stream = section_of(base, table, "w", SQL, Shape(stream={"execution": "driver"}))
    assert (stream.snapshot, stream.trigger_seconds, stream.execution) == ("never", 7, "driver")
    _, stream = section_of(base, table, "w", SQL, Shape(stream={"snapshot": "only"}))
    assert stream.snapshot == "only"
    with pytest.raises(RefusedRequestError, match=r"stream\.snapshot"):
        checked(asked(stream={"snapshot": "first"}), base)
