"""Random statements on a real node: what is decoded of its log, merged, is what it answers with WRITETIME and TTL."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

import pytest

from tailrace.local import LocalCassandra
from tests.corpus.check import check_messages, check_view
from tests.corpus.corpus import read_corpus
from tests.corpus.recording import record

KINDS = {"insert", "update", "delete", "delete_partition", "delete_range"}


def check(cassandra: LocalCassandra, folder: Path, keyspace: str, seed: int, statements: int) -> None:
    """One seed's corpus, recorded and held against itself. It stays in `folder` for who looks for a failure."""
    sys.stderr.write(f"seed {seed}, {statements} statements, corpus in {folder}\n")
    record(cassandra, folder, seed=seed, keyspace=keyspace, statements=statements)
    corpus = read_corpus(folder)
    counts = check_view(corpus)
    assert counts.keys() == KINDS
    # Nearly all statements ran: most of those that the node refuses name an element of a list that is not there.
    assert corpus.facts["refused"] < statements / 10
    assert sum(len(view.rows) for view in corpus.views.values()) > statements / 50
    assert check_messages(corpus) == sum(counts.values()) > statements / 2


def test_a_fresh_seed(cassandra: LocalCassandra, tmp_path: Path, keyspace_name: str) -> None:
    check(cassandra, tmp_path / "corpus", keyspace_name, secrets.randbits(32), 1000)


@pytest.mark.long
@pytest.mark.parametrize("number", range(3))
def test_more_seeds(cassandra: LocalCassandra, tmp_path: Path, keyspace_name: str, number: int) -> None:
    del number
    check(cassandra, tmp_path / "corpus", keyspace_name, secrets.randbits(32), 4000)
