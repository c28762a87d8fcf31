"""Records a corpus with a node of its own: `python -m tests.corpus.record --seed 7 FOLDER`, or `make record`.

A name that ends with .tar.xz gets an archive in place of a folder.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
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
    parser.add_argument("into", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--statements", type=int, default=1500)
    parser.add_argument("--release", choices=sorted(RELEASES), default="5.0")
    parser.add_argument("--mode", help="storage_compatibility_mode")
    chosen = parser.parse_args(arguments)
    yaml = {} if chosen.mode is None else {"storage_compatibility_mode": chosen.mode}
    settings = CassandraSettings(release=chosen.release, yaml=yaml)
    with tempfile.TemporaryDirectory() as directory:
        folder = chosen.into if chosen.into.suffix != ".xz" else Path(directory, "corpus")
        with LocalCassandra(Path(directory, "node"), settings) as node:
            far = chosen.mode == "NONE"
            record(node, folder, seed=chosen.seed, keyspace="corpus", statements=chosen.statements, far=far)
        _finish(folder, chosen.into)


def _finish(folder: Path, into: Path) -> None:
    if folder != into:
        with tarfile.open(into, "w:xz") as archive:
            archive.add(folder, ".")
    corpus = read_corpus(folder)
    sys.stderr.write(f"{into}: {dict(check_view(corpus))}, {check_messages(corpus)} messages\n")


if __name__ == "__main__":
    main()
