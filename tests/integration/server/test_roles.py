"""A server of the HTTP API alone, and the commands that ask it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.local import LocalKafka
from tailrace.local.ports import free_port
from tests.integration.server.servers import Site


@pytest.mark.long
def test_commands_ask_a_server_that_has_no_worker(tmp_path: Path, kafka: LocalKafka, prefix: str) -> None:
    url, port = f"sqlite:///{tmp_path / 'meta.db'}", free_port("127.0.0.1")
    site = Site(tmp_path, kafka, prefix, url, port=port)
    made = site.run("api-keys", "add", "ci")
    assert made.returncode == 0, made.stderr
    key_file = tmp_path / "ci.key"
    key_file.write_text(made.stdout)
    for name in ("dwh", "other"):
        site.declare(name, {"type": "sql", "url": f"postgresql://u:hunter2@{name}/d"})
    ask = ("--server", f"http://127.0.0.1:{port}", "--api-key-file", str(key_file))
    with site.server("api", "--role", "api") as server:
        server.until(lambda: "HTTP API: http://127.0.0.1" in server.log.read_text())
        words = ("subscribe", "shop.orders", "--name", "warehouse", "--target", "dwh", "--unchecked")
        [answer] = site.tailrace(*words, *ask)
        assert (answer["reference"], answer["state"]) == ("shop.orders/warehouse", "active")
        assert site.tailrace("pause", "warehouse", *ask)[0]["state"] == "paused"
        [altered] = site.tailrace("alter", "warehouse", "--target", "other", "--unchecked", *ask)
        assert altered["target"] == "other"
        refused = site.run("pause", "warehouse", "--server", f"http://127.0.0.1:{port}")
        assert (refused.returncode, "give the key by TAILRACE_API_KEY" in refused.stderr) == (2, True)
        [listed] = site.tailrace("subscriptions")
        assert {name: listed[name] for name in altered} == altered
        assert server.javas == []  # no Spark
        assert server.stop() == 0, server.words()
    assert "hunter" not in server.log.read_text() + json.dumps([answer, altered])
