"""Which definition holds where: what stays known, what is replaced, what is only learnt."""

from __future__ import annotations

import itertools
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.changes.transcode import Message, Transcoder
from tailrace.commitlog.frames import Entry
from tailrace.commitlog.model import Mutation, PartitionUpdate, Row
from tailrace.errors import NewerSchemaError, UnknownTableError
from tailrace.history.decode import Definitions, messages_at
from tailrace.history.schema import SchemaHistory
from tailrace_schemas.avro import Encoder, decode, entry_from_record, schema_records
from tailrace_schemas.change import Change, Deletion, Marker, Source
from tailrace_schemas.errors import TruncatedError
from tailrace_schemas.position import Position
from tailrace_schemas.system_tables import system_table_id
from tailrace_schemas.table import Table
from tests.unit.commitlog.written import Stats, encode
from tests.unit.history.decoded import HISTORY, A, B, C
from tests.unit.mutations import EPOCH, deletion, mutation
from tests.unit.tables import table


def decoded(message: Message) -> Change:
    """The change that a message carries."""
    records = schema_records(Encoder(message.table, "p"), "t")
    return decode(message.value, {key: entry_from_record(key, value) for key, value in records})


HERE = Position(1, 1, 1)
SOURCE = Source("h", "dc", Position(1, 7, 20), 0, 0)


def test_a_definition_holds_from_its_ddl_on() -> None:
    """Before it the older one; at the DDL's own position nothing stands but the DDL. The first holds from the start."""
    wider = table({"id": "text"}, regular={"v": "int"}, name="a", table_id=A.id)
    off = replace(wider, cdc=False)
    history, first = SchemaHistory().define(Position(1, 5, 10), [A])
    history, second = history.define(Position(1, 5, 20), [wider])
    history, third = history.define(Position(1, 7, 5), [off, B])
    assert [str(one) for one in (first, second, third)] == [
        "added: ks.a",
        "altered: ks.a",
        "added: ks.b; altered: ks.a",
    ]
    for at, expected in (
        (Position(1, 1, 1), A),
        (Position(1, 5, 19), A),
        (Position(1, 5, 21), wider),
        (Position(1, 6, 1), wider),
        (Position(1, 7, 4), wider),
        (Position(1, 7, 6), off),
        (Position(2, 1, 1), off),
    ):
        assert history.table(A.id, at) == expected
        assert history.table(B.id, at) == B
    assert history.newest(A.id) == off
    assert history.newest(C.id) is None
    assert not history.define(Position(1, 8, 1), [off, B])[1]


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 3)), max_size=8), st.integers(0, 31))
def test_look_up_by_position_against_a_scan(ddl: list[tuple[int, int]], asked: int) -> None:
    """DDL in the log's order: the one with the greatest position at or below the one asked for counts."""
    shapes = [
        replace(A, cdc=bool(n % 2), flags=frozenset({"compound", "super"} if n > 1 else {"compound"})) for n in range(4)
    ]
    history, known = SchemaHistory().define(Position(0, 0, 0), [A])[0], {0: A}
    for offset, shape in sorted(ddl):
        if offset not in known:
            history = history.define(Position(1, 1, offset), [shapes[shape]])[0]
            known[offset] = shapes[shape]
    expected = known[max(offset for offset in known if offset <= asked)]
    assert history.table(A.id, Position(1, 1, asked)) == expected


def test_what_was_known_stays_known_after_drop() -> None:
    """Also its keyspace, for its mutations are still to be decoded; it is dropped once."""
    history, dropped = SchemaHistory().define(HERE, [A])[0].drop([A])
    assert dropped.dropped == (A,)
    assert history.table(A.id, HERE) == A
    assert history.cdc_keyspaces == {"ks"}
    assert history.tracked() == ()
    assert not history.drop([A])[1]


def test_learning_adds_ids_and_touches_nothing_else() -> None:
    """A flag that an event tells of is not believed before the log is there."""
    history = SchemaHistory().define(HERE, [A])[0]
    learnt, difference = history.learn([replace(A, cdc=False), B])
    assert (difference.added, difference.altered, difference.dropped) == ((B,), (), ())
    assert learnt.table(A.id, HERE) == A
    assert learnt.table(B.id, HERE) == B


def test_what_was_learnt_gives_way_to_the_log() -> None:
    """Read when it was altered already: the log's creation holds until the log's ALTER."""
    later = replace(B, cdc=True)
    history = SchemaHistory().learn([later])[0].define(Position(1, 2, 1), [B])[0]
    assert history.table(B.id, Position(1, 2, 2)) == B
    assert history.define(Position(1, 3, 1), [later])[0].table(B.id, Position(1, 3, 2)) == later


def test_tracked_are_the_present_tables_with_cdc() -> None:
    """By name; the newest flag counts."""
    other = replace(A, name="0", id=UUID(int=9))
    history = SchemaHistory().learn([A, B, other])[0]
    assert history.tracked() == (other, A)
    assert history.define(HERE, [replace(other, cdc=False)])[0].tracked() == (A,)


DDL = system_table_id("system_schema", "columns")


