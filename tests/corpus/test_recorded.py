"""Small corpora of every version, kept: they need no node; and that what is held against each other can differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.corpus.check import check_messages, check_view
from tests.corpus.corpus import Corpus, View
from tests.corpus.keeping import VERSIONS, kept


@pytest.mark.promise(
    "agent.whole-change", "others.user-types", "others.statics", "others.set-element", "others.lists",
    "others.counters", "others.exact-values", "others.ttl", "others.vector",
)  # fmt: skip
@pytest.mark.slow
@pytest.mark.parametrize("name", VERSIONS)
def test_the_log_says_what_the_node_answered(name: str, tmp_path: Path) -> None:
    corpus = kept(name, tmp_path)
    assert corpus.versions == {VERSIONS[name]}
    assert corpus.facts["release"] == name.removesuffix("-none").removesuffix("-upgrading")
    counts = check_view(corpus)
    assert min(counts[kind] for kind in ("insert", "update", "delete", "delete_partition", "delete_range")) > 5
    assert check_messages(corpus) == sum(counts.values())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return kept("5.0.9", tmp_path_factory.mktemp("corpus"))


@pytest.mark.slow
@pytest.mark.parametrize("what", ["value", "writetime", "ttl"])
def test_one_other_answer_is_noticed(corpus: Corpus, what: str) -> None:
    """A byte of each kind of answer, in whichever row has one."""
    for id, view in corpus.views.items():
        other = _with_other(view, what)
        if other is not None:
            with pytest.raises(AssertionError, match="by the log"):
                check_view(replace(corpus, views={id: other}))
            return
    pytest.fail(f"no {what} anywhere")


@pytest.mark.slow
def test_a_row_that_is_not_answered_is_noticed(corpus: Corpus) -> None:
    id, view = next((id, view) for id, view in corpus.views.items() if len(view.rows) > 1)
    with pytest.raises(AssertionError, match="there by the log, answered None"):
        check_view(replace(corpus, views={id: replace(view, rows=view.rows[1:])}))


def _with_other(view: View, what: str) -> View | None:
    keys = {column for column, _ in view.columns if column[0] in "pc" and column[1:].isdigit()}
    for row, values in enumerate(view.rows):
        for at, (column, kind) in enumerate(view.columns):
            value = values[at]
            if column in keys or kind != what or not value:
                continue
            other = bytes((value[0] ^ 0x40,)) + value[1:]
            rows = [list(values) for values in view.rows]
            rows[row][at] = other
            return replace(view, rows=tuple(tuple(values) for values in rows))
    return None
