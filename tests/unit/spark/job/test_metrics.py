"""The stream's metrics as Prometheus reads them."""

from __future__ import annotations

import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tailrace_common.unreachable import problem_and_remedy, unreachable
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.job.metrics import MetricsServer, StreamMetrics
from tailrace_spark.job.progress import Progress, SinkInfo, TableProgress
from tailrace_spark.snapshot.progress import State, TableSnapshot, status_row
from tests.support.process_metrics import process_metrics

ROOT = Path(__file__).parents[4]


PROGRESS = {
    "processedRowsPerSecond": 12.5,
    "eventTime": {"watermark": "1970-01-01T00:01:00.000Z"},
    "sources": [{"endOffset": {"a": {"0": 5, "1": 7}, "b": {"0": 4}}}],
}
LAST = 'tailrace_stream_last_error_timestamp_seconds{{action="{action}",error="{error}",what="{what}"}}'
TRY = "Start the store of [sink.local] or fix its address. `tailrace check` tries them all."
REPLAY = "`tailrace sink-letters list local` says why, or the place that docs/sinks/sql.md names; then replay"


def read(server: MetricsServer) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith(("#", "process_")))
    return {name: float(value) for name, _, value in samples if not name.partition("{")[0].endswith("_created")}


def test_every_metric_is_documented() -> None:
    document = (ROOT / "docs" / "metrics.md").read_text().split("\n## The stream\n")[1].split("\n## The server\n")[0]
    listed = re.findall(r"^\| `(\w+)(?:\{[\w,]+\})?` \|", document, re.MULTILINE)
    metrics = StreamMetrics()
    metrics.watch(lambda: PROGRESS, lambda places: dict.fromkeys(places, 9))
    with (
        MetricsServer(metrics, "127.0.0.1", 0) as server,
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=60) as answer,
    ):
        names = re.findall(r"^# TYPE (\w+) ", answer.read().decode(), re.MULTILINE)
    assert sorted([*listed, *process_metrics()]) == sorted(name for name in names if not name.endswith("_created"))


def test_what_a_batch_did_is_counted() -> None:
    metrics, last = StreamMetrics(SinkInfo("local", "sql", "sqlite:///t.db", "docs/sinks/sql.md")), dict[str, Any]()

    def progress() -> Mapping[str, Any] | None:
        return last or None

    metrics.watch(progress, lambda _: {("a", 0): 9, ("a", 1): 7, ("b", 0): 3})
    with MetricsServer(metrics, "127.0.0.1", 0) as server:
        before = read(server)
        assert before["tailrace_stream_batches_total"] == 0
        assert before["tailrace_stream_last_commit_timestamp_seconds"] > 0
        assert "tailrace_stream_rows_per_second" not in before
        metrics.failed("sink", "no answer")
        blocked = read(server)
        assert blocked["tailrace_stream_blocked"] == 1
        assert LAST.format(what="sink", error="no answer", action=TRY) in blocked
        metrics.unblocked()
        for lag in (7.0, 0.25):
            tables = {"shop.orders": TableProgress(4, lag)}
            metrics.wrote(
                Progress(
                    batch=3,
                    records=4,
                    summary=Summary(3, 2, 1, 5),
                    tables=tables,
                    marks={"late": 2},
                    left_out={"shop.orders": 6},
                    seconds=0.25,
                    blocked_seconds=1.5,
                )
            )
        metrics.swept(10)
        last.update(PROGRESS)
        after = read(server)
    error = LAST.format(what="dead letters", error="batch 3: 1 records set aside", action=REPLAY)
    assert {name: value for name, value in after.items() if "bucket" not in name} == {
        "tailrace_stream_stopped_topics": 0,
        "tailrace_stream_batches_total": 2,
        "tailrace_stream_executors": 0,
        'tailrace_stream_records_total{table="shop.orders"}': 8,
        "tailrace_stream_changes_merged_total": 6,
        "tailrace_stream_rows_changed_total": 14,
        "tailrace_stream_dead_letters_total": 2,
        'tailrace_stream_marked_total{mark="late"}': 4,
        "tailrace_stream_blocked_seconds_total": 3,
        "tailrace_stream_blocked": 0,
        "tailrace_stream_batch_seconds_count": 2,
        "tailrace_stream_batch_seconds_sum": 0.5,
        'tailrace_stream_lag_seconds{table="shop.orders"}': 0.25,
        "tailrace_stream_last_commit_timestamp_seconds": after["tailrace_stream_last_commit_timestamp_seconds"],
        "tailrace_stream_rows_per_second": 12.5,
        "tailrace_stream_deferred_changes_total": 10,
        'tailrace_stream_filtered_total{table="shop.orders"}': 12,
        'tailrace_stream_retries_total{what="sink"}': 1,
        'tailrace_stream_sink_info{location="sqlite:///t.db",sink="local",type="sql"}': 1,
        'tailrace_stream_behind_records{topic="a"}': 4,
        'tailrace_stream_behind_records{topic="b"}': 0,
        error: after[error],
        "tailrace_stream_watermark_timestamp_seconds": 60,
    }
    assert after['tailrace_stream_batch_seconds_bucket{le="0.2"}'] == 0
    assert after['tailrace_stream_batch_seconds_bucket{le="0.3"}'] == 2


