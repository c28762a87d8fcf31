"""A real OpenSearch or Elasticsearch for tests: a node with HTTP alone, a Java process that ends with this one."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal

from tailrace.local.ports import settle_ports
from tailrace.local.process import Launch
from tailrace.local.service import LocalService
from tailrace_common.java.find import find_java
from tests.jars import fetch_test_sets

Kind = Literal["opensearch", "elasticsearch"]
_SOURCE: Final = Path(__file__).with_name("OpenSearchNode.java")
_QUICK: Final = ("-XX:TieredStopAtLevel=1",)


class OpenSearch(LocalService):
    """One node below `directory`; `start` returns when `url` answers."""

    def __init__(
        self, directory: Path, kind: Kind = "opensearch", *, heap_mib: int = 512, jvm: Sequence[str] = _QUICK
    ) -> None:
        super().__init__(kind, directory)
        self._heap_mib = heap_mib
        self._jvm = jvm
        self.url = ""

    def _prepare(self) -> Launch:
        ports = settle_ports(self.directory, "127.0.0.1", {"http": 0, "transport": 0})
        self.url = f"http://127.0.0.1:{ports['http']}"
        log4j = self.directory / "log4j2.xml"
        log4j.write_text('<Configuration><Loggers><Root level="off"/></Loggers></Configuration>', "ascii")
        # The one is made of the other: what the program needs of them is called alike.
        source = self.directory / _SOURCE.name
        source.write_text(_SOURCE.read_text("ascii").replace("org.opensearch", f"org.{self.name}"), "ascii")
        command = (
            str(find_java().program),
            f"-Xms{self._heap_mib}m",
            f"-Xmx{self._heap_mib}m",
            "-XX:+UseSerialGC",
            *self._jvm,
            f"-Dlog4j.configurationFile={log4j}",
            "-cp",
            ":".join(map(str, fetch_test_sets(self.name))),
            str(source),
            str(self.directory / "home"),
            "127.0.0.1",
            str(ports["http"]),
            str(ports["transport"]),
        )
        return Launch(
            name=self.name,
            command=command,
            directory=self.directory,
            address="127.0.0.1",
            port=ports["http"],
            ready_line="The node answers",
        )


@cache
def server(kind: Kind = "opensearch") -> OpenSearch:
    """The node that tests share; the first call starts it, in some seconds."""
    directory = Path(tempfile.mkdtemp(prefix=f"tailrace-{kind}-"))
    node = OpenSearch(directory, kind)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    atexit.register(node.stop)
    return node.start()
