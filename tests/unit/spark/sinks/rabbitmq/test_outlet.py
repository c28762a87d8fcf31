"""The RabbitMQ sink as far as it needs no broker: settings, messages, what may be under way at once."""

from __future__ import annotations

import logging
import socket
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_common.settings import load_settings
from tailrace_schemas.change import Change
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.batch.delivery import RecordId
from tailrace_spark.sinks.changelog.routes import Route, RouteError, word
from tailrace_spark.sinks.changelog.sink import OutgoingRecord, RecordForm
from tailrace_spark.sinks.rabbitmq.client import Message, RabbitmqClient, messages_of, rounds_of
from tailrace_spark.sinks.rabbitmq.settings import RabbitmqSinkSettings
from tailrace_spark.sinks.registry import open_sink
from tests.unit.spark.cassandra import Log, truncate
from tests.unit.spark.sinks.change_log_contract import PLAIN, STREAM
from tests.unit.tables import table

LOG = Log(PLAIN)
NAMED = table({"a": "text", "b": "int"}, {"c": "int"}, regular={"v": "text"}, keyspace="shop", name="named")
TRUNCATION = truncate(PLAIN, "a", 5)


def record(change: Change, place: RecordId | None = None) -> OutgoingRecord:
    """As the sink gives it to its outlet."""
    return OutgoingRecord(place or RecordId("t.shop.plain", 2, 7), change, STREAM, RecordForm(change.table))


def routing_key(change: Change) -> str:
    """What a change is routed by."""
    [message] = messages_of(record(change), "e", ["q"])
    return message.delivery[1][1]


def test_a_change_is_a_message_that_says_what_and_from_where() -> None:
    [message] = messages_of(record(LOG.insert((1,), (), 1_760_000_000_999_999, v="a")), "e", ["q0", "q1"])
    assert message.delivery[1] == ("e", '{"id":1}')
    assert message.properties["type"] == "tailrace.change.insert"
    assert message.properties["timestamp"] == 1_760_000_000
    headers = {"topic": "t.shop.plain", "partition": 2, "offset": 7, "table": "shop.plain"}
    assert message.properties["application_headers"] == headers
    assert b'"columns":{"v":"a"}' in message.body
    assert "columns" not in repr(message)


def test_its_id_is_of_its_place_alone() -> None:
    """So a change that comes again has it again, and no other change has it."""
    places = [RecordId("t", 1, 11), RecordId("t", 11, 1), RecordId("t1", 1, 1), RecordId("t", 1, 12)]
    ids = [messages_of(record(LOG.insert((1,), (), 1, v="a"), place), "e", [])[0].delivery[0] for place in places]
    assert len(set(ids)) == len(ids)
    again = messages_of(record(LOG.delete((2,), (), 9), places[0]), "other", [])[0].delivery[0]
    assert again == ids[0]
    assert ids[0] == "e2514c4b563de8d5c1115533529d1275"  # as sinks before this one made it


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(-1, None), (0, 0), (999_999, 0), (253_402_300_799_999_999, 253_402_300_799), (253_402_300_800_000_000, None)],
)
def test_write_times_that_amqp_cannot_say_are_left_out(written: int, seconds: int | None) -> None:
    [message] = messages_of(record(LOG.insert((1,), (), written, v="a")), "e", [])
    assert message.properties["timestamp"] == seconds


def test_a_truncation_goes_to_every_queue() -> None:
    messages = messages_of(record(TRUNCATION), "e", ["q0", "q1", "q2"])
    assert [message.delivery[1] for message in messages] == [("", "q0"), ("", "q1"), ("", "q2")]
    assert len({message.delivery[0] for message in messages}) == 1
    assert len({message.lane for message in messages}) == 3


def test_rows_of_a_partition_have_one_routing_key() -> None:
    log = Log(NAMED)
    rows = [log.insert(("é", 5), (at,), at, v="x") for at in range(3)]
    keys = {routing_key(one) for one in (*rows, log.delete_range(("é", 5), (1,), (2,), 9))}
    assert keys == {'{"a":"é","b":5}'}


def test_a_key_that_is_too_long_is_routed_by_its_beginning_and_a_hash() -> None:
    """A routing key has at most 255 bytes."""
    log = Log(NAMED)
    found = {
        length: routing_key(log.insert(("é" + "e" * (length - 1), 1), (1,), 1, v="x"))
        for length in (10, 240, 241, 1000)
    }
    assert [len(key.encode()) for key in found.values()] == [25, 255, 255, 255]
    assert len(set(found.values())) == len(found)
    assert found[1000].startswith('{"a":"éeee')
    assert found[1000] == routing_key(log.delete(("é" + "e" * 999, 1), (2,), 2))


