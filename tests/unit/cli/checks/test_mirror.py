"""`tailrace check` of the mirror, on tables in memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tailrace.cli.checks.cassandra import check_mirror
from tailrace.topology.mirror import Mirror
from tailrace.topology.mirror_plan import IdForm, MirrorOptions, MirrorTable, Step
from tailrace_common.cli.checks import Check
from tailrace_common.sections.agent import MirrorSettings
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.ring import Node, Ring
from tests.unit.topology.mirror_memory import MemoryStore, published

BEGIN = 1_760_000_000_000
APART = 100_000
RING = Ring((Node("a", "dc1", (1, 2)), Node("b", "dc1", (3, 4))))
GENERATIONS = published(RING, RING, begin=BEGIN, apart=APART)
TIMES = [one.timestamp for one in GENERATIONS]
REPLICATION = {"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", "dc1": "2"}


def mirrored() -> MemoryStore:
    store = MemoryStore()
    Mirror(store, MirrorOptions()).update(GENERATIONS, BEGIN)
    return store


def rows(
    store: MemoryStore,
    settings: MirrorSettings | None = None,
    *,
    replication: dict[str, str] | None = None,
    times: Sequence[int] = TIMES,
) -> dict[str, Check]:
    there = None if store.tables is None else replication or REPLICATION
    settings = settings or MirrorSettings(keyspace="mirror")
    return {row.name: row for row in check_mirror(settings, store, there, RING, times)}


def test_a_mirror_as_it_must_be() -> None:
    found = rows(mirrored())
    assert [name for name, row in found.items() if row.ok] == [
        "mirror",
        "mirror replication",
        "mirror writes",
        "mirror generations",
    ]
    assert found["mirror generations"].detail == "2 of 2 generations in Kafka"
    assert not [row.advice for row in found.values() if row.advice]


def test_looking_changes_nothing() -> None:
    store = mirrored()
    before = store.content()
    rows(store)
    assert store.content() == before


@pytest.mark.parametrize(("create", "words"), [(True, "an agent makes it, with 2 copies in dc1"), (False, "")])
def test_a_keyspace_that_is_missing(create: bool, words: str) -> None:
    (row,) = rows(MemoryStore(), MirrorSettings(keyspace="mirror", create=create)).values()
    assert row.ok is create
    assert words in row.detail
    assert "mirror.create = true" in row.advice or create


def test_tables_that_are_missing() -> None:
    store = MemoryStore(tables={})
    assert rows(store)["mirror"].ok
    row = rows(store, MirrorSettings(keyspace="mirror", create=False))["mirror"]
    assert not row.ok
    assert 'CREATE TABLE IF NOT EXISTS "mirror".cdc_local' in row.advice


def test_tables_of_another_shape() -> None:
    store = mirrored()
    row = rows(store, MirrorSettings(keyspace="mirror", stream_ids="tuple"))["mirror"]
    assert not row.ok
    assert "the mirror writes" in row.detail
    assert store.tables is not None
    del store.tables[MirrorTable.LOCAL]["streams_timestamp"]
    assert not rows(store)["mirror"].ok


def test_another_replication_than_the_settings_say() -> None:
    asked = MirrorSettings(keyspace="mirror", replication={"dc1": 3})
    row = rows(mirrored(), asked)["mirror replication"]
    assert not row.ok
    assert "3 copies in dc1" in row.advice
    assert rows(mirrored(), asked, replication={**REPLICATION, "dc1": "3"})["mirror replication"].ok
    row = rows(mirrored(), replication={**REPLICATION, "dc1": "1"})["mirror replication"]
    assert row.ok
    assert "dc1" in row.advice
    simple = {"class": "org.apache.cassandra.locator.SimpleStrategy", "replication_factor": "1"}
    assert "NetworkTopologyStrategy" in rows(mirrored(), replication=simple)["mirror replication"].advice


def test_a_right_that_is_missing() -> None:
    class Refusing(MemoryStore):
        def apply(self, step: Step) -> None:
            raise ServiceError(f"no MODIFY permission for {step.table}")

    store = mirrored()
    refusing = Refusing(tables=store.tables)
    row = rows(refusing, times=())["mirror writes"]
    assert not row.ok
    assert "docs/security.md" in row.advice


def test_generations_that_are_missing() -> None:
    row = rows(mirrored(), times=[*TIMES, 9_000])["mirror generations"]
    assert not row.ok
    assert "2 of 3" in row.detail
    assert "9000" in row.detail


def test_the_form_of_existing_tables_is_told() -> None:
    store = MemoryStore()
    Mirror(store, MirrorOptions(), form=IdForm.TUPLE).update(GENERATIONS, BEGIN)
    assert "stream ids as tuple" in rows(store)["mirror"].detail
