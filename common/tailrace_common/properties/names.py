"""What other programs would say of the names and values that are passed through to them, before they are started."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Final, Literal

from confluent_kafka import KafkaException, Producer

from tailrace_common.secrets import is_secret_name, redact

Program = Literal["librdkafka", "java_consumer", "spark"]
Value = bool | int | float | str

REGISTRY_CLIENT: Final = frozenset(
    {
        "url",
        "ssl.ca.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.certificate.location",
        "basic.auth.user.info",
        "bearer.auth.credentials.source",
        "bearer.auth.token",
        "bearer.auth.logical.cluster",
        "bearer.auth.identity.pool.id",
        "bearer.auth.client.id",
        "bearer.auth.client.secret",
        "bearer.auth.scope",
        "bearer.auth.issuer.endpoint.url",
        "bearer.auth.issuer.endpoint.query",
        "proxy",
        "timeout",
        "cache.capacity",
        "cache.latest.ttl.sec",
        "max.retries",
        "retries.wait.ms",
        "retries.max.wait.ms",
    }
)
# Of an Iceberg catalog: those that people write. Catalogs and file systems have many more, and may have any.
ICEBERG_CATALOG: Final = frozenset(
    {
        "type",
        "py-catalog-impl",
        "uri",
        "warehouse",
        "echo",
        "pool_pre_ping",
        "init_catalog_tables",
        "schema_version",
        "token",
        "credential",
        "scope",
        "prefix",
        "oauth2-server-uri",
        "auth.type",
        "rest.sigv4-enabled",
        "rest.signing-region",
        "rest.signing-name",
        "header.Authorization",
        "header.X-Iceberg-Access-Delegation",
        "ssl.cabundle",
        "hive.hive2-compatible",
        "s3.endpoint",
        "s3.access-key-id",
        "s3.secret-access-key",
        "s3.session-token",
        "s3.region",
        "s3.role-arn",
        "client.region",
        "glue.id",
        "glue.region",
        "glue.endpoint",
        "glue.skip-archive",
    }
)
# What may be named as one likes below these, and what Spark's own classes do not name.
_SPARK_FAMILIES: Final = (
    "spark.hadoop.",
    "spark.sql.catalog.",
    "spark.executorEnv.",
    "spark.yarn.appMasterEnv.",
    "spark.kubernetes.",
    "spark.driver.resource.",
    "spark.executor.resource.",
    "spark.metrics.conf.",
    "spark.databricks.",
)
# Of a closed list a guess may be far off; of an open one it must be as good as sure, for it refuses the name.
_GUESS: Final = 0.6
_MISSPELLED: Final = 0.9
# A property that nobody has: the client is given up at it, before it starts a thread or opens a connection.
_LAST: Final = "tailrace.last.property"
_UNKNOWN: Final = "No such configuration property"
# Names of Python's client for objects, which no text can be.
_OBJECTS: Final = frozenset({"default.topic.config", "logger", "on_commit", "on_delivery"})


@cache
def names_of(program: Program) -> frozenset[str]:
    """The names that a program documents, in the version that we are tested with (tools/property_names.py)."""
    text = files("tailrace_common.properties").joinpath("names.json").read_text(encoding="utf-8")
    return frozenset(json.loads(text)[program])


def nearest_name(name: str, names: Iterable[str], cutoff: float = _GUESS) -> str | None:
    """The name that `name` is most likely a misspelling of; None where none is as similar as `cutoff` (0 to 1).

    Case, and whether words are parted by dots, underscores or hyphens, count for nothing: `bootstrap_servers` is as
    near to `bootstrap.servers` as a name can be.
    """
    by_letters = {_letters(valid): valid for valid in sorted(names)}
    close = difflib.get_close_matches(_letters(name), by_letters, n=1, cutoff=cutoff)
    return by_letters[close[0]] if close else None


def spelled(name: str, names: Collection[str]) -> str:
    """The one of the names that has the same letters, since a variable has neither their case nor hyphens; else `name`.

    A name that ends in `.file` may be that of a file for another one: then it ends in `_file`.
    """
    by_letters = {_letters(spelling): spelling for spelling in names}
    if _letters(name) in by_letters:
        return by_letters[_letters(name)]
    content = name.removesuffix(".file")
    return name if content == name else f"{by_letters.get(_letters(content), content)}_file"


def librdkafka_fault(name: str, value: Value) -> str | None:
    """Why librdkafka would refuse this property, None where it takes it. A secret is not in it."""
    judgement = judge_property(name, value)
    if judgement is Judgement.TAKEN:
        return None
    if judgement is Judgement.UNKNOWN:
        return unknown(name, names_of("librdkafka"), "librdkafka")
    return "librdkafka refuses its value" if is_secret_name(name) else redact(str(judgement))


def unknown(name: str, names: Collection[str], program: str) -> str:
    """What to say of a name that a program does not have."""
    return f"{program} has no such property; {_meant(nearest_name(name, names))}"


def misspelled(name: str, names: Collection[str]) -> str | None:
    """What to say of a name that is next to a known one, where others are allowed too; None of all other names."""
    nearest = None if name in names else nearest_name(name, names, _MISSPELLED)
    return None if nearest is None else _meant(nearest)


def java_consumer_fault(name: str, configured: Collection[str]) -> str | None:
    """Why Java's Kafka consumer would ignore this property, None where it may know it.

    A class of the user's, such as a callback handler, may have properties of its own: then only misspellings count.
    """
    names = names_of("java_consumer")
    if any(property_name.endswith((".class", ".classes", "reporters")) for property_name in configured):
        return misspelled(name, names)
    return None if name in names else unknown(name, names, "Java's Kafka consumer")


def spark_fault(name: str) -> str | None:
    """Why Spark would ignore this property, None where it may know it: other programs read Spark's properties too."""
    names = names_of("spark")
    if not name.startswith("spark."):
        nearest = nearest_name(name, names) or nearest_name(f"spark.{name}", names)
        return f"Spark's properties begin with spark.; {_meant(nearest)}"
    return None if name.startswith(_SPARK_FAMILIES) else misspelled(name, names)


def _meant(nearest: str | None) -> str:
    return "see its documentation" if nearest is None else f'did you mean "{nearest}"?'


def _letters(name: str) -> str:
    return re.sub(r"[._-]+", ".", name).lower()


class Judgement(Enum):
    """Judgements that need no words."""

    TAKEN = "taken"
    UNKNOWN = "unknown"


def judge_property(name: str, value: bool | int | float | str) -> Judgement | str:
    """Whether librdkafka has this property and takes this value; where it refuses the value, its own words.

    What properties mean together, and whether files exist that they name, shows when a client is made of them.
    """
    if name in _OBJECTS or name.endswith("_cb"):
        return Judgement.UNKNOWN
    try:
        Producer({name: value, _LAST: ""})
    except KafkaException as exception:
        words = str(exception.args[0].str()).strip()
        if _LAST in words:
            return Judgement.TAKEN
        return Judgement.UNKNOWN if words.startswith(_UNKNOWN) else words
    except (TypeError, ValueError) as error:  # the few properties that Python's client reads itself
        return str(error)
    raise AssertionError(f"librdkafka has a property {_LAST}")
