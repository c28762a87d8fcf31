"""The repository is found where Maven would find it, and Central without its name in the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace_common.java import jars as maven_repository
from tailrace_common.java.jars import MavenRepository, central_of_ivy, find_repository, mirror_of_central
from tailrace_schemas.errors import SettingsError

NO_PACKAGE = "tailrace_no_such_package"

NAMESPACE = ' xmlns="http://maven.apache.org/SETTINGS/1.2.0"'


def mirror(mirror_of: str, url: str = "https://mirror.test/maven/", extra: str = "") -> str:
    return f"<mirror><id>near</id><mirrorOf>{mirror_of}</mirrorOf><url>{url}</url>{extra}</mirror>"


def settings(path: Path, *mirrors: str, servers: str = "", namespace: str = NAMESPACE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = f"<settings{namespace}><servers>{servers}</servers><mirrors>{''.join(mirrors)}</mirrors></settings>"
    path.write_text(content)
    return path


def server(name: str = "someone", word: str = "hush", id: str = "near") -> str:
    return f"<server><id>{id}</id><username>{name}</username><password>{word}</password></server>"


@pytest.mark.parametrize(
    ("mirror_of", "counts"),
    [
        ("central", True),
        ("*", True),
        ("external:*", True),
        ("other, central", True),
        ("*,!other", True),
        ("*,!central", False),
        ("external:*, !central", False),
        ("external:http:*", False),
        ("other", False),
        ("", False),
    ],
)
def test_mirror_counts_as_maven_counts_it(tmp_path: Path, mirror_of: str, counts: bool) -> None:
    found = mirror_of_central(settings(tmp_path / "settings.xml", mirror(mirror_of)))
    assert (found is not None) == counts
    assert found is None or found.root == "https://mirror.test/maven"


@pytest.mark.parametrize("namespace", ["", NAMESPACE, ' xmlns="http://maven.apache.org/SETTINGS/1.0.0"'])
def test_first_mirror_counts_and_blocked_ones_do_not(tmp_path: Path, namespace: str) -> None:
    blocked = mirror("*", "http://0.0.0.0/", "<blocked>true</blocked>")
    path = settings(
        tmp_path / "settings.xml", blocked, mirror("*", "https://a.test"), mirror("central", "https://b.test"),
        namespace=namespace,
    )  # fmt: skip
    found = mirror_of_central(path)
    assert found is not None
    assert found.root == "https://a.test"


def test_credentials_come_from_the_server_entry_or_the_url(tmp_path: Path) -> None:
    path = settings(tmp_path / "a.xml", mirror("*"), servers=server(id="far", name="no") + server())
    found = mirror_of_central(path)
    assert found is not None
    assert found.authorization == "Basic c29tZW9uZTpodXNo"  # someone:hush
    in_url = settings(tmp_path / "b.xml", mirror("*", "https://me:it@mirror.test"), servers=server())
    found = mirror_of_central(in_url)
    assert found is not None
    assert (found.root, found.authorization) == ("https://mirror.test", "Basic bWU6aXQ=")  # me:it
    assert "bWU" not in repr(found) + str(found)


def test_environment_is_put_in(tmp_path: Path) -> None:
    path = settings(
        tmp_path / "a.xml", mirror("*", "${env.NEAR}/maven"), servers=server(word="${env.SECRET}")
    )  # fmt: skip
    found = mirror_of_central(path, {"NEAR": "https://near.test", "SECRET": "hush"})
    assert found is not None
    assert (found.root, found.authorization) == ("https://near.test/maven", "Basic c29tZW9uZTpodXNo")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("<settings", "cannot be read"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><settings>&b;</settings>', "declares entities"),
        (
            f"<settings><servers>{server(word='{aGVsbG8=}')}</servers><mirrors>{mirror('*')}</mirrors></settings>",
            "password of server near in .* is encrypted.*TAILRACE_MAVEN_REPOSITORY",
        ),
        (
            f"<settings><mirrors>{mirror('*', 'ftp://u:hush@x.test')}</mirrors></settings>",
            "of mirror in .* is not an http",
        ),
    ],
)
def test_unusable_settings_are_named(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "settings.xml"
    path.write_text(content)
    with pytest.raises(SettingsError, match=words) as caught:
        mirror_of_central(path)
    assert "hush" not in str(caught.value)


def test_environment_then_user_then_machine(tmp_path: Path) -> None:
    home, machine = tmp_path / "home", tmp_path / "etc" / "settings.xml"
    settings(machine, mirror("*", "https://machine.test"))
    assert find_repository({}, home, machine).root == "https://machine.test"
    settings(home / ".m2" / "settings.xml", mirror("*", "https://user.test"))
    assert find_repository({}, home, machine).root == "https://user.test"
    given = find_repository({"TAILRACE_MAVEN_REPOSITORY": "http://given.test/root/"}, home, machine)
    assert given.root == "http://given.test/root"


@pytest.mark.parametrize(
    ("pyspark", "origin"),
    [("pyspark", "Maven Central, as pyspark's Ivy names it"), (NO_PACKAGE, "installed Maven")],
)
def test_central_is_read_from_what_is_installed(tmp_path: Path, pyspark: str, origin: str) -> None:
    try:
        found = find_repository({}, tmp_path, tmp_path / "none.xml", pyspark=pyspark)
    except SettingsError:
        pytest.skip("neither pyspark nor Maven is installed here")
    assert found.root.startswith("https://")
    assert origin in found.origin


def test_unknown_repository_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError, match=r"[Ss]et TAILRACE_MAVEN_REPOSITORY .* or install tailrace\[spark\]"):
        find_repository({}, tmp_path, tmp_path / "none.xml", pyspark=NO_PACKAGE)


@pytest.mark.parametrize("url", ["", "mirror.test/maven", "ftp://mirror.test", "https://", "http://[bad"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="repository of the test is not an http, https or file URL"):
        MavenRepository.of(url, "the test")


def test_no_host_name_stands_in_the_sources() -> None:
    """Central's address, as found on this machine, is in no file that is shipped."""
    central = central_of_ivy()
    if central is None:
        pytest.skip("pyspark is not installed here")
    host = central.root.split("/")[2]
    folder = Path(maven_repository.__file__).parent
    assert [path.name for path in folder.iterdir() if path.is_file() and host in path.read_text()] == []
