"""Dead letters of a search sink on a real server, held to their contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import pytest

from tailrace_spark.sinks.protocol import DeadLetterSink
from tests import opensearch
from tests.unit.spark.sinks.letters_contract import PLAIN, LettersContract
from tests.unit.spark.sinks.opensearch.indexes import Searched
from tests.unit.spark.sinks.opensearch.proxy import Answer, Asked, SearchProxy


class Indexes:
    """A sink's indexes, behind a proxy that drops requests from some number on."""

    exactly_once = True

    def __init__(self, proxy: SearchProxy) -> None:
        self._proxy = proxy
        self._searched = Searched(proxy.url, proxy.address, retry_seconds=0.01)

    def open(self, dies_after: int | None = None) -> DeadLetterSink:
        begin = len(self._proxy.asked)

        def answer(asked: Asked) -> Answer:
            step = None if dies_after is None else asked.number - begin - dies_after // 2
            if step is None or step < 0:
                return "pass"
            return "drop after" if step == 0 and dies_after is not None and dies_after % 2 else "drop"

        self._proxy.answer = answer
        return self._searched.open()

    def ids(self) -> Sequence[int]:
        if not self._searched.follows(PLAIN):
            return []
        return [row["id"] for row in self._searched.search(PLAIN)]

    def set_format(self, number: int | None) -> None:
        """In the index, and in each letter."""
        index = self._searched.settings.dead_letters
        noted = {} if number is None else {"tailrace_format": number}
        self._searched.call("PUT", f"/{index}/_mapping", {"_meta": noted})
        self._searched.call("POST", f"/{index}/_refresh")
        for hit in self._searched.call("POST", f"/{index}/_search", {"size": 1000})["hits"]["hits"]:
            members = {name: value for name, value in hit["_source"].items() if name != "format"}
            letter = members if number is None else {**members, "format": number}
            self._searched.call("PUT", f"/{index}/_doc/{hit['_id']}", letter)


@pytest.mark.long
class TestOpensearch(LettersContract):
    sink = "opensearch"

    @pytest.fixture
    def stores(self) -> Iterator[Callable[[], Indexes]]:
        with closing(SearchProxy(opensearch.server().url)) as proxy:
            yield lambda: Indexes(proxy)
