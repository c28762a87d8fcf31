"""The check of our words: which names and sentences it counts."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def words() -> ModuleType:
    """tools/words.py, which is in no package."""
    specification = importlib.util.spec_from_file_location("tailrace_words", ROOT / "tools" / "words.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["tailrace_words"] = module
    specification.loader.exec_module(module)
    return module


NAMES = """
at = 1
class Shelf:
    there = 2
def outer(found):
    one = found
    one = 2
    for number, (at, _) in []:
        def inner():
            kept = [place for place in (said := [])]
    with open("x") as told:
        self.gone = 1
"""


def test_every_local_counts_once_in_its_function(words: ModuleType) -> None:
    """Neither modules, classes and attributes nor parameters, which have a share of their own."""
    names = sorted(finding.text for finding in words.local_names(ast.parse(NAMES)))
    assert names == ["_", "at", "kept", "number", "one", "place", "said", "told"]


def test_every_parameter_counts_but_those_with_usual_names(words: ModuleType) -> None:
    tree = ast.parse("def f(at, /, before, *places, wanted=1, **more):\n    return lambda one: one")
    assert sorted(finding.text for finding in words.parameters(tree)) == [
        "at", "before", "more", "one", "places", "wanted",
    ]  # fmt: skip
    share = words.shares({Path("x.py"): tree}, {"at", "one", "before"}, 25, {"before"})["empty_parameters"]
    assert (share.bad, share.all) == (2, 6)


SPOKEN = '''"""A module. It has two sentences."""
def f(log, error):
    log.warning("batch %d waits: %s", 1, error)
    raise SettingsError(f"the setting {error} is wrong. Correct it")
    say("nothing is parked")
    option(help="The table.", metavar="not a sentence")
    print("nor this")
    x.error("nor this")
'''


def test_sentences_are_those_that_people_read(words: ModuleType) -> None:
    assert [finding.text for finding in words.sentences(ast.parse(SPOKEN))] == [
        "A module",
        "It has two sentences",
        "batch %d waits: %s",
        "the setting X is wrong",
        "Correct it",
        "nothing is parked",
        "The table",
    ]


def test_shares_are_of_all_names_and_sentences(words: ModuleType) -> None:
    shares = words.shares({Path("x.py"): ast.parse(NAMES), Path("y.py"): ast.parse(SPOKEN)}, {"one", "at"}, 3)
    assert (shares["empty_names"].bad, shares["empty_names"].all, shares["empty_names"].percent) == (2, 8, 25.0)
    assert (shares["long_sentences"].bad, shares["long_sentences"].all) == (3, 7)


def test_comments_are_lines_of_their_own(words: ModuleType) -> None:
    share = words.comments(["# why\nx = 1  # noqa: X\n    # whose rule\n", "y = '#'\n"])
    assert (share.bad, share.all, share.percent) == (2, 4, 50.0)


def test_directories_with_a_least_share_of_comments_exist(words: ModuleType) -> None:
    options = words.tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["words"]
    assert [name for name in options["comments"] if not (ROOT / name).is_dir()] == []
    assert [*words._sparse(dict.fromkeys(options["comments"], 101.0))] != []


def test_every_package_of_ours_has_limits(words: ModuleType) -> None:
    packages = {path.parent.name for path in ROOT.glob("*/tailrace*/__init__.py")}
    assert set(words.tomllib.loads(words.LIMITS.read_text())) == packages
    assert {words.package(name).name for name in packages} == packages
