"""What a local Cassandra is configured with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.local.cassandra import CassandraSettings, LocalCassandra, cassandra_yaml, jvm_options
from tailrace_schemas.errors import ServiceError

WHERE = Path("/some where/cassandra")


@pytest.mark.parametrize(
    ("settings", "key", "value"),
    [
        (CassandraSettings(segment_mib=4), "commitlog_segment_size", "4MiB"),
        (CassandraSettings(sync_period_ms=50), "commitlog_sync_period", "50ms"),
        (CassandraSettings(cdc_total_mib=8), "cdc_total_space", "8MiB"),
        (CassandraSettings(address="127.0.0.2"), "listen_address", "127.0.0.2"),
        (CassandraSettings(address="127.0.0.2"), "rpc_address", "127.0.0.2"),
        (CassandraSettings(num_tokens=16), "num_tokens", 16),
        (CassandraSettings(tokens=(-5, 7)), "num_tokens", 2),
        (CassandraSettings(tokens=(-5, 7)), "initial_token", "-5,7"),
        (CassandraSettings(yaml={"commitlog_sync": "batch"}), "commitlog_sync", "batch"),
        (CassandraSettings(release="4.1"), "commitlog_segment_size", "1MiB"),
        (CassandraSettings(release="4.0"), "commitlog_segment_size_in_mb", 1),
        (CassandraSettings(release="4.0"), "commitlog_sync_period_in_ms", 200),
        (CassandraSettings(release="4.0"), "cdc_free_space_check_interval_ms", 250),
        (CassandraSettings(release="4.0"), "num_tokens", 4),
        (CassandraSettings(release="4.0", yaml={"a": "1MiB"}), "a", "1MiB"),
    ],
)
def test_yaml(settings: CassandraSettings, key: str, value: object) -> None:
    assert cassandra_yaml(settings, WHERE, 1, 2)[key] == value


@pytest.mark.parametrize(
    ("settings", "seeds"),
    [
        (CassandraSettings(address="127.0.0.3"), "127.0.0.3:2"),
        (CassandraSettings(seeds=("127.0.0.1", "127.0.0.2")), "127.0.0.1:2,127.0.0.2:2"),
    ],
)
def test_seeds(settings: CassandraSettings, seeds: str) -> None:
    written = json.dumps(cassandra_yaml(settings, WHERE, 1, 2))
    assert f'"seeds": "{seeds}"' in written


def test_jvm_options() -> None:
    options = jvm_options(CassandraSettings(heap_mib=64, jvm=("-Dlast=1",)), WHERE, None)
    assert {"-Xms64m", "-Xmx64m"} <= set(options)
    assert "-Dcassandra.config=file:///some%20where/cassandra/conf/cassandra.yaml" in options
    assert options[-1] == "-Dlast=1"
    assert not [option for option in options if "jmx.local" in option]
    assert "-Dcassandra.jmx.local.port=7199" in jvm_options(CassandraSettings(), WHERE, 7199)


def test_places_are_known_before_the_start_and_ports_are_not(tmp_path: Path) -> None:
    node = LocalCassandra(tmp_path)
    assert node.cdc_raw == tmp_path / "data" / "cdc_raw"
    assert node.commitlog == tmp_path / "data" / "commitlog"
    assert node.log == tmp_path / "cassandra.log"
    assert node.address == "127.0.0.1"
    for name in ("port", "storage_port"):
        with pytest.raises(ServiceError, match="before it is started"):
            getattr(node, name)
    with pytest.raises(ServiceError, match=r"nodetool needs JMX: start the node with CassandraSettings\(jmx_port=0\)"):
        node.nodetool("status")
