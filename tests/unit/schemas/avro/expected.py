"""What a plain Avro reader has to see of a value, made of cassandra-driver's value without any code of ours."""

from __future__ import annotations

from datetime import UTC, date, timedelta
from itertools import count, product
from typing import Any, Final

from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.forms import ValueForms
from tests.unit.schemas.cql.driver import plain

ALL_FORMS: Final = tuple(
    ValueForms(timestamps, uuids, decimals)  # type: ignore[arg-type]  # a product's items have the type of any of them
    for timestamps, uuids, decimals in product(("plain", "logical"), ("string", "fixed"), ("string", "bytes"))
)
_FIRST, _LAST = -719_162, 2_932_896


def twos_complement(value: int) -> bytes:
    """The shortest bytes that hold an integer."""
    size = next(size for size in count(1) if -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1)
    return value.to_bytes(size, "big", signed=True)


def expected(cql_type: CqlType, value: Any, forms: ValueForms) -> object:
    """The value as fastavro gives it for the published schema; addresses as bytes, sets sorted."""
    if value is None:
        return None
    args, kind = cql_type.args, cql_type.kind
    match kind:
        case "uuid" | "timeuuid" if forms.uuids == "fixed":
            return value.bytes
        case "varint" if forms.decimals == "bytes":
            return twos_complement(value)
        case "decimal" if forms.decimals == "bytes":
            sign, digits, exponent = value.as_tuple()
            unscaled = int("".join(map(str, digits)))
            return {"scale": -exponent, "value": twos_complement(-unscaled if sign else unscaled)}
        case "timestamp" if forms.timestamps == "logical":
            return value.replace(tzinfo=UTC)
        case "date" if forms.timestamps == "logical":
            days = value.days_from_epoch
            return date(1970, 1, 1) + timedelta(days) if _FIRST <= days <= _LAST else None
        case "list" | "vector":
            return [expected(args[0], item, forms) for item in value]
        case "set":
            return sorted((expected(args[0], item, forms) for item in value), key=repr)
        case "map":
            return [
                {"key": expected(args[0], key, forms), "value": expected(args[1], item, forms)}
                for key, item in value.items()
            ]
        case "tuple" | "udt":
            names = cql_type.fields or tuple(f"f{index}" for index in range(len(args)))
            return {name: expected(arg, item, forms) for name, arg, item in zip(names, args, value, strict=True)}
    return plain(cql_type, value)
