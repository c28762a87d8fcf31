"""What a files sink must do when it drops what it has made: that alone goes, whatever dies meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from itertools import count
from uuid import UUID

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import table_topic
from tailrace_spark.sinks.files.compaction import Compaction
from tailrace_spark.sinks.files.dead_letters import ReplayableFilesOutlet
from tailrace_spark.sinks.files.sink import FilesSink
from tailrace_spark.sinks.files.store import FileStore
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, Topic
from tests.unit.spark.sinks.files.stores import Stored
from tests.unit.spark.sinks.hostile import LONG_NAMES

PREFIX = "t"
OTHER = replace(PLAIN, name="other", id=UUID(int=8))
FORMER = replace(PLAIN, id=UUID(int=9))
"""Of the same name, dropped and made again since."""

OTHER_TOPICS = [(PLAIN, ("t.shop_plain",)), (LONG_NAMES[0], ())]
"""Tables whose topics have other names than usual, and the topics that others have."""


def sink_of(stored: Stored, store: FileStore | None = None) -> FilesSink:
    return FilesSink(ReplayableFilesOutlet(store or stored.store, stored.settings), prefix=PREFIX)


def write(stored: Stored, *tables: Table, batches: int = 1, taken: Iterable[str] = ()) -> None:
    """In each batch two rows of each table, and a dead letter; `taken` are topics of other tables."""
    topics = {of: Topic(table_topic(PREFIX, of.keyspace, of.name, of.id, taken)) for of in tables}
    for _ in range(batches):
        with closing(sink_of(stored)) as sink:
            sink.write(
                topics[of].piece(Log(of).insert((1,), (), 5, v="a"), Log(of).insert((2,), (), 5, v="b"), letters=1)
                for of in tables
            )


def drop(stored: Stored, *tables: Table, store: FileStore | None = None) -> list[str]:
    with closing(sink_of(stored, store)) as sink:
        droppable = sink.capabilities.droppable
        assert droppable is not None
        return list(droppable.drop(tables))


def compact(stored: Stored) -> None:
    Compaction(stored.store, 1 << 20, lambda: 0.0).run(0.0)


def rows(stored: Stored) -> dict[str, int]:
    """Of each table, by readers of committed files."""
    return dict(Counter(record["table"] for record in stored.records()))


def directories(stored: Stored) -> set[str]:
    """Of all files of tables, hidden or not."""
    return {path.partition("/")[0] for path in stored.data()}


class DroppingContract:
    """Give `stores` as a fixture: each call of it makes an empty root."""

    @pytest.mark.promise("subscription.target-dropped")
    @pytest.mark.parametrize("packed", [False, True])
    def test_files_go_and_those_of_others_stay(self, stores: Callable[[], Stored], packed: bool) -> None:
        stored = stores()
        write(stored, PLAIN, OTHER, batches=3)
        write(stored, FORMER)
        if packed:
            compact(stored)
        letters = stored.dead_letters()
        assert drop(stored, PLAIN, FORMER) == ["shop.plain"]
        assert (rows(stored), directories(stored)) == ({"shop.other": 6}, {"shop.other"})
        assert stored.dead_letters() == letters
        assert drop(stored, PLAIN, FORMER) == []
        # What was noted of its topic is gone too: the same records are new ones.
        write(stored, PLAIN)
        assert rows(stored) == {"shop.other": 6, "shop.plain": 2}
        write(stored, OTHER)  # of which all that was noted is there: offsets from 0 come again
        assert rows(stored) == {"shop.other": 6, "shop.plain": 2}

    @pytest.mark.promise("subscription.target-dropped")
    @pytest.mark.parametrize(("of", "taken"), OTHER_TOPICS)
    def test_a_topic_of_another_name_can_be_read_anew(
        self, stores: Callable[[], Stored], of: Table, taken: tuple[str, ...]
    ) -> None:
        stored = stores()
        write(stored, of, taken=taken)
        assert len(drop(stored, of)) == 1
        write(stored, of, taken=taken)
        assert rows(stored) == {str(of): 2}

    def test_files_of_other_names_stay(self, stores: Callable[[], Stored]) -> None:
        stored = stores()
        write(stored, PLAIN)
        stored.store.write("shop.plain/notes.txt", b"somebody's")
        assert drop(stored, PLAIN) == ["shop.plain"]
        assert stored.data() == ["shop.plain/notes.txt"]

    @pytest.mark.promise("subscription.target-dropped")
    @pytest.mark.parametrize("packed", [False, True])
    def test_a_drop_that_dies_is_gone_on_with(self, stores: Callable[[], Stored], packed: bool) -> None:
        for step in count():
            stored = stores()
            write(stored, PLAIN, OTHER, batches=2)
            if packed:
                compact(stored)
            died = False
            try:
                drop(stored, PLAIN, store=stored.opened(step))
            except ServiceError:
                died = True
                assert rows(stored) in ({"shop.other": 4}, {"shop.other": 4, "shop.plain": 4})
                drop(stored, PLAIN)
            assert (rows(stored), directories(stored)) == ({"shop.other": 4}, {"shop.other"})
            write(stored, PLAIN)
            assert rows(stored) == {"shop.other": 4, "shop.plain": 2}
            if not died:
                assert step > 5
                return

    def test_a_stream_that_still_writes_there_ends(self, stores: Callable[[], Stored]) -> None:
        stored = stores()
        topic = Topic("t.shop.plain")
        with closing(sink_of(stored)) as writing:
            writing.write([topic.piece(Log(PLAIN).insert((1,), (), 5, v="a"))])
            drop(stored, PLAIN)
            with pytest.raises(Exception, match="another stream has begun to write here"):
                writing.write([topic.piece(Log(PLAIN).insert((2,), (), 5, v="a"))])
        assert rows(stored) == {}

    def test_nothing_is_dropped_of_an_empty_root(self, stores: Callable[[], Stored]) -> None:
        assert drop(stores(), PLAIN) == []
