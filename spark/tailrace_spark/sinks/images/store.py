"""Gives the changes of a stream their row images, by a row state of its own in any database of the SQL sink's.

A piece of a micro-batch is one transaction: the new state, and the images of its changes under their places in Kafka.
So what is delivered again, whole, cut otherwise or after a crash at any point, finds the images that it had. They are
kept until their partition's next changes come in a later batch.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from typing import Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import SQLAlchemyError

from tailrace_common.secrets import shown_database
from tailrace_common.sections.agent import RING_DELAY_SECONDS
from tailrace_schemas.change import Change, Op
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import token as token_of
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece
from tailrace_spark.batch.row_image import Imaged, ImageMaker, RowImage, RowImages
from tailrace_spark.merge.batch_changes import group_by_table
from tailrace_spark.merge.condition import RowFilters, filter_of
from tailrace_spark.merge.table_record import TableRecord, decode_record, define, encode_record, late, newest_definition
from tailrace_spark.rowstate.truncation import EVERYTHING, absorb, truncation_of
from tailrace_spark.sinks.images.state import (
    IMAGES,
    LONGEST_STREAM,
    STATE,
    STREAM_NAME,
    Given,
    ScopeState,
    given_before,
    keep_given,
    of_scope,
    too_long,
)
from tailrace_spark.sinks.protocol import HereOnlyError
from tailrace_spark.sinks.state_store.bulk import overwrite
from tailrace_spark.sinks.state_store.engine import absent, failure, is_of_one_table, open_engine, remedy, try_out
from tailrace_spark.sinks.state_store.fences import FENCES, PARTITIONS, Claim, Fence
from tailrace_spark.sinks.state_store.state_table import (
    PURGES,
    TRUNCATIONS,
    Purges,
    StateTable,
    Truncations,
    chunks,
    forget,
)
from tailrace_spark.sinks.state_store.tables import MYSQL, MYSQL_TABLE, POSTGRESQL, make_tables
from tailrace_spark.sinks.table_faults import TruncationsAside, letters_of, rows_matching, set_aside

NOT_IN_PARTS: Final = -1
"""The number of a batch that comes whole."""
_PURGED_AT_ONCE: Final = 2_000  # rows for each micro-batch
_SCOPE_BYTES: Final = 16
_SCOPES_AT_ONCE: Final = 100  # SQLite takes no condition of 1,000
_HASHED: Final = (
    "a mask hashes the keys of its tables, so that no task knows which rows are its own: they may expire beside their "
    "changes"
)
_FILTERED: Final = (
    "the rows of its table are filtered, and whether a dead letter's row matches is not known. Read the topics again "
    "into a sink of another name"
)
TABLES: Final = sa.Table(
    "tailrace_images_tables",
    IMAGES,
    sa.Column("scope", sa.Text().with_variant(sa.String(36), MYSQL), primary_key=True),
    sa.Column("stream", STREAM_NAME, nullable=False),
    sa.Column("table_id", sa.Text, nullable=False),
    sa.Column("definition", sa.Text().with_variant(mysql.LONGTEXT(), MYSQL), nullable=False),
    **MYSQL_TABLE,
)


@dataclass(frozen=True, slots=True)
class ImageShare:
    """What a task makes images of: `owns` tells the partition keys that are its own.

    `begin` is called first in each of its transactions, `end` last: it raises FencedError after a newer plan.

    `now`: in seconds since the epoch, when all tasks of a plan look at rows.
    """

    begin: Callable[[sa.Connection], None]
    end: Callable[[sa.Connection], None]
    owns: Callable[[bytes], bool]
    now: float


@dataclass(slots=True)
class _ImagedTable:
    """One table of the stream, as its transaction knows it. `knows_filter`: its maker knows the filter of its rows."""

    id: UUID
    record: TableRecord
    maker: ImageMaker
    state: ScopeState
    truncations: Truncations
    knows_filter: bool = False


class ImageStore:
    """Row images for one stream. One thread at a time, and one process for each name of a stream, tasks apart.

    One that has written under a name before is refused: FencedError.
    """

    def __init__(
        self,
        url: str,
        stream: str = "images",
        *,
        ring_delay: float = RING_DELAY_SECONDS,
        merge_horizon: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`url` is SQLAlchemy's, `stream` a name of at most 100 bytes: each has a state of its own in the database.

        `ring_delay`: [generations] ring_delay_seconds, within which all hosts know of a truncation. `merge_horizon`: so
        many seconds after it was written, and came, a deletion is forgotten; None: never. `clock` tells the seconds
        since the epoch at which rows are looked at: what has expired by then is gone. Raises SettingsError for a URL of
        another database, ValueError for another name.
        """
        if not 0 < len(stream.encode()) <= LONGEST_STREAM:
            raise ValueError(f"a stream's name has 1 to {LONGEST_STREAM} bytes")
        self._stream = stream
        self._ring_delay = ring_delay
        self._merge_horizon = merge_horizon
        self._clock = clock
        self._location = shown_database(url)
        self._engine = open_engine(url)
        self._claim = Claim(self._engine, stream)
        self._state = StateTable(STATE, self._engine.dialect.name)
        self._purges = Purges()
        self._followed: dict[UUID, _ImagedTable] = {}
        self._made = False
        self._share: ImageShare | None = None
        self._truncations = TruncationsAside()
        self._hashed = False
        self._met_in: dict[KafkaPartition, int] = {}
        self.filters: RowFilters = ()

    def filter_rows(self, filters: RowFilters) -> None:
        """Make images as if tables had the rows alone that match, and leave out changes that have none.

        A change stays whose images cannot be told, and so does a truncation.
        """
        self.filters = filters
        self._followed.clear()

    def reach(self) -> None:
        """Connect, and write nothing. Raises ServiceError when the database does not answer or refuses."""
        try:
            self._engine.connect().close()
        except SQLAlchemyError as error:
            raise failure("images in", self._location, error, absent(self._engine)) from error

    def try_out(self) -> str:
        """As TrialSink says."""
        return try_out(self._engine, f"images in {self._location}", self._make_tables)

    @property
    def by_tasks(self) -> bool:
        """Whether tasks can make images of this database beside each other: it locks rows, not ranges of them."""
        return self._engine.dialect.name == POSTGRESQL

    def imaged(self, pieces: Iterable[Piece], batch: int = NOT_IN_PARTS) -> Iterator[Piece]:
        """The pieces of one micro-batch, each change with its `images`, a piece at a time.

        One that comes in parts has a number, which all of them say: if it comes again it does so from the first one on.
        They must come by topic, partition and offset (`Capabilities.ordered`), and the batch before them must be done
        with. Each piece's state and images are committed before it is given. Raises ServiceError; then the batch is to
        be delivered again, and gets the same images.
        """
        yield from self._by_piece(pieces, lambda _: None, batch)
        self.purge()

    def again(self, piece: Piece) -> Piece:
        """Dead letters' changes, which have no images: those of filtered tables stay set aside, but for truncations."""
        filtered = [
            delivered
            for delivered in piece.changes
            if delivered.change.op is not Op.TRUNCATE and filter_of(self.filters, delivered.change.table) is not None
        ]
        left_out = {delivered.record_id for delivered in filtered}
        changes = tuple([delivered for delivered in piece.changes if delivered.record_id not in left_out])
        return Piece(changes, (*piece.dead_letters, *letters_of(filtered, _FILTERED)))

    def imaged_share(self, pieces: Iterable[Piece], share: ImageShare) -> Iterator[Piece]:
        """As `imaged`, of a batch's records of one Kafka partition, beside those of others; `prepare` came before.

        Raises HereOnlyError for a definition that `prepare` was not told of, and for hashed keys, which tell no
        partition; and what `share.end` does.
        """
        self._share, self._made = share, True
        self._reread()
        yield from self._by_piece(pieces, share.begin, NOT_IN_PARTS)

    def prepare(self, definitions: Iterable[tuple[int, Table]]) -> Fence:
        """Have tables and definitions ready for `imaged_share`; shares of before are refused, those of this go on.

        Definitions come with the place at which they were announced (Delivered), in that order. Raises HereOnlyError
        where a truncation of one of the tables was set aside, or keys were hashed.
        """
        definitions = list(definitions)
        if definitions and self._hashed:
            raise HereOnlyError(_HASHED)
        for _, table in definitions:
            self._truncations.require_none(table)
        self._claim.renew(self._stream)
        with self._transaction() as connection:
            self._reread()
            for announced, table in definitions:
                self._defined(connection, table, announced)
        return self._claim.fence

    def purge(self) -> None:
        """Forget deletions that are older than the merge horizon; some at a time, so once for each batch."""
        if self._merge_horizon is not None:
            with self._transaction() as connection:
                self._purges.forget()  # tasks have noted none, but another process may have had the stream
                self._purge(connection, self._merge_horizon)

    def _by_piece(self, pieces: Iterable[Piece], begin: Callable[[sa.Connection], None], batch: int) -> Iterator[Piece]:
        met_in = {} if batch == NOT_IN_PARTS else self._met_in
        for piece in pieces:
            with self._transaction() as connection:
                begin(connection)
                former = given_before(connection, self._stream, piece.changes, batch, met_in)
                changes, letters = self._imaged(connection, piece.changes, former)
            for table_id in {delivered.change.table.id for delivered in changes}:
                self._truncations.written(table_id)
            yield replace(piece, changes=changes, dead_letters=(*piece.dead_letters, *letters))

    def _reread(self) -> None:
        """Read definitions, truncations and purges again when they are next needed."""
        self._followed.clear()
        self._purges.forget()
        self._state.reload()

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        try:
            if self._share is None and self._claim.due:
                self._claim.take(self._begun())
            with self._begun() as connection:
                yield connection
                (self._claim.require if self._share is None else self._share.end)(connection)
        except BaseException as error:
            self._made = False
            self._claim.drop()
            self._reread()
            if isinstance(error, SQLAlchemyError):
                advice = f"{remedy(error)}; the batch will be delivered again"
                raise failure("images in", self._location, error, advice) from error
            raise
        self._made = True

    @contextmanager
    def _begun(self) -> Iterator[sa.Connection]:
        with self._engine.begin() as connection:
            if not self._made:
                self._make_tables(connection)
            yield connection

    def _make_tables(self, connection: sa.Connection) -> None:
        shared = (TRUNCATIONS, PURGES, FENCES, *((PARTITIONS,) if self.by_tasks else ()))
        make_tables(connection, [*IMAGES.tables.values(), *shared])

    def _imaged(
        self, connection: sa.Connection, changes: Sequence[Delivered], former: Given
    ) -> tuple[tuple[Delivered, ...], list[DeadLetter]]:
        new_images: dict[tuple[str, int, int], RowImages] = {}
        expired: dict[tuple[str, int, int], tuple[RowImage, ...]] = {}
        letters: list[DeadLetter] = []
        shapes: dict[UUID, Table] = {}
        for table_id, some in group_by_table(changes).items():
            self._look_for_hashes(some)
            fresh = [delivered for delivered in some if delivered.record_id.key not in former]
            try:
                with connection.begin_nested():
                    table, images, expired_images = self._table_images(connection, some, fresh)
            except Exception as error:
                if not is_of_one_table(error):
                    raise
                self._followed.pop(table_id, None)
                self._state.reload()
                self._truncations.note(some)
                set_aside(some[0].change.table, some, error, letters)
                continue
            shapes[table_id] = table
            new_images.update(images)
            if expired_images:
                expired[fresh[0].record_id.key] = expired_images
        given_now = {record_key: (images, expired.get(record_key, ())) for record_key, images in new_images.items()}
        all_images = {**former, **keep_given(connection, self._stream, given_now)}
        imaged = [
            replace(delivered, images=Imaged(shapes[delivered.change.table.id], *all_images[delivered.record_id.key]))
            for delivered in changes
            if delivered.change.table.id in shapes
        ]
        return tuple(delivered for delivered in imaged if self._is_asked_for(delivered)), letters

    def _look_for_hashes(self, changes: Sequence[Delivered]) -> None:
        """Of one table: of all of its changes the key is hashed, or of none. Raises HereOnlyError in a task."""
        change = next((delivered.change for delivered in changes if delivered.change.key is not None), None)
        if self.by_tasks and change is not None and token_of(change.key or b"") != change.token:
            self._hashed = True
            if self._share is not None:
                raise HereOnlyError(_HASHED)

    def _is_asked_for(self, delivered: Delivered) -> bool:
        """Whether a change goes out: of a filtered table only one that says something of rows that match."""
        imaged, change = delivered.images, delivered.change
        if imaged is None or filter_of(self.filters, imaged.table) is None or change.op is Op.TRUNCATE:
            return True
        return imaged.images is None or imaged.expired is None or bool(imaged.images or imaged.expired)

    def _table_images(
        self, connection: sa.Connection, changes: Sequence[Delivered], fresh: Sequence[Delivered]
    ) -> tuple[Table, dict[tuple[str, int, int], RowImages], tuple[RowImage, ...]]:
        """The definition of one table now, the images of its changes that have had none, and of what expired before."""
        table = self._follow(connection, changes)
        if not table.knows_filter:
            table.maker.matches = rows_matching(self.filters, table.maker.table)
            table.knows_filter = True
        now = int(self._clock() if self._share is None else self._share.now)
        for truncation in self._truncations.of(changes[0].change.table.id):
            self._truncate(connection, table, truncation.change, now)
        expired = self._expire(connection, table, now) if fresh else ()
        return table.maker.table, self._make(connection, table, fresh, now), expired

    def _follow(self, connection: sa.Connection, changes: Sequence[Delivered]) -> _ImagedTable:
        """A table with the definition that these changes and those before have together."""
        table, announced = newest_definition(changes)
        return self._defined(connection, table, announced)

    def _defined(self, connection: sa.Connection, table: Table, announced: int) -> _ImagedTable:
        followed = self._followed.get(table.id) or self._load(connection, table.id)
        record = TableRecord(table, announced) if followed is None else define(followed.record, table, announced)
        if followed is None or record != followed.record:
            if self._share is not None:
                raise HereOnlyError(f"{table}: a definition that the driver has not made ready for images")
            followed = self._table(connection, record)
            names = ("scope", "stream", "table_id", "definition")
            row = (str(followed.id), self._stream, str(table.id), encode_record(record))
            overwrite(connection, TABLES, names, [row])
        self._followed[table.id] = followed
        return followed

    def _load(self, connection: sa.Connection, table_id: UUID) -> _ImagedTable | None:
        query = sa.select(TABLES.c.definition).where(TABLES.c.scope == str(_scope(self._stream, table_id)))
        text = connection.execute(query).scalar_one_or_none()
        if text is None:
            return None
        return self._table(connection, _record_of(text))

    def _table(self, connection: sa.Connection, record: TableRecord) -> _ImagedTable:
        table = record.definition
        scope = _scope(self._stream, table.id)
        truncations = Truncations(scope, self._ring_delay)
        truncations.load(connection)
        return _ImagedTable(scope, record, ImageMaker(table), ScopeState(scope.bytes, self._state), truncations)

    def _make(
        self, connection: sa.Connection, table: _ImagedTable, changes: Sequence[Delivered], now: int
    ) -> dict[tuple[str, int, int], RowImages]:
        """The images of changes that have had none: merged in their order."""
        images: dict[tuple[str, int, int], RowImages] = {}
        for truncation, some in groupby(changes, key=lambda delivered: delivered.change.op is Op.TRUNCATE):
            if truncation:
                for delivered in some:
                    images[delivered.record_id.key] = self._truncate(connection, table, delivered.change, now)
                continue
            together = list(some)
            images.update({delivered.record_id.key: None for delivered in together})
            purged_to = self._purges.purged_to(connection, table.id)
            merged = []
            for delivered in together:
                if table.truncations.known.covers(delivered.change, self._ring_delay):
                    images[delivered.record_id.key] = ()
                elif not _untold(delivered.change, purged_to):
                    merged.append(delivered)
            loaded = table.state.load(connection, [delivered.change for delivered in merged])
            for delivered in merged:
                if delivered.change.key is not None:
                    partition = loaded.partitions[delivered.change.key]
                    images[delivered.record_id.key] = table.maker.of(partition, delivered.change, now)
            table.state.save(connection, loaded, now)
        return images

    def _expire(self, connection: sa.Connection, table: _ImagedTable, now: int) -> tuple[RowImage, ...]:
        """One image for each row that reads otherwise because something expired since it was last looked at."""
        images: list[RowImage] = []
        owns = None if self._share is None else self._share.owns
        for key, partition, since in table.state.due(connection, now, owns):
            images += table.maker.expired(key, partition, since, now)
        return tuple(images)

    def _truncate(self, connection: sa.Connection, table: _ImagedTable, change: Change, now: int) -> RowImages:
        """One image for each row that a truncation takes; none where another host has told of it before."""
        try:
            truncation = truncation_of(change)
        except ValueError:
            return None
        truncations, erased = absorb(table.truncations.known, [truncation], self._ring_delay)
        table.truncations.store(connection, truncations)
        if erased is None:
            return ()
        images: list[RowImage] | None = []
        for key, partition in table.state.every(connection):
            try:
                images = None if images is None else [*images, *table.maker.truncated(key, partition, erased, now)]
            except DecodeError:
                images = None
        table.state.erase(connection, erased, now)
        if erased == EVERYTHING:
            self._purges.reset(connection, table.id)
        return None if images is None else tuple(images)

    def _purge(self, connection: sa.Connection, horizon: int) -> None:
        """Of this stream's tables alone: others may keep theirs for longer, and their writers know what they purged."""
        now = int(self._clock())
        scopes = connection.execute(sa.select(TABLES.c.scope).where(TABLES.c.stream == self._stream)).scalars().all()
        for some in chunks(scopes, _SCOPES_AT_ONCE):
            # What has expired waits for the next change of its table, whose images say so.
            settled = sa.or_(STATE.c.next_expiry.is_(None), STATE.c.next_expiry > now)
            among = sa.and_(settled, sa.or_(*[of_scope(UUID(scope).bytes) for scope in some]))
            for (key, _), written in forget(self._state, connection, now - horizon, now, _PURGED_AT_ONCE, among):
                if written is not None:
                    self._purges.note(connection, UUID(bytes=key[:_SCOPE_BYTES]), written)


@cache
def _record_of(text: str) -> TableRecord:
    """One object for a text: each share reads it again, and sinks keep what they make of a table by its identity.

    They keep it for good, and so does this: what it let go, sinks would have once more for each share.
    """
    return decode_record(text)[0]


def _untold(change: Change, purged_to: int | None) -> bool:
    """Whether a change comes when what it would have met is forgotten, or is too long for the state to hold."""
    return (purged_to is not None and late(change, purged_to)) or too_long(change)


def _scope(stream: str, table_id: UUID) -> UUID:
    """What names a table of a stream in the database; below the largest number, so that there is one above it."""
    digest = hashlib.blake2b(table_id.bytes + stream.encode(), digest_size=_SCOPE_BYTES).digest()
    return UUID(bytes=bytes((digest[0] & 0x7F,)) + digest[1:])


__all__ = ["STATE", "TABLES", "ImageShare", "ImageStore"]
