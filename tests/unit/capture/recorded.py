"""Recorded segments, laid out as a node does."""

from __future__ import annotations

import os
from pathlib import Path

from tests.unit.commitlog.recorded import Recorded

# Uncompressed, compressed and encrypted (where the index counts what the file does not hold), two segments, versions.
KINDS = (
    "4.0-beta4/rollover-uncompressed",
    "4.0-beta4/lz4",
    "4.0-beta4/encrypted",
    "5.0.1/uncompressed",
    "5.0.1/lz4",
    "5.0.1/zstd",
    "5.0.1/directio",
    "6.0-alpha2/uncompressed",
)


def lay_out(folder: Recorded, root: Path) -> Path:
    """The segments in a commit log, linked into a cdc_raw without indexes."""
    (root / "commitlog").mkdir()
    raw = root / "cdc_raw"
    raw.mkdir()
    for name, data in folder.segments.items():
        (root / "commitlog" / name).write_bytes(data)
        os.link(root / "commitlog" / name, raw / name)
    return raw
