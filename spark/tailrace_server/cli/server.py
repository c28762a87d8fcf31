"""`tailrace server`: runs subscriptions."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tailrace_common.build import describe, log_build
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_common.cli.signals import stopping
from tailrace_common.http_server import PortTakenError
from tailrace_common.sections.server import OidcSettings
from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError
from tailrace_server.cli.opening import opened
from tailrace_server.meta.credentials import ApiKeys
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_spark.job.session import SparkOnce

if TYPE_CHECKING:
    from tailrace_server.oidc.sign_in import SignIn
    from tailrace_server.oidc.tokens import Tokens

log = logging.getLogger("tailrace_server")
NOTHING_TO_DO: Final = os.EX_TEMPFAIL
"""How a process ends without which the others go on."""
_SUPERVISOR: Final = "TAILRACE_SUPERVISOR"
_LOOK_SECONDS: Final = 0.5


class ServerRole(StrEnum):
    """What a server does; by default both, each in a process of its own."""

    API = "api"
    WORKER = "worker"


def server(
    role: Annotated[
        ServerRole | None, typer.Option(help="Only the HTTP API, or only the worker; by default both, a process each.")
    ] = None,
    migrate_only: Annotated[
        bool, typer.Option("--migrate-only", help="Bring the tables of the meta database up to date, and end.")
    ] = False,
    config: SettingsFile = None,
) -> None:
    """Run subscriptions and serve the HTTP API, as one of any number of servers on a meta database.

    The worker claims what nobody runs, and shares with the other workers of the cluster. SIGTERM or Ctrl-C finishes
    batches, and lets the others have its subscriptions at once. After kill -9 they wait for the end of its leases.

    Example: tailrace server -c tailrace.toml
    """
    settings = settings_of(config)
    if migrate_only:
        with opened(settings) as (database, _):
            log.info("the tables of the meta database %s are up to date", database.location)
        return
    stop = threading.Event()
    if role is None:
        with stopping(stop, log, "the API and the worker end in order"):
            supervise([str(role) for role in ServerRole], stop)
        return
    log_build(log)
    if is_supervised():
        end_with_supervisor(stop)
    with opened(settings) as (database, subscriptions), stopping(stop, log, "finishing batches"), ExitStack() as stack:
        if role is ServerRole.WORKER:
            _work(settings, database, stop)
        else:
            try:
                stack.enter_context(_serving(settings, database, subscriptions))
            except PortTakenError as error:
                if not is_supervised():
                    raise
                log.warning("%s. This server runs subscriptions, and serves no HTTP API; set another port", error)
                raise typer.Exit(NOTHING_TO_DO) from None
            stop.wait()
    log.info("the %s has ended", role)


@contextmanager
def _serving(settings: Settings, database: MetaDatabase, subscriptions: Subscriptions) -> Iterator[None]:
    """While inside, the HTTP API answers."""
    from tailrace_server.api.access import Access, RateLimit
    from tailrace_server.api.app import application  # other commands need no web framework
    from tailrace_server.api.listening import listening
    from tailrace_server.operations.checks import examined
    from tailrace_server.web.access import site_of
    from tailrace_server.web.app import install

    chosen, keys = settings.server, ApiKeys(database)
    if chosen.authentication and chosen.oidc is None and not keys.all():
        log.warning("the HTTP API refuses everybody: there is no key yet; `tailrace api-keys add NAME` makes one")
    scheme = "http" if chosen.tls_certificate_file is None else "https"
    with ExitStack() as stack:
        tokens, sign_in = (None, None) if chosen.oidc is None else stack.enter_context(_issuer(chosen.oidc))
        access = Access(
            keys=keys if chosen.authentication else None,
            tokens=tokens,
            sign_in=sign_in,
            limit=RateLimit(chosen.requests_per_second, chosen.requests_burst, time.monotonic),
        )
        site = site_of(settings, database, subscriptions, describe(), access, examine=examined)
        app = application(site.operations, database.ping, access, chosen.most_body_bytes, describe())
        install(app, site)
        port = stack.enter_context(listening(app, chosen))
        log.info("HTTP API: %s://%s:%d/v1; page: %s://%s:%d/", *(scheme, chosen.address, port) * 2)
        yield


@contextmanager
def _issuer(settings: OidcSettings) -> Iterator[tuple[Tokens, SignIn | None]]:
    """While inside, tokens of the issuer are accepted, and browsers may sign in by it."""
    from tailrace_server.oidc.discovery import Discovery, IssuerKeys  # others need no client of HTTP
    from tailrace_server.oidc.sign_in import SignIn
    from tailrace_server.oidc.tokens import Tokens

    with Discovery(settings) as issuer:
        tokens = Tokens(settings, IssuerKeys(issuer.keys, settings.keys_seconds, time.monotonic), time.time)
        yield tokens, None if settings.client_id is None else SignIn(settings, issuer, tokens, time.time)


def _work(settings: Settings, database: MetaDatabase, stop: threading.Event) -> None:
    from tailrace_server.worker.worker import spark_settings, work, working  # Spark's packages take their time

    with SparkOnce(spark_settings(settings)) as spark:
        spark()
        # Signals are taken again, for Spark has taken SIGINT.
        worked = working(settings, database, spark)
        with stopping(stop, log, "finishing batches"), worked as worker:
            work(worker, stop, spark, settings.server.lease_seconds)


def supervise(roles: Sequence[str], stop: threading.Event) -> None:
    """Run this command once more for each role, until `stop` is set; all have ended then.

    Raises ServiceError where one has ended by itself, or not in order.
    """
    environment = {**os.environ, _SUPERVISOR: str(os.getpid())}
    running = {
        role: subprocess.Popen([*sys.orig_argv, "--role", role], env=environment)  # noqa: S603 - this command, no shell
        for role in roles
    }
    faults: list[str] = []
    while running:
        is_over = bool(faults) or stop.wait(_LOOK_SECONDS)
        in_order = (0, NOTHING_TO_DO, -signal.SIGTERM) if is_over else (NOTHING_TO_DO,)
        for role, process in list(running.items()):
            if is_over:
                process.terminate()
                process.wait()
            if (code := process.poll()) is not None:
                del running[role]
                if code not in in_order:
                    faults.append(f"the process of the {role} has ended (exit code {code})")
    if faults:
        raise ServiceError(f"{', and '.join(faults)}; this server ends with it. Its log has the reason")


def is_supervised() -> bool:
    """Whether this process is one of several of a server."""
    return _SUPERVISOR in os.environ


def end_with_supervisor(stop: threading.Event) -> None:
    """Stop when whoever has started this process is gone, as by kill -9."""

    def watch() -> None:
        while os.getppid() == int(os.environ[_SUPERVISOR]) and not stop.wait(_LOOK_SECONDS):
            pass
        stop.set()

    threading.Thread(target=watch, name="supervisor", daemon=True).start()
