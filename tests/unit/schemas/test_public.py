"""What `tailrace_schemas` gives consumers of their own."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest
from hypothesis import given

import tailrace_schemas
from tailrace_schemas import Schemas, UnknownSchemaError, decode
from tailrace_schemas.avro import Encoder, schema_records
from tailrace_schemas.avro.frames import reframed
from tailrace_schemas.change import Bound, Change, Deletion, Marker, Op, Source
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.position import Position
from tests.support.every_type import SCHEMAS, row_changes
from tests.unit.tables import table

ROOT = Path(__file__).parents[3]
ENCODER = Encoder(table({"k": "int"}), "p")
CHANGE = Change(
    op=Op.INSERT,
    table=ENCODER.table,
    token=1,
    key=b"\0\0\0\1",
    clustering=(),
    marker=Marker(7, None, None),
    digest=bytes(16),
    source=Source("h", "d", Position(1, 1, 1), 0, 1),
)


@pytest.mark.promise("consuming.both-framings")
def test_both_framings_are_decoded() -> None:
    """By what was added; what is no schema is counted."""
    schemas, message = Schemas(), ENCODER.value(CHANGE)
    with pytest.raises(UnknownSchemaError):
        decode(message, schemas)
    for key, value in schema_records(ENCODER, "p.ks.t"):
        assert schemas.add(key, value)
    value = dict(schema_records(ENCODER, "p.ks.t"))[ENCODER.schema_id]
    assert schemas.add(b"\0\0\0\7", value)
    assert decode(message, schemas) == decode(reframed(message, b"\0\0\0\7"), schemas) == CHANGE
    assert [schemas.add(None, value), schemas.add(b"12345678", None), schemas.add(b"12345678", b"[")] == [False] * 3
    assert (schemas.skipped, len(schemas), ENCODER.schema_id in set(schemas)) == (1, 3, True)
    with pytest.raises(CorruptError):
        decode(b"no frame", schemas)


@given(change=row_changes())
def test_a_change_and_its_schemas_go_to_another_process(change: Change) -> None:
    """As Spark sends them to its executors: pickled, compiled or not."""
    values = change, Bound((b"\1", None), inclusive=True), Deletion(1, 2), SCHEMAS
    assert pickle.loads(pickle.dumps(values)) == deepcopy(values) == values  # noqa: S301 - our own


def test_everything_that_is_named_is_there() -> None:
    for name in tailrace_schemas.__all__:
        assert getattr(tailrace_schemas, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing"):
        _ = tailrace_schemas.nothing


def test_the_package_alone_imports_no_avro() -> None:
    """Every command begins with it."""
    program = "import sys, tailrace_schemas.errors; sys.exit('fastavro' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.promise("consuming.both-framings")
def test_an_example_imports_nothing_of_ours() -> None:
    plain = (ROOT / "examples" / "consume_without_tailrace.py").read_text()
    assert not re.search(r"(?m)^(from|import) tailrace", plain)
