"""What the installed librdkafka says of single properties, without making a client."""

from __future__ import annotations

from enum import Enum
from typing import Final

from confluent_kafka import KafkaException, Producer

# A property that nobody has: the client is given up at it, before it starts a thread or opens a connection.
_LAST: Final = "tailrace.last.property"
_UNKNOWN: Final = "No such configuration property"
# Names of Python's client for objects, which no text can be.
_OBJECTS: Final = frozenset({"default.topic.config", "logger", "on_commit", "on_delivery"})


class Verdict(Enum):
    """Verdicts that need no words."""

    TAKEN = "taken"
    UNKNOWN = "unknown"


def judge_property(name: str, value: bool | int | float | str) -> Verdict | str:
    """Whether librdkafka has this property and takes this value; where it refuses the value, its own words.

    What properties mean together, and whether files exist that they name, shows when a client is made of them.
    """
    if name in _OBJECTS or name.endswith("_cb"):
        return Verdict.UNKNOWN
    try:
        Producer({name: value, _LAST: ""})
    except KafkaException as exception:
        words = str(exception.args[0].str()).strip()
        if _LAST in words:
            return Verdict.TAKEN
        return Verdict.UNKNOWN if words.startswith(_UNKNOWN) else words
    except (TypeError, ValueError) as error:  # the few properties that Python's client reads itself
        return str(error)
    raise AssertionError(f"librdkafka has a property {_LAST}")
