"""Clients of HTTP: what each task of a batch makes anew costs little."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from typing import Any

import pytest

from tailrace_spark.sinks.http.client import HttpSender
from tailrace_spark.sinks.http.settings import HttpSinkSettings
from tailrace_spark.sinks.opensearch.client import SearchClient
from tailrace_spark.sinks.opensearch.settings import OpensearchSinkSettings

HTTP = HttpSinkSettings(url="https://hooks.example.org")
SEARCH = OpensearchSinkSettings(url="https://search:9200")


@pytest.mark.parametrize(
    "client",
    [lambda: closing(HttpSender("x", HTTP)), lambda: closing(SearchClient("x", SEARCH))],
    ids=["http", "opensearch"],
)
def test_a_process_reads_the_systems_authorities_once(
    client: Callable[[], AbstractContextManager[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with client():
        pass
    read: list[Any] = []
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *files: read.append(files))
    with client(), client():
        pass
    assert read == []
