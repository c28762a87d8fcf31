"""A section of a sink that writes to S3, opened and written by, with credentials that nobody sees."""

from __future__ import annotations

import json
import logging
from contextlib import closing
from pathlib import Path

import pytest

from tailrace_common.settings import load_settings
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.registry import open_sink
from tests import s3
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, Topic


def write_by_section(
    folder: Path, caplog: pytest.LogCaptureFixture, kind: str, path: str, more: str = "", secret: str = s3.SECRET_KEY
) -> None:
    """One change, of which `v` is x. Neither logs nor settings may show the keys, or another secret."""
    caplog.set_level(logging.DEBUG)
    (folder / "secret").write_text(s3.SECRET_KEY + "\n")
    (folder / "t.toml").write_text(
        f'[sink.x]\ntype = "{kind}"\npath = "s3://{path}"\nendpoint = "{s3.endpoint()}"\nregion = "us-east-1"\n'
        f'access_key = "{s3.ACCESS_KEY}"\nsecret_key_file = "{folder}/secret"\n{more}'
    )
    settings = load_settings(folder / "t.toml", {})
    with closing(open_sink("x", settings.sink["x"], "p")) as sink:
        sink.reach()
        write_here(sink, [Topic().piece(Log(PLAIN).insert((1,), (), 1, v="x"))])
    shown = json.dumps([caplog.text, repr(settings), settings.sink["x"].location])
    assert not [hidden for hidden in (s3.SECRET_KEY, s3.ACCESS_KEY, secret) if hidden in shown]
