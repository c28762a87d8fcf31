"""Entry points of the sinks and of snapshots: changes and rows as JSON, columns, SQL values, documents, Avro, pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cache, partial
from random import Random
from struct import pack
from typing import Any, Final

from tailrace_schemas.change import Change, Deletion, Op
from tailrace_schemas.change_json import compact_json
from tailrace_schemas.clustering import clustering_key
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.streams import Assignment
from tailrace_schemas.table import ColumnKind, Table
from tailrace_spark.batch.delivery import Delivered, RecordId
from tailrace_spark.batch.row_image import Imaged, ImageMaker, images_of_text, images_text
from tailrace_spark.merge.batch_changes import gather
from tailrace_spark.merge.condition import RowFilter
from tailrace_spark.merge.partition import StoredRow
from tailrace_spark.merge.row import ShownRows, shown_rows
from tailrace_spark.merge.stored_row import PARTITION, RANGE, ROW, STATIC, head_of
from tailrace_spark.rowstate.codec import encode_deletion, encode_state
from tailrace_spark.rowstate.partition import Partition
from tailrace_spark.rowstate.row import state_of
from tailrace_spark.sinks.arrow.change_columns import ChangeColumns, Ends, ValueColumn, fill
from tailrace_spark.sinks.calendar import civil, date_text, time_text, timestamp_text, year_of
from tailrace_spark.sinks.changelog.json_plan import JsonPlan, formatter
from tailrace_spark.sinks.kafka.avro_splice import Splice
from tailrace_spark.sinks.kafka.debezium import DebeziumForm
from tailrace_spark.sinks.lake.fast_rows import FastRows, StoredRows, bucket_of, cut
from tailrace_spark.sinks.opensearch.bulk import Op as BulkOp
from tailrace_spark.sinks.opensearch.bulk import StoredDocument, lines, stored_document
from tailrace_spark.sinks.opensearch.documents import Documents, count_fields, covers, digest, field_of, head_id, render
from tailrace_spark.sinks.opensearch.state import (
    PartitionDocument,
    StoredDocuments,
    decode_head,
    decode_row,
    encode_head,
    encode_row,
    head_deletes,
    head_op,
    ordered,
    own,
    row_deletes,
    row_op,
)
from tailrace_spark.sinks.sql.row_builder import Renderer, RowBuilder, new_rows
from tailrace_spark.sinks.sql.types import column_spec, to_sql
from tailrace_spark.sinks.state_store.binary_rows import binary_rows, forms_of
from tailrace_spark.snapshot.page import PageRecords, read_columns, read_lengths, row_count, row_number, writes_pages_of
from tests.differential.avro_cases import PREFIX, encoder, messages
from tests.differential.cases import Case, Family, calls, examples, outcome
from tests.differential.inputs import WORDS, damaged, some_bytes, values
from tests.differential.state_cases import MANY, delivered, histories
from tests.unit.spark.snapshot.pages import page_of
from tests.unit.spark.snapshot.tables import ALONE, EDITS, ROWS, WIDE
from tests.unit.tables import column

_STREAM: Final = Assignment(1_700_000_000_000, bytes(range(16)))
_DIALECTS: Final = ("sqlite", "postgresql", "mysql")


@cache
def _filter(table: Table) -> ShownRows | None:
    """Of tables without static columns and with a text or an int, a filter that some rows pass."""
    for of in () if table.static else table.regular:
        if of.type.kind in ("text", "int"):
            literal = ("text", "x") if of.type.kind == "text" else ("number", "3")
            return shown_rows((("*", RowFilter("stream.where", "some", ("compare", ">", of.name, literal))),), table)
    return None


def _values(random: Random) -> Iterator[Case]:
    for index, (of, data) in enumerate(values()):
        inputs = [*damaged(random, data, examples(10))]
        yield from calls(f"JSON {index} of {of}", formatter(of), inputs)
        yield from calls(f"shown {index} of {of}", _shown, ((of, some) for some in inputs))
        yield from calls(f"put {index} of {of}", _put, ((of, some) for some in inputs))
        if of.kind != "counter":  # of which a column has the total
            yield from calls(f"copied {index} of {of}", _copied, ((of, some) for some in inputs))
    for name, function in (
        ("day", civil),
        ("date", date_text),
        ("year", year_of),
        ("time", time_text),
        ("moment", timestamp_text),
    ):
        numbers = (*WORDS, *(random.randint(-(2**40), 2**60) for _ in range(examples(60))))
        yield from calls(name, function, numbers)


def _shown(of: CqlType, data: bytes) -> object:
    """As documents have it."""
    value, convert = codec(of).decode(data), render(of)
    text = value if value is None or convert is None else convert(value)
    return field_of(of), text, compact_json(text)


def _copied(of: CqlType, data: bytes) -> bytes:
    """As COPY into PostgreSQL has it."""
    value, dialect = codec(of).decode(data), "postgresql"
    bound = None if value is None else to_sql(of, dialect)(value)
    return binary_rows(forms_of([column_spec(of, dialect)] * 2), [(bound, None)])


def _put(of: CqlType, data: bytes) -> object:
    """As columns of Arrow have it: put and shown."""
    results: list[object] = []
    for kind in (ColumnKind.REGULAR, ColumnKind.CLUSTERING):
        for name in ("put", "show"):
            values = ValueColumn(replace(column("c", "int", kind), type=of), 2)
            try:
                results.append((getattr(values, name)(1, data), values.values))
            except ValueError as error:
                results.append(str(error))
    return results


def _changes(random: Random) -> Iterator[Case]:
    for index, (change, message) in enumerate(messages()):
        for stream in (None, _STREAM):
            record_id = RecordId("t.shop.wide", index % 3, index * 100, message[2:10])
            yield (
                f"change {index} {stream is None}",
                partial(_change, change, message, record_id, stream),
            )
    for number, (_, changes) in enumerate(histories()):
        some = delivered(random, random.choices(changes, k=30))
        yield from calls(
            f"columns {number}", _columns, [(some, capacity, octets) for capacity, octets in ((7, 1 << 20), (50, 300))]
        )


def _images(random: Random) -> Iterator[Case]:
    for number, (table, changes) in enumerate(histories()):
        for index in range(examples(3)):
            some = random.choices(changes, k=random.randint(1, 8))
            yield from calls(f"row images {number} {index}", _row_images, [(table, some, now) for now in (0, 10)])


def _row_images(table: Table, changes: Sequence[Change], now: int) -> object:
    """Of all rows and of those with a value: as they are kept, and as Debezium's events."""
    form, results = DebeziumForm("shop", lambda topic, token: token % len(topic)), list[object]()
    for matches in (None, bool):
        maker, partition = ImageMaker(table), Partition()
        maker.matches = matches
        for offset, change in enumerate(changes):
            key, record_id = change.key or b"", RecordId("t.shop.wide", 0, offset, b"12345678")
            imaged = Imaged(table, maker.of(partition, change, now), maker.expired(key, partition, now - 9, now + 9))
            results += [imaged.value(), imaged.untold.value(), images_of_text(images_text(imaged.images))]
            results.append(outcome(partial(maker.truncated, key, partition, Deletion(2, 10), now)))
            for make in (form.events, form.expired):
                results.append(outcome(partial(list, make("t.shop.wide", change, record_id, imaged))))
    return results


