"""Entry points of the agent: segments to frames to mutations, mutations to changes, messages and records of Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any, Final
from uuid import UUID

from tailrace.changes.pieces import put_pieces
from tailrace.changes.transcode import Message, Transcoder
from tailrace.commitlog.blocks import Keys
from tailrace.commitlog.descriptor import parse_name, read_descriptor
from tailrace.commitlog.frames import Entry, Stretch, frames, frames_of
from tailrace.commitlog.model import Mutation, PartitionUpdate, Row
from tailrace.commitlog.mutation import (
    decode_mutation,
    first_metadata_epoch,
    first_table,
    first_table_bytes,
    oldest_write,
)
from tailrace.commitlog.raw import NEVER_32, raw_mutation
from tailrace.commitlog.reader import Reader
from tailrace.commitlog.sections import sections
from tailrace.history.decode import Definitions, holds_change, messages_at, put_messages_at, source_at
from tailrace.history.schema import SchemaHistory
from tailrace.publish.record import PublishedPlaces, Record, Tally, size_of
from tailrace.publish.routing import OwnIds, Router
from tailrace_schemas.change import Cell, Marker, Source
from tailrace_schemas.forms import PLAIN_FORMS, ValueForms
from tailrace_schemas.position import Position
from tailrace_schemas.system_tables import system_tables
from tailrace_schemas.table import Table
from tests.differential.cases import Case, Family, calls, examples
from tests.differential.inputs import corpora, damaged
from tests.fuzz.kept import CASES
from tests.fuzz.layers import result_of, seeds, tables
from tests.support.kafka import Faults, MemoryDestinations, MemoryKafka
from tests.unit.changes.transcoding import SOURCE
from tests.unit.commitlog.invented import Inventor
from tests.unit.commitlog.recorded import KEY, KINDS, recorded
from tests.unit.commitlog.written import Stats, encode
from tests.unit.history.decoded import HISTORY, NODE, PAYLOADS, A, D, entries
from tests.unit.publish.registered import Registered
from tests.unit.schemas.avro.expected import ALL_FORMS
from tests.unit.tables import table

_MUTATION: Final = 3
"""The fuzzer's layer of mutations, which has cases of its own here."""
_LARGE: Final = 8_000
_INFERRED: Final = HISTORY.define(Position(1, 1, 1), [replace(D, regular=A.partition_key)], inferred=True)[0]
_LOGICAL: Final = ValueForms("logical", "fixed", "bytes")


@dataclass(frozen=True, slots=True)
class _Log:
    """Mutations of one log, with the definitions that they need."""

    tables: Mapping[UUID, Table]
    payloads: tuple[tuple[bytes, int], ...]

    def of_bytes(self, id: bytes) -> Table | None:
        return self.tables.get(UUID(bytes=id))


@cache
def _logs() -> Mapping[str, _Log]:
    """Those that nodes of every version wrote, and invented ones of every version."""
    random = Random(11)
    logs: dict[str, _Log] = {}
    for name, corpus in corpora().items():
        logged = [(one.payload, one.version) for one in corpus.mutations() if len(one.payload) < _LARGE]
        cdc = {id: replace(of, cdc=True) for id, of in corpus.tables.items()}
        logs[name] = _Log(cdc, tuple(random.sample(logged, min(len(logged), examples(30)))))
    for version, unsigned, epochs in ((7, False, False), (8, True, False), (9, True, True)):
        inventor = Inventor(version, unsigned=unsigned, epochs=epochs)
        invented = {of.id: replace(of, cdc=True) for of in (inventor.table() for _ in range(examples(8)))}
        payloads = [
            (encode(made, Stats(*inventor.least()), headers), version)
            for made, headers in (
                inventor.mutation(random.sample([*invented.values()], random.randint(1, 3)))
                for _ in range(examples(60))
            )
        ]
        few = [(payload, number) for payload, number in payloads if len(payload) < _LARGE][: examples(20)]
        logs[f"invented {version}"] = _Log(invented, (*few, *payloads[: examples(2)]))
    untracked = {id: replace(of, cdc=False) for id, of in corpora()["5.0.9"].tables.items()}
    return {**logs, "without cdc": _Log(untracked, logs["5.0.9"].payloads), "of many cells": _of_many_cells()}


def _of_many_cells() -> _Log:
    """A row of more cells than a reader keeps room for, then one of few."""
    of = table({"p": "int"}, {}, regular={"s": "set<int>"})
    rows = [
        Row(
            clustering=(),
            marker=Marker(5),
            cells=tuple(Cell(of.regular[0], place.to_bytes(4, "big"), 5, None, None, b"") for place in range(cells)),
        )
        for cells in (5_000, 3)
    ]
    updates = [PartitionUpdate(table=of, key=bytes(4), items=(row,)) for row in rows]
    made = [encode(Mutation(updates=(update,)), Stats(), [((), of.regular)]) for update in updates]
    return _Log({of.id: of}, tuple((payload, 7) for payload in made))


