"""Tables of a lake that follow the source: what is there is what SELECT returns, merged as Cassandra merges.

For a source table there is KEYSPACE.NAME, which users read, and KEYSPACE.NAME-state, what later merges need. A batch is
one commit of each, the state first. Each row of the state has the number of the batch that wrote it last, and the table
that users read notes which batch it shows: what a crash between the two commits left out is made of the state when
the table is next opened.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from tailrace_schemas.change import Op
from tailrace_schemas.errors import DecodeError, ServiceError, SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, Summary
from tailrace_spark.batch.gc_pause import gc_paused
from tailrace_spark.merge.batch_changes import BatchChanges, RowChanges, gather
from tailrace_spark.merge.by_table import group_by_table
from tailrace_spark.merge.definitions import merge_definitions, newest_definition
from tailrace_spark.merge.fast import merges_fast
from tailrace_spark.merge.partition import Known, Merge, Merged, mergeable
from tailrace_spark.merge.stored_row import RowKey
from tailrace_spark.merge.truncation import absorb_truncations
from tailrace_spark.sinks.lake.fast_rows import FastRows, bucket_of
from tailrace_spark.sinks.lake.history import LakeHistory, table_name
from tailrace_spark.sinks.lake.names import Names
from tailrace_spark.sinks.lake.row_changes import Puts, puts_of, rows_of
from tailrace_spark.sinks.lake.spool import Spool
from tailrace_spark.sinks.lake.state import (
    BATCH,
    IDENTITY,
    WITH_GONE,
    About,
    StateTable,
    about_rows,
    known_of,
    plain_state_rows,
    state_rows,
)
from tailrace_spark.sinks.lake.state_reader import StateReading, read_now, reading
from tailrace_spark.sinks.lake.store import LakeStore, LakeTable, Number
from tailrace_spark.sinks.lake.visible_rows import BUCKET, Shown
from tailrace_spark.sinks.naming import CLUSTERING, KEY
from tailrace_spark.sinks.protocol import Capabilities
from tailrace_spark.sinks.table_faults import is_of_table, reason_of, refusals_of, set_aside

log = logging.getLogger("tailrace_spark")

_STATE: Final = "-state"
_NAMED_BY: Final = (BUCKET, KEY, CLUSTERING)


class LakeCurrent:
    """Follows source tables; see `Sink` and `SweepingSink` for the promises.

    Of a batch one table may be done and another not when it fails: it is then written again, and every row comes out
    as if once.
    """

    def __init__(
        self,
        store: LakeStore,
        buckets: int = 16,
        *,
        ring_delay: float = 0.0,
        sweep_seconds: float = 60.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`buckets`: of tables that are made. `ring_delay`: see SqlSink. What expires is looked for so often.

        `clock` tells the seconds since the epoch by which what expires is gone.
        """
        self._store = store
        self._buckets = buckets
        self._ring_delay = ring_delay
        self._sweep_seconds = sweep_seconds
        self._clock = clock
        self._swept = 0.0
        self._names: dict[UUID, str] = {}

    def reach(self) -> None:
        """See that the root may be written."""
        self._store.reach()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(sweeping=self)

    def write(self, pieces: Iterable[Piece]) -> Summary:
        """Take in one micro-batch. Raises ServiceError when the store does not answer."""
        return self.merged(pieces)[0]

    def merged(self, pieces: Iterable[Piece]) -> tuple[Summary, Sequence[DeadLetter]]:
        """As `write`; and what was set aside."""
        by_table: dict[UUID, list[Delivered]] = {}
        letters: list[DeadLetter] = []
        for piece in pieces:
            letters += piece.dead_letters
            group_by_table(piece.changes, by_table)
        summary = Summary()
        for changes in by_table.values():
            refused = list[DeadLetter]()
            try:
                rows = self._table(changes, refused)
            except BaseException as error:
                if not is_of_table(error):
                    raise
                summary += set_aside(changes[0].change.table, changes, error, letters)
            else:
                summary += Summary(len(changes) - len(refused), rows, refused=refusals_of(changes, refused))
                letters += refused
        self._bury(letters)
        return summary + Summary(dead_letters=len(letters)), letters

    def sweep(self) -> int:
        """Show again what has expired, and erase what truncations let go by now; how many rows that changed.

        It is looked for every `sweep_seconds`: each time is a commit of the tables that have some.
        """
        if self._clock() < self._swept + self._sweep_seconds:
            return 0
        self._swept = self._clock()
        swept = 0
        states = [name for name in self._store.names() if name.endswith(_STATE)]
        for name in states:
            followed = _Followed.open(self._store, name.removesuffix(_STATE))
            if followed is not None:
                swept += self._sweep(followed)
        return swept

    def _sweep(self, followed: _Followed) -> int:
        try:
            return followed.sweep(int(self._clock()), self._ring_delay)
        except BaseException as error:
            if not is_of_table(error):
                raise
            log.warning("%s: could not remove expired rows; will retry: %s", followed.name, reason_of(error))
            return 0

    def close(self) -> None:
        """Nothing is kept open between batches."""

    def _table(self, changes: Sequence[Delivered], refused: list[DeadLetter]) -> int:
        table, announced = newest_definition(changes)
        name, followed = self._followed(table)
        if followed is None:
            about = About(table, announced, self._buckets, names={})
            followed = _Followed(self._store, name, StateTable(self._store.open(state_name(name))), about, made=True)
        else:
            about = followed.about
            newer = announced >= about.announced
            definition = merge_definitions(about.definition, table, second_newer=newer)
            about = replace(about, definition=definition, announced=max(announced, about.announced))
        about = replace(about, names=_names(about))
        at = int(self._clock())
        with gc_paused():
            try:
                with reading(followed.state, _keys_of(changes), about.buckets) as known:
                    return followed.merge(gather(changes), about, at, self._ring_delay, known)
            except DecodeError:
                good = mergeable(changes, Shown(about.definition, about.buckets, about.names), refused)
                known = read_now(followed.state, _keys_of(good), about.buckets)
                return followed.merge(gather(good), about, at, self._ring_delay, known)

    def _followed(self, table: Table) -> tuple[str, _Followed | None]:
        """The name under which a source table stands, or is to be made: the first of NAME, NAME-2, ... that is its."""
        known = self._names.get(table.id)
        if known is not None and (followed := _Followed.open(self._store, known)) is not None:
            return known, followed
        base = table_name(table)
        for number in count(1):
            name = base if number == 1 else f"{base}-{number}"
            followed = _Followed.open(self._store, name)
            if followed is None:
                if self._store.open(name) is not None:
                    raise SettingsError(
                        f"{self._store.uri(name)} is a table of another kind: give this sink another path"
                    )
                break
            if followed.about.definition.id == table.id:
                break
        self._names[table.id] = name
        return name, followed

    def _bury(self, letters: Sequence[DeadLetter]) -> None:
        if letters:
            batch = LakeHistory(self._store).begin()
            try:
                for letter in letters:
                    batch.set_aside(letter)
                batch.commit()
            except BaseException:
                batch.abandon()
                raise


