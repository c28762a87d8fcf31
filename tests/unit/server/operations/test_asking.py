"""What is refused before it is kept, and in which words."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from tailrace_common.sections.sink import SinkSettings
from tailrace_common.settings.sinks import SINK_TYPES
from tailrace_schemas.errors import SettingsError
from tailrace_server.model.subscription import RefusedRequestError, Shape, Sink, TableName
from tailrace_server.operations.asking import Asked, checked, own_settings, targets
from tests.unit.server.requests import SECRET, TARGETS, settings

TABLE = TableName.parse("tailrace", "shop.orders")
DWH = Sink(type="sql", target="dwh")


def asked(**more: Any) -> Asked:
    return Asked(**{"table": "shop.orders", "name": "warehouse", "target": "dwh", **more})


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"options": {"tabel": "x"}}, "unknown setting options.tabel; did you mean table?"),
        ({"target": "dhw"}, 'target "dhw": there is no [sink.dhw] in the settings of this server; did you mean dwh?'),
        ({"target": "sql"}, "the targets: dwh, hook, lake, logs, memory, screen, topics"),
        ({"options": {"table": "{tabel}"}}, "sink.warehouse"),
        ({"target": "screen"}, "prints where the worker runs"),
        ({"target": "logs", "where": "id > 1"}, "where is not for log tables"),
        ({"where": "  "}, "a condition is missing"),
        ({"columns": {"email": "hide"}}, "email"),
        ({"columns": {"email": "hash"}}, "need hash_key"),
        ({"stream": {"trigger_second": 1}}, "unknown setting stream.trigger_second; did you mean trigger_seconds?"),
        ({"stream": {"checkpoint": "x"}}, "unknown setting stream.checkpoint; a subscription may set: accept_early"),
        ({"stream": {"trigger_seconds": "soon"}}, "stream.trigger_seconds must be a valid number"),
        ({"start": "yesterday"}, 'start "yesterday": must be earliest, latest, or a time'),
        ({"table": "orders"}, 'table "orders": must be KEYSPACE.TABLE'),
        ({"name": "a b"}, 'name "a b": may have letters'),
        ({"where": "x" * 10_001}, "where: has 10001 characters, and may have 10000"),
        ({"start": "\0"}, "start: has a character that is none"),
        ({"columns": {"email": "\ud800"}}, "columns.email: has a character that is none"),
        ({"columns": {"email": 5}}, "columns.email: must be a text"),
        ({"where": 5}, "where: must be a text"),
        ({"start": 5}, "start: must be a text"),
        ({"options": {"table": ["x"]}}, "options.table: must be a text, a number or true or false"),
        ({"stream": {"trigger_seconds": float("nan")}}, "stream.trigger_seconds: the number is too large, or none"),
        ({"stream": {"trigger_seconds": 10**20}}, "stream.trigger_seconds: the number is too large, or none"),
        ({"stream": dict.fromkeys(map(str, range(1001)), 1)}, "stream: has 1001 names, and may have 1000"),
    ],
)  # fmt: skip
@pytest.mark.promise("subscription.checked")
def test_what_is_wrong_is_refused_with_its_name(more: dict[str, Any], words: str) -> None:
    with pytest.raises(RefusedRequestError) as refused:
        checked(asked(**more), settings())
    assert words in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.promise("subscription.targets")
@pytest.mark.parametrize(
    ("target", "option", "value"),
    [
        ("dwh", "url", "mysql://evil/d?local_infile=1"),
        ("dwh", "url", "mysql://evil/d?read_default_file=/etc/shadow"),
        ("dwh", "url", "postgresql://evil/d?passfile=/etc/shadow&sslkey=/etc/shadow"),
        ("dwh", "url_file", "/etc/shadow"),
        ("dwh", "images", "sqlite:////etc/x"),
        ("hook", "url", "http://127.0.0.1/admin"),
        ("hook", "tls_ca_file", "/etc/shadow"),
        ("topics", "topic", "tailrace.shop.orders"),
        ("topics", "kafka.plugin.library.paths", "/home/x.so"),
        ("topics", "kafka.ssl.ca.location", "/etc/shadow"),
        ("topics", "kafka.metadata.broker.list", "evil:9092"),
        ("search", "url", "http://evil"),
        ("queue", "url", "amqp://evil"),
        ("ice", "catalog.py-catalog-impl", "os.system"),
        ("lake", "path", "/etc"),
        ("lake", "endpoint", "http://evil"),
        ("dwh", "type", "kafka"),
    ],
)
def test_a_request_leads_nowhere_but_to_its_target(target: str, option: str, value: object) -> None:
    more = {
        "search": {"type": "opensearch", "url": "https://h", "username": "u", "password": SECRET},
        "queue": {"type": "rabbitmq", "url": "amqps://h", "username": "u", "password": SECRET},
        "ice": {"type": "iceberg", "path": "/none"},
    }
    with pytest.raises(RefusedRequestError, match=f"unknown setting options.{option}; "):
        checked(asked(target=target, options={option: value}), settings({**TARGETS, **more}))


@pytest.mark.promise("subscription.targets")
@pytest.mark.parametrize("kind", SINK_TYPES.values(), ids=SINK_TYPES)
def test_what_a_subscription_may_set_is_a_name_in_the_store_or_a_size(kind: type[SinkSettings]) -> None:
    """Whoever adds one here says why it reaches no other thing than the sink's own."""
    names = {"table", "index"}
    for name in kind.by_subscription - names:
        annotation = kind.model_fields[name].annotation
        assert annotation is int or int in get_args(annotation), name


def test_a_request_has_no_secrets() -> None:
    request = checked(asked(), settings())
    assert request.sink == DWH
    assert SECRET not in repr(request)
    section = own_settings(settings(), TABLE, "w", request.sink, request.shape).sink["w"]
    assert SECRET in str(section.model_dump()["url"].get_secret_value())


def test_a_target_that_is_of_another_type_by_now_is_said() -> None:
    others = settings({**TARGETS, "dwh": {"type": "http", "url": "http://h/"}})
    with pytest.raises(SettingsError, match=r"\[sink.dwh\] is of type http by now, .*: cancel the subscription"):
        own_settings(others, TABLE, "w", DWH, Shape())


def test_each_has_a_directory_of_its_own_below_a_target_of_files() -> None:
    base = settings({"files": {"type": "files", "path": "/changes/"}})
    own = own_settings(base, TABLE, "w-7", Sink(type="files", target="files"), Shape())
    assert {name: section.location for name, section in own.sink.items()} == {"w-7": "/changes/w-7"}


def test_what_prints_is_no_target() -> None:
    assert targets(settings())["dwh"] == "sql"
    assert "screen" not in targets(settings())


def test_hashed_columns_take_the_servers_key() -> None:
    base = settings(stream={"hash_key": SECRET})
    assert checked(asked(columns={"email": "hash"}), base).shape.columns == {"email": "hash"}


def test_a_servers_own_stream_settings_hold_but_for_snapshots() -> None:
    """Those are for `tailrace stream`; server.snapshot is for subscriptions, once when they are made."""
    base = settings(stream={"snapshot": "initial", "trigger_seconds": 7})
    stream = own_settings(base, TABLE, "w", DWH, Shape(stream={"execution": "driver"})).stream
    assert (stream.snapshot, stream.trigger_seconds, stream.execution) == ("never", 7, "driver")
    stream = own_settings(base, TABLE, "w", DWH, Shape(stream={"snapshot": "only"})).stream
    assert stream.snapshot == "only"
    with pytest.raises(RefusedRequestError, match=r"stream\.snapshot"):
        checked(asked(stream={"snapshot": "first"}), base)