@pytest.mark.parametrize(
    ("payload", "keys"),
    [
        (deletion(A, b"k"), [b"k"]),
        (deletion(B, b"k"), []),
        (deletion(C, b"k"), []),
        (mutation((B, b"k", EPOCH), (A, b"k", EPOCH)), [b"k"]),
        (mutation((A, b"k", EPOCH), (B, b"k", EPOCH), (A, b"k", EPOCH + 1)), [b"k", b"k"]),
        (deletion(DDL, b"ks"), []),
        (mutation((B, b"k", EPOCH), (B, b"k", EPOCH)), []),
        (deletion(system_table_id("system", "local"), b"local"), []),
        # What cannot hold a change is not decoded, so it cannot be damaged either.
        (deletion(C, b"k")[:-1], []),
    ],
)
def test_changes_of_tables_with_cdc(payload: bytes, keys: list[bytes]) -> None:
    """None of DDL."""
    changes = [decoded(message) for message in messages_at(HISTORY, Transcoder("p"), payload, 7, SOURCE)]
    assert [change.key for change in changes] == keys
    for index, change in enumerate(changes):
        assert change.source is not None
        # Where updates begin and end is told apart, in the tests of what splits them.
        assert replace(change.source, flags=0) == replace(SOURCE, index=index, count=len(changes))


@pytest.mark.promise("agent.mixed-batches")
def test_every_order_of_tables_with_and_without_cdc() -> None:
    """Rows of both in one mutation: all of the cdc part, numbered, in the order of the log."""
    wide = table({"id": "text"}, regular={"v": "int"}, name="a", table_id=A.id)
    plain = replace(table({"id": "text"}, regular={"w": "text", "x": "int"}, name="b", table_id=B.id), cdc=False)
    second = replace(wide, name="d", id=UUID(int=4))
    history = SchemaHistory().learn([wide, plain, second])[0]
    for order in itertools.permutations([wide, plain, second, plain]):
        updates = tuple(
            PartitionUpdate(table=one, key=b"k", items=(Row(clustering=(), marker=Marker(EPOCH + n)),))
            for n, one in enumerate(order)
        )
        payload = encode(Mutation(updates=updates), Stats(), [((), one.regular) for one in order])
        changes = [decoded(message) for message in messages_at(history, Transcoder("p"), payload, 8, SOURCE)]
        assert [change.table for change in changes] == [one for one in order if one.cdc]
        assert [change.source and (change.source.index, change.source.count) for change in changes] == [(0, 2), (1, 2)]


def test_an_unknown_table_is_named() -> None:
    """First in its mutation, or behind a known one of a keyspace with cdc."""
    unknown = UUID(int=99)
    for payload in (deletion(unknown, b"k"), mutation((B, b"k", EPOCH), (unknown, b"k", EPOCH))):
        with pytest.raises(UnknownTableError, match=str(unknown)):
            messages_at(HISTORY, Transcoder("p"), payload, 7, SOURCE)


def test_a_cut_anywhere_is_a_decode_error() -> None:
    """Of a mutation of a table with cdc."""
    payload = deletion(A, b"key")
    for end in range(len(payload)):
        with pytest.raises(TruncatedError):
            messages_at(HISTORY, Transcoder("p"), payload[:end], 7, SOURCE)


def dated(table: Table, epoch: int, cdc: bool = True) -> bytes:
    """A mutation of version 9 that deletes the partition k, by a writer of this metadata epoch."""
    update = PartitionUpdate(table=replace(table, cdc=cdc), key=b"k", deletion=Deletion(EPOCH, 1), metadata_epoch=epoch)
    return encode(Mutation(updates=(update,)), Stats(), [((), ())])


@pytest.mark.promise("agent.metadata-epoch")
def test_the_epoch_of_an_update_chooses_the_definition_and_its_flag() -> None:
    """Whatever the position: the writer may have switched before or after the DDL was logged."""
    off = replace(A, cdc=False)
    history = SchemaHistory().learn([A])[0].define(Position(1, 7, 10), [off], metadata=5)[0]
    history = history.define(Position(1, 7, 30), [A], metadata=6)[0].up_to(6)
    transcoder = Transcoder("p")
    for offset, epoch, count in ((5, 5, 0), (5, 4, 1), (20, 4, 1), (20, 5, 0), (20, 6, 1), (40, 5, 0), (40, 6, 1)):
        source = replace(SOURCE, position=Position(1, 7, offset))
        assert len(messages_at(history, transcoder, dated(A, epoch), 9, source)) == count, (offset, epoch)
    with pytest.raises(NewerSchemaError):
        messages_at(history, transcoder, dated(A, 7), 9, SOURCE)
    # Nothing of that in batches, which go by position.
    batch = Definitions(history)
    batch.prove(messages_at(history, transcoder, dated(A, 6), 9, SOURCE))
    entry = Entry(1, 7, 40, dated(A, 6), 9, "CommitLog-9-7.log")
    assert batch.messages(transcoder, [entry], SOURCE, 10) == (0, [])
    # Without epochs in the history the position decides, as before version 9.
    unaware = replace(history, metadata=None)
    sources = [replace(SOURCE, position=Position(1, 7, n)) for n in (5, 20)]
    assert [len(messages_at(unaware, transcoder, dated(A, 9), 9, source)) for source in sources] == [1, 0]
