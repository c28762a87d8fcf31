"""The demo's keyspace: one table with a static column and every multi-cell type, one with a column of each type."""

from __future__ import annotations

from typing import Final

KEYSPACE: Final = "shop"
TABLES: Final = ("orders", "readings")

SCALARS: Final = {
    "a_boolean": "boolean",
    "a_tinyint": "tinyint",
    "a_smallint": "smallint",
    "an_int": "int",
    "a_bigint": "bigint",
    "a_float": "float",
    "a_double": "double",
    "a_varint": "varint",
    "a_decimal": "decimal",
    "an_ascii": "ascii",
    "a_text": "text",
    "a_blob": "blob",
    "a_uuid": "uuid",
    "a_timeuuid": "timeuuid",
    "an_inet": "inet",
    "a_timestamp": "timestamp",
    "a_date": "date",
    "a_time": "time",
    "a_duration": "duration",
}
"""The columns of shop.readings whose values have no parts, and their types."""

NESTED: Final = {
    "a_vector": "vector<float, 3>",
    "a_tuple": "tuple<int, text>",
    "a_frozen_list": "frozen<list<int>>",
    "a_frozen_map": "frozen<map<text, bigint>>",
    "a_frozen_type": "frozen<address>",
}
"""Those whose values have parts, written as one cell each."""

STATEMENTS: Final = (
    f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}",
    f"CREATE TYPE {KEYSPACE}.address (street text, city text, code int)",
    f"CREATE TABLE {KEYSPACE}.orders (customer text, number int, vip boolean static, credit decimal static, "
    "status text, total decimal, notes list<text>, items map<text, int>, tags set<text>, ship_to address, "
    "PRIMARY KEY (customer, number)) WITH CLUSTERING ORDER BY (number DESC) AND cdc = true",
    f"CREATE TABLE {KEYSPACE}.readings (site text, sensor int, seq bigint, "
    + ", ".join(f"{name} {cql_type}" for name, cql_type in {**SCALARS, **NESTED}.items())
    + ", PRIMARY KEY ((site, sensor), seq)) WITH cdc = true",
)
"""What makes them, in order."""