def _change(change: Change, message: bytes, record_id: RecordId, stream: Assignment | None) -> object:
    plan = JsonPlan(change.table)
    results: list[object] = [
        plan.text(record_id, change, stream),
        plan.key(change, primary=True),
        plan.key(change, primary=False),
        (record_id.key, record_id.to_json(), copy(record_id), RecordId.from_json(record_id.to_json())),
    ]
    for key in ("partition", "primary"):
        splice = Splice(change.table, PREFIX, key)
        for some in (message, message[:-3], b"\x00" + message[1:]):
            known = splice.knows(some, change)
            results += (
                [known]
                if not known or some is not message
                else [splice.key(some), splice.value(some, record_id, stream)]
            )
    return results


def _columns(changes: Sequence[Delivered], capacity: int, octets: int) -> object:
    columns = ChangeColumns(changes[0].change.table, capacity, octets)
    ends = Ends(lambda _, partition: partition * 3)
    rest: list[Delivered] = []
    start = fill(columns, changes, 0, ends, rest)
    start = fill(columns, changes, start, ends, rest)
    keys = [values.values for values in (*columns.keys, *columns.columns)]
    return start, columns, keys, columns.rows, columns.full, [(one.record_id, one.update) for one in rest], ends.moved


def _rows(random: Random) -> Iterator[Case]:
    for number, (table, changes) in enumerate(histories()):
        rows = [change for change in changes if change.op in (Op.INSERT, Op.UPDATE, Op.DELETE) and not change.static]
        for index in range(examples(1 if len(changes) < MANY else 4) if rows else 0):
            some = delivered(random, random.choices(rows, k=8))
            for dialect in _DIALECTS:
                yield from calls(f"SQL {number} {index} {dialect}", _sql, [(table, some, dialect)])
            yield from calls(f"lake {number} {index}", _lake, [(table, some, 4)])
            yield from calls(
                f"documents {number} {index}", _documents, [(table, some, filtered) for filtered in (False, True)]
            )


