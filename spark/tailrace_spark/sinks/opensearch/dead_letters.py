"""The index of what a search sink could not write: a document for each place in Kafka."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import DeadLetter, RecordId
from tailrace_spark.sinks.opensearch.client import Op, SearchClient, name
from tailrace_spark.sinks.opensearch.settings import OpensearchSinkSettings

_PLACE: Final = ("topic", "partition", "offset")
_MAPPING: Final[dict[str, Any]] = {
    "dynamic": False,
    "properties": {
        "topic": {"type": "keyword"}, "partition": {"type": "integer"}, "offset": {"type": "long"},
        "schema": {"type": "keyword"}, "reason": {"type": "text"}, "message": {"type": "binary"},
    },
}  # fmt: skip


class SearchLetters:
    """Dead letters in the index of the settings' `dead_letters`. Everything raises ServiceError."""

    def __init__(self, client: SearchClient, settings: OpensearchSinkSettings) -> None:
        self._client = client
        self._index = settings.dead_letters
        self._where = settings.location
        self._there = False

    def forget(self) -> None:
        """What the cluster has may have changed."""
        self._there = False

    def bury(self, letters: Sequence[DeadLetter]) -> None:
        """Keep them, each place once; of one that has a letter already the newer stays."""
        self._write(
            [Op(_identity(letter.record_id), None, _document(letter), unchecked=True) for letter in letters],
            "are refused",
        )

    def exhume(self, places: Sequence[RecordId]) -> None:
        """Let go of the letters of these places."""
        self._write([Op(_identity(place), None, None) for place in places], "cannot be taken away")

    def buried(self, after: RecordId | None, most: int) -> Sequence[DeadLetter]:
        """So many at most, by topic, partition and offset, behind a place."""
        if self._client.get(f"/{name(self._index)}") is None:
            return []
        self._client.refresh(self._index)
        body: dict[str, Any] = {"size": most, "sort": list(_PLACE), "query": {"match_all": {}}}
        if after is not None:
            body["search_after"] = list(after.key)
        answer = self._client.post(f"/{name(self._index)}/_search", body)
        if answer["_shards"]["failed"] or answer["timed_out"]:
            raise ServiceError(f"{self._where}, {self._index}: not all of its shards answer")
        return [_letter(hit["_source"]) for hit in answer["hits"]["hits"]]

    def _write(self, ops: Sequence[Op], words: str) -> None:
        if not ops:
            return
        alias = f"{self._index}-write"
        if not self._there:
            if self._client.get(f"/{name(self._index)}") is None:
                self._client.put(f"/{name(self._index)}", {"mappings": _MAPPING, "aliases": {alias: {}}})
            elif self._client.get(f"/_alias/{name(alias)}") is None:
                self._client.put(f"/{name(self._index)}/_alias/{name(alias)}", {})
            self._there = True
        written = self._client.bulk(alias, ops)
        if written.refused:
            [why, *_] = written.refused.values()
            raise ServiceError(f"{self._where}, {self._index}: dead letters {words}: {why}")


def _identity(place: RecordId) -> str:
    return f"{place.topic}-{place.partition}-{place.offset}"


def _document(letter: DeadLetter) -> dict[str, object]:
    place = letter.record_id
    return {
        "topic": place.topic, "partition": place.partition, "offset": place.offset,
        "schema": place.schema_id.hex(), "reason": letter.reason,
        "message": base64.b64encode(letter.message).decode(),
    }  # fmt: skip


def _letter(source: Mapping[str, Any]) -> DeadLetter:
    place = RecordId(source["topic"], source["partition"], source["offset"], bytes.fromhex(source["schema"] or ""))
    return DeadLetter(place, source["reason"], base64.b64decode(source["message"] or ""))