def state_name(name: str) -> str:
    """The name of the state of a table."""
    return name + _STATE


@dataclass(slots=True)
class _Followed:
    """One table as it was when it was opened."""

    store: LakeStore
    name: str
    state: StateTable
    about: About
    made: bool = False

    @classmethod
    def open(cls, store: LakeStore, name: str) -> _Followed | None:
        """The table of a name; None where there is none that follows anything."""
        stored = store.open(state_name(name))
        if stored is None:
            return None
        state = StateTable(stored)
        about = state.about()
        return None if about is None else cls(store, name, state, about)

    def sweep(self, at: int, ring_delay: float) -> int:
        """Merge what has expired by `at` and what truncations let go by then; how many rows' states changed."""
        known = read_now(self.state, self.state.due(at), self.about.buckets)
        return self.merge(BatchChanges(), self.about, at, ring_delay, known)

    def merge(self, found: BatchChanges, about: About, at: int, ring_delay: float, known: StateReading) -> int:
        """Merge what was gathered, by what is known now of the whole table; how many rows' states changed.

        `known` are the partitions that it is of, or also others, in which what expired by `at` is looked for too.
        Raises DecodeError before anything is written.
        """
        about, erases = _erasing(about, found, at, ring_delay)
        shown = Shown(about.definition, about.buckets, about.names)
        plain = FastRows(about.definition, about.buckets, len(found.rows))
        if erases:
            keys = {*found.deletions, *found.statics, *(key for key, _ in found.rows), *self.state.all_keys()}
            known = read_now(self.state, keys, about.buckets)
        if erases or not merges_fast(about.definition):
            whole = _joined(known_of(part) for part in known.all())
        else:
            whole, left = self._merge_plain(plain, found, about, at, known)
            found = replace(found, rows=left)
        merged = Merge(shown, about.erased, at, everything=erases).merge(whole, found)
        puts = puts_of(shown, plain, merged, known.parts, at)
        before, anew = self.state.batch, self.state.stored is None
        changed = self._write_state(merged, plain, about, puts.new)
        self._show(shown, puts, changed, before, at, anew=anew)
        return merged.rows + len(plain.keys)

    def _merge_plain(
        self, plain: FastRows, found: BatchChanges, about: About, at: int, known: StateReading
    ) -> tuple[dict[bytes, Known], dict[RowKey, RowChanges]]:
        """Merge each part as it comes; gives the partitions and the rows of them that need more than that."""
        whole, left = dict[bytes, Known](), dict[RowKey, RowChanges]()
        for keys, part in known:
            rows: Iterable[tuple[RowKey, RowChanges]] = (one for one in found.rows.items() if one[0][0] in keys)
            if not part.at:
                rows = sorted(rows, key=_row_key)  # as they will lie: beside what says the same
            intricate = {*found.deletions, *found.statics, *part.intricate(at)}
            some = plain.merge(rows, part, intricate, about.erased)
            whole |= known_of(part, intricate, some)
            left |= some
        return whole, left

    def _write_state(self, merged: Merged[list[object]], plain: FastRows, about: About, new: bool) -> bool:
        """Commit what becomes of the state, and whether there was anything; `new`: none of these rows is there."""
        batch = self.state.batch + 1
        rows = state_rows(merged.kept, merged.gone, batch, about.buckets)
        if self.made or about != self.about:
            if self.made or about.erased != self.about.erased or not _widens(self.about, about):
                about = replace(about, since=batch)
            rows += about_rows(about)
            new = False
        if not rows and not plain.keys:
            return False
        name, there = state_name(self.name), self.state.stored
        table = pa.concat_tables([plain_state_rows(plain, batch), pa.Table.from_pylist(rows, schema=WITH_GONE)])
        if there is None or new:
            batches = table.filter(pc.invert(table["gone"])).drop_columns(["gone"]).to_reader()
            says = f"State of {about.definition}"
            self.store.append(name, there, batches, {BATCH: batch}, partitioned_by="bucket", says=says)
        else:
            self.store.merge(name, there, table, IDENTITY, {BATCH: batch})
        self.about, self.made = about, False
        self.state.batch = batch
        return True

    def _show(self, shown: Shown, puts: Puts, changed: bool, before: int, at: int, *, anew: bool) -> None:
        """Have the table show the state: by what changed now, by what a crash left out, or made anew.

        With `anew` there was no state before.
        """
        stored = self.store.open(self.name)
        batch = 0 if stored is None else stored.version_of(BATCH) or 0
        if stored is None and anew:
            self._rewrite(shown, None, pa.RecordBatchReader.from_batches(shown.schema, puts.rows))
            return
        if batch > before:
            return  # another writer went on with this state, and has shown it
        if stored is None or batch < self.about.since:
            self._show_all(shown, stored, at)
            return
        missing = len(shown.schema) - len(stored.schema)
        if missing:
            empty = pa.RecordBatchReader.from_batches(shown.schema, [])
            self.store.append(self.name, stored, empty, {})
            stored = self.store.open(self.name)
        if stored is None or (stored.version_of(BATCH) or 0) != batch:
            raise ServiceError(f"{self.store.uri(self.name)}: another writer came first, or it has gone")
        if batch < before:
            log.info(
                "%s: the visible table is at batch %d, expected %d; rebuilding it from the state",
                self.name,
                batch,
                before,
            )
            self._show_since(shown, stored, batch, at)
        elif changed and (puts.rows or puts.hidden):
            self._put(shown, stored, puts)

    def _put(self, shown: Shown, stored: LakeTable, puts: Puts) -> None:
        if puts.new:
            batches = pa.RecordBatchReader.from_batches(shown.schema, puts.rows)
            self.store.append(self.name, stored, batches, {BATCH: self.state.batch})
            return
        away = [
            {KEY: key, CLUSTERING: clustering, BUCKET: bucket_of(key, self.about.buckets)}
            for key, clustering in puts.hidden
        ]
        gone = pa.RecordBatch.from_pylist(away, schema=shown.schema)
        both = [*(_marked(rows, False) for rows in puts.rows), _marked(gone, True)]
        self.store.merge(self.name, stored, pa.Table.from_batches(both), _NAMED_BY, {BATCH: self.state.batch})

    def _show_since(self, shown: Shown, stored: LakeTable, batch: int, at: int) -> None:
        """Make the rows of partitions anew that were written after a batch."""
        state = self._state_now()
        keys = state.since(batch)
        known = state.partitions(keys, self.about.buckets)
        rows = rows_of(shown, known, at)
        within = sorted({bucket_of(key, self.about.buckets) for key in keys})
        there = stored.read([KEY, CLUSTERING], Number(BUCKET).among(within), keys)
        hidden = set(zip(there[KEY].to_pylist(), there[CLUSTERING].to_pylist(), strict=True)) - rows.keys()
        self._put(shown, stored, Puts([shown.arrow(list(rows.values()))], hidden, new=False))

    def _show_all(self, shown: Shown, stored: LakeTable | None, at: int) -> None:
        """Make all of it anew, one bucket after the other."""
        state = self._state_now()
        spool = Spool(shown.schema)
        try:
            for number in range(self.about.buckets):
                rows = rows_of(shown, state.bucket(number), at)
                if rows:
                    spool.add(shown.arrow(list(rows.values())))
            self._rewrite(shown, stored, spool.reader())
        finally:
            spool.close()

    def _state_now(self) -> StateTable:
        """The state, with what was committed of it. Raises ServiceError where another writer went on with it: what it
        wrote is its to show."""
        state = StateTable(self.store.open(state_name(self.name)))
        if state.batch != self.state.batch:
            raise ServiceError(f"{self.store.uri(state_name(self.name))}: another writer came first")
        return state

    def _rewrite(self, shown: Shown, stored: LakeTable | None, rows: Any) -> None:
        says = f"{shown.table}, followed"
        noted = {BATCH: self.state.batch}
        self.store.rewrite(self.name, stored, rows, noted, partitioned_by=BUCKET, says=says)


