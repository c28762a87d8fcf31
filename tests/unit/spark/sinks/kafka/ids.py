"""A schema registry in memory."""

from __future__ import annotations

import io
import json
from typing import Any

from fastavro import parse_schema, schemaless_reader

from tailrace_schemas.errors import SchemaRefusedError


class Ids:
    """Gives schemas ids as a registry would, and keeps what was asked."""

    def __init__(self, refused: str = "") -> None:
        self.refused = refused
        self.asked: list[str] = []
        self.schemas: list[str] = []

    def id_of(self, subject: str, text: str) -> int:
        self.asked.append(subject)
        if subject == self.refused:
            raise SchemaRefusedError(f"subject {subject} breaks")
        self.schemas.append(text)
        return len(self.schemas)

    def reach(self) -> str:
        return "NONE"

    def close(self) -> None:
        pass

    def read(self, message: bytes | None) -> Any:
        """As a consumer does, by the id in front."""
        assert message is not None
        assert message[0] == 0
        schema = self.schemas[int.from_bytes(message[1:5], "big") - 1]
        buffer = io.BytesIO(message[5:])
        found = schemaless_reader(buffer, parse_schema(json.loads(schema)), None)
        assert buffer.read() == b""
        return found