def _sql(table: Table, changes: Sequence[Delivered], dialect: str) -> object:
    results: list[object] = []
    for shown in (None, _filter(table)):
        renderer = Renderer(table, [of.name for of in table.regular], dialect, static=False, shown_rows=shown)
        builder, rows = RowBuilder(renderer), gather(changes[:5]).rows
        later = gather(changes[3:]).rows
        for row_key, row in rows.items():
            results += [_tried(builder.insert, row_key, row, floor, 10) for floor in (None, Deletion(3, 10))]
            state = encode_state(row.state)
            merges = [(row_key, later.get(row_key, row), (state, *given), None) for given in ((None, None), _STREAM)]
            results.append(_tried(builder.update, merges, 10))
            results.append(_tried(renderer.keys, row_key[0], row.clustering))
        results.append(_tried(new_rows, builder, rows, rows, None))
    return results


def _tried(function: Any, *given: object) -> object:
    try:
        return function(*given)
    except Exception as error:
        return type(error).__name__, str(error)


def _lake(table: Table, changes: Sequence[Delivered], buckets: int) -> object:
    """New rows, then changes of stored ones, one at a time."""
    results: list[object] = []
    for shown in (None, _filter(table)):
        stored = StoredRows([], [], [], [], [], [], [0], [])
        for part in (changes[:12], *([change] for change in changes[3:])):
            fast = FastRows(table, buckets, len(part), shown)
            rest = _tried(fast.merge, [*gather(part).rows.items()], stored, stored.intricate(10))
            columns = [values.values for values in (*fast.visible.keys, *fast.visible.columns)]
            results += [rest, fast, columns, fast.visible.rows, [fast.state(row) for row in range(len(fast.places))]]
            if len(part) > 1:
                stored = _stored_rows(fast, len(table.clustering))
                results += [stored.intricate(8), [stored.clustering_of(row) for row in range(len(stored.keys))]]
    return results, [bucket_of(one.change.key or b"", buckets) for one in changes], cut(b"abcdef", [0, 2, 2, 6])


def _stored_rows(fast: FastRows, width: int) -> StoredRows:
    """What was merged, as it is stored; one of it has expired."""
    written = [value for clustering in fast.written_as for value in clustering]
    starts = [place * width for place in range(len(fast.keys) + 1)]
    expiries: list[int | None] = [9 if place % 4 == 3 else None for place in range(len(fast.keys))]
    return StoredRows(
        fast.keys, fast.clusterings, fast.states, fast.generations, fast.streams, expiries, starts, written
    )


def _documents(table: Table, changes: Sequence[Delivered], filtered: bool) -> object:
    documents = Documents(table, _filter(table) if filtered else None)
    results: list[object] = [documents.properties, count_fields(documents.properties), documents.whole_partitions]
    rows = {}
    for one in changes:
        clustering = one.change.clustering or ()
        row_key = (one.change.key or b"", ROW + clustering_key(table, clustering))
        state = state_of(one.change, one.assignment)
        rows[row_key[1]] = (state, clustering)
        results += [_tried(documents.row, row_key, (state, clustering), 10), documents.id_of(row_key, clustering)]
        document = _tried(documents.row, row_key, (state, clustering), None)
        op = BulkOp(documents.id_of(row_key, clustering), None, document if isinstance(document, dict) else None)
        results += [
            _tried(lines, op),
            _tried(lines, BulkOp(op.id, (3, 1), op.document)),
            _tried(lines, BulkOp(op.id, None, op.document, True)),
        ]
    static = state_of(changes[0].change)
    results.append(_tried(documents.partition, b"\0\0\0\1", static, rows.items(), 10))
    results.append(_tried(documents.partition, b"\0\0\0\1", static, (), None))
    halves = dict([*documents.properties.items()][::2])
    return (
        results,
        covers(halves, documents.properties),
        covers(documents.properties, halves),
        digest(b"a", b"bc"),
        head_id("x"),
    )