def _layers(random: Random) -> Iterator[Case]:
    """Every layer of the fuzzer: what it found, its seeds, and these damaged."""
    yield from calls("fuzzed", result_of, (path.read_bytes() for path in CASES))
    every = [seed for seed in seeds() if seed[0] != _MUTATION]
    for index, seed in enumerate(random.sample(every, min(len(every), examples(60)))):
        inputs = (seed[:2] + data for data in damaged(random, seed[2:], examples(12)))
        yield from calls(f"layer {seed[0]} seed {index}", result_of, inputs)


def _segments(random: Random) -> Iterator[Case]:
    names = ["CommitLog-7-1234.log", "CommitLog-6-1.log", "CommitLog-9-99999999999999999999.log", "CommitLog-7.log", ""]
    yield from calls("name", parse_name, [*names, "CommitLog--7-1.log", "commitlog-7-1.log", "CommitLog-7-1.log.gz"])
    for kind in KINDS:
        data = recorded(kind).segment
        head = read_descriptor(data).header_size
        inputs = [part + data[head:] for part in damaged(random, data[:head], examples(20))]
        yield from calls(f"descriptor {kind}", _described, inputs)
        for keys in (Keys(), Keys({"testing:1": KEY}), Keys(otherwise=bytes(15)), Keys(otherwise=bytes(16))):
            yield from calls(f"segment {kind}", _framed, [(data, keys, 0), (data, keys, len(data) // 2)])
        end = sum(len(section.data) for section in sections(read_descriptor(data), data, keys=Keys(otherwise=KEY)))
        inputs = [data[: head + 8] + part + data[end:] for part in damaged(random, data[head + 8 : end], examples(10))]
        yield from calls(f"damaged {kind}", _framed, ((some, Keys(otherwise=KEY), 0) for some in inputs))


def _described(data: bytes) -> object:
    descriptor = read_descriptor(data)
    return descriptor, descriptor.cipher


def _framed(data: bytes, keys: Keys, after: int) -> object:
    """Frames by each way, up to what is wrong."""
    results: list[object] = []
    try:
        descriptor = read_descriptor(data)
        for section in sections(descriptor, data, keys=keys):
            ids = frozenset(id.bytes for id in [*tables()][::2])
            results += [section, [*frames_of(section, ids, 1 + (descriptor.version > 8), after)]]
            results += [
                (frame.end, frame.payload, repr(frame), frame == frame, hash(frame) == hash(frame))
                for frame in frames(section, after)
            ]
    except ValueError as error:
        return results, type(error).__name__, str(error), getattr(error, "offset", None), getattr(error, "rule", None)
    return results


def _stretches(random: Random) -> Iterator[Case]:
    for kind in KINDS:
        data = recorded(kind).segment
        for section in sections(read_descriptor(data), data, keys=Keys(otherwise=KEY)):
            for index, part in enumerate(damaged(random, section.data, 6)):
                some = replace(section, data=part)
                yield from calls(
                    f"stretch {kind} {index}", _taken, [(some, 3, 1 << 40, 0), (some, 9, 300, section.logical)]
                )


def _taken(section: Any, limit: int, most_bytes: int, after: int) -> object:
    stretch, taken = Stretch(1, 7, 7, "CommitLog-7-7.log", section, after), list[object]()
    try:
        while not stretch.ended and len(taken) < 30:
            some: list[Entry] = []
            size = stretch.take(some, limit, most_bytes)
            taken += [
                size,
                stretch.after,
                [(repr(entry), entry.position, entry == entry, hash(entry)) for entry in some],
            ]
    except ValueError as error:
        return taken, type(error).__name__, str(error)
    return taken


def _mutations(random: Random) -> Iterator[Case]:
    for name, log in _logs().items():
        transcoders = [
            Transcoder("app.cdc", forms) for forms in (ALL_FORMS if name == "5.0.9" else (PLAIN_FORMS, _LOGICAL))
        ]
        for index, (payload, version) in enumerate(log.payloads):
            inputs = [*damaged(random, payload, examples(12))] if len(payload) < _LARGE else [payload]
            yield from calls(f"mutation {name} {index}", _decoded, ((log, some, version) for some in inputs))
            yield from calls(f"head {name} {index}", _head, ((some, version) for some in inputs))
            yield from calls(
                f"messages {name} {index}",
                _messages,
                ((log, transcoders[place % len(transcoders)], some, version) for place, some in enumerate(inputs)),
            )
            windows = ((log, transcoders[0], payload, version, window) for window in (1, 3, 16_384))
            yield from calls(f"pieces {name} {index}", _pieces, windows)


def _decoded(log: _Log, payload: bytes, version: int) -> object:
    mutation = decode_mutation(payload, version, log.tables.get)
    raw = raw_mutation(mutation, segment=1, end=2, size=3, never=NEVER_32)
    dropped = raw_mutation(mutation, segment=1, end=2, size=3, dropped=True)
    return mutation, raw, dropped


def _head(payload: bytes, version: int) -> object:
    results: list[object] = [oldest_write(payload, version)]
    for function in (first_table, first_table_bytes, first_metadata_epoch):
        try:
            results.append(function(payload, version))
        except ValueError as error:
            results.append((type(error).__name__, str(error)))
    return results


def told(messages: list[Message]) -> list[tuple[str, int, bytes, bytes]]:
    """All that messages have."""
    return [(str(message.table), message.token, message.key, message.value) for message in messages]


def _messages(log: _Log, transcoder: Transcoder, payload: bytes, version: int) -> object:
    dated = (lambda id, _: log.of_bytes(id)) if version > 8 else None
    return told(transcoder.messages(payload, version, log.of_bytes, SOURCE, dated))


def _pieces(log: _Log, transcoder: Transcoder, payload: bytes, version: int, window: int) -> object:
    messages: list[Message] = []
    count = put_pieces(messages.extend, transcoder, payload, version, log.of_bytes, SOURCE, None, window)
    return count, told(messages)


def _histories(random: Random) -> Iterator[Case]:
    names = [*PAYLOADS]
    for index in range(examples(40)):
        history = HISTORY if index % 4 else _INFERRED
        limits = random.choice((1, 3, 100)), random.choice((1, 200, 1 << 40))
        yield from calls(f"history {index}", _known, [(history, random.choices(names, k=6), *limits)])
    for name, log in _logs().items():
        history, transcoder = SchemaHistory().learn([*log.tables.values(), *system_tables()])[0], Transcoder("p")
        dated = replace(history, metadata=5)
        for index, (payload, version) in enumerate(log.payloads[: examples(15)]):
            for place, some in enumerate(damaged(random, payload, 6)):
                for which, of in (("", history), (" dated", dated)):
                    yield from calls(f"at {name} {index} {place}{which}", _at, [(of, transcoder, some, version)])


def _known(history: SchemaHistory, names: list[str], limit: int, most_bytes: int) -> object:
    definitions, transcoder, some = Definitions(history), Transcoder("p"), entries(names)
    results: list[object] = []
    places = PublishedPlaces()
    places.add(some)
    while some:
        done, messages = definitions.messages(transcoder, some, NODE, limit, most_bytes)
        results += [done, told(messages)]
        if not done:
            source = source_at(NODE, some[0].position, 5)
            try:
                messages = messages_at(history, transcoder, some[0].payload, 7, source)
            except ValueError as error:
                results.append(str(error))
            definitions.prove(messages)
            done = 1 if not messages or definitions.messages(transcoder, some[:1], NODE, limit)[0] == 0 else 0
        some = some[done:]
    published = [places.may_have(UUID(int=id), Position(1, 7, 10 * at)) for id in (1, 2, 4, 9) for at in range(7)]
    return results, published


def _at(history: SchemaHistory, transcoder: Transcoder, payload: bytes, version: int) -> object:
    put: list[Message] = []
    source: Source = source_at(NODE, Position(1, 1, 1), 5)
    count = put_messages_at(put.extend, history, transcoder, payload, version, source)
    held = holds_change(history, Reader(), Entry(1, 1, 1, payload, version, "log"))
    return count, told(put), told(messages_at(history, transcoder, payload, version, source)), held


def _records(_: Random) -> Iterator[Case]:
    for name, log in _logs().items():
        messages = [
            message
            for payload, version in log.payloads[:20]
            for message in Transcoder("app.cdc").messages(
                payload,
                version,
                log.of_bytes,
                SOURCE,
                lambda id, _, of=log: of.of_bytes(id),  # type: ignore[misc]  # a lambda's defaults have no types
            )
        ]
        for key, store, limit in (("partition", None, 300), ("primary", Registered(), 1 << 20)):
            yield from calls(f"records {name} {key}", _routed, [(log, messages, key, store, limit)])


def _routed(log: _Log, messages: list[Message], key: Any, store: Any, limit: int) -> object:
    kafka = MemoryKafka(limits={"ks.t": limit})
    router = Router(
        "app.cdc", MemoryDestinations(kafka, Faults()), lambda table: "1" not in table.name, store, key, lambda: 0.0
    )
    records: list[Record] = []
    results: list[object] = []
    for message in messages:
        try:
            records += router.records([message])
        except ValueError as error:
            results.append(str(error))
    tally = Tally()
    tally.add(records)
    for of in [*log.tables.values()][:3]:
        router.open(of)
        records += router.truncation(of, 5, SOURCE, Position(1, 2, 3)) + router.truncation(of, -(2**62), SOURCE, None)
        router.refuse(records[-1].topic, "no") if records else None
        results.append(router.publishes(of))
    router.keep_unselected("of a reason")
    results += [tally, tally.partitions, tally.by_topic(), size_of(records), [*map(repr, records)], len({*records})]
    results.append(records[:1] == records[1:2])
    _closed(OwnIds())
    return results


def _closed(ids: OwnIds) -> None:
    ids.close()


FAMILIES: Final[tuple[Family, ...]] = (_layers, _segments, _stretches, _mutations, _histories, _records)
