"""Names of other programs' properties: the list is what they have, and the nearest of a misspelling."""

from __future__ import annotations

import pytest

from tailrace_common.properties.names import (
    REGISTRY_CLIENT,
    Judgement,
    java_consumer_fault,
    judge_property,
    librdkafka_fault,
    names_of,
    nearest_name,
    spark_fault,
)


@pytest.mark.parametrize("name", sorted(names_of("librdkafka")))
def test_librdkafka_has_every_property_of_the_list(name: str) -> None:
    assert judge_property(name, "1") is not Judgement.UNKNOWN


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(name for name in REGISTRY_CLIENT if not name.startswith("bearer.")))
def test_the_registrys_client_has_every_property_of_the_list(name: str) -> None:
    """Those of bearer tokens it knows only all together."""
    client = pytest.importorskip("confluent_kafka.schema_registry").SchemaRegistryClient
    words = ""
    try:
        client({"url": "http://127.0.0.1:1"} | {name: "http://127.0.0.1:1" if name == "url" else "a:b"})
    except (OSError, TypeError, ValueError) as error:  # the value is not one of its
        words = str(error)
    assert "Unrecognized properties" not in words


def test_the_registrys_client_refuses_others() -> None:
    client = pytest.importorskip("confluent_kafka.schema_registry").SchemaRegistryClient
    with pytest.raises(ValueError, match="Unrecognized properties"):
        client({"url": "http://127.0.0.1:1", "basic.auth.user_info": "a:b"})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("bootstrap_servers", "bootstrap.servers"),
        ("bootstrap-servers", "bootstrap.servers"),
        ("Bootstrap.Servers", "bootstrap.servers"),
        ("bootstrap.server", "bootstrap.servers"),
        ("sasl.user", "sasl.username"),
        ("security.protokol", "security.protocol"),
        ("zzz", None),
    ],
)
def test_the_nearest_name(name: str, nearest: str | None) -> None:
    assert nearest_name(name, names_of("librdkafka")) == nearest


@pytest.mark.promise("settings.wrong-property")
def test_no_known_name_is_taken_for_a_misspelling() -> None:
    assert [name for name in names_of("spark") if spark_fault(name)] == []
    assert [name for name in names_of("java_consumer") if java_consumer_fault(name, ())] == []


def test_a_refused_value_of_a_secret_is_not_shown() -> None:
    words = librdkafka_fault("sasl.oauthbearer.client.secret.\0", "hunter2")
    assert words is not None
    assert "hunter2" not in words


def test_judging_makes_no_client(capfd: pytest.CaptureFixture[str]) -> None:
    """It would start threads, and complain of the brokers that it has not."""
    for name, value in (("bootstrap.servers", "127.0.0.1:1"), ("debug", "all"), ("log_level", 7)):
        assert judge_property(name, value) is Judgement.TAKEN
    assert capfd.readouterr().err == ""
