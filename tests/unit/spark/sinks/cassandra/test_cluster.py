"""Which mutations go together: each whole, in one request, with neighbours on the ring, within Cassandra's limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.change import Change
from tailrace_spark.sinks.cassandra.cluster import MOST_BYTES, MOST_MUTATIONS, requests
from tailrace_spark.sinks.cassandra.cql import Mutation, Writes, mutation_of
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

LOG = Log(table({"k": "int"}, regular={"v": "text"}, keyspace="ks", name="t"))


def mutation(number: int, *, token: int = 0, parts: int = 1, length: int = 1) -> Mutation:
    statements = tuple((f"statement {number} {part}", (b"x" * length,)) for part in range(parts))
    return mutation_of(statements, token, cells=parts)


MUTATIONS = st.lists(
    st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(1, 3), st.sampled_from([0, 1, 300, MOST_BYTES, 1 << 20])),
    max_size=60,
).map(
    lambda shapes: [
        mutation(number, token=token, parts=parts, length=length)
        for number, (token, parts, length) in enumerate(shapes)
    ]
)


@given(MUTATIONS)
@pytest.mark.promise("cassandra.select")
def test_every_mutation_is_whole_in_one_request(mutations: list[Mutation]) -> None:
    by_statements = {statement: of for of in mutations for statement in of.statements}
    sent = [[by_statements[part] for part in parts] for parts in requests(mutations)]
    together = [list(dict.fromkeys(map(id, request))) for request in sent]
    assert sorted(number for request in together for number in request) == sorted(map(id, mutations))
    for request, parts in zip(together, requests(mutations), strict=True):
        whole = {id(of): of for of in mutations}
        assert parts == tuple(part for number in request for part in whole[number].statements)


@given(MUTATIONS)
def test_more_than_one_are_within_the_limits_and_in_the_rings_order(mutations: list[Mutation]) -> None:
    by_statements = {statement: of for of in mutations for statement in of.statements}
    tokens: list[int] = []
    for parts in requests(mutations):
        request = list({id(by_statements[part]): by_statements[part] for part in parts}.values())
        assert len(request) == 1 or sum(one.weight for one in request) <= MOST_BYTES
        assert len(request) <= MOST_MUTATIONS
        tokens += [one.token for one in request]
    assert tokens == sorted(tokens)


def test_as_many_go_together_as_the_limits_let() -> None:
    small = [mutation(number) for number in range(2 * MOST_MUTATIONS + 1)]
    assert [len(parts) for parts in requests(small)] == [MOST_MUTATIONS, MOST_MUTATIONS, 1]
    large = [mutation(number, length=MOST_BYTES // 2 - 68) for number in range(4)]
    assert [len(parts) for parts in requests(large)] == [2, 2]
    assert list(requests([])) == []


KEYED = Log(
    table({"k": "int"}, {"c": "text", "d": "int"}, regular={"v": "text", "s": "set<tinyint>"}, keyspace="ks", name="t")
)


def weight_of(change: Change) -> tuple[int, int]:
    written = Writes(change.table, "ks.t").mutation(change, 0)
    assert written is not None
    assert written.token == change.token
    return written.size, written.weight


def test_a_weight_counts_the_times_of_each_cell() -> None:
    """Cassandra: 20 bytes beside a cell's value (Cell.dataSize), 36 beside a row's (its liveness, its deletion)."""
    size, weight = weight_of(LOG.insert((1,), (), 10, v="abc"))
    assert size == 4 + 3 + 8 + 4
    assert weight >= size + 20 + 36


def test_a_weight_counts_each_element_of_a_collection() -> None:
    _, weight = weight_of(KEYED.update((1,), ("c", 1), 10, s=dict.fromkeys(range(100), "")))
    assert weight >= 100 * (1 + 20)


def test_a_weight_counts_the_first_columns_of_a_slice_in_both_its_bounds() -> None:
    prefix = "x" * 1_000
    _, weight = weight_of(KEYED.delete_range((1,), (prefix, 1), (prefix, 9), 10))
    assert weight >= 2 * len(prefix)
