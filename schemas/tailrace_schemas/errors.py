"""The errors that both halves share, by whose turn it is to act.

TailraceError
 |- SettingsError         the settings are wrong: the operator
 |- ServiceError          Kafka, Cassandra or a sink does not answer or refuses: retried, then the operator
 |- DataLossError         records are gone that nobody has read, or rows that a sink had: the operator
 `- DecodeError           bytes are not what the format says: set aside, others go on
     |- TruncatedError       the bytes end too early
     |- CorruptError         a checksum or a rule is broken
     `- UnsupportedError     a version, compressor or cipher that is not read
"""

from __future__ import annotations


class TailraceError(Exception):
    """The root; its message says what, where, and what to do next. `exit_code` is the process's."""

    exit_code = 1


class SettingsError(TailraceError):
    """A setting is missing, unknown or impossible; the message names it."""

    exit_code = 2


class ServiceError(TailraceError):
    """A service named in the settings does not answer, or refuses."""


class DataLossError(TailraceError):
    """Records that nobody read, or rows that a sink had, are gone; the message names topic, partitions and offsets."""

    exit_code = 4


class DecodeError(TailraceError):
    """Bytes break a rule of the format. Where the file is known, its name and the offset stand in front."""

    exit_code = 3

    def __init__(self, rule: str, *, file: str | None = None, offset: int | None = None) -> None:
        super().__init__(rule)
        self.rule = rule
        self.file = file
        self.offset = offset

    def __str__(self) -> str:
        location = ":".join(str(item) for item in (self.file, self.offset) if item is not None)
        return f"{location}: {self.rule}" if location else self.rule


class TruncatedError(DecodeError):
    """The bytes end before the value does."""


class CorruptError(DecodeError):
    """A checksum differs, or a value cannot be."""


class UnsupportedError(DecodeError):
    """A version, compressor or cipher that this version of Tailrace does not read."""


class RefusedError(ServiceError):
    """Kafka takes nothing for a topic until somebody acts: no right to write, deleted, a rule that its records break.

    Whatever was not committed is lost with the transaction; other topics' records can go on, in a new one. `topic` may
    be one of our internal ones, without which nothing can go on.
    """

    def __init__(self, topic: str, words: str) -> None:
        super().__init__(f"Kafka refuses records of topic {topic}: {words}")
        self.topic = topic


class RecordTooLargeError(ServiceError):
    """Kafka takes no record of that size for a topic; it takes others."""


class SchemaRefusedError(ServiceError):
    """A schema registry refuses one schema: the rule of its subject, or nobody has registered it."""


class FencedError(TailraceError):
    """Another process took our place, an agent its host's, or a sink its name's: this one may write nothing more."""

    exit_code = 5