def _keys_of(changes: Sequence[Delivered]) -> set[bytes]:
    """The keys of the partitions that changes are of."""
    return {one.change.key for one in changes if one.change.key is not None and one.change.op is not Op.TRUNCATE}


def _row_key(one: tuple[RowKey, RowChanges]) -> RowKey:
    return one[0]


def _joined(parts: Iterable[Mapping[bytes, Known]]) -> dict[bytes, Known]:
    return {key: known for part in parts for key, known in part.items()}


def _erasing(about: About, found: BatchChanges, at: int, ring_delay: float) -> tuple[About, bool]:
    """What is known of truncations now, and whether that takes more away than before."""
    truncations, floor = absorb_truncations(about.truncations, found.truncations, about.erased, at, ring_delay)
    return replace(about, truncations=truncations, erased=floor or about.erased), floor is not None


def _names(about: About) -> Names:
    """What a table calls its columns and fields now, by what it called them before."""
    if about.names is None:  # an older version made it
        about = replace(about, names=Shown(about.definition, about.buckets, None).names)
    return Shown(about.definition, about.buckets, about.names).names


def _widens(before: About, after: About) -> bool:
    """Whether all that another definition changes of what is shown are columns more."""
    old, new = before.definition, after.definition
    if old == new and before.names == after.names:
        return True
    there = Shown(old, before.buckets, before.names).schema
    wanted = Shown(new, after.buckets, after.names).schema
    same = all(field.name in wanted.names and wanted.field(field.name) == field for field in there)
    return same and old.dropped == new.dropped and [c.name for c in old.key] == [c.name for c in new.key]


def _marked(batch: Any, gone: bool) -> Any:
    return batch.append_column(WITH_GONE.field("gone"), pa.array([gone] * len(batch), pa.bool_()))
