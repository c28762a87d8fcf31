"""What several modules of tests share of recorded."""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.corpus.corpus import Corpus, read_corpus

KEPT = Path(__file__).parent / "kept"


VERSIONS = {
    "4.0.19": 7,
    "4.1.10": 7,
    "5.0.9": 7,
    "5.0.9-upgrading": 8,
    "5.0.9-none": 8,
    "6.0-alpha2": 9,
}


def kept(name: str, folder: Path) -> Corpus:
    """One of the kept ones, unpacked."""
    with tarfile.open(KEPT / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return read_corpus(folder)
