"""Row images of a stream: what they say, that a batch which comes again gets the same, that they end in SQL's rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from string import ascii_letters
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace_schemas.change import Change, Marker
from tailrace_schemas.cql.json_value import plain
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.batch.row_image import MOST_IMAGES, Imaged, RowImages
from tailrace_spark.rowstate.partition import Partition
from tailrace_spark.rowstate.visible import VisibleColumns
from tailrace_spark.sinks.images.state import LONGEST_CLUSTERING, LONGEST_KEY
from tailrace_spark.sinks.images.store import TABLES, ImageShare, ImageStore
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.sql.sink import SqlSink
from tailrace_spark.sinks.state_store.tables import FORMATS
from tests.properties import examples
from tests.unit.spark.cassandra import Log, truncate, with_source
from tests.unit.spark.changes import OF_ANY_BYTES, column, partition_changes
from tests.unit.spark.sinks.contract import LONGEST_TOPIC, Database, broken, piece
from tests.unit.tables import table

CART = table(
    {"customer": "int"},
    {"line": "int"},
    {"note": "text"},
    {"amount": "int", "tags": "set<text>", "photo": "blob"},
    keyspace="shop",
    name="cart",
    table_id=UUID(int=3),
)
LOG = Log(CART)
K = (7,)
Told = tuple[str, int | None, Mapping[str, Any] | None, Mapping[str, Any] | None, tuple[str, ...]]


class Stream:
    """One topic of one partition: each change has the next offset."""

    def __init__(self, first: int = 0) -> None:
        self._next = first

    def piece(self, *changes: Change) -> Piece:
        return Piece(tuple(self._delivered(change) for change in changes))

    def _delivered(self, change: Change) -> Delivered:
        self._next += 1
        return Delivered(RecordId("t.shop.cart", 0, self._next - 1, b"12345678"), change)


def images_of(store: ImageStore, *pieces: Piece) -> list[RowImages]:
    """The images of a micro-batch, change by change."""
    found: list[RowImages] = []
    for imaged in store.imaged(pieces):
        for one in imaged.changes:
            assert one.images is not None
            found.append(one.images.images)
    return found


def told(images: Iterable[RowImages]) -> list[list[Told] | None]:
    """(op, line, before, after, changed) of each change's images."""
    return [
        None
        if some is None
        else [(one.op.value, one.key.get("line"), one.before, one.after, one.changed) for one in some]
        for some in images
    ]


def once(url: str, *pieces: Piece, **options: Any) -> list[RowImages]:
    """The images of a micro-batch, in a process of its own."""
    with closing(ImageStore(url, **options)) as store:
        return images_of(store, *pieces)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'images.db'}"


def test_a_key_names_its_row_and_a_static_row_its_partition(url: str) -> None:
    row, static = once(url, Stream().piece(LOG.insert(K, (1,), 10), LOG.static(K, 10, note="a")))
    assert row is not None
    assert static is not None
    assert row[0].value() == {
        "op": "c", "key": {"customer": 7, "line": 1}, "before": None, "after": {}, "changed": [],
    }  # fmt: skip
    assert static[0].value() == {
        "op": "c", "key": {"customer": 7}, "before": None, "after": {"note": "a"}, "changed": ["note"], "static": True,
    }  # fmt: skip


def test_what_is_covered_by_what_is_there_changes_nothing(url: str) -> None:
    """Late, a replica's copy, or older than a deletion that came first."""
    first = LOG.insert(K, (1,), 10, amount=5)
    stream = Stream()
    row = {"amount": 5}
    found = told(
        once(
            url,
            stream.piece(first, first, LOG.update(K, (1,), 9, amount=1), LOG.delete(K, (1,), 8)),
            stream.piece(LOG.delete_range(K, (2,), (), 30), LOG.insert(K, (2,), 20, amount=2)),
            stream.piece(LOG.insert(K, (3,), 20, amount=3)),
        )
    )
    same: Told = ("u", 1, row, row, ())
    assert found == [[("c", 1, None, row, ("amount",))], [same], [same], [same], [], [], []]


class Crash(BaseException):
    """The process dies here."""


