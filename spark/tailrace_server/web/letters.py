"""The page of a subscription's dead letters: listed and replayed as by `tailrace subscriptions NAME --letters`."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import Response

from tailrace_common.secrets import redact
from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.operations.answers import Answer
from tailrace_server.web.access import Form, Site
from tailrace_server.web.reading import ONE, operator
from tailrace_server.web.rendering import Renderer, path_of, redirect
from tailrace_server.worker.settings import stream_settings
from tailrace_spark.batch.delivery import DeadLetter
from tailrace_spark.job.replay import ReplayCounts, all_letters, box_of, replay_sink

MOST: Final = 200


def routes(app: FastAPI, site: Site, renderer: Renderer) -> None:
    """Add them."""

    @app.get(f"{ONE}/letters")
    def letters(request: Request, table: str, name: str, written: int = -1, again: int = 0, rest: int = 0) -> Response:
        visitor, operations = operator(site, request)
        answer = operations.details(f"{table}/{name}")
        values: dict[str, Any] = {"answer": answer, "letters": (), "problem": "", "most": MOST}
        values["counts"] = None if written < 0 else (written, again, rest)
        try:
            values["letters"] = first_letters(site.settings, site.subscriptions, answer)
        except (ServiceError, SettingsError) as error:
            values["problem"] = redact(str(error))
        return renderer.page(request, visitor, "letters.html", **values)

    @app.post(f"{ONE}/letters/replay")
    def replay(request: Request, table: str, name: str, form: Form) -> Response:
        _, operations = operator(site, request, form)
        answer = operations.details(f"{table}/{name}")
        counts = replayed(site.settings, site.subscriptions, answer)
        figures = f"written={counts.taken}&again={counts.again}&rest={counts.left}"
        return redirect(f"{path_of(answer['reference'])}/letters?{figures}")


def first_letters(settings: Settings, subscriptions: Subscriptions, answer: Answer) -> list[DeadLetter]:
    """As many as are shown, and one more where there are more; else from then on so many are counted as are there.

    Raises ServiceError where Kafka does not answer, SettingsError where the settings lack the target.
    """
    subscription = subscriptions.get(answer["id"])
    with box_of(stream_settings(settings, subscription, "unused"), subscription.sink_name) as box:
        letters = list(islice(all_letters(box), MOST + 1))
    if len(letters) <= MOST:
        subscriptions.count_letters(subscription.id, answer["letters"], len(letters))
    return letters


def replayed(settings: Settings, subscriptions: Subscriptions, answer: Answer) -> ReplayCounts:
    """Write all again, in this process; the worker may write meanwhile. Raises SettingsError, ServiceError."""
    subscription = subscriptions.get(answer["id"])
    parts = replay_sink(subscription.sink_name, stream_settings(settings, subscription, "unused"))
    done = sum(parts, ReplayCounts())
    subscriptions.count_letters(subscription.id, answer["letters"], done.again + done.left)
    return done
