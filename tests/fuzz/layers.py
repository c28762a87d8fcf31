"""What is fuzzed: any bytes, handed to one layer of the decoder behind checksums that are right.

The first byte chooses the layer, the second says something about it, the rest is what the layer reads. Any input gives
values, or an error that the layer promises; nothing else, and not for long.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Final
from uuid import UUID

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC

from tailrace.commitlog.blocks import CODECS, LZ4, Keys, decompress
from tailrace.commitlog.descriptor import VERSIONS, read_descriptor
from tailrace.commitlog.frames import Frame, frames
from tailrace.commitlog.mutation import first_table
from tailrace.commitlog.sections import sections
from tailrace.segments.files import parse_index
from tailrace_schemas.errors import CorruptError, DecodeError
from tailrace_schemas.table import Table
from tests.unit.changes.transcoding import ByBytes, ByObjects, outcome
from tests.unit.commitlog.recorded import KEY, KINDS, recorded, sections_of
from tests.unit.commitlog.segments import marker

_ID: Final = 0x1A1FD0EF196
_IV: Final = bytes(range(16))
_KEYS: Final = Keys(otherwise=KEY)
_OBJECTS: Final = ByObjects()
_NUMBERS: Final = tuple(VERSIONS)
_CODECS: Final = tuple(CODECS)
_ENCRYPTED: Final = b'{"encCipher":"AES/CBC/PKCS5Padding","encIV":"%s","encKeyAlias":"k"}' % _IV.hex().encode()
_PARAMETERS: Final = (b"{}", _ENCRYPTED, *(b'{"compressionClass":"%s"}' % name.encode() for name in _CODECS))


def header(version: int, parameters: bytes) -> bytes:
    """A segment header with its checksum (CommitLogDescriptor.writeHeader)."""
    number, low, high = (value.to_bytes(4, "big") for value in (version, _ID & 0xFFFFFFFF, _ID >> 32))
    size = len(parameters)
    checksum = zlib.crc32(parameters, zlib.crc32(number + low + high + size.to_bytes(4, "big")))
    return number + high + low + size.to_bytes(2, "big") + parameters + checksum.to_bytes(4, "big")


def segment(version: int, parameters: bytes, content: bytes) -> bytes:
    """A segment of one section."""
    head = header(version, parameters)
    return head + marker(_ID, len(head), len(head) + 8 + len(content)) + content


def read_segment(data: bytes) -> tuple[list[Frame], DecodeError | None]:
    """Everything in a segment up to what is wrong with it, and that: an error that says what, and where."""
    found: list[Frame] = []
    try:
        for section in sections(read_descriptor(data), data, keys=_KEYS):
            for frame in frames(section):
                assert not found or frame.end > found[-1].end
                found.append(frame)
    except DecodeError as caught:
        error = caught
    else:
        return found, None
    assert error.rule
    assert error.offset is not None
    return found, error


@cache
def tables() -> dict[UUID, Table]:
    """Every table of every recorded segment, as if all had cdc."""
    return {id: replace(table, cdc=True) for kind in KINDS for id, table in recorded(kind).tables().items()}


def _segment(_: int, data: bytes) -> object:
    return read_segment(data)


def _header(choice: int, data: bytes) -> object:
    return read_segment(segment(_NUMBERS[choice % len(_NUMBERS)], data[:65535], b"content"))


def _section(choice: int, data: bytes) -> object:
    return read_segment(segment(7, _PARAMETERS[choice % len(_PARAMETERS)], data))


def _mutation(choice: int, data: bytes) -> object:
    version = _NUMBERS[choice % len(_NUMBERS)]
    with suppress(DecodeError):
        first_table(data, version)
    messages = outcome(ByBytes(), data, version, tables().get)
    assert outcome(_OBJECTS, data, version, tables().get) == messages
    return messages


def _block(choice: int, data: bytes) -> object:
    size = int.from_bytes(data[:3], "big")
    try:
        block = decompress(_CODECS[choice % len(_CODECS)], memoryview(data)[3:], size)
    except CorruptError as error:
        return error
    assert len(block) == size
    return block


def _sealed(choice: int, data: bytes) -> object:
    """What stands inside of the encryption, in blocks of any number of bytes."""
    chunk = choice or 256
    content = (len(data) - 8).to_bytes(4, "big", signed=True)
    for at in range(0, len(data), chunk):
        plain = data[at : at + chunk]
        padding = 16 - len(plain) % 16
        encryptor = Cipher(AES(KEY), CBC(_IV)).encryptor()
        text = encryptor.update(plain + bytes([padding]) * padding) + encryptor.finalize()
        content += len(text).to_bytes(4, "big") + len(plain).to_bytes(4, "big") + text
    return read_segment(segment(7, _ENCRYPTED, content))


def _index(_: int, data: bytes) -> object:
    return parse_index(data)


LAYERS: Final[tuple[Callable[[int, bytes], object], ...]] = (
    _segment,
    _header,
    _section,
    _mutation,
    _block,
    _sealed,
    _index,
)


def run(data: bytes) -> None:
    result_of(data)


def result_of(data: bytes) -> object:
    """What the layer of an input makes of it."""
    return LAYERS[data[0] % len(LAYERS)](data[1], data[2:]) if len(data) >= 2 else None


def seeds() -> Iterator[bytes]:
    """Inputs to begin with: what Cassandra wrote, for every layer."""
    for kind in KINDS:
        for data in recorded(kind).segments.values():
            descriptor, found = read_descriptor(data), sections_of(data)
            used = data[: found[-1].end.marker]
            if len(used) < 1 << 16:
                yield bytes((0, 0)) + used
            yield bytes((1, _NUMBERS.index(descriptor.version))) + data[14 : descriptor.header_size - 4]
            for section in found:
                content = data[section.start.marker + 8 : section.end.marker]
                yield from _seeds_of(descriptor.compression, descriptor.cipher is not None, content)
                for frame in frames(section):
                    if len(frame.payload) < 4096:
                        yield bytes((3, _NUMBERS.index(descriptor.version))) + frame.payload
    yield b"\6\0" + b"560288"
    yield b"\6\0" + b"843210\nCOMPLETED"


def _seeds_of(compression: str | None, encrypted: bool, content: bytes) -> Iterator[bytes]:
    if len(content) > 8192:
        return
    choice = 1 if encrypted else 0 if compression is None else 2 + _CODECS.index(compression)
    yield bytes((2, choice)) + content
    if compression is not None and not encrypted:
        # Less than 16 MiB: three bytes of the length are enough.
        yield bytes((4, _CODECS.index(compression))) + content[1:]
        if compression == LZ4:
            yield bytes((5, 0)) + content
