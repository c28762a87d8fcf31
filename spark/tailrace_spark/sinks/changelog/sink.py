"""What sinks have in common that emit one record for each change, in the order of their places (contracts.md 6)."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from tailrace_schemas.avro.names import avro_name
from tailrace_schemas.change import Change, record_times
from tailrace_schemas.change_json import ChangeJson, compact_json
from tailrace_schemas.cql.json_value import plain
from tailrace_schemas.streams import Assignment
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import (
    CommitMessage,
    DeadLetter,
    Delivered,
    MicroBatch,
    Piece,
    RecordId,
    Summary,
    Transaction,
    first_of,
)
from tailrace_spark.batch.pieces import gc_paused
from tailrace_spark.batch.row_image import Imaged
from tailrace_spark.merge.condition import RowFilters
from tailrace_spark.sinks.changelog.json_plan import JsonPlan
from tailrace_spark.sinks.changelog.routes import RouteError
from tailrace_spark.sinks.protocol import BatchWrite, Capabilities, DataWriter, Needed, here, nothing_needed, summed
from tailrace_spark.sinks.table_faults import is_of_table, reason_of
from tailrace_spark.sinks.worker_cache import WorkerCache

if TYPE_CHECKING:
    from tailrace_spark.sinks.images.planning import ImageSettings
    from tailrace_spark.sinks.images.store import ImageStore

log = logging.getLogger("tailrace_spark")

_CELL_BYTES: Final = 100  # of a cell in memory, beside its value


class RecordForm:
    """How the changes of one definition go out."""

    def __init__(self, table: Table) -> None:
        self.change = ChangeJson(table)
        self.plan = JsonPlan(table)


class RecordForms:
    """The forms of several definitions, each made once. Tables are compared by identity: to hash one takes longer."""

    def __init__(self) -> None:
        self._forms: dict[int, RecordForm] = {}

    def of(self, table: Table) -> RecordForm:
        """The form of a definition's changes."""
        form = self._forms.get(id(table))
        if form is None:
            form = self._forms[id(table)] = RecordForm(table)  # which keeps the table, and so its id
        return form


@dataclass(slots=True)
class OutgoingRecord:
    """One change as it goes out: its place, its stream, and the form that makes its Avro record, and JSON of it.

    What a store makes of it is `value`, or its text, `json`. `message` is Kafka's value that it was read from, for a
    dead letter. `images` and `transaction` are there where the sink was asked for them (docs/images.md,
    docs/transactions.md). All raise what the form does where the change cannot be written.
    """

    record_id: RecordId
    change: Change
    assignment: Assignment | None
    form: RecordForm
    message: bytes = b""
    images: Imaged | None = None
    transaction: Transaction | None = None
    _record: dict[str, object] | None = field(default=None, init=False, repr=False, compare=False)
    _json: bytes | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def record(self) -> dict[str, object]:
        """The Avro record (docs/contracts.md 3), nulls left out; made once."""
        if self._record is None:
            self._record = self.form.change.record(self.change)
        return self._record

    @property
    def first_id(self) -> RecordId:
        """The record that decides whether all of its transaction is out: the transaction's first, or its own."""
        return first_of(self.record_id, self.transaction)

    @property
    def written(self) -> int:
        """The record's write time, in microseconds."""
        return record_times(self.change)[0]

    @property
    def octets(self) -> int:
        """About what the cells of the change take in memory."""
        return sum([_CELL_BYTES + len(cell.path or b"") + len(cell.value or b"") for cell in self.change.cells])

    @property
    def value(self) -> dict[str, object]:
        """The JSON object (docs/change-json.md), with place and stream."""
        return {
            "table": str(self.change.table),
            **self.record_id.to_json(),
            **stream_value(self.assignment),
            **{name: plain(value) for name, value in self.record.items()},
            **({} if self.images is None else self.images.value()),
            **({} if self.transaction is None else {"transaction": self.transaction.to_json()}),
        }

    @property
    def json(self) -> bytes:
        """`value` as `encoded`; made once."""
        if self._json is None:
            text = None
            if self.images is None:
                text = self.form.plan.text(self.record_id, self.change, self.assignment)
            self._json = encoded(self.value) if text is None else self._marked(text)
        return self._json

    def _marked(self, text: str) -> bytes:
        """The text of a change, with its transaction as the last member."""
        if self.transaction is None:
            return text.encode()
        return text[:-1].encode() + b',"transaction":' + encoded(self.transaction.to_json()) + b"}"


