"""Iceberg's own REST catalog for tests: a Java process that knows tables below a directory, and ends with this one."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pyspark

from tailrace.local.ports import settle_ports
from tailrace.local.process import Launch
from tailrace.local.service import LocalService
from tailrace_common.java.find import find_java
from tests.jars import fetch_test_sets

_SOURCE: Final = Path(__file__).with_name("IcebergRest.java")


class RestCatalog(LocalService):
    """One catalog, its tables below `warehouse`; `start` returns when `url` answers."""

    def __init__(self, directory: Path) -> None:
        super().__init__("iceberg-rest", directory)
        self.warehouse = directory / "warehouse"
        self.url = ""

    def _prepare(self) -> Launch:
        ports = settle_ports(self.directory, "127.0.0.1", {"http": 0})
        self.url = f"http://127.0.0.1:{ports['http']}"
        hadoop = Path(pyspark.__file__).with_name("jars").glob("hadoop-client-*.jar")
        command = (
            str(find_java().program),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            ":".join(map(str, (*fetch_test_sets("iceberg-rest"), *sorted(hadoop)))),
            str(_SOURCE),
            "127.0.0.1",
            str(ports["http"]),
            str(self.warehouse),
            f"jdbc:sqlite:{self.directory}/catalog.db",
        )
        return Launch(
            name=self.name,
            command=command,
            directory=self.directory,
            address="127.0.0.1",
            port=ports["http"],
            ready_line="The catalog answers",
        )


@cache
def server() -> RestCatalog:
    """The catalog that tests share; the first call starts it."""
    directory = Path(tempfile.mkdtemp(prefix="tailrace-iceberg-rest-"))
    catalog = RestCatalog(directory)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    atexit.register(catalog.stop)
    return catalog.start()
