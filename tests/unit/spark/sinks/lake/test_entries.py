"""What earlier versions noted of a current table as a whole: read, and written in the form of now."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table_json import table_to_json
from tailrace_spark.rowstate.codec import encode_truncations
from tailrace_spark.rowstate.truncation import HostTruncation, TruncationState
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.delta.store import DeltaStore
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tailrace_spark.sinks.iceberg.store import IcebergStore
from tailrace_spark.sinks.lake.current import LakeCurrent
from tailrace_spark.sinks.lake.current_table import CurrentTable
from tailrace_spark.sinks.lake.fast_rows import Buckets
from tailrace_spark.sinks.lake.state import BATCH, IDENTITY, WITH_GONE, TableEntry
from tailrace_spark.sinks.lake.store import LakeStore, Number
from tailrace_spark.sinks.writing import write_here
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
    """Write rows of the whole table into its state, as the batch that it has."""
    state = opened(store).state
    whole = [{"key": b"", "bucket": -1, "gone": False, "batch": state.batch, **row} for row in rows]
    table = pa.Table.from_pylist(whole, schema=WITH_GONE)
    store.merge("shop.plain-state", state.stored, table, IDENTITY, {BATCH: state.batch})


def old_rows(entry: TableEntry) -> list[dict[str, Any]]:
    """As they were before there were records."""
    fields = {**table_to_json(entry.definition), "announced": entry.announced, "buckets": entry.buckets.number}
    definition = {**fields, "names": entry.names, "purged_to": entry.purged_to}
    return [
        {"clustering": b"definition", "state": json.dumps(definition, sort_keys=True).encode()},
        {"clustering": b"truncations", "state": encode_truncations(entry.truncations)},
    ]


def ids(store: LakeStore) -> list[int]:
    table = store.open("shop.plain")
    assert table is not None
    return sorted(row["id"] for row in table.read(["id"], Number("__bucket").differs(-1)).to_pylist())


@pytest.mark.slow
@pytest.mark.promise("catalog.earlier-versions")
def test_a_table_of_an_earlier_version_goes_on(stores: Stores) -> None:
    log = Log(PLAIN)
    write_here(LakeCurrent(stores(), 1), [piece([log.insert((1,), (), 9 * SECOND, v="a")])])
    truncations = TruncationState((HostTruncation("elsewhere", 5 * SECOND, None, 5 * SECOND),))
    hashed = Buckets(1, by_token=False)
    entry = replace(opened(stores()).entry, announced=3, truncations=truncations, purged_to=7, buckets=hashed)
    noted(stores(), *old_rows(entry))
    assert opened(stores()).entry == entry

    late, newer = log.insert((2,), (), 7, v="late"), log.insert((3,), (), 8 * SECOND, v="b")
    summary = write_here(LakeCurrent(stores(), 2), [piece([late, newer], announced=4)])
    assert (summary.dead_letters, ids(stores())) == (1, [1, 3])
    assert opened(stores()).entry == replace(entry, announced=4)
    stored = opened(stores()).state.stored
    assert stored is not None
    rows = stored.read(["clustering", "state"], Number("bucket").equals(-1)).to_pylist()
    [record] = [json.loads(row["state"]) for row in rows if row["clustering"] == b"definition"]
    assert record["record"] == 1
    assert record["truncations"] == encode_truncations(truncations).hex()


@pytest.mark.slow
@pytest.mark.promise("catalog.later-versions")
def test_a_table_of_a_later_version_ends_the_stream(stores: Stores) -> None:
    """Its changes stay in the topic: they are no dead letters."""
    log = Log(PLAIN)
    write_here(LakeCurrent(stores(), 2), [piece([log.insert((1,), (), 9, v="a")])])
    noted(stores(), {"clustering": b"definition", "state": b'{"record": 2}'})
    with pytest.raises(SettingsError, match="later version"):
        write_here(LakeCurrent(stores(), 2), [piece([log.insert((2,), (), 9, v="b")])])
    assert ids(stores()) == [1]
