"""Every version of Cassandra that runs here: its segments' version, and that they say what the node answers."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

import pytest

from tailrace.commitlog.blocks import NO_KEYS
from tailrace.local import CassandraSettings, LocalCassandra
from tailrace.segments.keys import read_keystore
from tests.corpus.check import check_messages, check_view
from tests.corpus.corpus import read_corpus
from tests.corpus.recording import record

pytestmark = pytest.mark.long

STORE = Path(__file__).parents[1] / "fixtures" / "commitlog" / "keystores" / "cassandra.jceks"
PASSWORD = "cassandra"  # noqa: S105 - of the test keystore
CIPHER = "AES/CBC/PKCS5Padding"
KINDS = {"insert", "update", "delete", "delete_partition", "delete_range"}


@pytest.mark.parametrize(
    ("release", "mode", "exact", "version"),
    [
        ("4.0", None, "4.0.19", 7),
        ("4.1", None, "4.1.10", 7),
        ("5.0", None, "5.0.9", 7),
        ("5.0", "UPGRADING", "5.0.9", 8),
        ("5.0", "NONE", "5.0.9", 8),
        ("6.0", None, "6.0-alpha2", 9),
        ("6.0", "NONE", "6.0-alpha2", 9),
    ],
)
@pytest.mark.usefixtures("as_processes")
def test_a_live_node(tmp_path: Path, release: str, mode: str | None, exact: str, version: int) -> None:
    seed = secrets.randbits(32)
    sys.stderr.write(f"seed {seed}, corpus in {tmp_path}\n")
    yaml = {} if mode is None else {"storage_compatibility_mode": mode}
    with LocalCassandra(tmp_path / "node", CassandraSettings(release=release, yaml=yaml)) as node:
        folder = tmp_path / "corpus"
        # Only a node that no older one has to understand takes times behind 2038.
        record(node, folder, seed=seed, keyspace="corpus", statements=2400, far=mode == "NONE")
    corpus = read_corpus(folder)
    assert corpus.facts["release"] == exact
    assert corpus.versions == {version}
    counts = check_view(corpus)
    assert counts.keys() == KINDS
    assert corpus.facts["refused"] < 240
    assert check_messages(corpus) == sum(counts.values()) > 1200


@pytest.mark.parametrize(
    ("release", "codec"),
    [
        ("4.0", "LZ4Compressor"),
        ("4.0", CIPHER),
        ("5.0", "LZ4Compressor"),
        ("5.0", "SnappyCompressor"),
        ("5.0", "DeflateCompressor"),
        ("5.0", "ZstdCompressor"),
        ("5.0", CIPHER),
    ],
)
@pytest.mark.usefixtures("as_processes")
def test_a_live_node_that_compresses_or_encrypts(tmp_path: Path, release: str, codec: str) -> None:
    keys = NO_KEYS
    yaml: dict[str, object] = {"commitlog_compression": [{"class_name": codec}]}
    if codec == CIPHER:
        keys, yaml = read_keystore(STORE.read_bytes(), PASSWORD), {"transparent_data_encryption_options": _encryption()}
    seed = secrets.randbits(32)
    sys.stderr.write(f"seed {seed}, corpus in {tmp_path}\n")
    with LocalCassandra(tmp_path / "node", CassandraSettings(release=release, yaml=yaml)) as node:
        record(node, tmp_path / "corpus", seed=seed, keyspace="corpus", statements=1200, keys=keys)
    corpus = read_corpus(tmp_path / "corpus", keys)
    assert corpus.codecs == {codec}
    assert check_messages(corpus) == sum(check_view(corpus).values()) > 600


def _encryption() -> dict[str, object]:
    provider = {"keystore": str(STORE), "keystore_password": PASSWORD, "store_type": "JCEKS", "key_password": PASSWORD}
    return {
        "enabled": True,
        "chunk_length_kb": 64,
        "cipher": CIPHER,
        "key_alias": "testing:1",
        "key_provider": [{"class_name": "org.apache.cassandra.security.JKSKeyProvider", "parameters": [provider]}],
    }
