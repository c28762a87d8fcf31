"""What another version noted of a current table as a whole ends the stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace_schemas.errors import SettingsError
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.delta.store import DeltaStore
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tailrace_spark.sinks.iceberg.store import IcebergStore
from tailrace_spark.sinks.lake.current import LakeCurrent
from tailrace_spark.sinks.lake.current_table import CurrentTable
from tailrace_spark.sinks.lake.state import BATCH, IDENTITY, WITH_GONE
from tailrace_spark.sinks.lake.store import LakeStore, Number
from tailrace_spark.sinks.protocol import write_here
from tests.support.shop import PLAIN
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import piece

SECOND = 1_000_000
Stores = Callable[[], LakeStore]


@pytest.fixture(params=["delta", "iceberg"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    if request.param == "delta":
        return lambda: DeltaStore(DeltaSinkSettings(path=str(tmp_path), mode="current"))
    return lambda: IcebergStore(IcebergSinkSettings(path=str(tmp_path), mode="current"))


def opened(store: LakeStore) -> CurrentTable:
    current = CurrentTable.open(store, "shop.plain")
    assert current is not None
    return current


def noted(store: LakeStore, *rows: dict[str, Any]) -> None:
    """Write rows of the whole table into its state, as the batch that last wrote these."""
    current = opened(store)
    state, since = current.state, current.entry.since
    whole = [{"key": b"", "bucket": -1, "gone": False, "batch": since, **row} for row in rows]
    table = pa.Table.from_pylist(whole, schema=WITH_GONE)
    files, replaced = store.stage_merge("shop.plain-state", state.stored, table, IDENTITY)
    store.commit_staged("shop.plain-state", state.stored, files, {BATCH: state.batch}, replaced)


def ids(store: LakeStore) -> list[int]:
    table = store.open("shop.plain")
    assert table is not None
    return sorted(row["id"] for row in table.read(["id"], Number("__bucket").differs(-1)).to_pylist())


@pytest.mark.slow
@pytest.mark.promise("catalog.later-versions")
@pytest.mark.parametrize("noted_of_it", [b'{"record": 2}', b'{"announced": 3}'])
def test_a_table_of_another_version_ends_the_stream(stores: Stores, noted_of_it: bytes) -> None:
    """Its changes stay in the topic: they are no dead letters."""
    log = Log(PLAIN)
    write_here(LakeCurrent(stores(), 2), [piece([log.insert((1,), (), 9, v="a")])])
    noted(stores(), {"clustering": b"definition", "state": noted_of_it})
    with pytest.raises(SettingsError, match="another version"):
        write_here(LakeCurrent(stores(), 2), [piece([log.insert((2,), (), 9, v="b")])])
    assert ids(stores()) == [1]
