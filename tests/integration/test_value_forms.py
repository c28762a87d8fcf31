"""The forms of [avro] as Java's own reader of Avro sees them."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Final
from uuid import UUID

from pyspark.sql.avro.functions import from_avro

from tailrace_schemas.avro import Encoder
from tailrace_schemas.forms import ValueForms
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAR: Final = 2**62
"""A timestamp that no reader of calendars takes; Cassandra's driver for Python takes none either."""


def test_javas_avro_reads_every_form(spark: SparkSession) -> None:
    """By Spark's from_avro, with the published schema: calendar values, 16 bytes, and a record for a decimal; a value
    that no calendar has is null."""
    of = table({"id": "uuid"}, {"at": "timestamp"}, regular={"big": "varint", "d": "date", "exact": "decimal"})
    encoder = Encoder(of, "t", forms=ValueForms("logical", "fixed", "bytes"))
    log = Log(of)
    changes = [
        log.insert((str(UUID(int=7)),), (at,), 1_000_000, big="-129", d=day, exact="5.00")
        for at, day in ((6_000, 19_000), (FAR, 2**31 - 1))
    ]
    frame = spark.createDataFrame([(encoder.value(change)[10:],) for change in changes], "body binary")
    rows = frame.select(from_avro("body", encoder.schema_text).alias("change")).collect()
    (first, far) = (row["change"] for row in rows)
    assert bytes(first["key"]["id"]) == UUID(int=7).bytes
    assert first["key"]["at"].timestamp() == 6
    columns = first["columns"]
    assert (bytes(columns["big"]), columns["d"]) == (b"\xff\x7f", date(2022, 1, 8))
    assert (columns["exact"]["scale"], bytes(columns["exact"]["value"])) == (2, b"\x01\xf4")
    assert (far["key"]["at"], far["columns"]["d"]) == (None, None)
    assert sorted(item["column"] for item in far["raw"]) == ["at", "d"]
