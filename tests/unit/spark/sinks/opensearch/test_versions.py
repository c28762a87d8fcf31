"""What another version noted of a table in a search index ends the stream."""

from __future__ import annotations

from contextlib import closing

import pytest

from tailrace_schemas.errors import SettingsError
from tailrace_spark.sinks.opensearch.documents import OWN
from tailrace_spark.sinks.opensearch.state import KIND_TABLE, own
from tailrace_spark.sinks.protocol import write_here
from tests import java_sources
from tests.support.shop import PLAIN
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import piece
from tests.unit.spark.sinks.merging_contract import write
from tests.unit.spark.sinks.opensearch.indexes import Searched

pytestmark = pytest.mark.skipif(java_sources.missing() is not None, reason=str(java_sources.missing()))


def note(searched: Searched, encoded: bytes) -> None:
    searched.call("PUT", f"/{searched.alias(PLAIN)}/_doc/%23table", {OWN: own(KIND_TABLE, encoded)})


@pytest.mark.promise("catalog.later-versions")
@pytest.mark.long
def test_a_table_of_another_version_ends_the_stream(searched: Searched) -> None:
    """Its changes stay in the topic: they are no dead letters."""
    log = Log(PLAIN)
    write(searched, log.insert((1,), (), 9, v="a"))
    note(searched, b'{"record": 2}')
    with closing(searched.open(lambda: 1_000)) as sink:
        for work in (lambda: write_here(sink, [piece([log.insert((2,), (), 9, v="b")])]), sink.sweep):
            with pytest.raises(SettingsError, match="another version"):
                work()
    assert searched.rows(PLAIN, "id") == [(1,)]
    assert searched.letters.all == []
