"""One record of each kind that Tailrace keeps: its value here, and how it is written and read.

`make record-version` keeps what a version makes of them in tests/fixtures/versions.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from tailrace.history.events import EventKind, SchemaEvent, Subject, decode_event, encode_event
from tailrace.history.records import HistoryRecord, encode_history, history_key, read_history
from tailrace.publish.offsets import decode_offsets, decode_parked, encode_offsets, encode_parked, parked_key
from tailrace.publish.reports import ReportedLoss, decode_loss, loss_record
from tailrace.state import Loss, Missing, Parked, Quarantined, Resume, Truncation
from tailrace_schemas.avro import Encoder, entry_from_record, schema_records
from tailrace_schemas.formats import unpacked
from tailrace_schemas.generation_records import GenerationLog, Proposal, encode_proposal
from tailrace_schemas.position import Position
from tailrace_schemas.progress import Progress, decode_progress, encode_progress, progress_key
from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.streams import build_generation
from tailrace_spark.batch.delivery import DeadLetter, RecordId, SinkProgress, progress_from_json, progress_to_json
from tailrace_spark.job.checkpoint import decode_note, encode_note
from tailrace_spark.merge.table_record import TableRecord, decode_record, encode_record
from tailrace_spark.rowstate.codec import decode_truncations, encode_truncations
from tailrace_spark.rowstate.truncation import HostTruncation, TruncationState
from tailrace_spark.snapshot.progress import Request, Snapshots, TableSnapshot, request_from_json, snapshots_from_json
from tailrace_spark.snapshot.ranges import TokenRange
from tailrace_spark.snapshot.records import (
    RangeRecord,
    SnapshotRecord,
    decode_range,
    decode_snapshot,
    encode_range,
    encode_snapshot,
)
from tests.unit.tables import table

CLUSTER, HOST = "Main Cluster", "11111111-0000-0000-0000-000000000000"
ID: Final = UUID("2be43760-e57f-11f1-8599-73518cff440e")
ORDERS: Final = table(
    {"id": "int"}, {"line": "int desc"}, {"note": "text"}, {"to": "frozen<addr>", "tags": "set<text>"}, keyspace="shop"
)
PLACE: Final = Position(1, 5, 4096)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of record. `version`: the member that has its version, empty where it is no JSON object."""

    value: object
    write: Callable[[], str]
    read: Callable[[str], object]
    version: str = "version"


def _kinds() -> Mapping[str, Kind]:
    return {**_of_agent(), **_of_topics(), **_of_stream(), **_of_snapshots()}


def _of_agent() -> dict[str, Kind]:
    resume = Resume(
        PLACE,
        ((5, 77),),
        (Quarantined(4, 66, 100, "checksum"),),
        Position(1, 6, 0),
        ((2, 3),),
        ((1, 1),),
        truncations=(Truncation(PLACE, ID, 1_700_000_000_000, (5, 90)),),
        truncated=((ID, 1_700_000_000_000, False),),
        metadata=(3, 4),
    )
    lot = Parked(1, 5, 77, ID, 200, (200, 300), 1_700_000_000_000, "no definition")
    key = parked_key(CLUSTER, HOST, lot.key)
    progress = Progress(CLUSTER, HOST, PLACE, PLACE, 1_700_000_000_000, True, 2, 1, 1_699_999_999_000)
    loss = Loss(Missing.LOST, (6, 7), Position(1, 6, 40), Position(1, 8, 0))
    loss_key, _ = loss_record(CLUSTER, HOST, loss, 9, ["shop.t"])
    reported = ReportedLoss(
        CLUSTER, HOST, "loss/1/6", "lost", str(loss), 9, (6, 7), loss.first, loss.until, ("shop.t",)
    )
    return {
        "offsets": Kind(
            resume, lambda: encode_offsets(resume, "agent", 3).decode(), lambda text: decode_offsets(text.encode())
        ),
        "parked": Kind(lot, lambda: encode_parked(lot).decode(), lambda text: decode_parked(key, text.encode())),
        "progress": Kind(
            progress,
            lambda: encode_progress(progress).decode(),
            lambda text: decode_progress(progress_key(CLUSTER, HOST), text.encode()),
            "format",
        ),
        "loss": Kind(
            reported,
            lambda: loss_record(CLUSTER, HOST, loss, 9, ["shop.t"])[1].decode(),
            lambda text: decode_loss(loss_key, text.encode()),
        ),
    }