def test_a_taken_port_is_a_setting_to_change() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"metrics_address: cannot listen on 127.0.0.1, port {port}: Address"):
            MetricsServer(StreamMetrics(), "127.0.0.1", port)


def test_probes() -> None:
    """Alive before Spark runs, ready while the query runs and no batch waits, neither once the loop is stuck."""
    now = 0.0
    metrics = StreamMetrics(clock=lambda: now)

    def answers(server: MetricsServer) -> list[int]:
        codes = []
        for path in ("live", "ready"):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/health/{path}", timeout=60) as answer:
                    codes.append(answer.status)
            except urllib.error.HTTPError as error:
                codes.append(error.code)
                error.close()
        return codes

    with MetricsServer(metrics, "127.0.0.1", 0) as server:
        now = 5000.0
        assert answers(server) == [200, 503]
        metrics.alive()
        assert answers(server) == [200, 200]
        metrics.failed("sink", "no answer")
        assert answers(server) == [200, 503]
        metrics.unblocked()
        now += 601
        assert answers(server) == [503, 503]


def test_nothing_else_is_answered() -> None:
    with MetricsServer(StreamMetrics(), "127.0.0.1", 0) as server:
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/stats", timeout=60)
        with raised.value as answer:
            assert (answer.code, answer.read()) == (404, b"paths: /, /health/live, /health/ready, /status, /metrics\n")


def status(metrics: StreamMetrics) -> dict[str, Any]:
    with (
        MetricsServer(metrics, "127.0.0.1", 0) as server,
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/status", timeout=60) as answer,
    ):
        found: dict[str, Any] = json.loads(answer.read())
        return found


@pytest.mark.promise("stream.status")
def test_the_status_says_what_waits_and_what_to_do() -> None:
    metrics = StreamMetrics(SinkInfo("local", "sql", "sqlite:///t.db", "docs/sinks/sql.md"))
    assert status(metrics)["behind_records"] is None
    metrics.watch(lambda: PROGRESS, lambda _: {("a", 0): 6})
    metrics.failed("sink", "no answer")
    blocked = status(metrics)
    assert blocked["sink"] == {"name": "local", "type": "sql", "location": "sqlite:///t.db"}
    assert blocked["blocked"] == {"what": "sink", "words": "no answer", "action": TRY, "at": blocked["blocked"]["at"]}
    metrics.unblocked()
    metrics.wrote(
        Progress(batch=7, records=3, summary=Summary(2, 2), tables={"a.b": TableProgress(3, 0.5)}, seconds=0.25)
    )
    found = status(metrics)
    assert (found["blocked"], found["last_error"]) == (None, blocked["blocked"])
    assert found["counts"] == {
        "batches": 1, "records": 3, "changes": 2, "rows": 2, "dead_letters": 0, "deferred": 0,
        "filtered": 0, "retries": 1,
    }  # fmt: skip
    assert {**found["last_batch"], "at": ""} == {
        "batch": 7, "at": "", "records": 3, "seconds": 0.25, "execution": "driver", "blocked_seconds": 0
    }  # fmt: skip
    assert found["tables"] == {"a.b": {"records": 3, "lag_seconds": 0.5}}
    assert found["behind_records"] == {"a": 1, "b": 0}


