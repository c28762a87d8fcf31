"""The dead letters of one host: what was parked for too long, or is lost, as records of `.dead-letter`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tailrace.agent.parts import Capture, Limits, Parts
from tailrace.commitlog.entry import Entry
from tailrace.publish.dead_letters import DeadLetter, dead_letter, encode_letter, letter_key, payload_records
from tailrace.state.parked import Parked


@dataclass(frozen=True, slots=True)
class Report:
    """Keys and values for `.dead-letter`, to be read once, and the ends of mutations that are lost."""

    records: Iterator[tuple[bytes, bytes]]
    lost: tuple[int, ...]


class DeadLetters:
    """Writes letters; with `limits.dead_letter_payloads` the mutations too."""

    def __init__(self, parts: Parts, limits: Limits, host: str, capture: Capture) -> None:
        self._parts = parts
        self._payloads = limits.dead_letter_payloads
        self._host = host
        self._capture = capture

    def of(self, lot: Parked) -> Report:
        """The report of a lot, whose segment is read for it. Raises ServiceError."""
        letter = dead_letter(lot, self._reread(lot))
        return Report(self._records(letter), letter.lost)

    def of_lost(self, lot: Parked, offsets: tuple[int, ...]) -> Report:
        """The report of mutations of a lot that can no longer be read."""
        letter = dead_letter(replace(lot, offsets=offsets), ())
        return Report(iter([self._record(letter)]), offsets)

    def _records(self, letter: DeadLetter) -> Iterator[tuple[bytes, bytes]]:
        yield self._record(letter)
        for entry in self._reread(letter.lot) if self._payloads else ():
            yield from payload_records(self._host, letter.lot, entry)

    def _record(self, letter: DeadLetter) -> tuple[bytes, bytes]:
        newest = self._parts.schema.history.newest(letter.lot.table)
        name = None if newest is None else str(newest)
        value = encode_letter(self._host, letter, name, self._parts.milliseconds())
        return letter_key(self._host, letter.lot), value

    def _reread(self, lot: Parked) -> Iterable[Entry]:
        return self._capture.reread(lot.epoch, lot.segment, lot.checksum, lot.offsets)
