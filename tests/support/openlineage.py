"""OpenLineage's own JSON schemas, and a server that takes events as Marquez does."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

from tests.support.loopback_server import LoopbackServer

SCHEMAS: Final = Path(__file__).parent.parent / "fixtures" / "openlineage"

Event = dict[str, Any]


def require_valid(event: Event) -> None:
    """Raise ValidationError, or KeyError for a schema that is not here, unless event and facets are as they should."""
    documents = [json.loads(path.read_text()) for path in sorted(SCHEMAS.glob("*.json"))]
    registry: Registry[Any] = Registry().with_resources(
        [(document["$id"], Resource.from_contents(document)) for document in documents]
    )
    _validate(event, event["schemaURL"], registry)
    datasets = [*event["inputs"], *event["outputs"]]
    holders = [event["run"].get("facets"), event["job"].get("facets"), *(data.get("facets") for data in datasets)]
    for facets in (*holders, *(data.get("inputFacets") for data in datasets)):
        for facet in (facets or {}).values():
            _validate(facet, facet["_schemaURL"], registry)


def _validate(value: Any, schema: str, registry: Registry[Any]) -> None:
    Draft202012Validator({"$ref": schema}, registry=registry, format_checker=FormatChecker()).validate(value)


class LineageServer(LoopbackServer):
    """Listens on a free port of the loopback address while it is entered, and keeps (path, authorization, event)."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str | None, Event]] = []
        super().__init__(self._handler(), "lineage-server")

    @property
    def url(self) -> str:
        """Where events go."""
        return self.address

    @property
    def events(self) -> list[Event]:
        """The events, as they came."""
        return [event for _, _, event in self.requests]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            """Takes a POST of JSON."""

            def do_POST(self) -> None:
                """Keep the event."""
                event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                requests.append((self.path, self.headers["Authorization"], event))
                self.send_response(201)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        return Handler
