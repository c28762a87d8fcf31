"""kill -9 of workers, API, meta database and sink at each step: the target is what SELECT answers."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from tailrace_common.settings import load_settings
from tailrace_schemas.errors import ServiceError
from tailrace_server.operations.remote import RemoteOperations
from tests import postgres
from tests.integration.processes import PROGRAM
from tests.integration.server import dying_server
from tests.integration.server.dying_server import Step
from tests.integration.server.servers import ServerProcess, Site
from tests.integration.server.test_snapshots import asked, site_of
from tests.integration.snapshot.following import Place, Writes
from tests.oracle.comparison import Downstream

_SECONDS = 1200
# Which steps a database is killed at; what dies is not there at the other ones.
_OF_DATABASES = (Step.NOTING, Step.NOTED, Step.WRITING, Step.WRITTEN, Step.BATCH, Step.KEPT)


@pytest.fixture
def databases(tmp_path: Path) -> Iterator[dict[str, postgres.OwnServer]]:
    """The meta database and the sink's, each a server of its own."""
    with ExitStack() as stack:
        made = {}
        for name in ("meta", "sink"):
            made[name] = stack.enter_context(closing(postgres.OwnServer(tmp_path / name)))
        yield made


def server(site: Site, name: str, *words: str, dies: tuple[str, ...] = ()) -> ServerProcess:
    """A worker; `dies` is what it kills, and where."""
    program = (dying_server.__file__, *dies) if dies else PROGRAM
    return site.server(name, "--role", "worker", *words, program=program)


@pytest.mark.long
@pytest.mark.promise("subscription.snapshot", "subscription.take-over")
@pytest.mark.timeout(7200)
def test_kills_at_each_step(place: Place, tmp_path: Path, databases: dict[str, postgres.OwnServer]) -> None:
    place.create("killed")
    site = site_of(place, tmp_path, url=databases["meta"].url, authentication=False)
    address = f"http://127.0.0.1:{load_settings(site.config, {}).server.port}"
    api = site.server("api", "--role", "api")
    request = asked(f"{place.keyspace}.killed", {"type": "sql", "url": databases["sink"].url}, "initial")
    killed = dict.fromkeys(("worker", "api", "meta", "sink"), 0)
    with api, closing(RemoteOperations(address, None)) as remote, Writes(place, "killed", pause=0.2) as writes:
        api.until(lambda: "HTTP API: http" in api.log.read_text(), _SECONDS)
        identity = remote.subscribe(request)[0]["id"]
        for step in Step:
            with server(site, "dying", dies=(f"{step}=",)) as dying:
                assert dying.ended(_SECONDS) == -signal.SIGKILL, f"{step}\n{dying.words()}"
            killed["worker"] += 1
            api.kill()
            killed["api"] += 1
            api.start()
            api.until(lambda: answers(remote), _SECONDS)
            answer, is_new = remote.subscribe(request)
            assert (answer["id"], is_new) == (identity, False)
        plan = [(step, which) for step in _OF_DATABASES for which in databases]
        files = {which: tmp_path / f"{which}.pid" for which in databases}
        for which, file in files.items():
            file.write_text(str(databases[which].pid))
        with server(site, "last", dies=tuple(f"{step}={files[which]}" for step, which in plan)) as last:
            for _, which in plan:
                last.until(lambda: is_dead(databases[which], remote), _SECONDS)  # noqa: B023 - it is called here
                killed[which] += 1
                databases[which].restart()
                files[which].write_text(str(databases[which].pid))
            last.until(lambda: remote.details("copy")["stage"] == "log", _SECONDS)
            writes.end()
            with closing(Downstream(databases["sink"].url)) as store:
                place.until_equal(store, "killed", _SECONDS)
                assert store.set_aside() == []
            assert remote.details("copy")["state"] == "active"
            assert last.stop() == 0, last.words()
    sys.stderr.write(f"killed with -9: {killed}; {writes.count} statements, and the target is what SELECT answers\n")


def is_dead(database: postgres.OwnServer, remote: RemoteOperations) -> bool:
    """Whether it was killed. A snapshot that ends before is asked for again, so that there are more steps."""
    with suppress(ServiceError):
        if database.running and remote.details("copy")["stage"] == "log":
            remote.reset("copy", snapshot=True)
    return not database.running


def answers(remote: RemoteOperations) -> bool:
    """Whether the API does."""
    with suppress(ServiceError):
        return bool(remote.all())
    return False
