"""The routes of the HTTP API. Its description is at /openapi.json.

Annotations are not put off here: FastAPI reads them, and some are made of arguments.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field

from tailrace_common.secrets import redact
from tailrace_schemas.errors import ServiceError, TailraceError
from tailrace_server.api.access import PREFIX, Access, AddressLimit, BodyLimit, OperationsFor, require_role, requires
from tailrace_server.api.metrics import CONTENT_TYPE, Counting, ServerMetrics, Shared
from tailrace_server.meta.credentials import Caller, Role
from tailrace_server.model.subscription import ConflictError, RefusedRequestError, UnknownSubscriptionError
from tailrace_server.operations.answers import Answer
from tailrace_server.operations.asking import Asked, Body
from tailrace_server.operations.operations import Alteration
from tailrace_server.sql.parsing import parse, reads
from tailrace_server.sql.running import run
from tailrace_spark.batch.delivery import by_partition

Checking = Annotated[bool, Query(description="Look at table, columns and sink first; false keeps it all the same")]
_ONE: Final = PREFIX + "/subscriptions/{table}/{name}"
STATUS: Final[tuple[tuple[type[TailraceError], int], ...]] = (
    (RefusedRequestError, 422),
    (UnknownSubscriptionError, 404),
    (ConflictError, 409),
    (ServiceError, 503),
)
"""The status of each kind of error; of others it is 500."""
LONGEST_STATEMENT: Final = 10_000


def application(
    operations: OperationsFor, ping: Callable[[], None], access: Access, most_body_bytes: int, version: str
) -> FastAPI:
    """The application. `ping` raises ServiceError where the meta database does not answer."""
    app = FastAPI(title="Tailrace", version=version, docs_url=None, redoc_url=None)  # whose pages ask the internet
    app.add_middleware(BodyLimit, max_bytes=most_body_bytes)
    app.add_middleware(AddressLimit, access=access)
    app.add_middleware(Counting, metrics=access.metrics)
    app.exception_handler(TailraceError)(_refused)
    app.exception_handler(RequestValidationError)(_invalid)
    _health(app, ping)
    _metrics(app, operations, access.metrics)
    _reading(app, operations, access)
    _changing(app, operations, access)
    _sql(app, operations, access)
    return app


def _health(app: FastAPI, ping: Callable[[], None]) -> None:
    @app.get("/health", summary="Whether this process answers")
    async def health() -> dict[str, bool]:
        return {"alive": True}

    ready = Shared(ping)

    @app.get("/health/ready", summary="Whether the meta database answers too, as of the last seconds")
    def asked() -> dict[str, bool]:
        ready.get()
        return {"ready": True}


def _metrics(app: FastAPI, operations: OperationsFor, metrics: ServerMetrics) -> None:
    metrics.watch(lambda: operations("metrics").all())

    @app.get("/metrics", summary="Numbers for Prometheus", response_class=PlainTextResponse)
    def numbers() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)


def _reading(app: FastAPI, operations: OperationsFor, access: Access) -> None:
    Reader = Annotated[Caller, Depends(requires(access, Role.READ))]
    Admin = Annotated[Caller, Depends(requires(access, Role.ADMIN))]

    @app.get(PREFIX + "/subscriptions", summary="All subscriptions of the cluster")
    def all_(caller: Reader, cancelled: bool = False) -> list[Answer]:
        return list(operations(caller.name).all(cancelled=cancelled))

    @app.get(_ONE, summary="One with its settings and progress")
    def details(table: str, name: str, caller: Reader) -> Answer:
        return operations(caller.name).details(f"{table}/{name}")

    @app.get(PREFIX + "/audit", summary="Who changed what, the newest first")
    def audit(
        caller: Admin, reference: str | None = None, limit: Annotated[int, Query(ge=1, le=10_000)] = 100
    ) -> list[Answer]:
        return list(operations(caller.name).audit(reference, limit))


def _changing(app: FastAPI, operations: OperationsFor, access: Access) -> None:
    Operator = Annotated[Caller, Depends(requires(access, Role.OPERATE))]

    @app.post(PREFIX + "/subscriptions", status_code=201, summary="Ask for a table; 200 where that was asked before")
    def subscribe(spec: Asked, caller: Operator, response: Response, check: Checking = True) -> Answer:
        answer, is_new = operations(caller.name).subscribe(spec, check=check)
        response.status_code = 201 if is_new else 200
        return answer

    @app.put(
        PREFIX + "/subscriptions", summary="Make it so: a new one, or the existing one with exactly these settings"
    )
    def declare(
        spec: Asked, caller: Operator, dry_run: bool = False, check: Checking = True, paused: bool = False
    ) -> Answer:
        return operations(caller.name).declare(spec, dry_run=dry_run, check=check, paused=paused)

    @app.patch(_ONE, summary="Run it with other settings")
    def alter(table: str, name: str, alteration: Alteration, caller: Operator, check: Checking = True) -> Answer:
        return operations(caller.name).alter(f"{table}/{name}", alteration, check=check)

    @app.post(_ONE + "/pause", summary="Stop it; its progress stays")
    def pause(table: str, name: str, caller: Operator) -> Answer:
        return operations(caller.name).pause(f"{table}/{name}")

    @app.post(_ONE + "/resume", summary="Go on")
    def resume(table: str, name: str, caller: Operator) -> Answer:
        return operations(caller.name).resume(f"{table}/{name}")

    @app.post(_ONE + "/reset", summary="Read again from another place")
    def reset(table: str, name: str, body: ResetBody, caller: Operator) -> Answer:
        offsets = None if body.offsets is None else by_partition(body.offsets)
        return operations(caller.name).reset(f"{table}/{name}", body.start, offsets, snapshot=body.snapshot)

    @app.delete(_ONE, summary="End it for good; its target keeps what it has")
    def cancel(table: str, name: str, caller: Operator) -> Answer:
        return operations(caller.name).cancel(f"{table}/{name}")


def _sql(app: FastAPI, operations: OperationsFor, access: Access) -> None:
    """The route of statements. SHOW is for readers, the others are for operators."""
    parse("")  # which makes the parser: no request waits for that
    Reader = Annotated[Caller, Depends(requires(access, Role.READ))]

    @app.post(PREFIX + "/sql", summary="Run a statement: its rows")
    def sql(body: SqlBody, caller: Reader) -> list[Answer]:
        statements = parse(body.statement)
        if len(statements) != 1:
            raise RefusedRequestError(f"one statement at a time, not {len(statements)}")
        [statement] = statements
        if not reads(statement.statement):
            require_role(caller, Role.OPERATE)
        return run(statement, operations(caller.name), check=body.check)


async def _refused(_request: Request, error: Exception) -> JSONResponse:
    status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
    return _answer(str(error), status)


async def _invalid(_request: Request, error: Exception) -> JSONResponse:
    """What is wrong at which name; FastAPI's own answer repeats the values, and so secrets."""
    faults: list[Any] = list(error.errors()) if isinstance(error, RequestValidationError) else []
    words = "; ".join(f"{'.'.join(map(str, fault['loc'][1:]))}: {fault['msg']}" for fault in faults)
    return _answer(words or "no such request", 422)


def _answer(words: str, status: int) -> JSONResponse:
    """JSON can name halves of characters, which no answer can repeat."""
    return JSONResponse({"detail": redact(words).encode(errors="replace").decode()}, status)


class ResetBody(BaseModel):
    """Where to read from."""

    model_config = Body.__pydantic_config__

    start: str | None = Field(
        default=None, description="earliest, latest, or a time (ISO 8601). null: earliest, and with snapshot as it is"
    )
    snapshot: bool = Field(default=False, description="Read the tables again too, from their first range")
    offsets: dict[str, dict[int, int]] | None = Field(
        default=None, description="Or offsets by topic and partition; other partitions from their beginning"
    )


class SqlBody(BaseModel):
    """A statement."""

    model_config = Body.__pydantic_config__

    statement: str = Field(
        max_length=LONGEST_STATEMENT, description="One statement", examples=["SHOW SUBSCRIPTIONS LIKE 'shop.%'"]
    )
    check: bool = Field(default=True, description="Look at table, columns and sink before anything is kept")
