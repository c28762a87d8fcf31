"""Records a corpus with a node of its own: `python -m tests.corpus.record --seed 7 FOLDER`, or `make record`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tailrace.local import CassandraSettings, LocalCassandra
from tailrace.local.cassandra import RELEASES
from tests.corpus.check import check_messages, check_view
from tests.corpus.corpus import read_corpus
from tests.corpus.recording import record


def main(arguments: Sequence[str] | None = None) -> None:
    """Start a node, record, stop it, and hold the corpus against itself."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--statements", type=int, default=1500)
    parser.add_argument("--release", choices=sorted(RELEASES), default="5.0")
    chosen = parser.parse_args(arguments)
    settings = CassandraSettings(release=chosen.release)
    with tempfile.TemporaryDirectory() as directory, LocalCassandra(Path(directory), settings) as node:
        record(node, chosen.folder, seed=chosen.seed, keyspace="corpus", statements=chosen.statements)
    corpus = read_corpus(chosen.folder)
    sys.stderr.write(f"{chosen.folder}: {dict(check_view(corpus))}, {check_messages(corpus)} messages\n")


if __name__ == "__main__":
    main()