@pytest.mark.slow
@pytest.mark.promise("images.repeated")
def test_a_batch_that_comes_again_has_the_images_that_it_had(database: Database) -> None:
    """After the state was committed and before the sink was: at each piece, with more behind it, and cut otherwise."""
    stream = Stream()
    batches = [
        [stream.piece(LOG.insert(K, (1,), 10, amount=1), LOG.insert(K, (2,), 10, amount=2)), stream.piece()],
        [stream.piece(LOG.update(K, (1,), 20, amount=3)), stream.piece(LOG.update(K, (1,), 30, amount=4))],
        [stream.piece(LOG.delete_partition(K, 40))],
    ]
    with closing(ImageStore(database.url, "in peace")) as store:
        expected = [told(images_of(store, *batch)) for batch in batches]
    assert expected[2] == [[("d", 1, {"amount": 4}, None, ("amount",)), ("d", 2, {"amount": 2}, None, ("amount",))]]
    for pieces in (1, 2):
        name = f"dies after {pieces}"
        for batch, wanted in zip(batches, expected, strict=True):
            with closing(ImageStore(database.url, name)) as store:
                for _ in zip(range(pieces), store.imaged(batch), strict=False):
                    pass  # the process ends here, before the sink has anything
            assert told(once(database.url, *batch, stream=name)) == wanted
            assert told(once(database.url, *batch, stream=name)) == wanted
    name = "cut otherwise"
    for batch in batches:
        once(database.url, *batch, stream=name)
    assert told(once(database.url, *batches[2], stream=name)) == expected[2]
    name = "with more behind it"
    once(database.url, *batches[0], stream=name)
    together = told(once(database.url, *batches[0], *batches[1], stream=name))
    assert together == [*expected[0], *expected[1]]


