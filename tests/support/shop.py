"""Tables of a shop, and changes of its orders."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

ORDERS = table(
    {"customer": "text"},
    {"day": "date", "number": "int desc"},
    {"name": "text", "tags": "set<text>"},
    {"amount": "decimal", "lines": "list<text>", "counts": "map<text, int>", "ship": "addr", "note": "text"},
    keyspace="shop",
    name="orders",
)
PLAIN = table({"id": "int"}, regular={"v": "text", "w": "int"}, keyspace="shop", name="plain")
WIDE = table({"id": "int"}, {"c": "int"}, {"s": "text"}, {"v": "text"}, keyspace="shop", name="wide")
WIDER = replace(PLAIN, regular=table({"id": "int"}, regular={"v": "text", "w": "int", "x": "text"}).regular)
WIDE_COLUMNS = ("id", "c", "s", "v")
LOG = Log(ORDERS)
one_change = st.one_of(
    st.builds(
        lambda op, c, at, note, lines: getattr(LOG, op)(("k",), c, at, note=note, lines=lines),
        st.sampled_from(["insert", "update"]),
        st.sampled_from([(1, 1), (1, 2), (2, 1)]),
        st.integers(1, 6),
        st.sampled_from(["a", "b", None]),
        st.sampled_from([{"=": None, 1: "p", 2: "q"}, {1: None}, {3: "r"}, None]),
    ),
    st.builds(lambda c, at: LOG.delete(("k",), c, at), st.sampled_from([(1, 1), (2, 1)]), st.integers(1, 6)),
    st.builds(lambda at: LOG.delete_partition(("k",), at), st.integers(1, 6)),
    st.builds(lambda at, name: LOG.static(("k",), at, name=name), st.integers(1, 6), st.sampled_from(["s", None])),
    st.builds(
        lambda ends, at, shape: LOG.delete_range(("k",), ends[0], ends[1], at, shape),
        st.sampled_from([((1,), (1,)), ((1, 2), (2, 1)), ((), (1, 1)), ((1, 1), ())]),
        st.integers(1, 6),
        st.sampled_from(["[]", "()", "[)"]),
    ),
)
