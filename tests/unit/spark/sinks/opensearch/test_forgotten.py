"""What purging leaves of one document that has an older and a newer deletion: the newer one, and what is shown."""

from __future__ import annotations

from binascii import a2b_base64

from tailrace_schemas.change import Deletion
from tailrace_spark.merge.partition import StoredRow
from tailrace_spark.merge.stored_row import PARTITION, RANGE, STATIC, HeadRow
from tailrace_spark.rowstate.codec import decode_state, encode_deletion, encode_state
from tailrace_spark.sinks.opensearch.bulk import Op, StoredDocument
from tailrace_spark.sinks.opensearch.documents import OWN
from tailrace_spark.sinks.opensearch.sink import forgotten
from tailrace_spark.sinks.opensearch.state import PartitionDocument, decode_head, decode_row, encode_head, encode_row
from tests.support.expiry import SECOND
from tests.support.shop import PLAIN, WIDE
from tests.unit.spark.cassandra import Log
from tests.unit.spark.changes import absorbed

KEY = b"\x00\x00\x00\x01"
HORIZON, NOW = 2 * SECOND, 1_000
OLDER, NEWER = 1 * SECOND, 5 * SECOND


def written(op: Op | None) -> tuple[bytes, object]:
    """The state that is put into a document, and when the first of what deletes may go."""
    assert op is not None
    assert op.document is not None
    return a2b_base64(op.document[OWN]["state"]), op.document[OWN].get("deletes")


def test_of_a_row() -> None:
    log = Log(PLAIN)
    marked, newer = log.insert((1,), (), OLDER), log.update((1,), (), NEWER, w=None)
    stored = encode_state(absorbed(marked, log.update((1,), (), OLDER, v=None), newer))
    row = StoredDocument("1", (7, 1), encode_row(KEY, StoredRow((stored, None, None), (), None)), {"id": 1})
    op, purged_to = forgotten(row, PLAIN, HORIZON, NOW)
    assert purged_to == OLDER
    encoded, deletes = written(op)
    key, remaining = decode_row(encoded)
    assert (key, decode_state(remaining.stored[0]), deletes) == (KEY, absorbed(marked, newer), NOW)


def test_of_a_partition() -> None:
    """Its own deletion, those of ranges, and the static row."""
    log = Log(WIDE)
    static = encode_state(absorbed(log.static((1,), NEWER, s=None)))
    rows: dict[bytes, HeadRow] = {
        PARTITION: (PARTITION, encode_deletion(Deletion(OLDER, 1)), None, None),
        STATIC: (STATIC, static, None, None),
        RANGE + b"a": (RANGE + b"a", encode_deletion(Deletion(OLDER, 1), b"b"), None, None),
        RANGE + b"c": (RANGE + b"c", encode_deletion(Deletion(NEWER, 5), b"d"), None, None),
    }
    head = StoredDocument("#partition-1", (7, 1), encode_head(KEY, PartitionDocument(rows)), None)
    op, purged_to = forgotten(head, WIDE, HORIZON, NOW)
    assert purged_to == OLDER
    encoded, deletes = written(op)
    key, remaining = decode_head(encoded)
    assert (key, remaining.rows, deletes) == (KEY, {name: rows[name] for name in (STATIC, RANGE + b"c")}, NOW)


def test_nothing_newer_than_the_horizon_goes() -> None:
    stored = encode_state(absorbed(Log(PLAIN).delete((1,), (), NEWER)))
    row = StoredDocument("1", (7, 1), encode_row(KEY, StoredRow((stored, None, None), (), None)), None)
    op, purged_to = forgotten(row, PLAIN, HORIZON, NOW)
    assert purged_to is None
    assert decode_row(written(op)[0])[1].stored[0] == stored
