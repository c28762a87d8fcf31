"""Encrypted sections: blocks by the book, damaged everywhere, and keys that are missing or wrong."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC

from tailrace.commitlog.blocks import NO_KEYS, Keys
from tailrace.commitlog.descriptor import Descriptor
from tailrace.commitlog.sections import Cursor, Section, read_section, sections
from tailrace_schemas.errors import CorruptError, DecodeError, TruncatedError, UnsupportedError
from tests.unit.commitlog.segments import be32, descriptor, lz4_block, segment_of

KEY, IV = bytes(range(16)), bytes(range(100, 116))
KEYS = Keys({"k:1": KEY})
PARAMETERS = {"encCipher": "AES/CBC/PKCS5Padding", "encKeyAlias": "k:1", "encIV": IV.hex()}
ENCRYPTED = descriptor(parameters=PARAMETERS)
FIRST = Cursor(20, 20)
CONTENT = b"first chunk " * 20 + b"second " * 9 + b"x"
CHUNKS = (CONTENT[:240], CONTENT[240:300], CONTENT[300:])


def cipher_text(plain: bytes, key: bytes = KEY, iv: bytes = IV) -> bytes:
    padding = 16 - len(plain) % 16
    encryptor = Cipher(AES(key), CBC(iv)).encryptor()
    return encryptor.update(plain + bytes([padding]) * padding) + encryptor.finalize()


def block(chunk: bytes, key: bytes = KEY) -> bytes:
    """One block as EncryptionUtils writes it: two lengths, then the cipher text of a length and an LZ4 block."""
    return sealed(be32(len(chunk)) + lz4_block(chunk), key)


def sealed(plain: bytes, key: bytes = KEY) -> bytes:
    text = cipher_text(plain, key)
    return be32(len(text)) + be32(len(plain)) + text


def whole(*chunks: bytes, key: bytes = KEY) -> bytes:
    return be32(sum(map(len, chunks))) + b"".join(block(chunk, key) for chunk in chunks)


def read(content: bytes, which: Descriptor = ENCRYPTED, keys: Keys = KEYS) -> Section | None:
    return read_section(which, segment_of(5, content), FIRST, keys)


def test_blocks_join_to_the_section_and_positions_count_plain_bytes() -> None:
    data = segment_of(5, whole(*CHUNKS), be32(0), whole(b"end"))
    first, empty, last = sections(ENCRYPTED, data, keys=KEYS)
    assert (first.data, first.logical, first.end.logical) == (CONTENT, 28, 28 + len(CONTENT))
    assert (empty.data, empty.end.marker - empty.start.marker) == (b"", 12)
    assert (last.data, last.logical) == (b"end", 28 + len(CONTENT) + 16)


@pytest.mark.parametrize("size", [16, 24, 32])
def test_every_size_of_an_aes_key(size: int) -> None:
    key = bytes(range(size))
    section = read(whole(*CHUNKS, key=key), keys=Keys(otherwise=key))
    assert section is not None
    assert section.data == CONTENT


def test_a_key_by_alias_goes_before_the_one_for_all_others() -> None:
    keys = Keys({"k:1": KEY}, otherwise=bytes(16))
    assert keys.key("k:1") == keys.key("K:1") == KEY
    assert keys.key("other") == bytes(16)
    assert NO_KEYS.key("k:1") is None
    assert KEY.hex() not in repr(keys)
    assert "otherwise" not in repr(keys)


def test_encryption_wins_over_compression() -> None:
    both = descriptor(compression="SnappyCompressor", parameters=PARAMETERS)
    section = read(whole(*CHUNKS), both)
    assert section is not None
    assert section.data == CONTENT


def test_an_empty_block_between_others() -> None:
    section = read(be32(3) + block(b"ab") + sealed(be32(0) + bytes(5)) + block(b"c"))
    assert section is not None
    assert section.data == b"abc"


REFUSED = [
    # parameters beside the usual, keys, what is said
    ({}, NO_KEYS, "the segment is encrypted, and there is no key for alias 'k:1'"),
    ({"encKeyAlias": "k:2"}, KEYS, "there is no key for alias 'k:2'"),
    ({}, Keys({"k:1": b"short"}), "a key of 5 bytes: AES takes 16, 24 or 32"),
    ({"encCipher": "AES/GCM/NoPadding"}, KEYS, r"cipher AES/GCM/NoPadding is not read \(only AES/CBC/PKCS5Padding\)"),
]


@pytest.mark.parametrize(("parameters", "keys", "words"), REFUSED)
def test_what_cannot_be_decrypted_is_named(parameters: dict[str, str], keys: Keys, words: str) -> None:
    with pytest.raises(UnsupportedError, match=words) as caught:
        read(whole(*CHUNKS), descriptor(parameters=PARAMETERS | parameters), keys)
    assert caught.value.offset == 28


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"encIV": "zz"}, "encIV is not hexadecimal"),
        ({"encIV": "00ff"}, "encIV of 2 bytes, AES/CBC takes 16"),
        ({"encIV": 5}, "encCipher without encKeyAlias and encIV"),
        ({"encKeyAlias": None}, "encCipher without encKeyAlias and encIV"),
    ],
)
def test_a_header_that_does_not_say_how(parameters: dict[str, object], words: str) -> None:
    with pytest.raises(CorruptError, match=words):
        read(whole(*CHUNKS), descriptor(parameters=PARAMETERS | parameters))


DAMAGE = [
    # content, what is said
    (be32(3), "holds 0 bytes, not 3"),
    (be32(-1) + block(b"abc"), "length -1"),
    (be32(2**31 - 1) + block(b"abc"), "length 2147483647"),
    (be32(2**31 - 29) + block(b"abc"), "holds 3 bytes, not 2147483619"),
    (be32(3) + block(b"abc") + b"\0\0\0", "3 bytes left, too few for a block"),
    (be32(3) + be32(0) + be32(16) + bytes(16), "encrypted block of 0 bytes"),
    (be32(3) + be32(-16) + be32(16) + bytes(16), "encrypted block of -16 bytes"),
    (be32(3) + be32(2**31 - 1) + be32(16) + bytes(16), "block of 2147483647 bytes, 16 left in the section"),
    (be32(3) + be32(15) + be32(9) + bytes(15), "does not decrypt"),
    (be32(3) + be32(16) + be32(8) + cipher_text(b"ab"), "holds 2 bytes, not 8"),
    (be32(3) + sealed(b"ab"), "an encrypted block of 2 bytes"),
    (be32(3) + sealed(be32(-1) + lz4_block(b"abc")), "states -1 bytes, its section 3 more"),
    (be32(3) + sealed(be32(4) + lz4_block(b"abcd")), "states 4 bytes, its section 3 more"),
    (be32(3) + sealed(be32(3) + lz4_block(b"ab")), "states 2 bytes, its section 3"),
    (be32(3) + sealed(be32(3) + b"\x03\0\0\0\xff\xff\xff"), "does not decompress"),
    (be32(4) + block(b"abc"), "holds 3 bytes, not 4"),
    (be32(3) + block(b"ab") + block(b"cd"), "states 2 bytes, its section 1 more"),
]


@pytest.mark.parametrize(("content", "words"), DAMAGE)
def test_damaged_blocks(content: bytes, words: str) -> None:
    with pytest.raises(CorruptError, match=words) as caught:
        read(content)
    assert caught.value.offset == 28


def test_a_wrong_key_gives_no_bytes_and_is_not_shown() -> None:
    wrong = bytes(range(1, 17))
    for count in range(1, 40):
        with pytest.raises(CorruptError) as caught:
            read(whole(b"some plain text" * count), keys=Keys({"k:1": wrong}))
        assert wrong.hex() not in str(caught.value)
        assert KEY.hex() not in str(caught.value)


def test_cut_at_every_byte() -> None:
    data = segment_of(5, whole(*CHUNKS))
    for size in range(28, len(data)):
        with pytest.raises(TruncatedError):
            read_section(ENCRYPTED, data[:size], FIRST, KEYS)
    # A marker that points into the section, as a writer could not have left it.
    content = whole(*CHUNKS)
    for size in range(len(content)):
        with pytest.raises(CorruptError):
            read(content[:size])


def test_any_bit_flipped() -> None:
    """CBC has no checksum, frames have: a flip may give other bytes, as many as before, or a DecodeError."""
    content = whole(*CHUNKS)
    for bit in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            section = read(bytes(damaged))
        except DecodeError:
            continue
        assert section is not None
        assert len(section.data) in (0, len(CONTENT))
