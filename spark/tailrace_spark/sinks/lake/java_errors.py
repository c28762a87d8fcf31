"""What Spark's Java raises, in one line: what it says, and what it comes of."""

from __future__ import annotations

from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types

from tailrace_common.secrets import redact

_LONGEST: Final = 400


def java_class(error: Py4JJavaError) -> str:
    """The name of an exception's class."""
    return str(error.java_exception.getClass().getName())


def java_said(error: Exception) -> str:
    """What an error says, and what it comes of, in one line, without what looks like credentials."""
    if isinstance(error, Py4JJavaError):
        top = error.java_exception
        root = top
        while root.getCause() is not None:
            root = root.getCause()
        texts = dict.fromkeys(str(one.toString()).split("\n")[0] for one in (top, root))
        said = "; ".join(texts)
    else:
        said = str(error).split("JVM stacktrace")[0]
    said = redact(" ".join(said.split()))
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."
