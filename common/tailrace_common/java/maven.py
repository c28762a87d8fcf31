"""Which Maven repository the jars come from: an environment variable, Maven's own mirror settings, or Maven Central.

No host name stands here. Central's address is read from software on this machine that names it: the Ivy jar that
pyspark carries, or an installed Maven.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit
from xml.etree import ElementTree

from tailrace_schemas.errors import SettingsError

VARIABLE = "TAILRACE_MAVEN_REPOSITORY"
_PYSPARK = "pyspark"
_GLOBAL_SETTINGS = Path("/etc/maven/settings.xml")
_MAX_SETTINGS_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class MavenRepository:
    """The root that a coordinate's path is appended to. `root` has no credentials and no slash at its end.

    `authorization` is the value of the HTTP header, or None; it is never part of a repr or a message.
    """

    root: str
    origin: str
    authorization: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, url: str, origin: str, credentials: tuple[str, str] | None = None) -> MavenRepository:
        """Split user and password off the URL; those given in `credentials` count where the URL has none.

        Raises SettingsError for anything but an http, https or file URL.
        """
        try:
            parts = urlsplit(url.strip())
            host = "" if parts.hostname is None else parts.netloc.rpartition("@")[2]
        except ValueError:
            parts, host = urlsplit(""), ""
        if parts.scheme not in ("http", "https", "file") or (parts.scheme != "file" and not host):
            raise SettingsError(f"the Maven repository of {origin} is not an http, https or file URL")
        if parts.username is not None:
            credentials = (unquote(parts.username), unquote(parts.password or ""))
        root = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        return cls(root, origin, None if credentials is None else _basic(*credentials))

    def __str__(self) -> str:
        return f"{self.root} ({self.origin})"


def find_repository(
    environ: Mapping[str, str] = os.environ,
    home: Path | None = None,
    global_settings: Path = _GLOBAL_SETTINGS,
    *,
    pyspark: str = _PYSPARK,
) -> MavenRepository:
    """The first of: TAILRACE_MAVEN_REPOSITORY, the mirror of central in ~/.m2/settings.xml, the one in
    /etc/maven/settings.xml, Maven Central as pyspark's Ivy or an installed Maven names it. `pyspark` is its package.

    Raises SettingsError when none is known, or a settings file cannot be read.
    """
    if url := environ.get(VARIABLE):
        return MavenRepository.of(url, VARIABLE)
    home = Path.home() if home is None else home
    for settings in (home / ".m2" / "settings.xml", global_settings):
        if settings.is_file() and (mirror := mirror_of_central(settings, environ)):
            return mirror
    if central := central_of_ivy(pyspark) or _central_of_maven():
        return central
    raise SettingsError(
        f"no Maven repository is known to fetch jars from. Set {VARIABLE} to the address of Maven Central or of a "
        "mirror of it, or install tailrace[spark], whose pyspark names it"
    )


def mirror_of_central(settings: Path, environ: Mapping[str, str] = os.environ) -> MavenRepository | None:
    """The first mirror in a Maven settings.xml that stands for `central`, with the credentials of its server entry.

    Blocked mirrors and those for other repositories are passed over, as Maven does. `${env.NAME}` is replaced.
    """
    try:
        data = settings.read_bytes()
        if len(data) > _MAX_SETTINGS_BYTES or b"<!ENTITY" in data:
            raise SettingsError(f"{settings} is no Maven settings file: too large, or it declares entities")
        root = ElementTree.fromstring(data)  # noqa: S314 - entities are refused above
    except (OSError, ElementTree.ParseError) as error:
        raise SettingsError(f"{settings} cannot be read: {error}") from error
    for mirror in _elements(root, "mirrors", "mirror"):
        blocked = _text(mirror, "blocked", environ).lower() == "true"
        if not blocked and _stands_for_central(_text(mirror, "mirrorOf", environ)):
            credentials = _credentials(root, _text(mirror, "id", environ), environ, settings)
            return MavenRepository.of(_text(mirror, "url", environ), f"mirror in {settings}", credentials)
    return None


def _stands_for_central(mirror_of: str) -> bool:
    """Maven's DefaultMirrorSelector for a repository `central` reached by https on another host."""
    patterns = [pattern.strip() for pattern in mirror_of.split(",")]
    return "!central" not in patterns and any(pattern in ("central", "*", "external:*") for pattern in patterns)


def _credentials(
    root: ElementTree.Element, server_id: str, environ: Mapping[str, str], settings: Path
) -> tuple[str, str] | None:
    for server in _elements(root, "servers", "server"):
        username = _text(server, "username", environ)
        if username and _text(server, "id", environ) == server_id:
            password = _text(server, "password", environ)
            if re.search(r"(?<!\\)\{.+\}", password):
                raise SettingsError(
                    f"the password of server {server_id} in {settings} is encrypted, which only Maven can read: "
                    f"set {VARIABLE} to https://user:password@host/path instead"
                )
            return username, password
    return None


def _elements(root: ElementTree.Element, group: str, name: str) -> Iterator[ElementTree.Element]:
    """Children of a group, whatever namespace the file declares."""
    for parent in root.iterfind(f"{{*}}{group}"):
        yield from parent.iterfind(f"{{*}}{name}")


def _text(element: ElementTree.Element, name: str, environ: Mapping[str, str]) -> str:
    text = (element.findtext(f"{{*}}{name}") or "").strip()
    return re.sub(r"\$\{env\.([^}]+)\}", lambda match: environ.get(match[1], match[0]), text)


def _basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode("ascii")


def central_of_ivy(package: str = _PYSPARK) -> MavenRepository | None:
    """Maven Central as the Ivy jar of pyspark names it; None without that package."""
    spec = find_spec(package)  # found, not imported: only where its files are matters
    for folder in [] if spec is None else spec.submodule_search_locations or []:
        for jar in sorted(Path(folder, "jars").glob("ivy-*.jar")):
            text = _member(jar, "org/apache/ivy/core/settings/repository.properties")
            if match := re.search(r"^ivy\.ibiblio\.default\.artifact\.root\s*=\s*(\S+)", text, re.MULTILINE):
                return MavenRepository.of(match[1], "Maven Central, as pyspark's Ivy names it")
    return None


def _central_of_maven() -> MavenRepository | None:
    program = shutil.which("mvn")
    if program is None:
        return None
    for jar in sorted(Path(program).resolve().parents[1].glob("lib/maven-model-builder-*.jar")):
        text = _member(jar, "org/apache/maven/model/pom-4.0.0.xml")
        if match := re.search(r"<id>central</id>.*?<url>\s*(\S+?)\s*</url>", text, re.DOTALL):
            return MavenRepository.of(match[1], "Maven Central, as the installed Maven names it")
    return None


def _member(jar: Path, name: str) -> str:
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.read(name).decode("utf-8", "replace")
    except (OSError, KeyError, zipfile.BadZipFile):
        return ""
