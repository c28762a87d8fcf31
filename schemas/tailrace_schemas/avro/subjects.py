"""The subject under which a registry keeps a schema: Confluent's three subject name strategies."""

from __future__ import annotations

import json
from typing import Literal, assert_never

Subjects = Literal["TopicName", "RecordName", "TopicRecordName"]
Part = Literal["value", "key"]


def subject_of(subjects: Subjects, topic: str, part: Part, schema: str) -> str:
    """The subject of a record schema (JSON) in a topic's values or keys."""
    match subjects:
        case "TopicName":
            return f"{topic}-{part}"
        case "RecordName":
            return _record_name(schema)
        case "TopicRecordName":
            return f"{topic}-{_record_name(schema)}"
        case other:
            assert_never(other)


def _record_name(schema: str) -> str:
    record = json.loads(schema)
    return f"{record['namespace']}.{record['name']}"
