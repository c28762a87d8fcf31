"""What several modules of tests share of routing."""

from __future__ import annotations

from tailrace_schemas.avro import Encoder, SchemaIds


class Registered:
    """A store that gives ids of four bytes."""

    def ids(self, encoder: Encoder, topic: str) -> SchemaIds:
        """The first bytes of the topic, so that it shows what was asked."""
        return SchemaIds(topic.encode()[:4], encoder.key_schema_id[:4])

    def close(self) -> None:
        """Nothing to end."""
