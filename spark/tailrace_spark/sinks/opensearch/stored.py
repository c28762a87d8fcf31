"""What an index has of the partitions and rows that a batch merges with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tailrace_spark.merge.partition import StoredRow
from tailrace_spark.merge.stored_row import RowKey
from tailrace_spark.sinks.opensearch.bulk import StoredDocument, Version
from tailrace_spark.sinks.opensearch.documents import Document, digest, head_id
from tailrace_spark.sinks.opensearch.state import PartitionDocument

NO_DOCUMENT: Final = PartitionDocument()
"""Of a partition of which nothing is kept beside its rows."""


@dataclass(slots=True)
class StoredDocuments:
    """What is there of some partitions: heads by key, rows as far as they were asked for, documents by id.

    `digests` of keys, each made once.
    """

    digests: dict[bytes, str] = field(default_factory=dict)
    heads: dict[bytes, PartitionDocument] = field(default_factory=dict)
    rows: dict[bytes, dict[bytes, StoredRow]] = field(default_factory=dict)
    ids: dict[RowKey, str] = field(default_factory=dict)
    found: dict[str, StoredDocument] = field(default_factory=dict)

    def digest(self, key: bytes) -> str:
        """Of a partition's key."""
        key_digest = self.digests.get(key)
        if key_digest is None:
            key_digest = self.digests[key] = digest(key)
        return key_digest

    def head_id(self, key: bytes) -> str:
        """The id of what is kept of a partition beside its rows."""
        return head_id(self.digest(key))

    def head(self, key: bytes) -> PartitionDocument:
        """What is there of a partition beside its rows."""
        return self.heads.get(key, NO_DOCUMENT)

    def version(self, identity: str) -> Version | None:
        """That of a document; None: there is none."""
        document = self.found.get(identity)
        return None if document is None else document.version

    def shows(self, identity: str, document: Document | None) -> bool:
        """Whether searches see this of a document already."""
        stored = self.found.get(identity)
        return (document or {}) == ({} if stored is None else stored.source or {})
