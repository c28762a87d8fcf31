"""What versions with manifests left below a root: a manifest of each batch, or of many, said which files count."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from tailrace_schemas.formats import require_format
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.sink_progress import offsets_from_json
from tailrace_spark.sinks.files.store import FileStore

_FORMAT: Final = 2
_WRITER: Final = "_tailrace/writer.json"
# A batch's number, then its writer, or that it is of a pack; until it was committed the name began with a dot.
_NAME: Final = re.compile(r"\.?[0-9]{20}-(?:pack-)?[0-9a-f]{12}-.*\.(?:parquet|jsonl|jsonl\.gz)")


def settled(store: FileStore, attempt: str) -> dict[KafkaPartition, int]:
    """Leave the files that count, and no others; the offsets behind what they have.

    Raises SettingsError for manifests of a later form. It may be cut off anywhere, and begin again.
    """
    used, ends = set[str](), dict[KafkaPartition, int]()
    for manifest in _manifests(store):
        used.update(file["path"] for file in manifest["files"])
        ends.update(offsets_from_json(json.dumps(manifest["ends"])))
    for path in store.below(""):
        directory, _, name = path.rpartition("/")
        counting = f"{directory}/{name.removeprefix('.')}"
        if not _NAME.fullmatch(name) or path.startswith("_tailrace/"):
            continue
        if counting not in used:
            store.remove(attempt, path)
        elif path != counting:
            store.place(attempt, path, counting)
    if ends and store.exists(_WRITER):  # a stream of such a version that still runs commits nothing without it
        store.remove(attempt, _WRITER)
    return ends


def _manifests(store: FileStore) -> Iterator[dict[str, Any]]:
    """Those that count, in the order of their batches: of several packs from one batch on the longest."""
    last = -1
    packs = [(path, *path.rpartition("/")[2].split("-")[:2]) for path in store.below("_tailrace/packs")]
    for path, first, end in sorted(packs, key=lambda pack: (pack[1], -int(pack[2]), pack[0])):
        if int(first) > last:
            last = int(end)
            yield _manifest(store, path)
    for path in sorted(store.below("_tailrace/commits")):
        name = path.rpartition("/")[2].removesuffix(".json")
        if name.isdigit() and int(name) > last:
            yield _manifest(store, path)


def _manifest(store: FileStore, path: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(store.read(path))
    require_format(path, value["format"], _FORMAT)
    return value
