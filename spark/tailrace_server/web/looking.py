"""Pages that look into Kafka and into sinks when somebody opens them: dead letters, last changes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Request
from fastapi.responses import Response

from tailrace_common.kafka import RecentRecords
from tailrace_common.secrets import redact
from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader
from tailrace_schemas.avro.decode import reader_of
from tailrace_schemas.avro.frames import message_schema_id
from tailrace_schemas.change_json import ChangeForms, edit_words, key_words, time_words
from tailrace_schemas.errors import DecodeError, ServiceError, SettingsError
from tailrace_schemas.masks import Masks
from tailrace_schemas.topics import KafkaPartition
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model.subscription import ConflictError, Subscription
from tailrace_server.web.access import Site, form_of
from tailrace_server.web.reading import ONE, operator
from tailrace_server.web.rendering import Renderer, path_of, redirect
from tailrace_server.worker.settings import stream_settings, topics_pattern
from tailrace_spark.batch.delivery import DeadLetter
from tailrace_spark.job.replay import ReplayCounts, all_letters, replay_sink
from tailrace_spark.shaping import masks_of
from tailrace_spark.sinks.letters import LetterReader, LetterTopic

Form = Annotated[dict[str, str], Depends(form_of)]
MOST: Final = 200
MOST_CHANGES: Final = 20
_CHANGES_SECONDS: Final = 5.0


def routes(app: FastAPI, site: Site, renderer: Renderer) -> None:
    """Add them."""
    _letters(app, site, renderer)
    _changes(app, site, renderer)


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


def _changes(app: FastAPI, site: Site, renderer: Renderer) -> None:
    changes = Changes(site.settings)

    @app.get(f"{ONE}/changes")
    def last(request: Request, table: str, name: str) -> Response:
        visitor, operations = operator(site, request)
        answer = operations.details(f"{table}/{name}")
        lines, problem = [], ""
        if site.settings.server.show_changes:
            try:
                lines = changes.of(site.subscriptions.get(answer["id"]))
            except (ServiceError, SettingsError) as error:
                problem = redact(str(error))
        values: dict[str, Any] = {
            "answer": answer,
            "lines": lines,
            "problem": problem,
            "shows": site.settings.server.show_changes,
        }
        return renderer.page(request, visitor, "changes.html", **values)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A change for people. `timestamp` is Kafka's, in milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    written: str = ""
    operation: str = ""
    key: str = ""
    edit: str = ""
    problem: str = ""


class Changes:
    """Reads them when somebody looks. It keeps nothing."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def of(self, subscription: Subscription) -> list[Line]:
        """The newest first. Raises ServiceError where Kafka does not answer."""
        settings = stream_settings(self._settings, subscription, "unused")
        kafka, masks = settings.kafka.reveal(), masks_of(settings.stream)
        recent = RecentRecords(kafka, timeout=_CHANGES_SECONDS).of(topics_pattern(subscription), MOST_CHANGES)
        forms = ChangeForms()
        with SchemaReader(kafka, settings.topics.prefix, timeout=_CHANGES_SECONDS) as schemas:
            lines = [
                _line(partition, record.offset, record.timestamp, record.value, schemas, masks, forms)
                for partition, record in recent
                if record.value is not None
            ]
        return [line for line in lines if line is not None]


def _line(
    partition: KafkaPartition,
    offset: int,
    timestamp: int,
    value: bytes,
    schemas: SchemaReader,
    masks: Masks | None,
    forms: ChangeForms,
) -> Line | None:
    """None for a change of which masks leave nothing."""
    topic, index = partition
    try:
        entry = schemas[message_schema_id(value)]
        change = reader_of(entry).change(reader_of(entry).record(value))
        if masks is not None:
            shaped = masks.change(change)
            if shaped is None:
                return None
            change = shaped
        record = forms.of(change.table).record(change)
    except (DecodeError, SettingsError, KeyError, ValueError) as error:
        words = f"cannot be shown: {type(error).__name__}"  # its words may have values of the row
        return Line(topic=topic, partition=index, offset=offset, timestamp=timestamp, problem=words)
    return Line(
        topic=topic,
        partition=index,
        offset=offset,
        timestamp=timestamp,
        written=time_words(int(str(record["written"]))),
        operation=str(record["op"]),
        key=key_words(change.table, record),
        edit=edit_words(change.table, record),
    )