def _of_topics() -> dict[str, Kind]:
    history = HistoryRecord(PLACE, ID, ("shop", "t"), metadata=7)
    event = SchemaEvent(
        position=PLACE,
        kind=EventKind.ALTERED,
        subject=Subject.TABLE,
        keyspace="shop",
        name="t",
        table=ORDERS,
        written=5,
    )
    encoder = Encoder(ORDERS, "kept")
    (schema_id, packed_schema), _ = schema_records(encoder, "kept.shop.t")
    schema = unpacked(packed_schema)
    entry = entry_from_record(schema_id, schema)
    ring = Ring((Node(HOST, "dc1", (-(2**62), 2**62)),))
    generation = build_generation(ring, 2, timestamp=1_700_000_000_000, seed=1)
    proposal = Proposal(uuid=ID, predecessor=None, ring=ring, generation=generation)

    def read_generation(text: str) -> object:
        log = GenerationLog()
        for offset, (key, value) in enumerate(json.loads(text)):
            log.feed(offset, 5, bytes.fromhex(key), bytes.fromhex(value))
        assert log.latest is not None
        return log.latest.unpack()

    return {
        "schema-history": Kind(
            (history,),
            lambda: encode_history(history).decode(),
            lambda text: read_history(HOST, [(history_key(HOST, history), text.encode())]),
            "format",
        ),
        "schema-change": Kind(
            (HOST, event),
            lambda: encode_event(HOST, event).decode(),
            lambda text: decode_event(text.encode()),
            "format",
        ),
        "schema": Kind(
            entry, lambda: schema.decode(), lambda text: entry_from_record(schema_id, text.encode()), "format"
        ),
        "generation": Kind(
            proposal,
            lambda: json.dumps([[key.hex(), value.hex()] for key, value in encode_proposal(proposal)]),
            read_generation,
            "",
        ),
    }


def _of_stream() -> dict[str, Kind]:
    truncations = TruncationState((HostTruncation(HOST, 5_000_000, None, 5_000_000),))
    record = TableRecord(ORDERS, 7, truncations, 1_700_000_000_000_000)
    letter = DeadLetter(RecordId("kept.shop.t", 1, 9, bytes(range(8))), "no such schema", b"\0message")
    progress = SinkProgress("stream", 4, {("kept.shop.t", 0): 12, ("kept.shop.t", 1): 3})
    topics = {"ids": {"kept.shop.t": "AAAA"}, "stopped": {}, "offsets": {}}
    batch = {"generations": [str(ID)], "known_until": 1_700_000_000_000}
    return {
        "table": Kind(record, lambda: encode_record(record), lambda text: decode_record(text)[0], "record"),
        "truncations": Kind(
            truncations,
            lambda: encode_truncations(truncations).hex(),
            lambda text: decode_truncations(bytes.fromhex(text)),
            "",
        ),
        "dead-letter": Kind(
            letter,
            lambda: json.dumps(letter.to_json()),
            lambda text: DeadLetter.from_json(json.loads(text)),
            "format",
        ),
        "sink-progress": Kind(progress, lambda: progress_to_json(progress), progress_from_json, "format"),
        "checkpoint-topics": Kind(topics, lambda: encode_note(**topics), _members("topics.json"), "format"),
        "checkpoint-batch": Kind(batch, lambda: encode_note(**batch), _members("0.json"), "format"),
        "checkpoint-tasks": Kind({"stream": "4f"}, lambda: encode_note(stream="4f"), _members("tasks.json"), "format"),
    }


def _members(name: str) -> Callable[[str], Any]:
    def read(text: str) -> dict[str, Any]:
        return {member: value for member, value in decode_note(text, name).items() if member != "format"}

    return read


def _of_snapshots() -> dict[str, Kind]:
    snapshot = SnapshotRecord("s1", "shop.t", ID, "kept.shop.t", None, (TokenRange(),), 5, 9)
    span = RangeRecord(10, 999, False, 77, b"page", b"\0\0\0\1")
    following = Snapshots(
        sequence=3,
        copies=True,
        initial=True,
        tables=(TableSnapshot(id="a", table="shop.t", asked=1.0),),
        applied=("r",),
    )
    request = Request(id="r", action="start", table="shop.t", asked=2.0, where="amount > 1")
    return {
        "snapshot": Kind(
            snapshot,
            lambda: encode_snapshot(snapshot).decode(),
            lambda text: decode_snapshot("s1", text.encode()),
            "format",
        ),
        "snapshot-range": Kind(
            span, lambda: encode_range(span).decode(), lambda text: decode_range(text.encode()), "format"
        ),
        "snapshots": Kind(following, following.to_json, snapshots_from_json),
        "snapshot-request": Kind(request, request.to_json, request_from_json),
    }


KINDS: Final = _kinds()


def main() -> None:
    """Write each kind's record as this version writes it into FOLDER/VERSION.json."""
    texts = {name: kind.write() for name, kind in KINDS.items()}
    file = Path(sys.argv[1], f"{version('tailrace')}.json")
    file.write_text(json.dumps(texts, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
