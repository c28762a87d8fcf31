"""The Java archives of servers and of Spark's connectors: named sets in a lock file, fetched once per user.

Every jar is pinned by coordinate, size and SHA-256 in jars.lock.json (written by tools/lock_jars.py). A file counts
only after its checksum was computed from the bytes on disk.

No host name stands here. Central's address is read from software on this machine that names it: the Ivy jar that
pyspark carries, or an installed Maven.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import re
import shutil
import threading
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, Final
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen
from xml.etree import ElementTree

from tailrace_common.backoff import Waits, repeated
from tailrace_schemas.errors import ServiceError, SettingsError

VARIABLE = "TAILRACE_MAVEN_REPOSITORY"
_PYSPARK = "pyspark"
_GLOBAL_SETTINGS = Path("/etc/maven/settings.xml")
_MAX_SETTINGS_BYTES = 4 * 1024 * 1024
CACHE_VARIABLE = "TAILRACE_CACHE"
Progress = Callable[[int, int], None]
"""Called with the bytes that are there and the bytes in all, from any of the fetching threads, one call at a time."""

LOCK: Final[Traversable] = files("tailrace_common.java").joinpath("jars.lock.json")
SPARK = "spark"
"""Stands for the set of the installed pyspark's patch release, such as spark-4.1.1."""

_THREADS = 8
_ATTEMPTS = 4
_WAITS = Waits(0.2, 5.0)
_TIMEOUT_SECONDS = 30.0
_CHUNK = 256 * 1024


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


class JarError(ServiceError):
    """A jar cannot be had, or is not the one that the lock names; the message says which and from where."""


class _BrokenTransferError(Exception):
    """The connection failed or ended early; what came is kept, and the next attempt goes on from there."""


class _AbandonedError(Exception):
    """Nobody waits for this jar any more."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One entry of the lock. `coordinate` is group:artifact:version[:classifier][@type], the type jar unless it says
    another; `size` is in bytes."""

    coordinate: str
    sha256: str
    size: int

    @property
    def path(self) -> str:
        """Where a Maven repository keeps it, below its root."""
        coordinate, _, kind = self.coordinate.partition("@")
        group, artifact, version, *classifier = coordinate.split(":")
        name = "-".join([artifact, version, *classifier])
        return f"{group.replace('.', '/')}/{artifact}/{version}/{name}.{kind or 'jar'}"


def cache_directory() -> Path:
    """Where this user's downloads are kept: TAILRACE_CACHE, else the platform's cache folder.

    Raises SettingsError without TAILRACE_CACHE where platformdirs is not installed: an agent does not require it.
    """
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).absolute()
    try:
        from platformdirs import user_cache_path
    except ImportError as cause:
        needs = f"downloads need {cause.name}: pip install 'tailrace[local]', or '[spark]' for a stream"
        raise SettingsError(f"{needs}; or set {CACHE_VARIABLE} to a directory for them") from None
    return user_cache_path("tailrace")


def locked_jars(*sets: str, lock: Traversable = LOCK) -> tuple[Jar, ...]:
    """The jars of the named sets in the lock's order, each once; `spark` is the set of the installed pyspark.

    Raises KeyError for a set that is not in the lock, and SettingsError for a pyspark whose jars are not in it.
    """
    locked = json.loads(lock.read_text())["sets"]
    names = (spark_set(locked) if name == SPARK else name for name in sets)
    return tuple(dict.fromkeys(Jar(**entry) for name in names for entry in locked[name]))


def spark_set(names: Collection[str], installed: str | None = None) -> str:
    """The set of jars for a pyspark, by default the installed one. Raises SettingsError where there is none."""
    try:
        release = installed or version("pyspark")
    except PackageNotFoundError:
        raise SettingsError("Spark's jars are those of a pyspark: pip install 'tailrace[spark]'") from None
    if (name := f"{SPARK}-{release}") in names:
        return name
    locked = ", ".join(sorted(name.removeprefix(f"{SPARK}-") for name in names if name.startswith(f"{SPARK}-")))
    raise SettingsError(f"pyspark {release} is installed, and jars to read Kafka are locked for {locked}: install one")


def fetch_sets(*sets: str, progress: Progress | None = None, lock: Traversable = LOCK) -> tuple[Path, ...]:
    """The jars of the named sets as verified local files, in the lock's order; fetches what is missing or damaged.

    Several processes may ask at once: each jar is fetched by one of them. Raises JarError or SettingsError.
    """
    return fetch(locked_jars(*sets, lock=lock), cache_directory() / "jars", progress=progress)


def fetch(
    jars: Sequence[Jar],
    folder: Path,
    *,
    repository: MavenRepository | None = None,
    progress: Progress | None = None,
) -> tuple[Path, ...]:
    """As `fetch_sets`, for any jars and folder. Without `repository`, one is looked for when a jar is missing."""
    total = _Total(sum(jar.size for jar in jars), progress)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="jars") as pool:
        present = list(pool.map(lambda jar: _is_whole(folder / jar.path, jar), jars))
        missing = [jar for jar, is_present in zip(jars, present, strict=True) if not is_present]
        total.add(sum(jar.size for jar, is_present in zip(jars, present, strict=True) if is_present))
        if missing:
            source = repository or find_repository()
            futures = [pool.submit(_fetch_one, jar, folder / jar.path, source, total) for jar in missing]
            with ExitStack() as cancelling:
                cancelling.callback(total.abandon)
                for future in as_completed(futures):
                    future.result()
    return tuple(folder / jar.path for jar in jars)


