"""The forms that make a subscription and alter one: first all is checked, then it is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response

from tailrace_common.cli.checks import Check
from tailrace_schemas.errors import ServiceError
from tailrace_server.api.shared import Shared
from tailrace_server.model.errors import ConflictError, RefusedRequestError
from tailrace_server.model.subscription import SNAPSHOT
from tailrace_server.model.subscription import Request as Subscribing
from tailrace_server.operations.answers import Answer
from tailrace_server.operations.asking import Asked, checked, refuse_files, takes_snapshots
from tailrace_server.operations.checks import examined, published_tables
from tailrace_server.operations.operations import Alteration
from tailrace_server.operations.sections import STREAM_NAMES
from tailrace_server.web.access import Visitor, form_of
from tailrace_server.web.changing import operator
from tailrace_server.web.fields import (
    Field,
    FieldError,
    Kind,
    changes_of_form,
    faults_of,
    fields_of,
    filled,
    pairs_of,
    section_of_form,
    typed,
)
from tailrace_server.web.reading import ONE
from tailrace_server.web.rendering import Renderer, path_of, redirect
from tailrace_server.web.site import Site
from tailrace_spark.sinks.registry import SINKS

Form = Annotated[dict[str, str], Depends(form_of)]
_REFUSED: Final = (RefusedRequestError, ConflictError, FieldError)
_NOT_FOR_SERVERS: Final = ("console",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A form as somebody has filled it in, and what is wrong with it."""

    kind: str
    fields: Sequence[Field]
    form: Mapping[str, str]
    faults: Mapping[str, str] = field(default_factory=dict)
    checks: Sequence[Check] = ()


