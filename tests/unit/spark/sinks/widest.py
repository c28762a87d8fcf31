"""The widest values of CQL's types of which Delta, Iceberg and Parquet files make the same type of Arrow."""

from __future__ import annotations

WIDEST: list[tuple[str, object, str]] = [
    ("boolean", True, "bool"),
    ("tinyint", -(2**7), "int8"),
    ("smallint", -(2**15), "int16"),
    ("int", -(2**31), "int32"),
    ("bigint", -(2**63), "int64"),
    ("float", 1.5, "float"),
    ("double", 1e300, "double"),
    ("text", "é", "string"),
    ("ascii", "e", "string"),
    ("uuid", "2be43760-e57f-11f1-8599-73518cff440e", "string"),
    ("inet", "::1", "string"),
    ("varint", str(2**200), "string"),
    ("decimal", "1.10", "string"),
    ("blob", b"\xff", "binary"),
]
"""Type of CQL, value, type of Arrow."""
