"""The head of a segment file: its name and its descriptor, to a value that says how to read the rest."""

from __future__ import annotations

import json
import mmap
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tailrace_schemas.errors import CorruptError, TruncatedError, UnsupportedError

SegmentData = bytes | bytearray | memoryview | mmap.mmap
"""What a segment is read from: anything with a length whose slices are bytes. Never copied as a whole."""


@dataclass(frozen=True, slots=True)
class SegmentVersion:
    """What one version of the format does differently from the others (commit-log layout and payload alike).

    `release` names who writes it. Local deletion times are signed 32-bit seconds, or unsigned ones (CASSANDRA-14227).
    With `metadata_epochs`, a mutation begins with a byte of flags. Each update then names the epoch of the cluster's
    metadata that it was written by (CASSANDRA-18330).
    """

    number: int
    release: str
    unsigned_deletion_times: bool
    metadata_epochs: bool = False


VERSIONS: Final[Mapping[int, SegmentVersion]] = {
    6: SegmentVersion(6, "Cassandra 3.0 and 3.11", False),
    7: SegmentVersion(7, "Cassandra 4.0, 4.1, and 5.0 with storage_compatibility_mode CASSANDRA_4", False),
    8: SegmentVersion(8, "Cassandra 5.0 with storage_compatibility_mode UPGRADING or NONE", True),
    9: SegmentVersion(9, "Cassandra 6.0", True, metadata_epochs=True),
}
"""Every version that is read. The header decides, never the server's release: 5.0 writes 7 unless told otherwise."""

_KNOWN: Final = ", ".join(str(number) for number in sorted(VERSIONS))
# A name with one number only is of a segment before 1.2, which Cassandra refuses too.
_NAME: Final = re.compile(r"CommitLog-(\d+)-(\d+)\.log", re.ASCII)
_HEAD: Final = struct.Struct(">iqH")
_CHECKED: Final = struct.Struct(">iIII")
# CompressionParams.parseCompressorClass puts this in front of a class without a dot.
_COMPRESSORS: Final = "org.apache.cassandra.io.compress."


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """A segment's header (CommitLogDescriptor).

    `compression` is the compressor's class, without Cassandra's own package, None where there is none. `parameters`
    are the header's JSON as it stands, `checksum` its CRC-32, `header_size` the offset of the first sync marker.
    """

    version: int
    id: int
    compression: str | None
    parameters: Mapping[str, object]
    header_size: int
    checksum: int

    @property
    def cipher(self) -> str | None:
        """The cipher transformation of an encrypted segment, else None. Encryption wins over compression."""
        return _text(self.parameters, "encCipher")


def parse_name(name: str) -> tuple[int, int] | None:
    """(version, segment id) of a segment's file name, None for any other name.

    Names without a version (before Cassandra 1.2) are not segments to us, as CommitLogDescriptor.fromFileName has it.
    Sort segments by the id: the names do not sort.
    """
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def read_descriptor(data: SegmentData) -> Descriptor:
    """Read the header at the start of a segment (CommitLogDescriptor.readHeader).

    Raises TruncatedError while the header is not all there: on a young file, not yet. Raises UnsupportedError for a
    version that is not read, CorruptError for a wrong checksum or for parameters that are not a JSON object.
    """
    size = len(data)
    if size < _HEAD.size:
        raise TruncatedError(f"segment header: {size} bytes of at least {_HEAD.size + 6}", offset=size)
    version, segment, length = _HEAD.unpack_from(data, 0)
    # Before the checksum: another version may place it elsewhere, and its number is what the operator needs to read.
    if version not in VERSIONS:
        _refuse_version(version, data)
    # The file is linked into cdc_raw after its header was written, but in commitlog/ it may be met shorter.
    end = _HEAD.size + length + 4
    if size < end:
        raise TruncatedError(f"segment header: {size} bytes of {end}", offset=size)
    parameters = bytes(data[_HEAD.size : end - 4])
    checksum = int.from_bytes(data[end - 4 : end], "big")
    # The checksum takes the id's low word first, and the length as four bytes although two are stored.
    checked = _CHECKED.pack(version, segment & 0xFFFFFFFF, segment >> 32 & 0xFFFFFFFF, length)
    if zlib.crc32(parameters, zlib.crc32(checked)) != checksum:
        raise CorruptError("segment header: wrong checksum", offset=end - 4)
    values = _parameters(parameters)
    _text(values, "encCipher")  # what `cipher` says later must not be "none" for something else
    compression = _text(values, "compressionClass")
    return Descriptor(
        version=version,
        id=segment,
        compression=compression and compression.removeprefix(_COMPRESSORS),
        parameters=values,
        header_size=end,
        checksum=checksum,
    )


def _refuse_version(version: int, data: SegmentData) -> None:
    if not any(data[: _HEAD.size]):
        raise TruncatedError("segment header: not written yet, all zero", offset=0)
    # Beyond three digits it is no version, but whatever stands there: shown as the file's bytes, which have no sign.
    version_text = str(version) if 0 <= version < 1000 else f"0x{version & 0xFFFFFFFF:08x}"
    if version > max(VERSIONS):
        raise UnsupportedError(
            f"segment version {version_text} is newer than this Tailrace reads ({_KNOWN}), or this is no segment",
            offset=0,
        )
    raise UnsupportedError(
        f"segment version {version_text} is not read (only {_KNOWN}), or this is no segment", offset=0
    )


def _parameters(text: bytes) -> Mapping[str, object]:
    try:
        # 3.11 and 4.x write `\/` for `/`, so no string is compared before a JSON parser has read it.
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"segment header: parameters are not JSON: {error}", offset=_HEAD.size) from None
    if not isinstance(values, dict):
        raise CorruptError("segment header: parameters are not a JSON object", offset=_HEAD.size)
    return values


def _text(parameters: Mapping[str, object], name: str) -> str | None:
    value = parameters.get(name)
    if value is None or isinstance(value, str):
        return value
    raise CorruptError(f"segment header: {name} is not a string", offset=_HEAD.size)
