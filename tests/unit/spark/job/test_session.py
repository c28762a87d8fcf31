"""Settings of Spark: the caller's hold, ours fill what is missing, and secrets stay hidden."""

from __future__ import annotations

import io
import json
import logging
import os
import re
from pathlib import Path

import pytest

from tailrace_spark.job.session import filled, launched, loopback_needed, overruled, pass_on, properties, shown
from tailrace_spark.source.kafka_options import NAMES, widened

JARS = [Path("/jars/spark-avro_2.13-4.1.1.jar"), Path("/jars/kafka-clients-3.9.1.jar")]


@pytest.mark.promise("spark.caller-decides")
def test_ours_fill_only_what_the_caller_left_open() -> None:
    ours = filled({})
    assert ours["spark.sql.shuffle.partitions"] == "4"
    assert ours["spark.sql.session.timeZone"] == "UTC"
    theirs = dict.fromkeys(ours, "theirs")
    assert filled(theirs).keys() == {"spark.redaction.regex"}


@pytest.mark.promise("spark.caller-decides")
@pytest.mark.parametrize(
    ("theirs", "master", "local"),
    [
        ({}, "local[*]", True),
        ({"spark.master": "spark://host:7077"}, "spark://host:7077", False),
        ({"spark.master": "local[3]", "spark.driver.host": "here"}, "local[3]", True),
    ],
)
def test_a_master_and_loopback_are_ours_where_none_is_named(theirs: dict[str, str], master: str, local: bool) -> None:
    settings = launched(theirs, [], "local[*]")
    assert settings["spark.master"] == master
    assert not settings.keys() & theirs.keys() - {"spark.master"}
    assert loopback_needed({**theirs, **settings}) is local


@pytest.mark.promise("spark.caller-decides")
def test_the_page_and_the_name_are_the_callers() -> None:
    assert launched({}, [], "local[*]")["spark.ui.enabled"] == "false"
    theirs = {"spark.ui.enabled": "true", "spark.app.name": "mine", "spark.ui.showConsoleProgress": "true"}
    assert not launched(theirs, [], "local[*]").keys() & theirs.keys()


def test_jars_are_added_to_theirs_unless_they_have_them() -> None:
    assert launched({}, JARS, "local[*]")["spark.jars"] == ",".join(map(str, JARS))
    theirs = {"spark.jars": "/mine.jar", "spark.jars.packages": "org.apache.spark:spark-avro_2.13:4.1.3"}
    assert launched(theirs, JARS, "local[*]")["spark.jars"] == f"{JARS[1]},/mine.jar"


@pytest.mark.promise("spark.secrets-hidden")
def test_hidden_names_are_theirs_and_ours() -> None:
    assert filled({})["spark.redaction.regex"] == NAMES
    both = filled({"spark.redaction.regex": "(?i)mine"})["spark.redaction.regex"]
    # Java takes (?i) inside a group, Python wants (?i:...).
    pattern = re.compile(re.sub(r"\(\?i\)([^()]*(?:\[[^]]*\])?[^()]*)", r"(?i:\1)", both))
    for name in ("MINE", "kafka.sasl.jaas.config", "kafka.ssl.keystore.key", "some.Password", "fs.s3a.access.key"):
        assert pattern.search(name), name
    assert not pattern.search("spark.executor.memory")
    assert widened(both, NAMES) == both


@pytest.mark.promise("spark.secrets-hidden")
def test_secrets_are_in_no_command_line() -> None:
    options = {"spark.executor.memory": "1g", "spark.hadoop.fs.s3a.secret.key": "hush"}
    assert shown(options) == {"spark.executor.memory": "1g"}


def test_what_spark_submit_overrules_is_named() -> None:
    options = {"spark.master": "local[*]", "spark.executor.memory": "1g", "spark.executor.cores": "2"}
    assert overruled(options, {"spark.master": "k8s://host", "spark.executor.memory": "1g"}) == ["spark.master"]


def test_a_file_of_defaults_is_read_as_java_reads_it() -> None:
    text = "# a comment\n! another\n\nspark.a 1\nspark.b=2\nspark.c : 3 4\n  spark.d\t= x=y\nspark.e\n"
    assert properties(text) == {"spark.a": "1", "spark.b": "2", "spark.c": "3 4", "spark.d": "x=y", "spark.e": ""}


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
