"""The forms that make a subscription, alter one and replay its dead letters: first all is checked, then it is kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from tailrace_common.cli.checks import Check
from tailrace_common.secrets import redact
from tailrace_common.settings import Settings
from tailrace_common.settings.sinks import SINK_TYPES
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_server.api.metrics import Shared
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model.subscription import SNAPSHOT, ConflictError, RefusedRequestError
from tailrace_server.operations.answers import Answer
from tailrace_server.operations.asking import STREAM_NAMES, Asked, checked, takes_snapshots, targets, typed
from tailrace_server.operations.checks import examined, published_tables
from tailrace_server.operations.operations import Alteration
from tailrace_server.web.access import Form, Site, Visitor
from tailrace_server.web.reading import ONE, operator
from tailrace_server.web.rendering import Renderer, path_of, redirect
from tailrace_server.worker.settings import stream_settings
from tailrace_spark.batch.delivery import DeadLetter
from tailrace_spark.job.replay import ReplayCounts, all_letters, box_of, replay_sink

_FAULT_FIELDS: Final = (
    ("table ", "table"), ("target ", "target"), ("name ", "name"), ("start ", "start"),
    ("stream.where", "where"), ("stream.columns", "columns"), ("stream: ", "columns"), ("stream.", "stream"),
    ("options.", "options"), ("sink.", "options"),
)  # fmt: skip
MOST_LETTERS: Final = 200


class FieldError(Exception):
    """A field cannot be read; `field` is its name in the form."""

    def __init__(self, field: str, words: str) -> None:
        super().__init__(words)
        self.field = field


def pairs_of(name: str, form: Mapping[str, str]) -> dict[str, str]:
    """The lines NAME = VALUE of a field. Raises FieldError."""
    pairs: dict[str, str] = {}
    for line in filter(None, map(str.strip, form.get(name, "").split("\n"))):
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise FieldError(name, f"{line}: must be NAME = VALUE")
        pairs[key.strip()] = value.strip()
    return pairs


def typed_pairs(name: str, form: Mapping[str, str]) -> dict[str, Any]:
    """The same with values as TOML reads them, so that 5 is a number and true is true; else they stay text."""
    return {key: typed(text) for key, text in pairs_of(name, form).items()}


def lines_of(values: Mapping[str, Any]) -> str:
    """Settings as lines that are read as the same settings."""
    return "\n".join(f"{name} = {_written(value)}" for name, value in values.items())


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def faults_of(error: Exception) -> dict[str, str]:
    """The lines of a refusal by the field that they are about; under an empty name what is about none."""
    if isinstance(error, FieldError):
        return {error.field: str(error)}
    faults: dict[str, str] = {}
    for line in str(error).splitlines():
        words = re.sub(r"^subscription [^:]+: (unknown setting )?", "", line)
        name = next((name for start, name in _FAULT_FIELDS if words.startswith(start)), "")
        faults[name] = f"{faults[name]} {line}" if name in faults else line
    return faults


_REFUSED: Final = (RefusedRequestError, ConflictError, FieldError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A form as somebody has filled it in, and what is wrong with it. `answer` is the subscription that it alters."""

    form: Mapping[str, str]
    answer: Answer | None = None
    faults: Mapping[str, str] = field(default_factory=dict)
    checks: Sequence[Check] = ()


Page = Callable[[Request, Visitor, Draft], Response]
"""The form of a draft. One with faults was refused."""


def routes(app: FastAPI, site: Site, renderer: Renderer) -> None:
    """Add them."""
    kind_by_target = targets(site.settings)

    def page(request: Request, visitor: Visitor, draft: Draft) -> Response:
        kinds = set(kind_by_target.values()) if draft.answer is None else {draft.answer["sink"]}
        option_names = {kind: sorted(SINK_TYPES[kind].by_subscription) for kind in sorted(kinds)}
        values: dict[str, Any] = {
            "draft": draft,
            "answer": draft.answer,
            "targets": {name: kind for name, kind in kind_by_target.items() if kind in kinds},
            "option_names": "; ".join(f"{kind}: {', '.join(names)}" for kind, names in option_names.items() if names)
            or "none",
            "stream_names": [name for name in STREAM_NAMES if name != SNAPSHOT],
            "snapshots_can": any(map(takes_snapshots, kinds)),
        }
        return renderer.page(request, visitor, "form.html", 422 if draft.faults else 200, **values)

    _new(app, site, page)
    _alter(app, site, page)


def _new(app: FastAPI, site: Site, page: Page) -> None:
    @app.get("/subscriptions/new")
    def new(request: Request) -> Response:
        visitor, _ = operator(site, request)
        form = {"start": "earliest", "snapshot": site.settings.server.snapshot}
        return page(request, visitor, Draft(form=form))

    tables = Shared(lambda: published_tables(site.settings))

    @app.get("/subscriptions/tables")
    def published(request: Request) -> Response:
        operator(site, request)
        try:
            return JSONResponse(tables.get())
        except ServiceError:
            return JSONResponse([])  # one writes the name; the check says that Kafka does not answer

    @app.post("/subscriptions/new")
    def make(request: Request, form: Form) -> Response:
        visitor, operations = operator(site, request, form)
        try:
            request_asked = asked_of(form, site)
            checks = _checks(site, request_asked, form)
            if checks:
                return page(request, visitor, Draft(form=form, checks=checks))
            answer, is_new = operations.subscribe(request_asked, check=False)
        except _REFUSED as error:
            return page(request, visitor, Draft(form=form, faults=faults_of(error)))
        return redirect(f"{path_of(answer['reference'])}?done={'subscribed' if is_new else 'existed'}")


