"""What a failed request of the driver means for the next one."""

from __future__ import annotations

import pytest
from cassandra import ConsistencyLevel, InvalidRequest, OperationTimedOut, ReadFailure, ReadTimeout, Unauthorized

from tailrace_schemas.errors import ServiceError
from tailrace_spark.snapshot.driver import page_error, service_error
from tailrace_spark.snapshot.pace import Fault
from tailrace_spark.snapshot.reading import PageError

READ_FAILURE = ReadFailure(
    "Operation failed - received 0 responses and 1 failures: READ_TOO_MANY_TOMBSTONES from /127.0.0.1:7000",
    consistency=ConsistencyLevel.LOCAL_QUORUM,
    required_responses=1,
    received_responses=0,
    failures=1,
    error_code_map={"127.0.0.1": 1},
)


@pytest.mark.promise("snapshot.unreadable")
@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (READ_FAILURE, Fault.FAILED),
        (ReadTimeout("slow", consistency=ConsistencyLevel.ONE), Fault.TIMEOUT),
        (OperationTimedOut(), Fault.TIMEOUT),
    ],
)
def test_what_fewer_rows_may_mend_is_asked_for_again(error: Exception, fault: Fault) -> None:
    explained = page_error(error)
    assert isinstance(explained, PageError)
    assert explained.fault is fault
    assert type(service_error(error)) is ServiceError


def test_the_words_of_a_replica_reach_people() -> None:
    assert "READ_TOO_MANY_TOMBSTONES from /127.0.0.1:7000" in str(page_error(READ_FAILURE))


def test_a_refusal_is_one_for_good() -> None:
    for error in (InvalidRequest("no such table"), Unauthorized("no SELECT")):
        assert type(page_error(error)) is ServiceError
