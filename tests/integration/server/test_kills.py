"""kill -9 of the API at a named step: what it has kept, and has not answered, is there once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tailrace.local import LocalKafka
from tailrace.local.ports import free_port
from tailrace_server.operations.asking import Asked
from tests.integration.server import dying_server
from tests.integration.server.dying_server import Step
from tests.integration.server.servers import ServerProcess, Site

_SECONDS = 600  # of a machine that has more to do
pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]


def dying(site: Site, step: Step, number: int, *words: str) -> ServerProcess:
    return site.server("dying", *words, program=(dying_server.__file__, step, str(number)))


@pytest.mark.promise("subscription.same-request")
def test_the_api_is_killed_before_it_answers(tmp_path: Path, kafka: LocalKafka, prefix: str) -> None:
    """The request again is the same subscription: one there is, and one line of the audit."""
    port = free_port("127.0.0.1")
    site = Site(tmp_path, kafka, prefix, f"sqlite:///{tmp_path / 'meta.db'}", port=port, authentication=False)
    target = site.declare("copy", {"type": "sql", "url": f"sqlite:///{tmp_path / 'copy.db'}"})
    server_url = f"http://127.0.0.1:{port}"
    words = ("subscribe", "shop.items", "--name", "copy", "--target", target, "--server", server_url)
    with dying(site, Step.KEPT, 1, "--role", "api") as server:
        server.until(lambda: "HTTP API: http://127.0.0.1" in server.log.read_text(), _SECONDS)
        answer = site.run(*words)
        assert (answer.returncode, "does not answer" in answer.stderr) == (1, True)
        assert server.ended(_SECONDS) == -signal.SIGKILL
    with site.server("again", "--role", "api") as server:
        server.until(lambda: "HTTP API: http://127.0.0.1" in server.log.read_text(), _SECONDS)
        [again] = site.tailrace(*words)
        assert again["state"] == "active"
        assert server.stop() == 0, server.words()
    with site.operations() as operations:
        assert [row["operation"] for row in operations.audit(None, 10)] == ["subscribe"]
        asked = Asked(table="shop.items", name="copy", target=target)
        assert operations.subscribe(asked) == ({**again, "notes": []}, False)