class Vault:
    """Keeps secrets of a form between two of its pages: sealed, in the page itself, for one session."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def sealed(self, visitor: Visitor, draft: Draft) -> str:
        """The secrets of a form, for its next page."""
        secrets = {item.id: draft.form.get(item.id, "") for item in draft.fields if item.kind is Kind.SECRET}
        return self._site.sessions.seal(visitor.session, json.dumps({name: v for name, v in secrets.items() if v}))

    def with_secrets(self, visitor: Visitor, form: Mapping[str, str]) -> dict[str, str]:
        """A form with the secrets that it had on the page before, where none is written over them."""
        text = self._site.sessions.open(visitor.session, form.get("sealed", ""))
        earlier = {} if text is None else json.loads(text)
        return {**form, **{name: value for name, value in earlier.items() if not form.get(name)}}


def routes(app: FastAPI, site: Site, renderer: Renderer) -> None:
    """Add them."""
    vault = Vault(site)
    _new(app, site, renderer, vault)
    _alter(app, site, renderer, vault)


def _new(app: FastAPI, site: Site, renderer: Renderer, vault: Vault) -> None:
    def shown(request: Request, visitor: Visitor, draft: Draft, status: int = 200) -> Response:
        sealed = vault.sealed(visitor, draft)
        values = {"draft": draft, "sealed": sealed, "answer": None, **_names(draft.kind)}
        return renderer.page(request, visitor, "form.html", status, **values)

    @app.get("/subscriptions/new")
    def new(request: Request, type: str = "") -> Response:
        visitor, _ = operator(site, request)
        if not type:
            kinds = [kind for name, kind in SINKS.items() if name not in _NOT_FOR_SERVERS]
            return renderer.page(request, visitor, "types.html", kinds=kinds)
        form = {"start": "earliest", "snapshot": site.settings.server.snapshot}
        return shown(request, visitor, Draft(kind=type, fields=fields_of(type), form=form))

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
        kind = form.get("type", "")
        fields, form = fields_of(kind), vault.with_secrets(visitor, form)
        try:
            request_asked = asked_of(kind, fields, form)
            checked_request = checked(request_asked, site.settings)
            if not form.get("anyway"):
                checks = examined(site.settings, checked_request)
                if form.get("check") or not all(check.ok for check in checks):
                    return shown(request, visitor, Draft(kind=kind, fields=fields, form=form, checks=checks))
            answer, is_new = operations.subscribe(request_asked, check=False)
        except _REFUSED as error:
            faults = faults_of(error, fields)
            return shown(request, visitor, Draft(kind=kind, fields=fields, form=form, faults=faults), 422)
        return redirect(f"{path_of(answer['reference'])}?done={'subscribed' if is_new else 'existed'}")


def asked_of(kind: str, fields: Sequence[Field], form: Mapping[str, str]) -> Asked:
    """What a form asks for. Raises FieldError, RefusedRequestError."""
    sink = section_of_form(kind, fields, form)
    refuse_files(sink)
    return Asked(
        table=form.get("table", "").strip(),
        name=form.get("name", "").strip(),
        sink=sink,
        where=form.get("where", "").strip() or None,
        columns=pairs_of("columns", form.get("columns", "")),
        stream=_stream(form),
        start=form.get("time", "").strip() if form.get("start") == "time" else form.get("start", "earliest"),
    )


def _stream(form: Mapping[str, str]) -> dict[str, Any]:
    """Settings of [stream]: the lines of the form, and its answer whether existing rows are copied."""
    return {**({SNAPSHOT: form[SNAPSHOT]} if SNAPSHOT in form else {}), **_typed("stream", form)}


def _typed(name: str, form: Mapping[str, str]) -> dict[str, Any]:
    """The lines NAME = VALUE of a field of the form."""
    return {key: typed(text) for key, text in pairs_of(name, form.get(name, "")).items()}


def _names(kind: str) -> dict[str, object]:
    """The names that lines of a form may begin with, and whether its sink takes rows that were read."""
    return {
        "stream_names": [name for name in STREAM_NAMES if name != SNAPSHOT],
        "snapshots_can": takes_snapshots(kind),
    }


def _alter(app: FastAPI, site: Site, renderer: Renderer, vault: Vault) -> None:
    def shown(request: Request, visitor: Visitor, answer: Answer, draft: Draft, status: int = 200) -> Response:
        sealed = vault.sealed(visitor, draft)
        values = {"draft": draft, "sealed": sealed, "answer": answer, **_names(draft.kind)}
        return renderer.page(request, visitor, "form.html", status, **values)

    @app.get(f"{ONE}/alter")
    def ask(request: Request, table: str, name: str) -> Response:
        visitor, operations = operator(site, request)
        answer = operations.details(f"{table}/{name}")
        fields = filled(fields_of(answer["sink"]), answer["settings"])
        return shown(request, visitor, answer, Draft(kind=answer["sink"], fields=fields, form=form_values(answer)))

    @app.post(f"{ONE}/alter")
    def alter(request: Request, table: str, name: str, form: Form) -> Response:
        visitor, operations = operator(site, request, form)
        answer = operations.details(f"{table}/{name}")
        fields = filled(fields_of(answer["sink"]), answer["settings"])
        form = vault.with_secrets(visitor, form)
        try:
            alteration = alteration_of(answer, fields, form)
            if not form.get("anyway"):
                checks = examined(site.settings, altered_request(site, answer, alteration))
                if form.get("check") or not all(check.ok for check in checks):
                    draft = Draft(kind=answer["sink"], fields=fields, form=form, checks=checks)
                    return shown(request, visitor, answer, draft)
            operations.alter(answer["reference"], alteration, check=False)
        except _REFUSED as error:
            faults = faults_of(error, fields)
            draft = Draft(kind=answer["sink"], fields=fields, form=form, faults=faults)
            return shown(request, visitor, answer, draft, 422)
        return redirect(f"{path_of(answer['reference'])}?done=altered")


def altered_request(site: Site, answer: Answer, alteration: Alteration) -> Subscribing:
    """What a subscription is with an alteration. Raises RefusedRequestError."""
    subscription = site.subscriptions.get(answer["id"])
    return checked(alteration.of(subscription, site.subscriptions.settings(answer["id"])), site.settings)


def form_values(answer: Answer) -> dict[str, str]:
    """The texts of a form that alters a subscription."""
    stream = {name: value for name, value in answer["stream"].items() if name != SNAPSHOT}
    return {
        SNAPSHOT: answer["snapshot"],
        "where": answer["where"] or "",
        "columns": "\n".join(f"{name} = {treatment}" for name, treatment in answer["columns"].items()),
        "stream": "\n".join(f"{name} = {_toml(value)}" for name, value in stream.items()),
    }


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def alteration_of(answer: Answer, fields: Sequence[Field], form: Mapping[str, str]) -> Alteration:
    """What a form makes another. Raises FieldError, RefusedRequestError."""
    sink = changes_of_form(fields, form)
    refuse_files({name: value for name, value in sink.items() if value is not None})
    columns: dict[str, str | None] = {**pairs_of("columns", form.get("columns", ""))}
    stream = _stream(form)
    if SNAPSHOT in answer["stream"]:
        stream.setdefault(SNAPSHOT, answer[SNAPSHOT])  # a form that does not ask leaves it as it is
    for name, values in (("columns", columns), ("stream", stream)):
        values.update(dict.fromkeys(answer[name].keys() - values.keys()))
    return Alteration(sink=sink, where=form.get("where", "").strip(), columns=columns, stream=stream)
