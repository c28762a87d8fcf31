"""The registry that does not answer, and settings that its client refuses; what it answers is an integration test."""

from __future__ import annotations

from contextlib import closing

import pytest

from tailrace.errors import HeldError
from tailrace.local.ports import free_port
from tailrace.publish.registry import RegistryStore
from tailrace_schemas.avro import Encoder, SchemaIds, entry_from_record, schema_records
from tailrace_schemas.errors import SettingsError
from tests.unit.tables import table

TOPIC = "p.ks.t"
ENCODER = Encoder(table({"id": "int"}), "p")
IDS = SchemaIds(b"\x00\x00\x00\x07", b"\x00\x00\x00\x08")


def store(known: SchemaIds | None) -> RegistryStore:
    """Of a registry that is not there; `known`: under which ids the shape was announced before."""
    records = [] if known is None else schema_records(ENCODER, TOPIC, known)
    config = {"url": f"http://127.0.0.1:{free_port('127.0.0.1')}", "basic.auth.user.info": "user:geheim"}
    return RegistryStore(config, "TopicName", True, {key: entry_from_record(key, value) for key, value in records})


def test_a_shape_that_was_announced_needs_no_registry() -> None:
    with closing(store(IDS)) as registry:
        assert registry.ids(ENCODER, TOPIC) == IDS


@pytest.mark.parametrize("known", [None, SchemaIds(ENCODER.schema_id, ENCODER.key_schema_id)])
def test_a_new_shape_is_held_until_it_answers(known: SchemaIds | None) -> None:
    """Ids of the topic's own are not the registry's."""
    words = r"changes of ks\.t are held: Cannot connect to the schema registry at "
    with closing(store(known)) as registry, pytest.raises(HeldError, match=words) as caught:
        registry.ids(ENCODER, TOPIC)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"no.such.setting": 1}, r"no\.such\.setting"),
        ({"ssl.ca.location": "/nowhere/ca.pem"}, "No such file"),
        ({"basic.auth.user.info": "geheim"}, "username"),
    ],
)
def test_settings_that_the_client_refuses(more: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError, match=rf"schemas\.registry.*{says}") as caught:
        RegistryStore({"url": "http://127.0.0.1", **more}, "TopicName", True, {})
    assert "geheim" not in str(caught.value)
