"""What another version noted of a current table as a whole ends the stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace_schemas.errors import SettingsError
from tailrace_spark.sinks.lake.current_table import CurrentTable
from tailrace_spark.sinks.lake.state import BATCH, IDENTITY, WITH_GONE
from tests.support.shop import PLAIN
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.lake.followed import KINDS, made_at
from tests.unit.spark.sinks.lake.stores import FollowedLake
from tests.unit.spark.sinks.merging_contract import write


def noted(followed: FollowedLake, **row: Any) -> None:
    """Write a row of the whole table into its state, as of the batch that last wrote these."""
    store, current = followed.store, CurrentTable.open(followed.store, "shop.plain")
    assert current is not None
    state, since = current.state, current.entry.since
    whole = {"key": b"", "bucket": -1, "gone": False, "batch": since, **row}
    table = pa.Table.from_pylist([whole], schema=WITH_GONE)
    files, replaced = store.stage_merge("shop.plain-state", state.stored, table, IDENTITY)
    store.commit_staged("shop.plain-state", state.stored, files, {BATCH: state.batch}, replaced)


@pytest.mark.slow
@pytest.mark.promise("catalog.later-versions")
@pytest.mark.parametrize("noted_of_it", [b'{"record": 2}', b'{"announced": 3}'])
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_another_version_ends_the_stream(kind: str, tmp_path: Path, noted_of_it: bytes) -> None:
    """Its changes stay in the topic: they are no dead letters."""
    followed, log = made_at(kind, tmp_path), Log(PLAIN)
    write(followed, log.insert((1,), (), 9, v="a"))
    before = followed.rows_of("shop.plain")
    noted(followed, clustering=b"definition", state=noted_of_it)
    with pytest.raises(SettingsError, match="another version"):
        write(followed, log.insert((2,), (), 9, v="b"))
    assert followed.rows_of("shop.plain") == before
