"""The stream's metrics as Prometheus reads them."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tailrace_schemas.errors import SettingsError
from tailrace_spark.metrics import MetricsServer, StreamMetrics, TableProgress
from tailrace_spark.sinks.protocol import Summary

ROOT = Path(__file__).parents[3]


def read(server: MetricsServer) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples if not name.partition("{")[0].endswith("_created")}


def test_every_metric_is_documented() -> None:
    _, document = (ROOT / "docs" / "metrics.md").read_text().split("\n## The stream\n")
    listed = re.findall(r"^\| `(\w+)(?:\{\w+\})?` \|", document, re.MULTILINE)
    metrics = StreamMetrics()
    metrics.watch(lambda: {"processedRowsPerSecond": 1.0, "eventTime": {"watermark": "1970-01-01T00:01:00.000Z"}})
    with (
        MetricsServer(metrics, "127.0.0.1", 0) as server,
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer,
    ):
        names = re.findall(r"^# TYPE (\w+) ", answer.read().decode(), re.MULTILINE)
    assert sorted(listed) == sorted(name for name in names if not name.endswith("_created"))


def test_what_a_batch_did_is_counted() -> None:
    metrics, last = StreamMetrics(), dict[str, Any]()

    def progress() -> Mapping[str, Any] | None:
        return last or None

    metrics.watch(progress)
    with MetricsServer(metrics, "127.0.0.1", 0) as server:
        before = read(server)
        assert before["tailrace_stream_batches_total"] == 0
        assert "tailrace_stream_rows_per_second" not in before
        metrics.held(True)
        assert read(server)["tailrace_stream_held"] == 1
        metrics.held(False)
        for lag in (7.0, 0.25):
            tables = {"shop.orders": TableProgress(4, lag)}
            metrics.wrote(Summary(3, 2, 1), tables, {"late": 2}, seconds=0.25, held_seconds=1.5)
        metrics.swept(10)
        last.update(processedRowsPerSecond=12.5, eventTime={"watermark": "1970-01-01T00:01:00.000Z"})
        after = read(server)
    assert {name: value for name, value in after.items() if "bucket" not in name} == {
        "tailrace_stream_batches_total": 2,
        'tailrace_stream_records_total{table="shop.orders"}': 8,
        "tailrace_stream_changes_merged_total": 6,
        "tailrace_stream_rows_changed_total": 14,
        "tailrace_stream_dead_letters_total": 2,
        'tailrace_stream_marked_total{mark="late"}': 4,
        "tailrace_stream_held_seconds_total": 3,
        "tailrace_stream_held": 0,
        "tailrace_stream_batch_seconds_count": 2,
        "tailrace_stream_batch_seconds_sum": 0.5,
        'tailrace_stream_lag_seconds{table="shop.orders"}': 0.25,
        "tailrace_stream_last_commit_timestamp_seconds": after["tailrace_stream_last_commit_timestamp_seconds"],
        "tailrace_stream_rows_per_second": 12.5,
        "tailrace_stream_watermark_timestamp_seconds": 60,
    }
    assert after['tailrace_stream_batch_seconds_bucket{le="0.2"}'] == 0
    assert after['tailrace_stream_batch_seconds_bucket{le="0.3"}'] == 2


def test_a_taken_port_is_a_setting_to_change() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"stream.metrics_address 127.0.0.1:{port}: Address already in use"):
            MetricsServer(StreamMetrics(), "127.0.0.1", port)


def test_nothing_else_is_answered() -> None:
    with MetricsServer(StreamMetrics(), "127.0.0.1", 0) as server:
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=10)
        with raised.value as answer:
            assert (answer.code, answer.read()) == (404, b"paths: /metrics\n")
