"""Servers that Java makes of one source file of ours: what that takes."""

from __future__ import annotations

from tailrace_common.java.find import find_java, modules
from tailrace_schemas.errors import TailraceError


def missing() -> str | None:
    """Why there can be no such server here, or None."""
    try:
        java = find_java()
    except TailraceError as error:
        return str(error)
    return None if "jdk.compiler" in modules(java.program) else f"{java} has no compiler: install a JDK"
