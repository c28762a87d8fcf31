"""Recorded segments all the way: mutations to changes to Avro messages and back, nothing lost."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from tailrace_schemas.avro import Encoder
from tailrace_schemas.avro.frames import FRAME
from tailrace_schemas.avro.schema import PrimaryKeys
from tailrace_schemas.digest import change_digest
from tests.unit.changes.recorded import changes_in
from tests.unit.commitlog.recorded import KINDS, recorded


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_primary_key_is_cut_out_of_every_message(kind: str) -> None:
    """The bytes that the key's own schema gives, of rows, static rows and deletions of all kinds."""
    encoders: dict[UUID, tuple[Encoder, PrimaryKeys]] = {}
    for change in changes_in(kind):
        table = change.table
        if table.id not in encoders:
            encoders[table.id] = Encoder(table, "p", "primary"), PrimaryKeys(table, "p")
        encoder, keys = encoders[table.id]
        body = keys.body(encoder.value(change))
        assert body is not None
        assert FRAME + encoder.key_schema_id + body == encoder.key(change)


@pytest.mark.slow
@pytest.mark.promise("agent.whole-change")
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_cassandras_own_reader_saw_is_left_out(kind: str) -> None:
    """Changes of each kind, counted against the dump of the same segments that Cassandra's reader made."""
    folder = recorded(kind)
    tracked = {str(table.id) for table in folder.tables().values() if table.cdc}
    expected: Counter[str] = Counter()
    for line in folder.expected:
        for update in line.get("updates", ()):
            if update["id"] in tracked:
                expected += counted(update)
    assert Counter(change.op.value for change in changes_in(kind)) == expected


def counted(update: dict[str, Any]) -> Counter[str]:
    """How many changes of each kind a dumped update has to give."""
    items = [*update["items"], *([update["static"]] if update["static"] else [])]
    rows = [item for item in items if "marker" not in item]
    counts = Counter(
        insert=sum(row["live"] is not None for row in rows),
        update=sum(row["live"] is None and bool(row["cols"]) for row in rows),
        delete=sum(row["del"] is not None for row in rows),
        delete_partition=int(update["pdel"] is not None),
        delete_range=sum(item["open"] is not None for item in items if "marker" in item),
    )
    return +counts


@pytest.mark.promise("agent.digest")
def test_digests_name_changes() -> None:
    """One digest per change, the same whatever segment format carried it."""
    changes = changes_in("5.0.1/lz4")
    assert len({change.digest for change in changes}) == len(changes)
    assert all(change.digest == change_digest(change) for change in changes)
