"""Jars are fetched whole or refused, whatever the repository does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from tailrace_common.backoff import Waits
from tailrace_common.java import jars
from tailrace_common.java.jars import (
    LOCK,
    Jar,
    JarError,
    MavenRepository,
    cache_directory,
    fetch,
    fetch_sets,
    locked_jars,
    spark_set,
)
from tailrace_schemas.errors import SettingsError
from tests import jars as test_jars
from tests.unit.common.java.repository_server import RepositoryServer, jar_of, serving

PATCHES = ("4.1.0", "4.1.1", "4.1.2", "4.1.3", "4.2.0")
CONTENT = bytes(range(256)) * 4000  # more than one chunk


@pytest.fixture(autouse=True)
def _without_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_WAITS", Waits(0.0, 0.0))


@pytest.fixture
def server() -> Iterator[RepositoryServer]:
    with serving() as started:
        yield started


def ranges(server: RepositoryServer) -> list[str | None]:
    return [asked for _, asked, _ in server.requests]


def leftovers(folder: Path) -> list[Path]:
    return list(folder.rglob("*.part"))


@pytest.mark.parametrize(
    ("coordinate", "path"),
    [
        ("org.apache.kafka:kafka_2.13:4.3.1", "org/apache/kafka/kafka_2.13/4.3.1/kafka_2.13-4.3.1.jar"),
        ("a.b:c:1:linux-x86_64", "a/b/c/1/c-1-linux-x86_64.jar"),
        ("a.b:c:1:all@tar.gz", "a/b/c/1/c-1-all.tar.gz"),
    ],
)
def test_path_is_that_of_a_maven_repository(coordinate: str, path: str) -> None:
    assert Jar(coordinate, "", 0).path == path


@pytest.mark.parametrize(
    ("name", "coordinate"),
    [
        ("cassandra", "org.apache.cassandra:cassandra-all:5.0.9"),
        ("kafka", "org.apache.kafka:kafka_2.13:4.3.1"),
        ("kafka", "org.slf4j:slf4j-simple:1.7.36"),
        ("registry", "io.apicurio:apicurio-registry-app:3.0.9:all@tar.gz"),
        ("spark", f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version('pyspark')}"),
        ("spark", "org.apache.spark:spark-avro_2.13:4.1.1"),
        *[(f"spark-{patch}", f"org.apache.spark:spark-sql-kafka-0-10_2.13:{patch}") for patch in PATCHES],
        ("spark", "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0"),
    ],
)
def test_lock_pins_every_jar_of_its_sets(name: str, coordinate: str) -> None:
    jars = locked_jars(name)
    assert coordinate in [jar.coordinate for jar in jars]
    assert len({jar.path for jar in jars}) == len(jars)
    assert all(len(bytes.fromhex(jar.sha256)) == 32 and jar.size > 0 for jar in jars)


def test_what_tests_alone_use_is_in_no_installation() -> None:
    installed = LOCK.read_text(encoding="utf-8")
    assert not test_jars.SETS & json.loads(installed)["sets"].keys()
    for artifact in ("org.elasticsearch", "org.opensearch", "io.debezium"):
        assert artifact not in installed
        assert artifact in test_jars.LOCK.read_text(encoding="utf-8")


def test_sets_that_share_a_jar_name_it_once() -> None:
    both = locked_jars("spark", "kafka", "spark")
    assert both == (*locked_jars("spark"), *(jar for jar in locked_jars("kafka") if jar not in locked_jars("spark")))


def test_each_patch_of_spark_in_the_range_has_jars_and_others_are_named() -> None:
    names = [f"spark-{patch}" for patch in PATCHES]
    assert [spark_set(names, patch) for patch in PATCHES] == names
    with pytest.raises(SettingsError, match=r"^pyspark 4\.1\.9 is installed, .* locked for 4\.1\.0, 4\.1\.1"):
        spark_set(names, "4.1.9")
    text = (Path(__file__).parents[4] / "pyproject.toml").read_text("utf-8")
    assert f'"pyspark>={PATCHES[0]},<4.2.1,!=4.1.4"' in text


def test_fetch_gives_verified_files_in_order_and_asks_for_each_once(server: RepositoryServer, tmp_path: Path) -> None:
    jars = [server.add(f"g:a{number}:1", CONTENT[number:]) for number in range(20)]
    paths = fetch(jars, tmp_path, repository=server.repository)
    assert [path.read_bytes() for path in paths] == [CONTENT[number:] for number in range(20)]
    assert sorted(path for path, _, _ in server.requests) == sorted(f"/root/{jar.path}" for jar in jars)
    server.requests.clear()
    assert fetch(jars, tmp_path, repository=server.repository) == paths
    assert server.requests == []
    assert leftovers(tmp_path) == []


def test_damaged_file_in_the_cache_is_fetched_again(server: RepositoryServer, tmp_path: Path) -> None:
    jar = server.add("g:a:1", CONTENT)
    (path,) = fetch([jar], tmp_path, repository=server.repository)
    path.write_bytes(CONTENT[:-1] + b"?")
    assert fetch([jar], tmp_path, repository=server.repository) == (path,)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("sent", [0, 1, 300_000, len(CONTENT) - 1])
def test_broken_download_goes_on_where_it_broke(server: RepositoryServer, tmp_path: Path, sent: int) -> None:
    jar = server.add("g:a:1", CONTENT)
    server.breaks = [sent]
    (path,) = fetch([jar], tmp_path, repository=server.repository)
    assert path.read_bytes() == CONTENT
    assert ranges(server) == [None, f"bytes={sent}-" if sent else None]


def test_download_that_keeps_breaking_is_gone_on_with_by_the_next_run(server: RepositoryServer, tmp_path: Path) -> None:
    jar = server.add("g:a:1", CONTENT)
    server.breaks = [1000] * 4
    with pytest.raises(JarError, match=r"g:a:1 could not be fetched .* 4000 of 1024000 bytes.*Run it again"):
        fetch([jar], tmp_path, repository=server.repository)
    (path,) = fetch([jar], tmp_path, repository=server.repository)
    assert path.read_bytes() == CONTENT
    assert ranges(server)[-1] == "bytes=4000-"


def test_repository_that_ignores_ranges_sends_it_all_again(server: RepositoryServer, tmp_path: Path) -> None:
    jar = server.add("g:a:1", CONTENT)
    server.breaks, server.ranges = [1000], False
    (path,) = fetch([jar], tmp_path, repository=server.repository)
    assert path.read_bytes() == CONTENT


def test_rubbish_from_an_earlier_run_is_thrown_away(server: RepositoryServer, tmp_path: Path) -> None:
    jar = server.add("g:a:1", CONTENT)
    part = tmp_path / (jar.path + ".part")
    part.parent.mkdir(parents=True)
    for rubbish in (b"x" * 10, b"x" * len(CONTENT), b"x" * (len(CONTENT) + 1)):
        part.write_bytes(rubbish)
        (path,) = fetch([jar], tmp_path, repository=server.repository)
        assert path.read_bytes() == CONTENT
        path.unlink()


def test_wrong_checksum_is_refused_and_nothing_kept(server: RepositoryServer, tmp_path: Path) -> None:
    jar = server.add("g:a:1", CONTENT)
    server.contents[f"/root/{jar.path}"] = CONTENT[:-1] + b"?"
    with pytest.raises(JarError, match=rf"g:a:1 from {server.url} .* not the {jar.sha256} of the lock: it is refused"):
        fetch([jar], tmp_path, repository=server.repository)
    assert not (tmp_path / jar.path).exists()
    server.contents[f"/root/{jar.path}"] = CONTENT
    (path,) = fetch([jar], tmp_path, repository=server.repository)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("content", "chunked", "size"),
    [
        (CONTENT + b"?", False, str(len(CONTENT) + 1)),
        (CONTENT[:-1], False, str(len(CONTENT) - 1)),
        (CONTENT + b"?", True, f"more than {len(CONTENT)}"),
    ],
)
def test_wrong_size_is_refused(
    server: RepositoryServer, tmp_path: Path, content: bytes, chunked: bool, size: str
) -> None:
    jar = server.add("g:a:1", CONTENT)
    server.contents[f"/root/{jar.path}"] = content
    server.chunked = chunked
    with pytest.raises(JarError, match=rf"g:a:1 from .* has {size} bytes, not the {len(CONTENT)} of the lock"):
        fetch([jar], tmp_path, repository=server.repository)
    assert not (tmp_path / jar.path).exists()


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (404, r"HTTP 404 for org.x:gone:1 \(org/x/gone/1/gone-1.jar\): set TAILRACE_MAVEN_REPOSITORY"),
        (401, r"HTTP 401 for org.x:gone:1 .*give user and password"),
        (403, r"HTTP 403 for org.x:gone:1 .*give user and password"),
    ],
)
def test_refusal_names_the_coordinate_and_is_not_retried(
    server: RepositoryServer, tmp_path: Path, status: int, words: str
) -> None:
    server.statuses = [status]
    with pytest.raises(JarError, match=words):
        fetch([jar_of("org.x:gone:1", b"?")], tmp_path, repository=server.repository)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_passing_trouble_is_retried(server: RepositoryServer, tmp_path: Path, status: int) -> None:
    jar = server.add("g:a:1", CONTENT)
    server.statuses = [status]
    (path,) = fetch([jar], tmp_path, repository=server.repository)
    assert path.read_bytes() == CONTENT


def test_unreachable_repository_is_named(tmp_path: Path) -> None:
    with serving() as gone:
        repository = gone.repository
    with pytest.raises(JarError, match=rf"g:a:1 could not be fetched from {repository.root} \(the test\)"):
        fetch([jar_of("g:a:1", b"?")], tmp_path, repository=repository)


def test_credentials_are_sent_and_never_shown(server: RepositoryServer, tmp_path: Path) -> None:
    url = server.url.replace("http://", "http://someone:hush%40hush@")
    repository = MavenRepository.of(url, "the test")
    jar = server.add("g:a:1", CONTENT)
    fetch([jar], tmp_path, repository=repository)
    assert server.requests[0][2] == "Basic c29tZW9uZTpodXNoQGh1c2g="
    with pytest.raises(JarError) as caught:
        fetch([jar_of("g:gone:1", b"?")], tmp_path, repository=repository)
    for text in (str(caught.value), repr(caught.value), repr(repository), str(repository)):
        assert "hush" not in text
        assert "c29t" not in text


def test_progress_begins_with_what_is_there_and_ends_with_all(server: RepositoryServer, tmp_path: Path) -> None:
    jars = [server.add("g:a:1", CONTENT), server.add("g:b:1", CONTENT)]
    fetch(jars[:1], tmp_path, repository=server.repository)
    server.breaks = [1000]
    calls: list[tuple[int, int]] = []
    fetch(jars, tmp_path, repository=server.repository, progress=lambda done, total: calls.append((done, total)))
    assert calls[0] == (len(CONTENT), 2 * len(CONTENT))
    assert calls[-1] == (2 * len(CONTENT), 2 * len(CONTENT))
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


@pytest.mark.slow
def test_processes_that_want_the_same_jars_fetch_each_once(server: RepositoryServer, tmp_path: Path) -> None:
    jars = [server.add(f"g:a{number}:1", CONTENT[number:]) for number in range(4)]
    wanted = json.dumps([[jar.coordinate, jar.sha256, jar.size] for jar in jars])
    server.go.clear()
    command = [sys.executable, "-c", _FETCHING, wanted, str(tmp_path), server.url]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
    server.go.set()
    outputs = [process.communicate(timeout=600)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert outputs[0] == outputs[1] == outputs[2]
    assert sorted(path for path, _, _ in server.requests) == sorted(f"/root/{jar.path}" for jar in jars)
    assert leftovers(tmp_path) == []


_FETCHING = """
import json, sys
from pathlib import Path
from tailrace_common.java.jars import Jar, fetch
from tailrace_common.java.jars import MavenRepository
print("begins", flush=True)
jars = [Jar(*entry) for entry in json.loads(sys.argv[1])]
print(fetch(jars, Path(sys.argv[2]), repository=MavenRepository.of(sys.argv[3], "the test")))
"""


def test_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path / "here"))
    assert cache_directory() == tmp_path / "here"
    monkeypatch.delenv("TAILRACE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "tailrace"


def test_downloads_name_the_extra_that_an_agent_does_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path
    monkeypatch.delenv("TAILRACE_CACHE")
    with pytest.raises(SettingsError, match=r"platformdirs: pip install 'tailrace\[local\]'.*TAILRACE_CACHE"):
        cache_directory()


def test_sets_are_fetched_from_the_repository_of_the_environment(
    server: RepositoryServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path))
    monkeypatch.setenv("TAILRACE_MAVEN_REPOSITORY", server.url)
    with pytest.raises(JarError, match=rf"{server.url} \(TAILRACE_MAVEN_REPOSITORY\) answers HTTP 404 for org.apache"):
        fetch_sets("spark")
    monkeypatch.setenv("TAILRACE_MAVEN_REPOSITORY", "ftp://somewhere")
    with pytest.raises(SettingsError, match="TAILRACE_MAVEN_REPOSITORY is not an http, https or file URL"):
        fetch_sets("spark")