@dataclass(slots=True)
class _Total:
    """Bytes so far, counted by several threads."""

    size: int
    progress: Progress | None
    done: int = 0
    abandoned: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def abandon(self) -> None:
        """One jar failed, or the user interrupts: the other threads stop where they are."""
        self.abandoned = True

    def add(self, count: int) -> None:
        if self.abandoned:
            raise _AbandonedError
        with self.lock:
            self.done += count
            if self.progress is not None:
                self.progress(self.done, self.size)


def _fetch_one(jar: Jar, target: Path, repository: MavenRepository, total: _Total) -> None:
    """Fetch into a `.part` file that only one process writes at a time, then rename it into place."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(target.name + ".part")
    with _open_alone(unfinished) as file:
        if _is_whole(target, jar):  # another process was faster
            unfinished.unlink()
            total.add(jar.size)
            return
        _download(jar, file, repository, total)
        file.flush()
        os.fsync(file.fileno())
        unfinished.replace(target)


def _open_alone(path: Path) -> BinaryIO:
    """Open for appending under a lock. Whoever held the lock may have renamed the file: then open the new one."""
    while True:
        file = path.open("a+b")
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except FileNotFoundError:
            pass
        file.close()


def _download(jar: Jar, file: BinaryIO, repository: MavenRepository, total: _Total) -> None:
    """Fill `file` until it is the jar. It continues what an earlier run left; if that proves wrong, it starts again."""
    started_with = file.seek(0, os.SEEK_END)
    total.add(min(started_with, jar.size))
    try:
        _complete(jar, file, repository, total)
        _verify(jar, file, repository)
    except JarError:
        if not started_with:
            raise
        total.add(-file.seek(0, os.SEEK_END))
        file.truncate(0)
        _complete(jar, file, repository, total)
        _verify(jar, file, repository)


def _complete(jar: Jar, file: BinaryIO, repository: MavenRepository, total: _Total) -> None:
    try:
        repeated(
            lambda: _transfer(jar, file, repository, total),
            _WAITS,
            lambda error: isinstance(error, _BrokenTransferError),
            attempts=_ATTEMPTS,
        )
    except _BrokenTransferError as error:
        raise JarError(
            f"{jar.coordinate} could not be fetched from {repository}: {error}. Run it again to go on from what came, "
            f"or set {VARIABLE} to a mirror"
        ) from error


def _transfer(jar: Jar, file: BinaryIO, repository: MavenRepository, total: _Total) -> None:
    """One request for what is missing, appended to the file."""
    offset = file.seek(0, os.SEEK_END)
    if offset >= jar.size:
        return
    try:
        with _open(jar, offset, repository) as response:
            if offset and response.status != 206:  # the whole file comes, asked or not
                total.add(-offset)
                file.truncate(0)
                offset = 0
            _refuse_other_size(jar, offset, response.headers.get("Content-Length"), repository)
            while chunk := response.read(_CHUNK):
                offset += len(chunk)
                if offset > jar.size:
                    raise _wrong_size(jar, f"more than {jar.size}", repository)
                file.write(chunk)
                total.add(len(chunk))
    except HTTPError as error:
        with error:  # it is the response, too, and holds the connection
            raise _refusal(jar, error, repository) from error
    except (OSError, HTTPException) as error:
        raise _BrokenTransferError(str(error) or type(error).__name__) from error
    if offset < jar.size:
        raise _BrokenTransferError(f"the connection ended after {offset} of {jar.size} bytes")


def _open(jar: Jar, offset: int, repository: MavenRepository) -> HTTPResponse:
    # S310: MavenRepository admits http, https and file only, and the operator chose it
    request = Request(f"{repository.root}/{jar.path}", headers={"User-Agent": "tailrace"})  # noqa: S310
    if offset:
        request.add_header("Range", f"bytes={offset}-")
    if repository.authorization is not None:
        request.add_unredirected_header("Authorization", repository.authorization)  # stays with this host
    response: HTTPResponse = urlopen(request, timeout=_TIMEOUT_SECONDS)  # noqa: S310
    return response


def _refuse_other_size(jar: Jar, offset: int, length: str | None, repository: MavenRepository) -> None:
    if length is not None and length.isdecimal() and offset + int(length) != jar.size:
        raise _wrong_size(jar, str(offset + int(length)), repository)


def _wrong_size(jar: Jar, size: str, repository: MavenRepository) -> JarError:
    return JarError(
        f"{jar.coordinate} from {repository} has {size} bytes, not the {jar.size} of the lock: the repository serves "
        f"something else; set {VARIABLE} to another mirror"
    )


def _refusal(jar: Jar, error: HTTPError, repository: MavenRepository) -> JarError | _BrokenTransferError:
    """What an HTTP status means for the retry: 429 and 5xx may pass, all others stay."""
    if error.code == 429 or error.code >= 500:
        return _BrokenTransferError(f"HTTP {error.code}")
    if error.code in (401, 403, 407):
        advice = f"give user and password in {VARIABLE} (https://user:password@host/path) or in Maven's settings.xml"
    else:
        advice = f"set {VARIABLE} to a repository that has it"
    return JarError(f"{repository} answers HTTP {error.code} for {jar.coordinate} ({jar.path}): {advice}")


def _verify(jar: Jar, file: BinaryIO, repository: MavenRepository) -> None:
    """Refuse the wrong bytes, and forget them so that the next run starts again."""
    file.flush()
    digest = _sha256(file)
    if digest != jar.sha256:
        file.truncate(0)
        raise JarError(
            f"{jar.coordinate} from {repository} has SHA-256 {digest}, not the {jar.sha256} of the lock: it is refused."
            f" The repository serves something else; set {VARIABLE} to another mirror"
        )


def _is_whole(path: Path, jar: Jar) -> bool:
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_size == jar.size and _sha256(file) == jar.sha256
    except FileNotFoundError:
        return False


def _sha256(file: BinaryIO) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # BinaryIO reads into buffers too
