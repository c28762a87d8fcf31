"""What several modules of tests share of decode."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from tailrace.commitlog.frames import Entry
from tailrace.history.schema import SchemaHistory
from tailrace_schemas.change import Source
from tailrace_schemas.position import NO_POSITION
from tailrace_schemas.system_tables import system_tables
from tests.unit.mutations import EPOCH, deletion, insertion, mutation
from tests.unit.tables import table

A = table({"id": "text"}, name="a", table_id=UUID(int=1))


B = replace(table({"id": "text"}, name="b", table_id=UUID(int=2)), cdc=False)


C = replace(table({"id": "text"}, name="c", keyspace="other", table_id=UUID(int=3)), cdc=False)


D = table({"id": "text"}, name="d", table_id=UUID(int=4))


UNKNOWN = UUID(int=9)


NODE = Source("h", "dc", NO_POSITION, 0, 0)


HISTORY = SchemaHistory().learn([A, B, C, D, *system_tables()])[0]


PAYLOADS = {
    "a": deletion(A, b"k"),
    "row of a": insertion(A, b"other"),
    "d": deletion(D, b"k"),
    "b": deletion(B, b"k"),
    "c": deletion(C, b"k"),
    "a and b": mutation((A, b"k", EPOCH), (B, b"k", EPOCH), (A, b"k", EPOCH + 1)),
    "b and d": mutation((B, b"k", EPOCH), (D, b"k", EPOCH)),
    "unknown": deletion(UNKNOWN, b"k"),
    "b and unknown": mutation((B, b"k", EPOCH), (UNKNOWN, b"k", EPOCH)),
    "cut": deletion(A, b"k")[:-1],
    "cut in its id": deletion(A, b"k")[:9],
    "cut of c": deletion(C, b"k")[:-1],
}


def entries(names: Iterable[str]) -> list[Entry]:
    return [Entry(1, 7, 10 * n, PAYLOADS[name], 7, "CommitLog-7-7.log") for n, name in enumerate(names, 1)]