def test_queues_of_a_long_exchange_have_names_that_rabbitmq_takes() -> None:
    settings = RabbitmqSinkSettings(url="amqp://h", exchange="é" * 127 + "e", queues=12)
    assert {len(name.encode()) for name in settings.queue_names} <= {254, 255}
    assert len(set(settings.queue_names)) == 12


@pytest.mark.promise("rabbitmq.order")
@given(st.lists(st.sampled_from("abc"), max_size=30))
def test_of_each_key_one_message_is_in_a_round(keys: list[str]) -> None:
    """Each goes out once, in its key's order, and in no more rounds than its key needs."""
    messages = [Message((str(number), ("e", key)), key, {}, b"") for number, key in enumerate(keys)]
    rounds = list(rounds_of(messages))
    assert all(len({message.lane for message in together}) == len(together) > 0 for together in rounds)
    assert len(rounds) == max(map(keys.count, keys), default=0)
    published = [message for together in rounds for message in together]
    for key in "abc":
        assert [one for one in published if one.lane == key] == [one for one in messages if one.lane == key]
    assert len(published) == len(messages)


def test_a_section_says_where_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "password").write_text("hunter2\n")
    path = tmp_path / "t.toml"
    path.write_text(
        '[sink.x]\ntype = "rabbitmq"\nurl = "amqps://rabbit.example.org/"\npassword_file = "password"\nqueues = 2\n'
    )
    section = load_settings(path, {}).sink["x"]
    assert isinstance(section, RabbitmqSinkSettings)
    assert (section.host, section.port, section.tls) == ("rabbit.example.org", 5671, True)
    assert section.queue_names == ("tailrace.changes.0", "tailrace.changes.1")
    assert section.location == "amqps://rabbit.example.org, exchange tailrace.changes"
    assert section.password is not None
    assert section.password.get_secret_value() == "hunter2"
    assert "hunter2" not in repr(section)


def test_certificates_are_looked_at_when_it_opens() -> None:
    settings = RabbitmqSinkSettings.model_validate({"url": "amqps://h", "tls_ca_file": "/none.pem"})
    with pytest.raises(SettingsError, match=r"^sink\.x\.tls_ca_file: /none\.pem: "):
        open_sink("x", settings, "p")


def test_a_host_that_does_not_answer_is_told_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    """In one line, without what the client library says besides."""
    settings = RabbitmqSinkSettings.model_validate({"url": "amqp://127.0.0.1:1", "password": "hunter2"})
    with caplog.at_level(logging.WARNING), pytest.raises(ServiceError) as raised:
        RabbitmqClient("x", settings).reach()
    problem = "Cannot connect to amqp://127.0.0.1:1, exchange tailrace.changes (connection refused)"
    assert str(raised.value) == f"{problem}. Start RabbitMQ or fix its address."
    assert caplog.records == []


def test_a_host_that_says_nothing_is_not_waited_for_longer_than_is_set() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = RabbitmqSinkSettings.model_validate(
            {"url": f"amqp://127.0.0.1:{silent.getsockname()[1]}", "timeout_seconds": 0.2}
        )
        with pytest.raises(ServiceError, match=r"no answer within 0\.2 s$"):
            RabbitmqClient("x", settings).reach()


def test_a_sink_that_was_never_used_is_closed() -> None:
    settings = RabbitmqSinkSettings.model_validate({"url": "amqp://127.0.0.1:1"})
    with closing(open_sink("x", settings, "p")) as sink:
        sink.close()


def test_a_route_of_ones_own_exchange_and_each_key_in_its_lane() -> None:
    """A truncation goes to the exchange too; of a route many keys are under way, of a key one message."""
    route, log = Route("{keyspace}.{key.a}", word), Log(NAMED)
    rows = [log.insert((name, number), (1,), 1, v="x") for name in ("d.e", "#") for number in (1, 2)]
    messages = [one for row in rows for one in messages_of(record(row), "e", ["q0", "q1"], route)]
    assert [message.delivery[1] for message in messages] == [("e", "shop.d%2Ee")] * 2 + [("e", "shop.%23")] * 2
    assert len({message.lane for message in messages}) == 4
    truncation = record(replace(TRUNCATION, table=NAMED))
    assert [one.delivery[1] for one in messages_of(truncation, "e", ["q0", "q1"], route)] == [("e", "shop.*")]
    with pytest.raises(RouteError, match="more than 255 bytes"):
        messages_of(record(log.insert(("x" * 251, 1), (1,), 1, v="x")), "e", [], route)