def asked_of(form: Mapping[str, str], site: Site) -> Asked:
    """What a form asks for; without a name it has that of its target. Raises FieldError, RefusedRequestError."""
    target = form.get("target", "")
    kind = targets(site.settings).get(target)
    snapshot = {SNAPSHOT: form[SNAPSHOT]} if SNAPSHOT in form and kind is not None and takes_snapshots(kind) else {}
    return Asked(
        table=form.get("table", "").strip(),
        name=form.get("name", "").strip() or target,
        target=target,
        options=typed_pairs("options", form),
        where=form.get("where", "").strip() or None,
        columns=pairs_of("columns", form),
        stream={**snapshot, **typed_pairs("stream", form)},
        start=form.get("time", "").strip() if form.get("start") == "time" else form.get("start", "earliest"),
    )


def _checks(site: Site, spec: Asked, form: Mapping[str, str]) -> Sequence[Check]:
    """What somebody has to see before it is kept; nothing where all is well. Raises RefusedRequestError."""
    request = checked(spec, site.settings)
    if form.get("anyway"):
        return ()
    checks = examined(site.settings, request)
    return checks if form.get("check") or not all(check.ok for check in checks) else ()


def _alter(app: FastAPI, site: Site, page: Page) -> None:
    @app.get(f"{ONE}/alter")
    def ask(request: Request, table: str, name: str) -> Response:
        visitor, operations = operator(site, request)
        answer = operations.details(f"{table}/{name}")
        return page(request, visitor, Draft(form=form_values(answer), answer=answer))

    @app.post(f"{ONE}/alter")
    def alter(request: Request, table: str, name: str, form: Form) -> Response:
        visitor, operations = operator(site, request, form)
        answer = operations.details(f"{table}/{name}")
        try:
            alteration = alteration_of(answer, form)
            checks = _checks(site, alteration.of(site.subscriptions.get(answer["id"])), form)
            if checks:
                return page(request, visitor, Draft(form=form, answer=answer, checks=checks))
            operations.alter(answer["reference"], alteration, check=False)
        except _REFUSED as error:
            return page(request, visitor, Draft(form=form, answer=answer, faults=faults_of(error)))
        return redirect(f"{path_of(answer['reference'])}?done=altered")


def form_values(answer: Answer) -> dict[str, str]:
    """The texts of a form that alters a subscription."""
    return {
        "revision": str(answer["revision"]),
        "target": answer["target"],
        SNAPSHOT: answer["snapshot"],
        "where": answer["where"] or "",
        "columns": lines_of(answer["columns"]),
        "options": lines_of(answer["options"]),
        "stream": lines_of({name: value for name, value in answer["stream"].items() if name != SNAPSHOT}),
    }


def alteration_of(answer: Answer, form: Mapping[str, str]) -> Alteration:
    """What a form makes another. Raises FieldError."""
    columns: dict[str, str | None] = {**pairs_of("columns", form)}
    options = typed_pairs("options", form)
    stream = {**({SNAPSHOT: form[SNAPSHOT]} if SNAPSHOT in form else {}), **typed_pairs("stream", form)}
    if SNAPSHOT in answer["stream"]:
        stream.setdefault(SNAPSHOT, answer[SNAPSHOT])  # a form that does not ask leaves it as it is
    for name, values in (("columns", columns), ("options", options), ("stream", stream)):
        values.update(dict.fromkeys(answer[name].keys() - values.keys()))
    condition = form.get("where", "").strip()
    revision = form.get("revision", "")
    return Alteration(
        target=form.get("target"), options=options, where=condition, columns=columns, stream=stream,
        revision=int(revision) if revision.isascii() and revision.isdecimal() and len(revision) < 19 else -1,
    )  # fmt: skip


def letters_routes(app: FastAPI, site: Site, renderer: Renderer) -> None:
    """Add the pages of a subscription's dead letters: listed, and replayed."""

    @app.get(f"{ONE}/letters")
    def letters(request: Request, table: str, name: str, written: int = -1, again: int = 0, rest: int = 0) -> Response:
        visitor, operations = operator(site, request)
        answer = operations.details(f"{table}/{name}")
        values: dict[str, Any] = {"answer": answer, "letters": (), "problem": "", "most": MOST_LETTERS}
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
        letters = list(islice(all_letters(box), MOST_LETTERS + 1))
    if len(letters) <= MOST_LETTERS:
        subscriptions.count_letters(subscription.id, answer["letters"], len(letters))
    return letters


def replayed(settings: Settings, subscriptions: Subscriptions, answer: Answer) -> ReplayCounts:
    """Write all again, in this process; the worker may write meanwhile. Raises SettingsError, ServiceError."""
    subscription = subscriptions.get(answer["id"])
    parts = replay_sink(subscription.sink_name, stream_settings(settings, subscription, "unused"))
    done = sum(parts, ReplayCounts())
    subscriptions.count_letters(subscription.id, answer["letters"], done.again + done.left)
    return done
