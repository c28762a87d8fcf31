"""The page of a subscription's dead letters, which are read from Kafka when somebody opens it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Request
from fastapi.responses import Response

from tailrace_common.secrets import redact
from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model.subscription import ConflictError, Subscription
from tailrace_server.web.access import Site, form_of
from tailrace_server.web.reading import ONE, operator
from tailrace_server.web.rendering import Renderer, path_of, redirect
from tailrace_server.worker.settings import stream_settings
from tailrace_spark.batch.delivery import DeadLetter
from tailrace_spark.job.replay import ReplayCounts, all_letters, replay_sink
from tailrace_spark.sinks.letters import LetterReader, LetterTopic

Form = Annotated[dict[str, str], Depends(form_of)]
MOST: Final = 200


def routes(app: FastAPI, site: Site, renderer: Renderer) -> None:
    """Add them."""
    _letters(app, site, renderer)


def _letters(app: FastAPI, site: Site, renderer: Renderer) -> None:
    boxes = LetterBoxes(site.settings, site.subscriptions)

    @app.get(f"{ONE}/letters")
    def letters(request: Request, table: str, name: str, taken: int = -1, again: int = 0, left: int = 0) -> Response:
        visitor, operations = operator(site, request)
        answer = operations.details(f"{table}/{name}")
        problem, read = "", None
        try:
            read = boxes.read(site.subscriptions.get(answer["id"]))
        except (ServiceError, SettingsError) as error:
            problem = redact(str(error))
        counts = None if taken < 0 else (taken, again, left)
        values: dict[str, Any] = {"answer": answer, "read": read, "problem": problem, "counts": counts}
        return renderer.page(request, visitor, "letters.html", **values)

    @app.post(f"{ONE}/letters/replay")
    def replay(request: Request, table: str, name: str, form: Form) -> Response:
        _, operations = operator(site, request, form)
        answer = operations.details(f"{table}/{name}")
        counts = boxes.replay(site.subscriptions.get(answer["id"]))
        figures = f"taken={counts.taken}&again={counts.again}&left={counts.left}"
        return redirect(f"{path_of(answer['reference'])}/letters?{figures}")


@dataclass(frozen=True, slots=True)
class Letters:
    """The first letters of a sink. `replayable`: the page may replay them."""

    letters: tuple[DeadLetter, ...] = ()
    more: bool = False
    replayable: bool = True


class LetterBoxes:
    """The letters of subscriptions; sinks are opened in this process, and for the moment of a replay."""

    def __init__(self, settings: Settings, subscriptions: Subscriptions) -> None:
        self._settings = settings
        self._subscriptions = subscriptions

    def read(self, subscription: Subscription) -> Letters:
        """Raises ServiceError where Kafka does not answer. From then on so many are shown as are there."""
        counted = self._counted(subscription)
        with LetterReader(LetterTopic.of(self._settings, subscription.sink_name)) as box:
            letters = tuple(islice(all_letters(box), MOST + 1))
        if len(letters) <= MOST:
            self._subscriptions.count_letters(subscription.id, counted, len(letters))
        return Letters(letters[:MOST], len(letters) > MOST, _replayable(subscription))

    def replay(self, subscription: Subscription) -> ReplayCounts:
        """Write all again; the worker may write meanwhile. Raises ConflictError, SettingsError, ServiceError."""
        if not _replayable(subscription):
            raise ConflictError(
                f"{subscription.reference}: letters of log tables are not replayed here; "
                f"`tailrace subscriptions {subscription.reference} --letters --replay` does it"
            )
        counted, name = self._counted(subscription), subscription.sink_name
        settings = stream_settings(self._settings, subscription, "unused")
        done = sum(replay_sink(name, settings), ReplayCounts())
        self._subscriptions.count_letters(subscription.id, counted, done.again + done.left)
        return done

    def _counted(self, subscription: Subscription) -> int:
        _, deliveries = self._subscriptions.deliveries([subscription.id])
        return deliveries[subscription.id].letters


def _replayable(subscription: Subscription) -> bool:
    return subscription.sink.type != "log-tables"