class Batch(ABC):
    """A share of a micro-batch on its way out, which an outlet's inherits from. Ended by `commit` or `abandon`."""

    def __init__(self) -> None:
        self.aside: list[DeadLetter] = []
        """What is set aside, for the sink's dead letters."""

    @abstractmethod
    def put(self, record: OutgoingRecord) -> None:
        """Take the next record; they come by topic, partition and offset. Raises ServiceError.

        Of a record that raises what is its table's (table_faults) nothing goes out, and it is set aside.
        """

    def put_all(self, changes: Sequence[Delivered]) -> Sequence[Delivered]:
        """Take what it can of these changes at once; those that it gives back are `put` or set aside.

        It takes none unless order means nothing to it. Raises ServiceError.
        """
        return changes

    def set_aside(self, letter: DeadLetter) -> None:
        """Take a record that is not a change, or that cannot be written."""
        self.aside.append(letter)

    @abstractmethod
    def commit(self) -> Summary:
        """Have all of it out when this returns: records written as `rows`, set aside as `dead_letters`.

        Raises ServiceError; then it is abandoned, and delivered again.
        """

    def abandon(self) -> None:  # noqa: B027 - some have nothing to drop
        """Drop what is not out yet; what is out may stay."""


class Outlet(Protocol):
    """Where a change log goes. tests/unit/spark/sinks/change_log_contract.py says what each must do."""

    def reach(self) -> None:
        """Connect, and write nothing. Raises ServiceError where the store does not answer or refuses."""

    def begin(self, batch: MicroBatch) -> Batch:
        """Begin a share of a batch. One that is `again` moves no progress."""

    def close(self) -> None: ...


