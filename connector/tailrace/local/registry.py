"""A real schema registry on a loopback address: Apicurio Registry, which speaks Confluent's API."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from tailrace.local.ports import settle_ports
from tailrace.local.process import Launch
from tailrace.local.service import LocalService
from tailrace_common.java.find import find_java
from tailrace_common.java.jars import cache_directory, fetch_sets
from tailrace_schemas.errors import ServiceError

JARS: Final = "registry"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """How the registry is set up. `port` 0: a free one; over TLS where `tls` is true, as `properties` then say with
    what. `properties` are those of Quarkus and Apicurio, laid over ours; `jvm` follows the other JVM options.
    """

    address: str = "127.0.0.1"
    port: int = 0
    tls: bool = False
    heap_mib: int = 256
    properties: Mapping[str, str] = field(default_factory=dict)
    jvm: tuple[str, ...] = ()


class LocalRegistry(LocalService):
    """One registry below `directory`, its schemas in a file there. `start` returns when `url` answers."""

    def __init__(self, directory: Path, settings: RegistrySettings | None = None) -> None:
        super().__init__("registry", directory)
        self.settings = settings or RegistrySettings()
        self._port = 0

    @property
    def port(self) -> int:
        """The port for clients. Raises ServiceError before the first start, when it is not settled yet."""
        if not self._port:
            raise ServiceError(f"registry in {self.directory} has no port before it is started")
        return self._port

    @property
    def url(self) -> str:
        """What clients of Confluent's API take as `url`."""
        scheme = "https" if self.settings.tls else "http"
        return f"{scheme}://{self.settings.address}:{self.port}/apis/ccompat/v7"

    def _prepare(self) -> Launch:
        settings = self.settings
        self._port = settle_ports(self.directory, settings.address, {"http": settings.port})["http"]
        return Launch(
            name=self.name,
            command=self._command(),
            directory=self.directory,
            address=settings.address,
            port=self._port,
            ready_line="Using the following RegistryStorage",  # of its start it says no more; and the port opens
        )

    def _command(self) -> tuple[str, ...]:
        (archive,) = fetch_sets(JARS)
        (runner,) = unpacked(archive).glob("*-runner.jar")
        options = jvm_options(self.settings, self.directory, self.port)
        return (str(find_java().program), *options, "-jar", str(runner))


def jvm_options(settings: RegistrySettings, directory: Path, port: int) -> tuple[str, ...]:
    """The JVM's options: a small heap, the quick compiler only; the registry's properties."""
    properties = {
        "quarkus.http.host": settings.address,
        "quarkus.http.ssl-port" if settings.tls else "quarkus.http.port": str(port),
        "quarkus.http.insecure-requests": "disabled" if settings.tls else "enabled",
        "quarkus.http.access-log.enabled": "false",
        "apicurio.datasource.url": f"jdbc:h2:file:{directory / 'registry'}",
    }
    return (
        f"-Xms{min(64, settings.heap_mib)}m",
        f"-Xmx{settings.heap_mib}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        *(f"-D{name}={value}" for name, value in {**properties, **settings.properties}.items()),
        *settings.jvm,
    )


def unpacked(archive: Path) -> Path:
    """The folder with what is in a .tar.gz of the jar cache, unpacked once per user and content.

    Several processes may ask at once; one of them wins, and no half of it is ever seen.
    """
    target = cache_directory() / "unpacked" / archive.name.removesuffix(".tar.gz")
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        with tarfile.open(archive) as content:
            content.extractall(unfinished, filter="data")
        os.replace(unfinished, target)
    except OSError as error:
        if not target.is_dir():  # nobody else was faster
            raise ServiceError(f"{archive} cannot be unpacked to {target}: {error}") from error
    return target
