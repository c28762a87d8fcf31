"""`tailrace parked` and `dead-letters`, as far as they need no service: rows, choices, publishing by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from uuid import UUID

import pytest

from tailrace.agent.parking import publish_parked
from tailrace.changes.transcode import Message
from tailrace.cli.cluster.parked import chosen_lots, letters_of, parked_rows, short
from tailrace.commitlog.frames import Entry
from tailrace.errors import UnknownTableError
from tailrace.publish.hosts import HostRecord
from tailrace.publish.record import Record
from tailrace.publish.reports import dead_letter, encode_letter, letter_key, payload_records
from tailrace.state import Parked, Resume
from tailrace_common.kafka import Pace
from tailrace_common.kafka import Record as Found
from tailrace_schemas.change import Source
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tests.support.capture import MemoryCapture, MemoryLog
from tests.support.kafka import Faults, MemoryKafka, MemoryPublisher

ONE, TWO = UUID(int=1), UUID(int=2)
LOTS = (
    Parked(1, 5, 5, ONE, 1, (1, 2), 1_000, "no definition", dead=True),
    Parked(1, 5, 5, TWO, 3, (3,), 2_000, "refused"),
    Parked(1, 6, 6, ONE, 1, (1,), 3_000, "no definition"),
)


def test_a_row_for_each_lot() -> None:
    """Of hosts that have any, with the names of tables that were ever published."""
    hosts = [HostRecord("c", "a", Resume(parked=LOTS[:2]), 0), HostRecord("c", "b", Resume(), 0)]
    assert list(parked_rows(hosts, {TWO: "ks.two"}, 62.0)) == [
        {
            "host": "a",
            "segment": 5,
            "table_id": ONE,
            "table": None,
            "mutations": 2,
            "since": "61 s",
            "state": "dead",
            "reason": "no definition",
        },
        {
            "host": "a",
            "segment": 5,
            "table_id": TWO,
            "table": "ks.two",
            "mutations": 1,
            "since": "60 s",
            "state": "waiting",
            "reason": "refused",
        },
    ]


def test_a_host_whose_record_cannot_be_read_has_a_row() -> None:
    """Else nothing would be parked there, as far as the list goes: the record of a lot may be the damaged one."""
    (row,) = parked_rows([HostRecord("c", "b", None, 0, "the record of parked mutations is not one of ours")], {}, 62.0)
    assert row["host"] == "b"
    assert (row["state"], row["mutations"]) == ("unknown", None)
    assert row["reason"] == "the record of parked mutations is not one of ours"


@pytest.mark.parametrize(
    ("segments", "tables", "found"),
    [
        (None, None, (0, 1, 2)),
        ([5], None, (0, 1)),
        (None, [ONE], (0, 2)),
        ([5, 6], [ONE, TWO], (0, 1, 2)),
        ([6], [ONE], (2,)),
    ],
)
def test_lots_are_chosen_by_segment_and_table(
    segments: list[int] | None, tables: list[UUID] | None, found: tuple[int, ...]
) -> None:
    """Both where both are given."""
    assert chosen_lots(LOTS, segments, tables) == tuple(LOTS[number] for number in found)


def test_to_choose_nothing_is_an_error() -> None:
    """Said before anything is changed."""
    with pytest.raises(SettingsError, match="nothing of that is parked"):
        chosen_lots(LOTS, [6], [TWO])


class Letters:
    """A Routing whose records are the messages themselves."""

    def publishes(self, table: Table) -> bool:
        return bool(table)

    def keep_unselected(self, words: str | None) -> None:
        """None is unselected."""

    def open(self, table: Table) -> bool:
        """Nothing to do."""
        del table
        return False

    def refuse(self, topic: str, words: str) -> None:
        """Nobody does."""

    def records(self, messages: Iterable[Message]) -> list[Record]:
        return [Record("t", 0, None, message) for message in messages]  # type: ignore[arg-type]  # bytes do here

    def truncation(self, table: Table, written: int, source: Source, upto: Position | None) -> list[Record]:
        raise NotImplementedError


def test_what_can_be_decoded_is_published_once_and_the_rest_waits_on() -> None:
    """Also what is gone: the agent reports it."""
    kafka = MemoryKafka(resume=Resume(Position(1, 9, 9), parked=LOTS))
    log = MemoryLog({5: [b"a", b"b", b"c"]})
    publisher = MemoryPublisher(kafka, Faults())
    resume = publisher.start()

    def messages(entry: Entry) -> list[Message]:
        if entry.payload == b"b":
            raise UnknownTableError(ONE)
        return [entry.payload]  # type: ignore[list-item]  # bytes do here

    outcome = publish_parked(
        publisher,
        MemoryCapture(log, resume, Faults()),
        Letters(),
        messages,
        resume,
        lambda lot: lot is not LOTS[1],
        Pace(10, 600, lambda: 0.0),
    )
    assert (outcome.mutations, outcome.changes, sum(outcome.left.values()), outcome.lost) == (1, 1, 1, 1)
    assert [record.value for record in kafka.records] == [b"a"]
    assert [(lot.key, lot.offsets, lot.dead) for lot in kafka.resume.parked] == [
        ((1, 5, ONE, 1), (2,), True),
        ((1, 5, TWO, 3), (3,), False),
        ((1, 6, ONE, 1), (1,), False),
    ]
    assert kafka.resume.position == Position(1, 9, 9)


def test_a_topic_that_takes_smaller_batches_is_started_anew_for() -> None:
    """The first record shows it, when the publisher has started."""
    kafka = MemoryKafka(resume=Resume(Position(1, 9, 9), parked=LOTS[:1]))

    class Publisher(MemoryPublisher):
        """Makes the batches that the topic takes from its second start on."""

        starts = 0

        def start(self) -> Resume:
            self.starts += 1
            return super().start()

        def fits(self, records: Iterable[Record]) -> bool:
            return not list(records) or self.starts > 1

        def send(self, record: Record) -> None:
            assert self.fits([record])
            super().send(record)

    publisher = Publisher(kafka, Faults())
    resume = publisher.start()
    publish_parked(
        publisher,
        MemoryCapture(MemoryLog({5: [b"a", b"b"]}), resume, Faults()),
        Letters(),
        lambda entry: [entry.payload],  # type: ignore[list-item]  # bytes do here
        resume,
        lambda _: True,
        Pace(10, 600, lambda: 0.0),
    )
    assert ([record.value for record in kafka.records], publisher.starts) == ([b"a", b"b"], 2)


def test_letters_are_listed_without_the_records_that_carry_bytes() -> None:
    """By time, of one host or of all."""
    entries = [Entry(1, 5, at, bytes(10 * at), 7, "CommitLog-7-5.log") for at in (1, 2)]
    letter = dead_letter(LOTS[0], entries)
    told = Found(0, 5, letter_key("a", LOTS[0]), encode_letter("a", letter, None, 90_000))
    earlier = Found(0, 4, letter_key("b", LOTS[2]), encode_letter("b", dead_letter(LOTS[2], ()), "ks.one", 80_000))
    chunks = [Found(0, 6, key, value) for entry in entries for key, value in payload_records("a", LOTS[0], entry)]
    assert [one["host"] for one in letters_of([told, *chunks, earlier], None)] == ["b", "a"]
    (only,) = letters_of([told, earlier, *chunks], "a")
    assert short(only) == {
        "at": "1970-01-01T00:01:30+00:00",
        "host": "a",
        "table": str(ONE),
        "segment": 5,
        "mutations": 2,
        "bytes": 30,
        "lost": 0,
        "reason": "no definition",
    }
    assert (dead_letter(LOTS[2], ()).lost, json.loads(earlier.value or b"")["lost"]) == ((1,), [1])
    later = Found(0, 7, told.key, json.dumps({"format": 2}).encode())
    with pytest.raises(SettingsError, match=r"offset 0, was written by another version .*format 2.*Install"):
        list(letters_of([told, later], None))


def test_a_large_mutation_goes_into_dead_letters_in_chunks() -> None:
    """Each says which, of how many."""
    entry = Entry(1, 5, 1, bytes(1_200_000), 7, "CommitLog-7-5.log")
    found = [(key.rpartition(b"/")[2], json.loads(value)) for key, value in payload_records("a", LOTS[0], entry)]
    assert [(key, one["chunk"], one["of"]) for key, one in found] == [(b"0", 0, 3), (b"1", 1, 3), (b"2", 2, 3)]
