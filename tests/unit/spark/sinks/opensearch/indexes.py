"""Indexes for tests: those of one sink on a real server, behind names of their own, and what searches find there."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from threading import Lock
from typing import Any, Self

import httpx2

from tailrace_common.backoff import Waits
from tailrace_schemas.change import Change
from tailrace_schemas.table import Table
from tailrace_spark.sinks.opensearch.client import SearchClient
from tailrace_spark.sinks.opensearch.settings import OpensearchSinkSettings
from tailrace_spark.sinks.opensearch.sink import OpensearchSink
from tailrace_spark.sinks.protocol import SweepingSink
from tests.support.letters import MemoryLetters
from tests.unit.spark.sinks.in_tasks import InTasks
from tests.unit.spark.sinks.merging_contract import Row, by_repr, write
from tests.unit.spark.sinks.opensearch.proxy import Answer, Asked, SearchProxy

PROMPT = Waits(0.01, 0.05)
_numbers = count()


class _Indexes:
    """One sink's indexes, with `url`'s own client to look into them."""

    def __init__(self, url: str, through: str | None = None, **settings: object) -> None:
        """`through`: the address that the sink is given, where that is another than `url`."""
        self.url = url
        self.prefix = f"s{next(_numbers)}"
        self.settings = OpensearchSinkSettings.model_validate(
            {"url": through or url, "index": self.prefix + ".{keyspace}.{table}", "shards": 1, "replicas": 0,
             "retry_seconds": 5, **settings}
        )  # fmt: skip
        self.letters = MemoryLetters()

    def sink(self, clock: Callable[[], float] | None = None, ring_delay: float = 0.0) -> OpensearchSink:
        """A new one."""
        client = SearchClient("search", self.settings, waits=PROMPT)
        time = clock or (lambda: 0)
        return OpensearchSink(client, self.settings, ring_delay=ring_delay, clock=time, letters=self.letters)

    @property
    def version(self) -> str:
        """Which server it is, of which version, as it says."""
        said = self.call("GET", "/")["version"]
        return f"{said.get('distribution', 'elasticsearch')} {said['number']}"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The answer as JSON, as anybody else gets it."""
        answer = httpx2.request(method, self.url + path, json=body, timeout=60)
        return answer.raise_for_status().json()

    def follows(self, of: Table) -> bool:
        """Whether there is an index for a source table."""
        return bool(self._aliases(of))

    def alias(self, of: Table) -> str:
        """The name under which a source table is searched."""
        [alias] = self._aliases(of)
        return alias

    def _aliases(self, of: Table) -> list[str]:
        return [
            alias
            for index, said in self.call("GET", f"/{self.prefix}.*/_mapping").items()
            if said["mappings"].get("_meta", {}).get("tailrace", {}).get("table") == str(of.id)
            for alias in self.call("GET", f"/{index}/_alias")[index]["aliases"]
            if not alias.startswith(f"{index}-write")
        ]

    def search(self, of: Table, query: Any = None) -> list[dict[str, Any]]:
        """What a query finds, at most ten thousand documents, each with its `_id`."""
        alias = self.alias(of)
        self.call("POST", f"/{alias}/_refresh")
        found = self.call("POST", f"/{alias}/_search", {"size": 10_000, "query": query or {"match_all": {}}})
        return [{"_id": hit["_id"], **hit["_source"]} for hit in found["hits"]["hits"]]

    def rows(self, of: Table, *columns: str) -> list[Row]:
        return by_repr(tuple(row.get(column) for column in columns) for row in self.search(of))

    def columns(self, of: Table) -> list[str]:
        mapping = self.call("GET", f"/{self.alias(of)}/_mapping")
        [said] = mapping.values()
        return [name for name in said["mappings"]["properties"] if name != "__tailrace"]

    def kept(self) -> int:
        """How many documents there are of rows and partitions, shown or not."""
        self.call("POST", f"/{self.prefix}.*/_refresh")
        kinds = {"terms": {"__tailrace.kind": ["row", "partition"]}}
        return int(self.call("GET", f"/{self.prefix}.*/_count", {"query": kinds})["count"])

    def direct(self) -> Self:
        """The same indexes, without what stands in between."""
        same = type(self)(self.url)
        same.prefix, same.settings = self.prefix, self.settings.model_copy(update={"url": self.url})
        return same

    def everything(self) -> object:
        """All documents of all indexes, with what is stored beside them and their versions."""
        self.call("POST", f"/{self.prefix}*/_refresh")
        body = {"size": 10_000, "seq_no_primary_term": True, "stored_fields": ["__tailrace.state"], "_source": True}
        found = self.call("POST", f"/{self.prefix}*/_search", body)["hits"]["hits"]
        return sorted(json.dumps({**hit, "_score": None}, sort_keys=True) for hit in found)


class Searched(_Indexes):
    """One sink's indexes, which the driver writes."""

    def open(self, clock: Callable[[], float] | None = None, ring_delay: float = 0.0) -> OpensearchSink:
        """A sink as a new process has it; without a clock nothing that expires has expired."""
        return self.sink(clock, ring_delay)


class SearchedInTasks(_Indexes):
    """The same, written by tasks."""

    def open(self, clock: Callable[[], float] | None = None, ring_delay: float = 0.0) -> SweepingSink:
        """Each batch by a task for each partition of keys."""
        return InTasks(self.sink(clock, ring_delay))


def overtaken(searched: Searched, proxy: SearchProxy, at: str, *other: Change) -> None:
    """Another sink writes these changes when the first request comes whose path has this."""
    lock, done = Lock(), list[bool]()

    def answer(asked: Asked) -> Answer:
        with lock:
            if at in asked.path and not done:
                done.append(True)
                write(searched.direct(), *other)
        return "pass"

    proxy.answer = answer
