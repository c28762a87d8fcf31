"""Recorded segments: cut everywhere and with bits flipped, they give right values up to the damage, then say so.

That the values are right is compared through the command, in tests/unit/cli/segments/test_dump.py.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.commitlog.descriptor import read_descriptor
from tailrace.commitlog.frames import Frame, frames
from tailrace.commitlog.mutation import decode_mutation
from tailrace.commitlog.sections import Section, read_section, sections
from tailrace.errors import UnknownTableError
from tailrace_schemas.errors import CorruptError, DecodeError, TruncatedError
from tests.properties import examples
from tests.unit.commitlog.recorded import KEYS, KINDS, Recorded, read_until_damage, recorded, sections_of

# Their content is small enough to damage each byte of it.
SMALL = [kind for kind in KINDS if "rollover" not in kind]
FEW = ["3.11.17/encrypted", "4.0-beta4/snappy", "5.0.1/uncompressed"]
"""For what takes seconds a segment; the long tests take them all."""


def used(data: bytes) -> int:
    """The bytes that hold sections; zeros follow, or nothing."""
    return sections_of(data)[-1].end.marker


def two_sections(data: bytearray, which: Section) -> tuple[list[Frame], DecodeError | None]:
    """The frames of a section and of the next, as far as they can be read, and the damage that is met."""
    found: list[Frame] = []
    try:
        for section in islice(sections(read_descriptor(data), data, which.start, KEYS), 2):
            for frame in frames(section):
                found.append(frame)  # noqa: PERF402 - what came before damage counts
    except DecodeError as error:
        return found, error
    return found, None


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_resuming_at_every_position_gives_the_rest(kind: str) -> None:
    for data in recorded(kind).segments.values():
        descriptor = read_descriptor(data)
        whole, error = read_until_damage(data)
        assert whole
        assert error is None
        for count, position in enumerate([0, *(frame.end for frame in whole)]):
            rest = [
                frame
                for section in sections(descriptor, data, keys=KEYS)
                if section.end.logical > position
                for frame in frames(section, position)
            ]
            assert rest == whole[count:]


@pytest.mark.parametrize("kind", KINDS)
def test_sections_follow_each_other(kind: str) -> None:
    for data in recorded(kind).segments.values():
        found = sections_of(data)
        for first, second in pairwise(found):
            assert second.start == first.end
            assert second.logical == first.end.logical + 8 == first.logical + len(first.data) + 8


@pytest.mark.slow
@pytest.mark.parametrize("kind", SMALL)
def test_cut_at_every_byte(kind: str) -> None:
    data = recorded(kind).segment
    descriptor = read_descriptor(data)
    for section in sections_of(data):
        start, end = section.start.marker, section.end.marker
        for size in range(start, end):
            if size < start + 8:
                assert read_section(descriptor, data[:size], section.start, KEYS) is None
            else:
                with pytest.raises(TruncatedError):
                    read_section(descriptor, data[:size], section.start, KEYS)
        assert read_section(descriptor, data[:end], section.start, KEYS) == section


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_cut_at_every_border_gives_what_is_before(kind: str) -> None:
    for data in recorded(kind).segments.values():
        found = sections_of(data)
        before: list[Frame] = []
        for section in found:
            content = list(frames(section))
            borders = {section.start.marker + offset for offset in range(10)} | {section.end.marker - 1}
            if read_descriptor(data).compression is None:
                borders |= {frame.end + offset for frame in content for offset in (-1, 0, 1)}
            for size in borders:
                if size < section.end.marker:
                    got, error = read_until_damage(data[:size])
                    assert got == before
                    assert isinstance(error, TruncatedError) == (size >= section.start.marker + 8)
            before += content
        assert read_until_damage(data[: used(data)]) == (before, None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.long] * (kind not in FEW)) for kind in SMALL])
def test_a_flipped_bit_in_every_byte(kind: str) -> None:
    """Another one from byte to byte: right frames up to the damage, then what it is, and where."""
    data = bytearray(recorded(kind).segment)
    found = sections_of(data)
    compressed = read_descriptor(data).compression is not None
    for number, section in enumerate(found):
        expected = [frame for later in found[number : number + 2] for frame in frames(later)]
        for at in range(section.start.marker, section.end.marker):
            bit = 1 << at % 8
            data[at] ^= bit
            got, error = two_sections(data, section)
            data[at] ^= bit
            assert got == expected[: len(got)]
            if error is None:
                # Not every bit carries meaning in a compressed block, nor in the last section's end, which no checksum
                # covers: up to three bytes behind the last frame are none. What was read must be all, then.
                assert compressed or (section is found[-1] and at < section.start.marker + 4)
                assert got == expected
            else:
                assert error.offset is not None
                assert error.rule


@pytest.mark.parametrize("kind", SMALL)
def test_zeros_from_anywhere_on(kind: str) -> None:
    """As if the pages behind were lost: nothing wrong is shown, and a loss below a marker is told."""
    data = recorded(kind).segment
    whole, _ = read_until_damage(data)
    for section in sections_of(data):
        middle = (section.start.marker + 8 + section.end.marker) // 2
        got, error = read_until_damage(data[:middle] + bytes(len(data) - middle))
        assert got == whole[: len(got)]
        if middle > section.start.marker + 12 and any(frames(section)):
            assert isinstance(error, CorruptError)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["4.0-beta4/uncompressed", "5.0.1/uncompressed"])
def test_payloads_cut_and_flipped_fail_as_promised(kind: str) -> None:
    folder = recorded(kind)
    version = read_descriptor(folder.segment).version
    tables = folder.tables().get
    for frame in read_until_damage(folder.segment)[0]:
        payload = bytearray(frame.payload)
        # The long ones are rows of system_schema, a few bytes apart alike.
        step = 1 if len(payload) < 200 else len(payload) // 61
        for at in range(0, len(payload), step):
            with pytest.raises((TruncatedError, CorruptError)):
                decode_mutation(bytes(payload[:at]), version, tables)
            payload[at] ^= 1 << at % 8
            with suppress(DecodeError, UnknownTableError):
                decode_mutation(bytes(payload), version, tables)
            payload[at] ^= 1 << at % 8


DAMAGE = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=40)), max_size=4)


@pytest.mark.slow
@given(st.sampled_from(KINDS), DAMAGE, st.floats(0, 1))
@settings(max_examples=examples(40), deadline=None)
def test_any_damage_gives_a_beginning_of_the_truth(kind: str, damage: list[tuple[float, bytes]], kept: float) -> None:
    folder: Recorded = recorded(kind)
    whole, _ = read_until_damage(folder.segment)
    size = used(folder.segment)
    data = bytearray(folder.segment)
    for place, value in damage:
        at = 100 + int(place * (size - 200))
        data[at : at + len(value)] = value
    got, error = read_until_damage(data[: max(100, int(kept * len(data)))])
    assert got == whole[: len(got)]
    assert error is None or (isinstance(error, TruncatedError | CorruptError) and error.offset is not None)
