"""Which of Spark's properties a subscription may have for an application of its own. Pure."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterator, Mapping, Sequence

from tailrace_common.properties.names import spark_fault
from tailrace_common.secrets import is_secret_name
from tailrace_server.model.errors import RefusedRequestError


def require_allowed(name: str, spark: Mapping[str, object], allowed: Sequence[str]) -> None:
    """Raises RefusedRequestError with a line for each fault of the Spark properties of subscription `name`.

    `allowed` are patterns with `*`: other properties may run code on the server, or reach where nobody should.
    """
    faults = [f"subscription {name}: {words}" for words in _faults(spark, allowed)]
    if faults:
        raise RefusedRequestError("\n".join(faults))


def _faults(spark: Mapping[str, object], allowed: Sequence[str]) -> Iterator[str]:
    for key, value in spark.items():
        if not any(fnmatch.fnmatchcase(key, pattern) for pattern in allowed):
            close = difflib.get_close_matches(key, allowed, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            yield (
                f"{key} is not for subscriptions to set; {hint}this server allows {', '.join(allowed) or 'none'} "
                "(server.spark_allowed). For all of them it is set in [stream.spark]"
            )
        elif is_secret_name(key):
            yield f"{key} is a secret, which stands in [stream.spark] of the servers alone"
        elif (fault := spark_fault(key)) is not None:
            yield f"{key}: {fault}"
        elif not isinstance(value, bool | int | float | str):
            yield f"{key}: must be a text, a number, or true or false"
        elif isinstance(value, str) and not value.isprintable():
            yield f"{key}: must be one line of text"
        elif isinstance(value, str) and "${" in value:
            # Spark puts variables of the environment there, and what they hold may show in its errors.
            yield f"{key}: must be without ${{...}}: write out the value itself"
