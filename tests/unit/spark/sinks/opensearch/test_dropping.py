"""Indexes of source tables are taken away on a real search server, and those of others stay."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from uuid import UUID

import pytest

from tailrace_schemas.change import Change
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.sinks.opensearch.sink import OpensearchSink
from tests.support.shop import PLAIN
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import piece
from tests.unit.spark.sinks.opensearch.indexes import Searched
from tests.unit.spark.sinks.opensearch.proxy import SearchProxy

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

OTHER = replace(PLAIN, name="plain2", id=UUID(int=77))
AGAIN = replace(PLAIN, id=UUID(int=78))
"""The same name, dropped and made again."""


def insert(sink: OpensearchSink, *tables: Table) -> None:
    changes: list[Change] = [Log(of).insert((1,), (), 10, v="a") for of in tables]
    sink.write([piece(changes)])


def drop(sink: OpensearchSink, *tables: Table) -> list[str]:
    droppable = sink.capabilities.droppable
    assert droppable is not None
    return list(droppable.drop(tables))


@pytest.mark.promise("subscription.target-dropped")
def test_indexes_go_and_those_of_others_stay(proxy: SearchProxy) -> None:
    searched = Searched(proxy.url)
    with closing(searched.open()) as sink:
        insert(sink, PLAIN, OTHER, AGAIN)
        names = [searched.alias(of) for of in (PLAIN, AGAIN)]
        assert names[1] == names[0] + "-2"
        assert drop(sink, PLAIN, AGAIN) == names
        assert drop(sink, PLAIN, AGAIN) == []
        assert [searched.follows(of) for of in (PLAIN, AGAIN, OTHER)] == [False, False, True]
        insert(sink, PLAIN)
        assert searched.rows(PLAIN, "id", "v") == searched.rows(OTHER, "id", "v") == [(1, "a")]


@pytest.mark.promise("subscription.target-dropped")
def test_an_index_in_front_of_anothers_is_not_dropped(proxy: SearchProxy) -> None:
    searched = Searched(proxy.url)
    with closing(searched.open()) as sink:
        insert(sink, PLAIN, AGAIN)
        with pytest.raises(SettingsError, match="-2 belongs to another table, and would not be found without"):
            drop(sink, PLAIN)
        assert searched.follows(PLAIN)
        assert drop(sink, AGAIN) == [searched.alias(PLAIN) + "-2"]
        assert drop(sink, PLAIN) != []
