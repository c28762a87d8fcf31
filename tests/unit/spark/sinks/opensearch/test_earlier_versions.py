"""What other versions noted of a table in a search index: earlier ones are read, and written in the form of now."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import pytest

from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table_json import table_to_json
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.rowstate.codec import encode_truncations
from tailrace_spark.rowstate.truncation import EVERYTHING, HostTruncation, TruncationState
from tailrace_spark.sinks.opensearch.client import SearchClient
from tailrace_spark.sinks.opensearch.documents import OWN, TABLE_ID
from tailrace_spark.sinks.opensearch.state import KIND_TABLE, own
from tailrace_spark.sinks.opensearch.table_entry import TableEntry, decode_entry
from tailrace_spark.sinks.writing import write_here
from tests import java_sources
from tests.support.shop import PLAIN
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import piece
from tests.unit.spark.sinks.merging_contract import write
from tests.unit.spark.sinks.opensearch.indexes import Searched
from tests.unit.tables import table

pytestmark = pytest.mark.skipif(java_sources.missing() is not None, reason=str(java_sources.missing()))
SECOND = 1_000_000
WIDER = replace(PLAIN, regular=table({"id": "int"}, regular={"v": "text", "w": "int", "x": "text"}).regular)


def noted(searched: Searched) -> bytes:
    """What is kept of the table as a whole."""
    with closing(SearchClient("search", searched.settings)) as client:
        return client.documents(searched.alias(PLAIN), [TABLE_ID])[TABLE_ID].state


def note(searched: Searched, encoded: bytes) -> None:
    searched.call("PUT", f"/{searched.alias(PLAIN)}/_doc/%23table", {OWN: own(KIND_TABLE, encoded)})


def old(entry: TableEntry) -> bytes:
    """As it was written before there were records."""
    members = {
        "definition": table_to_json(entry.definition),
        "announced": entry.announced,
        "truncations": encode_truncations(entry.truncations).hex(),
        "erased": None if entry.erased is None else entry.erased.written,
        "pending": entry.erased is not None,
        "purged_to": entry.purged_to,
    }
    return b"\x01" + json.dumps(members, sort_keys=True).encode()


@pytest.mark.promise("catalog.earlier-versions")
@pytest.mark.long
def test_a_table_of_an_earlier_version_goes_on(searched: Searched) -> None:
    log = Log(PLAIN)
    write(searched, log.insert((1,), (), 9 * SECOND, v="a"))
    truncations = TruncationState((HostTruncation("elsewhere", 5 * SECOND, None, 5 * SECOND),))
    entry = replace(decode_entry(noted(searched)), announced=3, truncations=truncations, purged_to=7)
    note(searched, old(entry))
    assert decode_entry(noted(searched)) == entry

    late, newer = log.insert((2,), (), 7, v="late"), Log(WIDER).insert((3,), (), 8 * SECOND, v="b", x="x")
    with closing(searched.open()) as sink:
        assert write_here(sink, [piece([late, newer], announced=4)]) == Summary(1, 1, 1)
    assert searched.rows(PLAIN, "id", "v", "x") == [(1, "a", None), (3, "b", "x")]
    record = json.loads(noted(searched))
    assert (record["record"], record["announced"], record["purged_to"]) == (1, 4, 7)
    assert record["truncations"] == encode_truncations(truncations).hex()
    assert "own" not in record


@pytest.mark.promise("catalog.earlier-versions")
@pytest.mark.long
def test_what_an_earlier_version_was_yet_to_erase_goes(searched: Searched) -> None:
    """It died behind noting a truncation; a sweep or the next batch goes on."""
    log = Log(PLAIN)
    for swept in (True, False):
        indexes = Searched(searched.url, sweep_seconds=0.001)
        write(indexes, log.insert((1,), (), 9 * SECOND, v="a"), log.delete((2,), (), 9 * SECOND))
        note(indexes, old(replace(decode_entry(noted(indexes)), erased=EVERYTHING)))
        with closing(indexes.open(lambda: 100)) as sink:
            if swept:
                assert sink.sweep() == 2
                assert indexes.rows(PLAIN, "id") == []
            # Older than what was deleted before the truncation.
            write_here(sink, [piece([log.insert((2,), (), 8 * SECOND, v="b")])])
        assert indexes.rows(PLAIN, "id", "v") == [(2, "b")]
        assert decode_entry(noted(indexes)).erased is None
        assert json.loads(noted(indexes))["record"] == 1


@pytest.mark.promise("catalog.later-versions")
@pytest.mark.long
def test_a_table_of_a_later_version_ends_the_stream(searched: Searched) -> None:
    """Its changes stay in the topic: they are no dead letters."""
    log = Log(PLAIN)
    write(searched, log.insert((1,), (), 9, v="a"))
    note(searched, b'{"record": 2}')
    with closing(searched.open(lambda: 1_000)) as sink:
        for work in (lambda: write_here(sink, [piece([log.insert((2,), (), 9, v="b")])]), sink.sweep):
            with pytest.raises(SettingsError, match="later version"):
                work()
    assert searched.rows(PLAIN, "id") == [(1,)]
    assert searched.letters.all == []
