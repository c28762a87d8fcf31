"""The index of what a search sink could not write: a document for each place in Kafka."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tailrace_schemas.errors import ServiceError
from tailrace_schemas.formats import FIRST, require_format
from tailrace_spark.batch.dead_letters import log_put
from tailrace_spark.batch.delivery import LETTER_FORMAT, DeadLetter, RecordId
from tailrace_spark.sinks.opensearch.bulk import Op
from tailrace_spark.sinks.opensearch.client import SearchClient, name
from tailrace_spark.sinks.opensearch.settings import OpensearchSinkSettings

_PLACE: Final = ("topic", "partition", "offset")
_FORMAT: Final = "tailrace_format"
_MAPPING: Final[dict[str, Any]] = {
    "_meta": {_FORMAT: LETTER_FORMAT},
    "dynamic": False,
    "properties": {
        "topic": {"type": "keyword"}, "partition": {"type": "integer"}, "offset": {"type": "long"},
        "schema": {"type": "keyword"}, "reason": {"type": "text"}, "message": {"type": "binary"},
    },
}  # fmt: skip


class OpensearchDeadLetters:
    """A DeadLetterStore in the index of the settings' `dead_letters`. Everything raises ServiceError."""

    def __init__(self, client: SearchClient, settings: OpensearchSinkSettings) -> None:
        self._client = client
        self._index = settings.dead_letters
        self._where = settings.location
        self._there = False

    def reach(self) -> None:
        """Raises SettingsError where a later version made the index."""
        self._exists()

    def forget(self) -> None:
        """What the cluster has may have changed."""
        self._there = False

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """As DeadLetterStore says; the newer one of a record stays."""
        self._write(
            [Op(_identity(letter.record_id), None, _document(letter), unchecked=True) for letter in letters],
            "are refused",
        )
        log_put(letters, self._index)

    def remove(self, letters: Sequence[DeadLetter]) -> None:
        self._write([Op(_identity(letter.record_id), None, None) for letter in letters], "cannot be removed")

    def list(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        if not self._exists():
            return []
        self._client.refresh(self._index)
        body: dict[str, Any] = {"size": limit, "sort": [*_PLACE], "query": {"match_all": {}}}
        if after is not None:
            body["search_after"] = [*after.key]
        answer = self._client.post(f"/{name(self._index)}/_search", body)
        if answer["_shards"]["failed"] or answer["timed_out"]:
            raise ServiceError(f"{self._where}, {self._index}: not all of its shards answer")
        return [self._dead_letter(hit["_source"]) for hit in answer["hits"]["hits"]]

    def _dead_letter(self, source: Mapping[str, Any]) -> DeadLetter:
        message = base64.b64decode(source["message"] or "").hex()
        return DeadLetter.from_json({**source, "message": message}, self._index)

    def _exists(self) -> bool:
        answer = self._client.get(f"/{name(self._index)}")
        for described in (answer or {}).values():
            noted = described.get("mappings", {}).get("_meta", {}).get(_FORMAT, FIRST)
            require_format(f"{self._where}, {self._index}", noted, LETTER_FORMAT)
        return answer is not None

    def _write(self, ops: Sequence[Op], words: str) -> None:
        if not ops:
            return
        alias = f"{self._index}-write"
        if not self._there:
            if not self._exists():
                self._client.put(f"/{name(self._index)}", {"mappings": _MAPPING, "aliases": {alias: {}}})
            elif self._client.get(f"/_alias/{name(alias)}") is None:
                self._client.put(f"/{name(self._index)}/_alias/{name(alias)}", {})
            self._there = True
        written = self._client.bulk(alias, ops)
        if written.refused:
            [why, *_] = written.refused.values()
            raise ServiceError(f"{self._where}, {self._index}: dead letters {words}: {why}")


def _identity(record_id: RecordId) -> str:
    return f"{record_id.topic}-{record_id.partition}-{record_id.offset}"


def _document(letter: DeadLetter) -> dict[str, object]:
    """Its JSON form; the message is base64, as the index keeps bytes."""
    schema, message = letter.record_id.schema_id.hex(), base64.b64encode(letter.message).decode()
    return {**letter.to_json(), "schema": schema, "message": message}