@pytest.mark.promise("stream.status")
@pytest.mark.parametrize(
    ("what", "summary", "says"),
    [
        ("generations", None, "Start Kafka, or an agent, whichever is missing."),
        ("", Summary(1, 1, deferred=2), "nothing is lost: docs/sinks/sql.md"),
        ("", Summary(1, 1, 1, 2), "tailrace sink-letters list local"),
    ],
)
def test_every_error_says_what_to_do(what: str, summary: Summary | None, says: str) -> None:
    metrics = StreamMetrics(SinkInfo("local", "sql", "sqlite:///t.db", "docs/sinks/sql.md"))
    if summary is None:
        metrics.failed(what, "words")
    else:
        metrics.wrote(Progress(batch=1, records=1, summary=summary))
    assert says in status(metrics)["last_error"]["action"]


def test_what_an_error_says_is_to_be_done_stands_in_place_of_the_general_words() -> None:
    metrics = StreamMetrics(SinkInfo("local", "sql", "sqlite:///t.db", "docs/sinks/sql.md"))
    error = unreachable("postgresql://db/d", "connection refused", "the database")
    assert error is not None
    metrics.failed("sink", *problem_and_remedy(error))
    blocked = status(metrics)["blocked"]
    assert blocked["words"] == "Cannot connect to postgresql://db/d (connection refused)"
    assert blocked["action"].startswith("Start the database or fix its address. ")


def test_letters_of_a_subscription_are_listed_by_its_own_command() -> None:
    """The other one needs a section of the settings file, which a subscription has not."""
    command = "tailrace subscriptions shop.orders/w --letters"
    metrics = StreamMetrics(SinkInfo("w-1", "sql", "sqlite:///t.db", "docs/sinks/sql.md", letters=command))
    metrics.wrote(Progress(batch=7, records=1, summary=Summary(dead_letters=1)))
    assert metrics.sink_info.letters_command == f"`{command}`"
    assert f"`{command}` says why, or the place that docs/sinks/sql.md names" in json.dumps(status(metrics))


def test_without_an_answer_of_kafka_nothing_is_said_of_what_is_behind() -> None:
    def ends(_: object) -> dict[tuple[str, int], int]:
        raise ServiceError("no answer")

    metrics = StreamMetrics()
    metrics.watch(lambda: PROGRESS, ends)
    assert status(metrics)["behind_records"] is None


def shown(metrics: StreamMetrics, accept: str, path: str = "/") -> tuple[str, str]:
    """The type and the text of an answer."""
    with (
        MetricsServer(metrics, "127.0.0.1", 0) as server,
        closing(HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection,
    ):
        connection.request("GET", path, headers={"Accept": accept})
        answer = connection.getresponse()
        return answer.headers["Content-Type"], answer.read().decode()


@pytest.mark.promise("stream.status")
def test_a_browser_and_a_terminal_are_shown_the_status_in_words() -> None:
    metrics = StreamMetrics(SinkInfo("local", "sql", "sqlite:///<t>.db", "docs/sinks/sql.md"))
    assert "<h1 class=bad>starting</h1>" in shown(metrics, "text/html")[1]
    metrics.alive()
    metrics.watch(lambda: PROGRESS, lambda _: {("a", 0): 1206})
    metrics.wrote(Progress(batch=7, records=3000, summary=Summary(2, 2), tables={"a.b": TableProgress(3000, 1879)}))
    snapshot = TableSnapshot(id="1", table="a.b", asked=0, state=State.READING, rows=502_113)
    metrics.snapshots = [status_row(snapshot)]
    content_type, text = shown(metrics, "text/html,*/*", "/status")
    assert content_type == "text/html; charset=utf-8"
    assert "<h1 class=good>copying existing rows, and following</h1>" in text
    assert "<th>a.b<td>reading, 0 %, 502,113 rows" in text
    assert "<th>records behind<td>1,201" in text
    assert "3,000; the newest was in the sink 31 min after its write" in text
    assert "sqlite:///&lt;t&gt;.db" in text
    metrics.failed("sink", "no answer")
    content_type, text = shown(metrics, "*/*")
    assert content_type == "text/plain; charset=utf-8"
    assert text.startswith("waiting for the sink\n\nProblems\n  sink  no answer. What to do: ")
