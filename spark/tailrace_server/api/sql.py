"""Statements over HTTP.

Annotations are not put off here: FastAPI reads them, and some are made of arguments.
"""

from typing import Annotated

from fastapi import Depends, FastAPI

from tailrace_server.api.access import PREFIX, Access, OperationsFor, require_role, requires
from tailrace_server.api.bodies import SqlBody
from tailrace_server.meta.keys import Caller, Role
from tailrace_server.model.errors import RefusedRequestError
from tailrace_server.operations.answers import Answer
from tailrace_server.sql.parsing import parse
from tailrace_server.sql.running import run
from tailrace_server.sql.statements import ShowAll, ShowCreate, ShowOne


def add_sql(app: FastAPI, operations: OperationsFor, access: Access) -> None:
    """The route of statements. SHOW is for readers, the others are for operators."""
    parse("")  # which makes the parser: no request waits for that
    Reader = Annotated[Caller, Depends(requires(access, Role.READ))]

    @app.post(PREFIX + "/sql", summary="Run a statement: its rows")
    def sql(body: SqlBody, caller: Reader) -> list[Answer]:
        statements = parse(body.statement)
        if len(statements) != 1:
            raise RefusedRequestError(f"one statement at a time, not {len(statements)}")
        [statement] = statements
        if not isinstance(statement.statement, ShowAll | ShowOne | ShowCreate):
            require_role(caller, Role.OPERATE)
        return list(run(statement, operations(caller.name), check=body.check).rows)
