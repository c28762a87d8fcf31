"""Java's stderr: its log's lines as they are, and whatever else it writes as lines of ours, with time and level."""

from __future__ import annotations

import io
import json
import logging
import os

import pytest

from tailrace_spark.job.java_lines import pass_on


@pytest.mark.promise("commands.json-log")
def test_json_lines_pass_and_others_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    line = json.dumps({"message": "of Spark's own log"})
    reading, writing = os.pipe()
    os.write(writing, f"WARNING: Using incubator modules\n\n{line}\n[1]\n\xff\n{line}".encode("latin-1"))
    os.close(writing)
    stream = io.StringIO()
    with caplog.at_level(logging.WARNING, "tailrace_spark.java"):
        pass_on(reading, stream, json_lines=True)
    assert stream.getvalue() == f"{line}\n{line}\n"
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["WARNING: Using incubator modules", "[1]", "\ufffd"]


def test_lines_for_people_without_a_time_are_logged_with_one(caplog: pytest.LogCaptureFixture) -> None:
    line = "2026-11-21 17:00:00.123Z warning  org.apache.kafka.clients.NetworkClient: no broker"
    reading, writing = os.pipe()
    os.write(writing, f"WARNING: Using incubator modules\n{line}\n".encode())
    os.close(writing)
    stream = io.StringIO()
    with caplog.at_level(logging.WARNING, "tailrace_spark.java"):
        pass_on(reading, stream, json_lines=False)
    assert stream.getvalue() == f"{line}\n"
    assert caplog.messages == ["WARNING: Using incubator modules"]