class ShareImaging(Protocol):
    """Gives the changes of a share their row images, on an executor: `images.planning.ShareImages`. It is pickled."""

    def imaged(self, share: KafkaPartition, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The pieces, which come by offset, with images. Raises HereOnlyError, FencedError, ServiceError."""


class LogShares(ABC):
    """How executors write shares of a change log, beside each other."""

    @abstractmethod
    def writer(self, batch: MicroBatch, needed: Needed, imaging: ShareImaging | None) -> DataWriter:
        """As Sink says of batches; shares of earlier ones are fenced."""

    def fence(self) -> None:  # noqa: B027 - most have nothing to fence
        """Have no share of an earlier batch count from now on, where that needs anything.

        Raises FencedError, ServiceError.
        """

    def commit(self, messages: Sequence[CommitMessage]) -> None:  # noqa: B027 - shares of most count at once
        """As BatchWrite says, where anything is left to be done."""


class ChangeLogSink:
    """A sink of any outlet: every change goes out as its JSON form, in the order of the places.

    With `imaging`, each has its row images; with `shares`, executors write too, images by `image_settings`. With
    `transactions`, it is given those. Of a redelivered batch an outlet leaves out what it has written; or each record
    has its (topic, partition, offset), and readers leave it out.
    """

    def __init__(
        self,
        outlet: Outlet,
        imaging: ImageStore | None = None,
        shares: LogShares | None = None,
        image_settings: ImageSettings | None = None,
        *,
        transactions: bool = False,
    ) -> None:
        self._outlet = outlet
        self._imaging = imaging
        self._shares = shares if imaging is None or image_settings is not None else None
        self._image_settings = image_settings
        self._transactions = transactions
        self._forms = RecordForms()

    @property
    def capabilities(self) -> Capabilities:
        """It wants its changes in order; with images it makes rows of them."""
        return Capabilities(
            executors=self._shares is not None,
            ordered=True,
            logs_changes=self._imaging is None,
            transactions=self._transactions,
            filtering=None if self._imaging is None else self,
            trial=None if self._imaging is None else self,
        )

    def filter_rows(self, filters: RowFilters) -> None:
        """As RowFilteringSink says, by images: only changes of rows that match go out."""
        if self._imaging is None:
            raise ValueError("a sink without images knows no rows: capabilities.filtering says so")
        self._imaging.filter_rows(filters)

    def reach(self) -> None:
        """As the outlet's, and the database of images."""
        self._outlet.reach()
        if self._imaging is not None:
            self._imaging.reach()

    def try_out(self) -> str:
        """As TrialSink says, of the database of images."""
        return "" if self._imaging is None else self._imaging.try_out()

    def batch_write(self, batch: MicroBatch, needed: Needed = nothing_needed) -> BatchWrite:
        """As Sink says."""
        shares, images, image_settings = self._shares, self._imaging, self._image_settings
        if batch.here:
            if shares is not None and batch.fences:
                shares.fence()
                if images is not None:
                    images.prepare(())  # the name of their state is what fences its tasks
            return here(partial(self._emit, batch))
        if shares is None:
            raise ValueError("executors cannot write into this sink: its capabilities say so")
        imaging = None
        if images is not None and image_settings is not None:
            imaging = image_settings.plan(images, batch, needed)
        return BatchWrite(shares.writer(batch, needed, imaging), self._commit)

    def _emit(self, batch: MicroBatch, pieces: Iterable[Piece]) -> Summary:
        outgoing = self._outlet.begin(batch)
        if self._imaging is not None:
            imaging = self._imaging
            pieces = map(imaging.again, pieces) if batch.again else imaging.imaged(pieces, batch.number)
        return emit(outgoing, pieces, self._forms)

    def _commit(self, messages: Sequence[CommitMessage]) -> Summary:
        if self._shares is not None:
            self._shares.commit(messages)
        if self._imaging is not None:
            self._imaging.purge()
        return summed(messages)

    def close(self) -> None:
        """Close the outlet, and the store of images."""
        self._outlet.close()
        if self._imaging is not None:
            self._imaging.close()


def emit(batch: Batch, pieces: Iterable[Piece], forms: RecordForms) -> Summary:
    """Put the pieces into a batch and end it. Raises what the outlet does."""
    changes, refused = 0, dict[str, str]()
    try:
        with gc_paused():
            for piece in pieces:
                changes += len(piece.changes)
                for letter in piece.dead_letters:
                    batch.set_aside(letter)
                for delivered in batch.put_all(piece.changes):
                    _put(batch, delivered, forms, refused)
            done = batch.commit()
    except BaseException:
        batch.abandon()
        raise
    for table, reason in refused.items():
        log.warning("%s: its changes go to the dead letters, other tables go on: %s", table, reason)
    return done + Summary(changes=changes - done.changes, refused=refused)


def _put(batch: Batch, delivered: Delivered, forms: RecordForms, refused: dict[str, str]) -> None:
    """Put a change, or set it aside; `refused` gets why, by table."""
    message, images, transaction = delivered.message, delivered.images, delivered.transaction
    try:
        form = forms.of(delivered.change.table)
        record_id, change = delivered.record_id, delivered.change
        batch.put(OutgoingRecord(record_id, change, delivered.assignment, form, message, images, transaction))
    except RouteError as error:
        batch.set_aside(DeadLetter(delivered.record_id, str(error), message, transaction=transaction))
    except BaseException as error:
        if not is_of_table(error):
            raise
        reason = reason_of(error)
        refused[str(delivered.change.table)] = reason
        batch.set_aside(DeadLetter(delivered.record_id, reason, message, transaction=transaction))


def encoded(value: object) -> bytes:
    """The JSON text of a value, in UTF-8, without spaces."""
    return compact_json(value).encode()


def key_of(record: OutgoingRecord, *, primary: bool) -> bytes | None:
    """The partition key's columns as a JSON object, or with `primary` those of the primary key.

    None for a truncation. A `primary` key lacks what a deletion does not say of the clustering columns.
    """
    text = record.form.plan.key(record.change, primary=primary)
    if text is not None:
        return text.encode()
    key: Any = plain(record.record["key"])
    if key is None:
        return None
    names = {avro_name(column.name) for column in record.change.table.partition_key}
    return encoded(key if primary else {name: value for name, value in key.items() if name in names})


def stream_value(assignment: Assignment | None) -> dict[str, object]:
    """A stream as members of a JSON object."""
    return {
        "generation": None if assignment is None else assignment.generation,
        "stream_id": None if assignment is None else assignment.stream_id.hex(),
    }


Opened = TypeVar("Opened", bound=Outlet)
OpenedHere = TypeVar("OpenedHere", bound=Outlet, covariant=True)


class Opener(Protocol[OpenedHere]):
    """Makes the outlet of a worker process; equal ones share it. It is pickled, and may have secrets."""

    def open(self) -> OpenedHere: ...


@dataclass(frozen=True, slots=True)
class LogWriter:
    """Writes a share to where a change log goes."""

    opener: Opener[Outlet] = field(repr=False)
    batch: MicroBatch
    imaging: ShareImaging | None = None

    def write(self, share: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        """As DataWriter says."""
        imaged = pieces if self.imaging is None else self.imaging.imaged(share, pieces)
        with _OUTLETS.borrowed(self.opener) as opened:
            return CommitMessage(share, emit(opened.outlet.begin(self.batch), imaged, opened.forms))


class OpenedOutlet(Generic[Opened]):
    """A worker process's outlet, and the forms of its records."""

    def __init__(self, opener: Opener[Opened]) -> None:
        self.outlet = opener.open()
        self.forms = RecordForms()

    def close(self) -> None:
        """End its connections."""
        self.outlet.close()


_OUTLETS: Final = WorkerCache[Opener[Outlet], OpenedOutlet[Outlet]](OpenedOutlet)


@dataclass(frozen=True, slots=True)
class OpenedShares(LogShares):
    """As LogShares, by outlets that an opener makes.

    Readers leave out by its place what comes twice. Every attempt at a share writes each key in order, from the batch's
    beginning on. So the first copies are in order, whatever other attempts do. There is nothing to fence: what a late
    writer writes is a copy of what is written already.
    """

    opener: Opener[Outlet] = field(repr=False)

    def writer(self, batch: MicroBatch, needed: Needed, imaging: ShareImaging | None) -> LogWriter:
        """As LogShares says."""
        del needed  # changes say their own definitions
        return LogWriter(self.opener, batch, imaging)
