"""Segment names and headers."""

from __future__ import annotations

import zlib

import pytest

from tailrace.commitlog.descriptor import Descriptor, parse_name, read_descriptor
from tailrace_schemas.errors import CorruptError, DecodeError, TruncatedError, UnsupportedError

LZ4 = b'{"compressionClass":"LZ4Compressor","compressionParameters":null}'
CUSTOM = b'{"compressionClass":"com.example.Fast","compressionParameters":{"level":"3"}}'
QUALIFIED = b'{"compressionClass":"org.apache.cassandra.io.compress.LZ4Compressor","compressionParameters":{}}'
# 3.11 and 4.x escape the slashes, 5.0 does not.
CIPHERED = b'{"encCipher":"AES\\/CBC\\/PKCS5Padding","encIV":"00ff","encKeyAlias":"k:1"}'
BOTH = b'{"compressionClass":"LZ4Compressor","encCipher":"AES/CBC/PKCS5Padding","encIV":"00","encKeyAlias":"k"}'


def header(version: int, segment: int, parameters: bytes) -> bytes:
    """A header by the book: the low word of the id and a four-byte length go into the checksum."""
    words = (version, segment & 0xFFFFFFFF, segment >> 32, len(parameters))
    crc = zlib.crc32(b"".join(word.to_bytes(4, "big") for word in words) + parameters)
    head = version.to_bytes(4, "big") + segment.to_bytes(8, "big") + len(parameters).to_bytes(2, "big")
    return head + parameters + crc.to_bytes(4, "big")


RECORDED = [
    # bytes that Cassandra wrote, (version, id, compression, header size), why
    ("00000007000001a1fd0ef19600027b7dfa1dd8e1", (7, 0x1A1FD0EF196, None, 20), "4.0, no parameters"),
    (
        "00000008000001a1fd0f1b940041" + LZ4.hex() + "b954420b",
        (8, 0x1A1FD0F1B94, "LZ4Compressor", 83),
        "5.0, compressed",
    ),
]


@pytest.mark.parametrize(("text", "values", "why"), RECORDED)
def test_headers_that_cassandra_wrote(text: str, values: tuple[int, int, str | None, int], why: str) -> None:
    data = bytes.fromhex(text)
    found = read_descriptor(data)
    assert (found.version, found.id, found.compression, found.header_size) == values, why
    assert found.checksum == int.from_bytes(data[-4:], "big")
    assert read_descriptor(data + b"behind") == found


@pytest.mark.parametrize(
    ("parameters", "compression", "cipher"),
    [
        (b"{}", None, None),
        (LZ4, "LZ4Compressor", None),
        (QUALIFIED, "LZ4Compressor", None),
        (CUSTOM, "com.example.Fast", None),
        (CIPHERED, None, "AES/CBC/PKCS5Padding"),
        (BOTH, "LZ4Compressor", "AES/CBC/PKCS5Padding"),
    ],
)
def test_parameters(parameters: bytes, compression: str | None, cipher: str | None) -> None:
    found = read_descriptor(header(7, 12, parameters))
    assert (found.compression, found.cipher) == (compression, cipher)


@pytest.mark.parametrize("data", [bytes.fromhex(RECORDED[0][0]), bytes.fromhex(RECORDED[1][0]), header(8, 5, CIPHERED)])
def test_a_header_cut_anywhere_is_truncated(data: bytes) -> None:
    for size in range(len(data)):
        with pytest.raises(TruncatedError):
            read_descriptor(data[:size])


@pytest.mark.parametrize("data", [bytes.fromhex(RECORDED[0][0]), header(8, 5, LZ4)])
def test_no_flipped_bit_goes_unnoticed(data: bytes) -> None:
    for bit in range(len(data) * 8):
        damaged = bytearray(data + bytes(70_000))
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DecodeError):
            read_descriptor(damaged)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_read(kind: type) -> None:
    found: Descriptor = read_descriptor(kind(header(7, 2**63 - 1, LZ4)))
    assert found.id == 2**63 - 1


@pytest.mark.parametrize(
    ("version", "shown"),
    [
        (2, "2"),
        (3, "3"),
        (4, "4"),
        (5, "5"),
        (10, "10"),
        (999, "999"),
        (2**31 - 1, "0x7fffffff"),
        (-2106636819, "0x826f45ed"),
    ],
)
def test_other_versions_are_refused_by_number(version: int, shown: str) -> None:
    """What can be no version is shown as the bytes that stand there."""
    with pytest.raises(UnsupportedError, match=rf"version {shown} "):
        read_descriptor(header(version & 0xFFFFFFFF, 5, b"{}"))


def test_a_header_that_is_not_written_yet() -> None:
    with pytest.raises(TruncatedError, match="not written yet"):
        read_descriptor(bytes(4096))


@pytest.mark.parametrize(
    "parameters", [b"[]", b"{", b"\xff", b'{"compressionClass":7}', b'{"encCipher":["AES"]}', b"[" * 20_000]
)
def test_parameters_that_are_no_object(parameters: bytes) -> None:
    with pytest.raises(CorruptError):
        read_descriptor(header(7, 5, parameters))


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("CommitLog-7-1795246977430.log", (7, 1795246977430)),
        ("CommitLog-8-2.log", (8, 2)),
        ("CommitLog-12-13.log", (12, 13)),
        ("CommitLog-123.log", None),
        ("CommitLog-7-1795246977430_cdc.idx", None),
        ("CommitLog-7-1.log.gz", None),
        ("xCommitLog-7-1.log", None),
        ("CommitLog-7-\u0661.log", None),
        ("", None),
    ],
)
def test_names(name: str, parsed: tuple[int, int] | None) -> None:
    assert parse_name(name) == parsed
