"""ASN.1's DER encoding to its elements (X.690), as far as keystores use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

INTEGER: Final = 0x02
OCTETS: Final = 0x04
OID: Final = 0x06
BMP_STRING: Final = 0x1E
SEQUENCE: Final = 0x30
SET: Final = 0x31
CONTEXT_0: Final = 0xA0
"""[0], constructed."""


@dataclass(frozen=True, slots=True)
class Element:
    """One element: its tag's byte and its content."""

    tag: int
    content: bytes

    def expect(self, tag: int) -> bytes:
        """The content, where the tag is this one. Raises ValueError."""
        if self.tag != tag:
            raise ValueError(f"tag {self.tag:#x} where {tag:#x} must be")
        return self.content

    def children(self, tag: int) -> list[Element]:
        """The elements inside of one with this tag. Raises ValueError."""
        return elements(self.expect(tag))

    def integer(self) -> int:
        """An INTEGER. Raises ValueError."""
        return int.from_bytes(self.expect(INTEGER), "big", signed=True)


def elements(data: bytes) -> list[Element]:
    """All elements of the bytes. Raises ValueError for cut ones, and for lengths that DER does not allow."""
    read: list[Element] = []
    offset = 0
    while offset < len(data):
        element, offset = _element(data, offset)
        read.append(element)
    return read


def only(data: bytes) -> Element:
    """The only element that the bytes are. Raises ValueError."""
    (alone,) = elements(data)
    return alone


def sequence(data: bytes) -> list[Element]:
    """The elements of the one SEQUENCE that the bytes are. Raises ValueError."""
    return only(data).children(SEQUENCE)


def _element(data: bytes, offset: int) -> tuple[Element, int]:
    if offset + 2 > len(data):
        raise ValueError(f"an element ends at {len(data)}")
    tag, length = data[offset], data[offset + 1]
    offset += 2
    if length >= 0x80:
        size = length - 0x80
        if not 1 <= size <= 4:
            raise ValueError(f"a length of {size} bytes")
        length = int.from_bytes(data[offset : offset + size], "big")
        offset += size
    if offset + length > len(data):
        raise ValueError(f"an element of {length} bytes, {len(data) - offset} left")
    return Element(tag, data[offset : offset + length]), offset + length
