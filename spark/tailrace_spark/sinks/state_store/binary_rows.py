"""Rows as PostgreSQL's COPY takes them in binary: values that are bound, to bytes, by the types of their columns.

The form of each type is that of its `..._recv` function in PostgreSQL's source. It is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from librt.strings import BytesWriter, write_f32_be, write_f64_be, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64

from tailrace_schemas.cql.numeric import integer_text, scaled_value
from tailrace_schemas.cql.scalars import address_bytes
from tailrace_schemas.errors import UnsupportedError

HEAD: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
END: Final = b"\xff\xff"

_BYTEA, _TEXT, _BIGINT, _INTEGER, _SMALLINT, _BOOLEAN, _DOUBLE, _REAL, _UUID, _JSONB, _NUMERIC, _INET = range(12)
_FORMS: Final = {
    "BYTEA": _BYTEA,
    "TEXT": _TEXT,
    "BIGINT": _BIGINT,
    "INTEGER": _INTEGER,
    "SMALLINT": _SMALLINT,
    "BOOLEAN": _BOOLEAN,
    "DOUBLE PRECISION": _DOUBLE,
    "REAL": _REAL,
    "UUID": _UUID,
    "JSONB": _JSONB,
    "NUMERIC": _NUMERIC,
    "INET": _INET,
    "TIMESTAMP WITH TIME ZONE": _BIGINT,
    "DATE": _INTEGER,
}
_MOST_DIGITS: Final = 131_072
_LARGEST_SCALE: Final = 16_383
_NEGATIVE: Final = 0x4000
_INET4, _INET6 = 2, 3


def forms_of(types: Sequence[str]) -> list[int]:
    """How `binary_rows` writes columns of these types, by their names in DDL."""
    return [_FORMS[name] for name in types]


def binary_rows(forms: list[int], rows: Sequence[Sequence[object]]) -> bytes:
    """Rows between HEAD and END. Raises UnsupportedError for a number that no NUMERIC holds.

    Values are those of Python for the type; text for UUID, JSONB, NUMERIC and INET. For TIMESTAMP WITH TIME ZONE
    microseconds, for DATE days, both since 2000.
    """
    out = BytesWriter()
    columns = len(forms)
    for row in rows:
        write_i16_be(out, i16(columns))
        for index in range(columns):
            value = row[index]
            if value is None:
                write_i32_be(out, -1)
            else:
                _put(out, forms[index], value)
    return out.getvalue()


def _put(out: BytesWriter, form: i64, value: object) -> None:
    if form == _BYTEA:
        _octets(out, cast(bytes, value))
    elif form == _TEXT:
        _octets(out, cast(str, value).encode())
    elif form == _BIGINT:
        write_i32_be(out, 8)
        write_i64_be(out, i64(cast(int, value)))
    elif form == _INTEGER:
        write_i32_be(out, 4)
        write_i32_be(out, i32(cast(int, value)))
    elif form == _SMALLINT:
        write_i32_be(out, 2)
        write_i16_be(out, i16(cast(int, value)))
    elif form == _BOOLEAN:
        write_i32_be(out, 1)
        out.append(1 if value else 0)
    elif form == _DOUBLE:
        write_i32_be(out, 8)
        write_f64_be(out, cast(float, value))
    elif form == _REAL:
        write_i32_be(out, 4)
        write_f32_be(out, cast(float, value))
    elif form == _UUID:
        _octets(out, bytes.fromhex(cast(str, value).replace("-", "")))
    elif form == _JSONB:
        _octets(out, b"\x01" + cast(str, value).encode())
    elif form == _NUMERIC:
        _numeric(out, cast(str, value))
    else:
        address = address_bytes(cast(str, value))
        family = _INET4 if len(address) == 4 else _INET6
        _octets(out, bytes((family, 8 * len(address), 0, len(address))) + address)


def _octets(out: BytesWriter, data: bytes) -> None:
    write_i32_be(out, i32(len(data)))
    out.write(data)


def _numeric(out: BytesWriter, text: str) -> None:
    """Digits of base 10,000, of which `weight` and one stand before the point."""
    unscaled, scale = scaled_value(text)
    digits = integer_text(abs(unscaled)) if unscaled else ""
    if scale > _LARGEST_SCALE or (unscaled and len(digits) - scale > _MOST_DIGITS):
        raise UnsupportedError(f"PostgreSQL's NUMERIC holds no {text[:40]}")
    if unscaled:  # the point stands between two digits of that base
        digits += "0" * (-scale if scale < 0 else -scale % 4)
        digits = "0" * (-len(digits) % 4) + digits
    groups = [int(digits[start : start + 4]) for start in range(0, len(digits), 4)]
    weight = len(groups) - (scale + 3) // 4 - 1 if scale > 0 else len(groups) - 1
    while groups and not groups[-1]:
        groups.pop()
    count = len(groups)
    write_i32_be(out, i32(8 + 2 * count))
    write_i16_be(out, i16(count - (count >> 15 << 16)))  # it is unsigned
    write_i16_be(out, i16(weight))
    write_i16_be(out, _NEGATIVE if unscaled < 0 else 0)
    write_i16_be(out, i16(max(scale, 0)))
    for group in groups:
        write_i16_be(out, i16(group))