def _stored(random: Random) -> Iterator[Case]:
    deletion = encode_deletion(Deletion(5, 10), b"\x03z")
    for index, state in enumerate(
        [encode_state(state_of(change)) for change, _ in messages() if change.clustering][: examples(80)]
    ):
        expiry = random.choice((None, 0, -1, *WORDS))
        row = StoredRow((state, *random.choice(((None, None), (1, bytes(16)), (-(2**63), b"")))), (b"\1", None), expiry)
        head = {
            PARTITION: (PARTITION, encode_deletion(Deletion(4, 9)), None, None),
            STATIC: (STATIC, state, 1, bytes(16)),
        }
        heads = PartitionDocument({**head, RANGE + b"a": (RANGE + b"a", deletion, None, None)}, index % 2 == 1, expiry)
        yield from calls(f"row {index}", decode_row, damaged(random, encode_row(b"key", row), examples(12)))
        yield from calls(f"head {index}", decode_head, damaged(random, encode_head(b"key", heads), examples(12)))
        yield from calls(f"deletes {index}", _deletes, ((row, heads, now) for now in WORDS[::6]))
        hit = {
            "_id": f"i{index}",
            "_seq_no": index,
            "_primary_term": 1,
            "fields": {"__tailrace.state": ["AQID"]},
            "_source": {"a": 1},
        }
        yield from calls(f"hit {index}", _hit, [(hit,), ({**hit, "fields": None},)])


def _deletes(row: StoredRow, head: PartitionDocument, now: int) -> object:
    kept = own("row", b"x", visible=True, row_key=(b"k", ROW + b"a" * 300), partition="p", expires=now, deletes=now)
    of_head = head_of([head.rows[key] for key in sorted(head.rows)])
    return (
        _tried(row_deletes, row, now),
        _tried(head_deletes, head, now),
        _tried(lambda: row_op("i", None, (b"k", ROW + b"a"), row, {"a": 1}, now).document),
        _tried(lambda: head_op(None, b"k", head, None, now).document),
        kept,
        own("table", b""),
        ordered(b"\xff" * 300),
        of_head,
        head.head,
    )


def _hit(hit: Any) -> object:
    stored = StoredDocuments(found={hit["_id"]: stored_document(hit)})
    document: StoredDocument = stored.found[hit["_id"]]
    facts = (
        stored.version(hit["_id"]),
        stored.version("other"),
        stored.shows(hit["_id"], {"a": 1}),
        stored.shows("other", None),
    )
    return document, facts, stored.digest(b"k"), stored.head_id(b"k"), stored.head(b"k")


def _pages(random: Random) -> Iterator[Case]:
    tables = [ROWS, WIDE, ALONE, EDITS, *(table for table, _ in histories())]
    for number, table in enumerate(tables):
        yield from calls(f"writes {number}", writes_pages_of, [table])
        columns = [*table.key, *table.columns]
        for index in range(examples(3)):
            timed = [column for column in table.columns for _ in range(2)] if index % 2 else []
            rows = [
                [some_bytes(random, of.type) if of in table.key or random.random() < 0.7 else None for of in columns]
                + [pack(">q", random.choice(WORDS)) if place % 2 == 0 else pack(">i", 9) for place in range(len(timed))]
                for _ in range(random.randrange(4))
            ]
            for row in rows[1:]:
                row[: len(table.partition_key)] = random.choice((rows[0], row))[: len(table.partition_key)]
            kinds = [
                *((of, "value") for of in columns),
                *((of, ("writetime", "ttl")[place % 2]) for place, of in enumerate(timed)),
            ]
            indices = {(of.name_bytes, kind): place for place, (of, kind) in enumerate(kinds)}
            for place, data in enumerate(damaged(random, page_of(rows), examples(12))):
                yield from calls(f"page {number} {index} {place}", _page, [(data, len(indices))])
                if writes_pages_of(table):
                    yield from calls(
                        f"records {number} {index} {place}",
                        _records,
                        [(table, indices, data, at) for at in (1_714_000_000_000_000, WORDS[place])],
                    )


def _page(data: bytes, width: int) -> object:
    return _tried(read_columns, data, width), _tried(read_lengths, data, width), _tried(row_count, data)


def _records(table: Table, indices: dict[tuple[bytes, str], int], data: bytes, asked: int) -> object:
    pages = PageRecords(table, encoder(table), indices, "dc1", 5_000_000)
    numbers = [row_number(b"k", clustering) for clustering in (None, (), (b"a", None))]
    return pages.records(data, asked), numbers


FAMILIES: Final[tuple[Family, ...]] = (_values, _changes, _images, _rows, _stored, _pages)
