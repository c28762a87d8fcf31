"""A Spark Connect server on loopback: Spark in a process of its own, which clients reach without a Java of theirs."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tailrace.local.ports import settle_ports
from tailrace.local.process import Launch
from tailrace.local.service import LocalService
from tailrace_common.java.find import java_home_for_spark
from tailrace_common.java.jars import fetch_sets

_ADDRESS: Final = "127.0.0.1"
_MAIN: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"


class SparkConnectServer(LocalService):
    """One with the connector's jars, and two cores; its tasks have this process's Python and packages."""

    def __init__(self, directory: Path) -> None:
        super().__init__("spark-connect", directory)
        self._port = 0

    @property
    def url(self) -> str:
        """What `SparkSession.builder.remote` takes."""
        return f"sc://{_ADDRESS}:{self._port}"

    def _prepare(self) -> Launch:
        self._port = settle_ports(self.directory, _ADDRESS, {"connect": 0})["connect"]
        package = find_spec("pyspark")
        assert package is not None
        assert package.origin is not None
        settings = {
            "spark.connect.grpc.binding.address": _ADDRESS,
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.driver.host": _ADDRESS,
            "spark.driver.bindAddress": _ADDRESS,
            "spark.driver.memory": "1g",
            "spark.jars": ",".join(map(str, fetch_sets("spark"))),
            "spark.local.dir": str(self.directory / "local"),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self.directory / "warehouse"),
            "spark.ui.enabled": "false",
        }
        environment = {
            "JAVA_HOME": str(java_home_for_spark()),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "SPARK_LOCAL_IP": _ADDRESS,
        }
        return Launch(
            name=self.name,
            command=(
                "/usr/bin/env",
                *(f"{name}={value}" for name, value in environment.items()),
                str(Path(package.origin).with_name("bin") / "spark-submit"),
                *("--master", "local[2]", "--class", _MAIN),
                *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
                "spark-internal",
            ),
            directory=self.directory,
            address=_ADDRESS,
            port=self._port,
            ready_line="Spark Connect server started at",
        )
