"""A real OpenSearch for tests: a node with HTTP alone, in a Java process on loopback that ends with this one."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from tailrace.local.ports import settle_ports
from tailrace.local.process import Launch
from tailrace.local.service import LocalService
from tailrace_common.jars import fetch_sets
from tailrace_common.java import find_java, modules
from tailrace_schemas.errors import TailraceError

_SOURCE: Final = Path(__file__).with_name("OpenSearchNode.java")


def missing() -> str | None:
    """Why there can be no OpenSearch here, or None."""
    try:
        java = find_java()
    except TailraceError as error:
        return str(error)
    return None if "jdk.compiler" in modules(java.program) else f"{java} has no compiler: install a JDK"


class OpenSearch(LocalService):
    """One node below `directory`; `start` returns when `url` answers."""

    def __init__(
        self, directory: Path, *properties: str, heap_mib: int = 512, jvm: Sequence[str] = ("-XX:TieredStopAtLevel=1",)
    ) -> None:
        """`properties` are more settings of the node's, as name=value."""
        super().__init__("opensearch", directory)
        self._properties = properties
        self._heap_mib = heap_mib
        self._jvm = jvm
        self.url = ""

    def _prepare(self) -> Launch:
        ports = settle_ports(self.directory, "127.0.0.1", {"http": 0, "transport": 0})
        self.url = f"http://127.0.0.1:{ports['http']}"
        log4j = self.directory / "log4j2.xml"
        log4j.write_text('<Configuration><Loggers><Root level="off"/></Loggers></Configuration>', "ascii")
        command = (
            str(find_java().program),
            f"-Xms{self._heap_mib}m", f"-Xmx{self._heap_mib}m", "-XX:+UseSerialGC", *self._jvm,
            f"-Dlog4j.configurationFile={log4j}", "-cp", ":".join(map(str, fetch_sets("opensearch"))), str(_SOURCE),
            str(self.directory / "home"), "127.0.0.1", str(ports["http"]), str(ports["transport"]), *self._properties,
        )  # fmt: skip
        return Launch(
            name=self.name,
            command=command,
            directory=self.directory,
            address="127.0.0.1",
            port=ports["http"],
            ready_line="OpenSearch answers",
        )


@cache
def server() -> OpenSearch:
    """The node that tests share; the first call starts it, in some seconds."""
    directory = Path(tempfile.mkdtemp(prefix="tailrace-opensearch-"))
    node = OpenSearch(directory)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    atexit.register(node.stop)
    return node.start()