@pytest.mark.slow
@pytest.mark.promise("images.repeated")
def test_nothing_is_kept_of_a_transaction_that_failed(url: str) -> None:
    """Neither its state nor its images, wherever it dies."""
    stream = Stream()
    first, second = stream.piece(LOG.insert(K, (1,), 10, amount=1)), stream.piece(LOG.update(K, (1,), 20, amount=2))
    once(url, first)
    steps = 0
    while True:
        left = [steps]

        def dies(*_: object, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Crash

        with closing(ImageStore(url)) as store:
            sa.event.listen(store._engine, "before_cursor_execute", dies)
            try:
                images_of(store, second)
            except Crash:
                steps += 1
                continue
        break
    assert steps > 5
    # The last one went through, and nothing before it: its image begins at the first batch's row.
    assert told(once(url, second)) == [[("u", 1, {"amount": 1}, {"amount": 2}, ("amount",))]]


def test_images_of_earlier_batches_are_forgotten(database: Database) -> None:
    stream = Stream()
    with closing(ImageStore(database.url)) as store:
        for at in range(1, 6):
            images_of(store, stream.piece(LOG.update(K, (1,), at, amount=at), LOG.update(K, (2,), at, amount=at)))
    assert [row[3] for row in database.select("SELECT * FROM tailrace_images_given")] == [8, 9]


def test_rows_are_looked_at_as_they_are_then(url: str) -> None:
    """What has expired by the time of a batch is gone; and a batch that comes again is looked at as it was."""
    expiring = LOG.insert(K, (1,), 10, amount=5)
    marker, [cell] = Marker(10, 60, 1_060), expiring.cells
    expiring = replace(expiring, marker=marker, cells=(replace(cell, ttl=60, expires=1_060),))
    stream = Stream()
    clock = [1_000.0]
    pieces = [stream.piece(expiring), stream.piece(LOG.update(K, (1,), 20, tags={"a": ""}))]
    with closing(ImageStore(url, clock=lambda: clock[0])) as store:
        assert told(images_of(store, pieces[0])) == [[("c", 1, None, {"amount": 5}, ("amount",))]]
        clock[0] = 1_060
        expected = [[("c", 1, None, {"tags": ["a"]}, ("tags",))]]
        assert told(images_of(store, pieces[1])) == expected
        clock[0] = 1_000
        assert told(images_of(store, pieces[1])) == expected


@pytest.mark.promise("images.chain")
def test_what_has_expired_is_told_with_the_next_change_of_its_table(database: Database) -> None:
    """Each image begins where the last one of its row ended; of what comes again too."""
    clock, stream = [1_000.0], Stream()

    def expiring(line: int, amount: int, expires: int) -> Change:
        change = LOG.update(K, (line,), 10, amount=amount)
        return replace(change, cells=(replace(change.cells[0], ttl=60, expires=expires),))

    static = LOG.static(K, 10, note="a")
    static = replace(static, cells=(replace(static.cells[0], ttl=60, expires=1_050),))
    stays = LOG.insert(K, (3,), 10, tags={"a": ""})
    first = stream.piece(expiring(1, 1, 1_060), expiring(2, 2, 1_070), static, stays, expiring(3, 3, 1_050))
    second = stream.piece(LOG.insert((8,), (1,), 20, amount=8), LOG.update(K, (1,), 20, tags={"b": ""}))
    with closing(ImageStore(database.url, clock=lambda: clock[0])) as store:
        images_of(store, first)
        clock[0] = 1_060
        found = []
        for _ in range(2):
            [piece] = store.imaged([second])
            found.append([one.images for one in piece.changes])
            clock[0] = 1_080
        third = stream.piece(LOG.insert((8,), (2,), 30))
        [last] = [one.images for piece in store.imaged([third]) for one in piece.changes]
    assert found[0] == found[1]
    [one, other] = found[0]
    assert one is not None
    assert other is not None
    assert last is not None
    assert told([one.expired]) == [
        [
            ("d", None, {"note": "a"}, None, ("note",)),
            ("u", 3, {"amount": 3, "tags": ["a"]}, {"tags": ["a"]}, ("amount",)),
            ("d", 1, {"amount": 1}, None, ("amount",)),
        ]
    ]
    assert other.expired == ()
    assert told([other.images]) == [[("c", 1, None, {"tags": ["b"]}, ("tags",))]]
    assert told([last.expired]) == [[("d", 2, {"amount": 2}, None, ("amount",))]]


def truncation(at: int, host: str = "11111111-0000-0000-0000-000000000000", upto: Position | None = None) -> Change:
    return truncate(CART, host, at, upto)


def test_a_truncation_has_an_image_for_each_row(database: Database) -> None:
    second, stream = 1_000_000, Stream()
    row = {"amount": 1}

    def line(key: int, number: int, at: int, offset: int, host: str = "a", amount: int = 1) -> Change:
        change = LOG.insert((key,), (number,), at * second, amount=amount)
        return with_source(change, host=host, position=Position(0, 1, offset))

    truncated = truncation(100 * second, "a", Position(0, 1, 9))
    with closing(ImageStore(database.url, ring_delay=10, clock=lambda: 101)) as store:
        found = told(
            images_of(
                store,
                stream.piece(*(line(key, number, 9_000 * key, number) for key in (1, 2) for number in (1, 2))),
                stream.piece(truncated, truncated),
                stream.piece(line(3, 1, 9_000, 9)),
                stream.piece(line(3, 1, 50, 10, amount=2)),
                stream.piece(line(1, 1, 101, 7, "b"), truncation(99 * second, "b", Position(0, 1, 7))),
                stream.piece(line(1, 1, 98, 8, "b")),
            )
        )
    gone: Told = ("d", 1, row, None, ("amount",))
    assert found[4] is not None
    assert sorted(found[4], key=repr) == [gone, gone, (gone[0], 2, *gone[2:]), (gone[0], 2, *gone[2:])]
    created: Told = ("c", 1, None, {"amount": 2}, ("amount",))
    assert found[5:] == [[], [], [created], [], [], [("c", 1, None, row, ("amount",))]]


def test_what_a_truncation_takes_is_erased(url: str) -> None:
    stream = Stream()
    with closing(ImageStore(url, ring_delay=10, clock=lambda: 100)) as store:
        images_of(store, stream.piece(LOG.insert(K, (1,), 10**15, amount=1), LOG.delete_partition((8,), 1)))
        images_of(store, stream.piece(truncation(100_000_000, upto=Position(1, 5, 10**9))))
    with closing(Database(url)) as database:
        assert database.select("SELECT * FROM tailrace_images__state") == []


@pytest.mark.promise("sinks.behind-truncation")
def test_a_truncation_that_was_set_aside_takes_nothing_that_is_behind_it(url: str) -> None:
    """Another host's record of the same statement comes when a row behind it is there."""
    second, stream = 1_000_000, Stream()

    def line(number: int, at: int, offset: int) -> Change:
        return with_source(LOG.insert(K, (number,), at * second, amount=1), host="a", position=Position(0, 1, offset))

    unwritable = line(3, 2**64, 10)  # no long can hold its write time
    with closing(ImageStore(url, ring_delay=10, clock=lambda: 101)) as store:
        images_of(store, stream.piece(line(1, 50, 1)))
        truncated = stream.piece(truncation(100 * second, "a", Position(0, 1, 9)), unwritable)
        [aside] = store.imaged([truncated])
        assert len(aside.dead_letters) == 2
        images_of(store, stream.piece(line(2, 101, 11)))
        images = told(
            images_of(
                store,
                stream.piece(truncation(101 * second, "b", Position(0, 1, 7))),
                stream.piece(LOG.delete_partition(K, 200 * second)),
            )
        )
    assert images == [[], [("d", 2, {"amount": 1}, None, ("amount",))]]


def test_what_comes_later_than_the_horizon_has_no_images(url: str) -> None:
    clock, stream = [1_000.0], Stream()
    second = 1_000_000
    with closing(ImageStore(url, merge_horizon=100, clock=lambda: clock[0])) as store:
        images_of(store, stream.piece(LOG.insert(K, (1,), 900 * second, amount=1), LOG.delete(K, (1,), 950 * second)))
        clock[0] = 2_000
        images_of(store, stream.piece(LOG.insert(K, (2,), 1_900 * second, amount=1)))
        found = told(images_of(store, stream.piece(LOG.insert(K, (1,), 940 * second, amount=9))))
        again = told(images_of(store, stream.piece(LOG.insert(K, (1,), 960 * second, amount=9))))
    assert found == [None]
    assert again == [[("c", 1, None, {"amount": 9}, ("amount",))]]


@pytest.mark.promise("images.chain")
def test_what_expired_before_the_horizon_is_told_all_the_same(url: str) -> None:
    """A table has no change for longer than that, and others have: its row was shown last as it was."""
    clock, stream, second = [1_000.0], Stream(), 1_000_000
    expiring = LOG.update(K, (1,), 900 * second, amount=1)
    expiring = replace(expiring, cells=(replace(expiring.cells[0], ttl=60, expires=1_060),))
    with closing(ImageStore(url, merge_horizon=100, clock=lambda: clock[0])) as store:
        images_of(store, stream.piece(expiring))
        clock[0] = 2_000
        images_of(store)
        [last] = store.imaged([stream.piece(LOG.insert(K, (2,), 1_900 * second, amount=1))])
        clock[0] = 2_200
        images_of(store)
        assert told(images_of(store, stream.piece(LOG.insert(K, (1,), 890 * second, amount=9)))) == [None]
    imaged = last.changes[0].images
    assert imaged is not None
    assert told([imaged.expired]) == [[("d", 1, {"amount": 1}, None, ("amount",))]]


def test_a_horizon_is_that_of_its_own_stream(url: str) -> None:
    """One purges soon, and the other never: what this one knows to be deleted stays so."""
    clock, second = [1_000.0], 1_000_000
    insert, delete = LOG.insert(K, (1,), 900 * second, amount=1), LOG.delete(K, (1,), 950 * second)
    late = LOG.insert(K, (1,), 940 * second, amount=9)
    stream = Stream()
    with (
        closing(ImageStore(url, "soon", merge_horizon=100, clock=lambda: clock[0])) as soon,
        closing(ImageStore(url, "never", clock=lambda: clock[0])) as never,
    ):
        for store in (soon, never):
            images_of(store, stream.piece(insert, delete))
        clock[0] = 2_000
        images_of(soon, stream.piece(LOG.insert(K, (2,), 1_900 * second, amount=1)))
        assert told(images_of(soon, stream.piece(late))) == [None]
        assert told(images_of(never, stream.piece(late))) == [[]]


def test_all_shares_of_a_process_show_a_definition_as_one(url: str) -> None:
    """Each reads it again. What sinks keep of a definition is kept by its identity."""
    stream = Stream()
    share = ImageShare(lambda _: None, lambda _: None, lambda _: True, 1.0)
    with closing(ImageStore(url)) as store:
        store.prepare([(-1, CART)])
        first, second = (
            imaged.changes[0].images
            for line in (1, 2)
            for imaged in store.imaged_share([stream.piece(LOG.insert(K, (line,), 10, amount=1))], share)
        )
    assert first is not None
    assert second is not None
    assert first.table is second.table


@pytest.mark.slow
def test_all_shares_of_a_process_show_many_definitions_as_one_each(url: str) -> None:
    stream, by_share = Stream(), list[list[Table]]()
    share = ImageShare(lambda _: None, lambda _: None, lambda _: True, 1.0)
    tables = [replace(CART, name=f"cart{number}", id=UUID(int=number)) for number in range(300)]
    with closing(ImageStore(url)) as store:
        store.prepare(enumerate(tables))
        for line in (1, 2):
            changes = [Log(of).insert(K, (line,), 10, amount=1) for of in tables]
            [imaged] = store.imaged_share([stream.piece(*changes)], share)
            by_share.append([delivered.images.table for delivered in imaged.changes if delivered.images is not None])
    assert len(by_share[1]) == len(tables)
    assert all(first is second for first, second in zip(*by_share, strict=True))


def test_what_cannot_be_told_holds_up_nothing(database: Database) -> None:
    """Values that are none of their type, and keys that no index takes."""
    bad = LOG.insert(K, (1,), 10, amount=5)
    bad = replace(bad, cells=(replace(bad.cells[0], value=b"123"),))
    texts = table({"id": "text"}, {"name": "text"}, regular={"v": "int"}, name="texts", table_id=UUID(int=4))
    wide = Log(texts)
    stream = Stream()
    piece = stream.piece(
        bad,
        LOG.insert(K, (2,), 10, amount=1),
        wide.insert(("k" * (LONGEST_KEY + 1),), ("c",), 10, v=1),
        wide.insert(("k",), ("c" * LONGEST_CLUSTERING,), 10, v=1),
        wide.insert((_random(LONGEST_KEY),), (_random(LONGEST_CLUSTERING - 9),), 10, v=1),
    )
    found = once(database.url, piece)
    assert [None if one is None else len(one) for one in found] == [None, 1, None, None, 1]
    assert once(database.url, piece) == found


def _random(size: int) -> str:
    """A text that no database makes shorter."""
    random = Random(1)
    return "".join(random.choice(ascii_letters) for _ in range(size))


def test_a_column_that_comes_and_goes(url: str) -> None:
    wider = replace(CART, regular=(*CART.regular, column(table({"p": "int"}, regular={"late": "int"}), "late")))
    stream, new = Stream(), Log(wider)
    first = stream.piece(LOG.insert(K, (1,), 10, amount=1))
    second = stream.piece(new.update(K, (1,), 20, late=2), LOG.update(K, (1,), 30, amount=3))
    once(url, first)
    assert told(once(url, second)) == [
        [("u", 1, {"amount": 1}, {"amount": 1, "late": 2}, ("late",))],
        [("u", 1, {"amount": 1, "late": 2}, {"amount": 3, "late": 2}, ("amount",))],
    ]


def test_streams_and_table_ids_have_states_of_their_own(url: str) -> None:
    again = Log(replace(CART, id=UUID(int=99)))
    stream = Stream()
    piece = stream.piece(LOG.insert(K, (1,), 10, amount=1), again.insert(K, (1,), 5, amount=2))
    for name in ("one", "two"):
        created = [[("c", 1, None, {"amount": value}, ("amount",))] for value in (1, 2)]
        assert told(once(url, piece, stream=name)) == created


def test_places_of_the_longest_topic_are_kept_whatever_reading_they_are_of(database: Database) -> None:
    record_id = RecordId(LONGEST_TOPIC, 0, 0, b"12345678")
    piece = Piece((Delivered(record_id, LOG.insert(K, (1,), 10, amount=5)),))
    expected = [[("c", 1, None, {"amount": 5}, ("amount",))]]
    assert told(once(database.url, piece)) == expected
    assert told(once(database.url, piece)) == expected


def test_more_images_than_a_record_has_room_for() -> None:
    from tailrace_spark.batch.row_image import RowImage
    from tailrace_spark.rowstate.visible import ImageOp

    image = RowImage(op=ImageOp.DELETE, key={"id": 1}, before={}, after=None, changed=())
    assert Imaged(CART, (image,) * MOST_IMAGES).value() == {"images": [image.value()] * MOST_IMAGES}
    assert Imaged(CART, (image,) * (MOST_IMAGES + 1)).value() == {"images": None}
    assert Imaged(CART, (), (image,)).value() == {"images": [], "expired": [image.value()]}


def test_a_database_that_is_not_there(tmp_path: Path) -> None:
    with closing(ImageStore(f"sqlite:///{tmp_path}/no/such.db")) as store:
        with pytest.raises(ServiceError, match="no is no directory"):
            store.reach()
        with pytest.raises(ServiceError, match="delivered again"):
            images_of(store, Stream().piece(LOG.insert(K, (1,), 1)))
    with pytest.raises(SettingsError, match="only sqlite"):
        ImageStore("oracle://there")


Rows = dict[str, tuple[dict[str, Any], dict[str, Any]]]


def folded(images: Iterable[RowImages]) -> Rows:
    """By its key, what each row's last image leaves of it; each image begins where the last one of its row ended."""
    rows: Rows = {}
    for some in images:
        assert some is not None
        for one in some:
            name = repr(sorted(one.key.items()))
            before = rows.pop(name, None)
            assert (None if before is None else before[1]) == one.before
            if one.after is not None:
                rows[name] = dict(one.key), dict(one.after)
    return rows


@pytest.fixture
def files(tmp_path: Path) -> Iterator[str]:
    """URLs of new databases."""
    return (f"sqlite:///{tmp_path / str(number)}.db" for number in count())


FOR_ALL = settings(
    max_examples=examples(10),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)
cuts = st.tuples(st.integers(0, 10), st.integers(0, 10)).map(sorted)


def in_batches(url: str, changes: Sequence[Change], cut: Sequence[int], *, again: bool) -> list[RowImages]:
    """The images of changes in three batches, of three processes, one a second from the 9th on, and what expired by
    the 12th; with `again`, each batch comes twice, the second time later, and has the same."""
    stream = Stream()
    images: list[RowImages] = []
    last = replace(LOG.delete((99,), (1,), 1), table=changes[0].table if changes else CART)
    batches = [changes[: cut[0]], changes[cut[0] : cut[1]], changes[cut[1] :], [last]]
    for now, some in enumerate(batches, start=9):
        piece = stream.piece(*some)
        first = _imaged(url, piece, now)
        assert not again or _imaged(url, piece, now + 1) == first
        images += [of for one in first for of in (one.expired, one.images)]
    return images


def _imaged(url: str, piece: Piece, now: int) -> list[Imaged]:
    with closing(ImageStore(url, clock=lambda: now)) as store:
        return [one.images for some in store.imaged([piece]) for one in some.changes if one.images is not None]


@pytest.mark.promise("images.chain")
@pytest.mark.slow
@FOR_ALL
@given(st.lists(partition_changes(), max_size=10), cuts, st.booleans())
def test_images_end_in_what_is_visible(
    files: Iterator[str], changes: list[Change], cut: list[int], again: bool
) -> None:
    """Of any changes in any order, however they are cut, whatever comes again and expires meanwhile."""
    partition = Partition()
    for change in changes:
        partition.absorb(change)
    wanted = []
    for place, known in partition.rows.items():
        columns = VisibleColumns(OF_ANY_BYTES, static=place is None)
        values = columns.of(known.state, partition.covering(place), 12)
        if values is not None:
            key = {} if place is None else {"c": int.from_bytes(known.clustering[0] or b"", "big")}
            wanted.append(({"p": 0, **key}, plain(values)))
    left = folded(in_batches(next(files), changes, cut, again=again))
    assert sorted(left.values(), key=repr) == sorted(wanted, key=repr)


numbers, lines = st.integers(0, 4), st.integers(0, 2)
statements = st.one_of(
    st.builds(lambda line, at, value: LOG.insert(K, (line,), at, amount=value), lines, numbers, numbers),
    st.builds(lambda line, at, value: LOG.update(K, (line,), at, amount=value or None), lines, numbers, numbers),
    st.builds(lambda at, value: LOG.static(K, at, note=str(value)), numbers, numbers),
    st.builds(lambda line, at: LOG.delete(K, (line,), at), lines, numbers),
    st.builds(lambda line, at: LOG.delete_range(K, (line,), (), at), lines, numbers),
    st.builds(lambda at: LOG.delete_partition(K, at), numbers),
    st.builds(truncation, numbers),
)


@pytest.mark.promise("images.chain")
@pytest.mark.slow
@FOR_ALL
@given(st.lists(statements, max_size=10), cuts, st.booleans())
def test_images_end_in_what_the_sql_sink_shows(
    files: Iterator[str], changes: list[Change], cut: list[int], again: bool
) -> None:
    left = folded(in_batches(next(files), changes, cut, again=again)).values()
    with closing(SqlSink(url := next(files), clock=lambda: 9)) as sink:
        for change in changes:
            write_here(sink, [piece([change])])
        write_here(sink, [piece([LOG.update((8,), (8,), 1)])])  # makes the tables, and no row
    with closing(Database(url)) as database:
        rows = database.select('SELECT line, amount FROM "shop_cart__rows"')
        statics = database.select('SELECT note FROM "shop_cart__static"')
    assert rows == sorted([(key["line"], row.get("amount")) for key, row in left if "line" in key], key=repr)
    assert statics == [(row["note"],) for key, row in left if "line" not in key]


@pytest.mark.promise("sinks.one-table-alone")
def test_an_error_of_any_type_is_one_table_s(database: Database) -> None:
    """Its changes are set aside; those of others have their images, and so have what comes later."""
    stream = Stream()
    with closing(ImageStore(database.url, clock=lambda: 1)) as store:
        good = stream.piece(LOG.insert(K, (1,), 10, amount=1))
        bad = replace(good.changes[0], record_id=RecordId("t.shop.broken", 0, 0), change=broken())
        [imaged] = store.imaged([replace(good, changes=(bad, *good.changes))])
        [one] = imaged.changes
        assert one.images is not None
        assert [letter.record_id for letter in imaged.dead_letters] == [bad.record_id]
        later = told(images_of(store, stream.piece(LOG.update(K, (1,), 11, amount=2))))
    assert later == [[("u", 1, {"amount": 1}, {"amount": 2}, ("amount",))]]


@pytest.mark.promise("sql.later-formats")
def test_images_of_another_format_end_the_stream(database: Database) -> None:
    stream = Stream()
    with closing(ImageStore(database.url)) as store:
        images_of(store, stream.piece(LOG.insert(K, (1,), 1, amount=3)))
    with database.engine.begin() as connection:
        later = sa.update(FORMATS).where(FORMATS.c.name == TABLES.name).values(format=2)
        connection.execute(later)
    before = database.everything()
    with (
        closing(ImageStore(database.url)) as store,
        pytest.raises(SettingsError, match=r"tailrace_images_tables in .* by another version"),
    ):
        images_of(store, stream.piece(LOG.insert(K, (2,), 2, amount=3)))
    assert database.everything() == before


def test_images_beside_a_sink_note_their_formats_beside_its_own(database: Database) -> None:
    with closing(SqlSink(database.url)) as sink:
        sink.progress("s")
    with closing(ImageStore(database.url)) as store:
        images_of(store, Stream().piece(LOG.insert(K, (1,), 1, amount=3)))
    names = {name for (name,) in database.select("SELECT name FROM tailrace_formats WHERE format = 1")}
    assert names >= {"tailrace_streams", "tailrace_images_tables", "tailrace_images__state"}


@pytest.mark.slow
def test_images_that_are_too_large_for_a_statement_are_not_told(database: Database) -> None:
    photo = bytes(7 << 20)  # in a statement its state has 14 MiB, and its image more; MariaDB takes 16 MiB
    changes = [LOG.insert(K, (line,), 1, photo=photo if line == 1 else b"a") for line in range(3)]
    with closing(ImageStore(database.url, "s")) as store:
        found = images_of(store, Stream().piece(*changes))
        assert [images is None for images in found] == [False, database.dialect == "mysql", False]
        assert images_of(store, Stream().piece(*changes)) == found


@pytest.mark.slow
def test_what_expired_and_is_too_large_for_a_statement_is_not_told(database: Database) -> None:
    """Each row goes in, and their images together do not. The stream goes on, and says so again."""
    clock, photo = [1_000.0], bytes(3 << 20)
    rows = [LOG.update(K, (line,), 1, photo=photo) for line in range(3)]
    rows = [replace(row, cells=(replace(row.cells[0], ttl=60, expires=1_060),)) for row in rows]
    with closing(ImageStore(database.url, clock=lambda: clock[0])) as store:
        images_of(store, Stream().piece(*rows))
        clock[0] = 1_060
        for _ in range(2):
            [piece] = store.imaged([Stream(3).piece(LOG.insert((8,), (1,), 2), LOG.insert((8,), (2,), 2))])
            [first, second] = [one.images for one in piece.changes]
            assert first is not None
            assert second is not None
            assert (first.expired is None) is (database.dialect == "mysql")
            assert first.expired is None or len(first.expired) == 3
            assert ("expired" in first.value(), "expired" in second.value()) == (True, False)
            assert told([second.images]) == [[("c", 2, None, {}, ())]]
