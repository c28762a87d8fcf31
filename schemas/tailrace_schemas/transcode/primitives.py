"""Avro's binary primitives, appended to a buffer, and stretches of other bytes copied into it.

Native words on compiled code, plain ints otherwise, with equal results: nothing here relies on a word's overflow.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i64, u8

from tailrace_schemas.tokens import word_of

# All but the high bit of each of four bytes.
_LOW_BITS: Final = 0x7F7F7F7F
# From here on a slice costs less than copying word by word.
_SLICE: Final = 192


def write_long(out: BytesWriter, value: i64) -> None:
    """An int or long: zig-zag, then seven bits a byte from the lowest (Avro specification, binary encoding)."""
    coded: i64 = (value << 1) ^ (value >> 63)
    while coded > 127 or coded < 0:
        out.append(u8((coded & 127) | 128))
        coded = (coded >> 7) & 0x1FFFFFFFFFFFFFF
    out.append(u8(coded))


def write_text(out: BytesWriter, text: bytes) -> None:
    """A string or bytes, whole: its length, then itself."""
    write_long(out, len(text))
    out.write(text)


def write_span(out: BytesWriter, data: bytes, start: i64, end: i64) -> None:
    """A string or bytes that stands in `data` from start to end."""
    write_long(out, end - start)
    copy_span(out, data, start, end)


def copy_span(out: BytesWriter, data: bytes, start: i64, end: i64) -> None:
    """The bytes of `data` from start to end as they are; raises IndexError where `data` ends before."""
    if end - start >= _SLICE:
        out.write(data[start:end])
        return
    offset = start
    while offset + 8 <= end:
        write_i64_be(out, read_i64_be(data, offset))
        offset += 8
    if offset + 4 <= end:
        write_i32_be(out, read_i32_be(data, offset))
        offset += 4
    while offset < end:
        out.append(data[offset])
        offset += 1


def stands_at(data: bytes, start: i64, text: bytes) -> bool:
    """Whether `text` stands in `data` from `start` on; false where `data` ends before."""
    size: i64 = len(text)
    if start < 0 or size > len(data) - start:
        return False
    done: i64 = 0
    while done + 8 <= size:
        if read_i64_be(data, start + done) != read_i64_be(text, done):
            return False
        done += 8
    while done < size:
        if data[start + done] != text[done]:
            return False
        done += 1
    return True


def is_ascii(data: bytes, start: i64, end: i64) -> bool:
    """Whether all bytes from start to end are below 128; raises IndexError where `data` ends before."""
    high = ~word_of(_LOW_BITS, _LOW_BITS)
    offset = start
    while offset + 8 <= end:
        if read_i64_be(data, offset) & high:
            return False
        offset += 8
    while offset < end:
        if data[offset] > 127:
            return False
        offset += 1
    return True
