"""Hides what the options of Spark's Kafka source have of passwords and keys, beside what the caller hides already."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

NAMES: Final = "(?i)secret|password|token|access[.]?key|jaas|keystore"
"""Java's regular expression of the names of options whose values are secret, Spark's own among them."""

# The first relation of a stream is shown as Scala shows a map, whatever the names in it: so values are looked for too.
_QUOTED: Final = r'(?<=password=")(?:[^"\\]|\\.)*'
_IN_MAP: Final = r"(?<=password -> )[^,)]+"
_KEY: Final = r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*-----END [A-Z ]*PRIVATE KEY-----"
_OF_SESSION: Final = (
    ("spark.sql.redaction.options.regex", NAMES),
    ("spark.sql.redaction.string.regex", f"{_QUOTED}|{_IN_MAP}|{_KEY}"),
)
# What Spark has for these where nobody set them: a value, or another setting.
_SPARKS_OPTIONS: Final = "(?i)url"
_STRING_OF_SPARK: Final = "spark.redaction.string.regex"


def widened(user_pattern: str | None, own_pattern: str) -> str:
    """Java's regular expression for what theirs or ours matches."""
    if not user_pattern:
        return own_pattern
    return user_pattern if own_pattern in user_pattern else f"(?:{user_pattern})|(?:{own_pattern})"


def widen_redaction(spark: SparkSession) -> None:
    """Have this session hide Kafka's passwords and keys in plans that it shows; nothing that it hid is shown by that.

    The rest (`spark.redaction.regex`: event log, page of the environment) is settled when Spark starts.
    """
    defaults = (_SPARKS_OPTIONS, spark.conf.get(_STRING_OF_SPARK, None))
    for (name, pattern), default in zip(_OF_SESSION, defaults, strict=True):
        current = spark.conf.get(name, None) or default
        if (both := widened(current, pattern)) != current:
            spark.conf.set(name, both)
