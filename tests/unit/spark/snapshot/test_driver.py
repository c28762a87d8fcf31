"""What a failed request of the driver means for the next one, and which pages are believed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace

import pytest
from cassandra import ConsistencyLevel, InvalidRequest, OperationTimedOut, ReadFailure, ReadTimeout, Unauthorized

import tailrace_spark.snapshot.driver
from tailrace_schemas.errors import ServiceError
from tailrace_spark.snapshot.driver import PageSource, PendingPage, page_error, require_unmasked, service_error
from tailrace_spark.snapshot.pace import Fault
from tailrace_spark.snapshot.reading import ForbiddenError, PageError, UnreadableError
from tailrace_spark.snapshot.settings import SnapshotSettings
from tests.unit.spark.snapshot.pages import columns_page

READ_FAILURE = ReadFailure(
    "Operation failed - received 0 responses and 1 failures: READ_TOO_MANY_TOMBSTONES from /127.0.0.1:7000",
    consistency=ConsistencyLevel.LOCAL_QUORUM,
    required_responses=1,
    received_responses=0,
    failures=1,
    error_code_map={"127.0.0.1": 1},
)
PREPARED = SimpleNamespace(
    result_metadata=[("shop", "people", name, None) for name in ("id", "name", "writetime(age)")]
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
    assert type(page_error(InvalidRequest("no such table"))) is ServiceError
    assert type(page_error(Unauthorized("no SELECT"))) is ForbiddenError


def believed(release: str = "5.0.9", masked: Sequence[str] = ("name", "age"), **options: object) -> list[str]:
    """What is asked of a node, to believe a page of `id`, `name` and the write time of `age`."""
    settings = SnapshotSettings.model_validate(
        {"table": "shop.people", "username": "reader", "password": "p", **options}
    )
    asked: list[str] = []

    def rows(statement: str) -> Sequence[Sequence[object]]:
        asked.append(statement.partition(" WHERE ")[0])
        if "column_masks" in statement:
            return [("shop", "people", column) for column in masked]
        if "OF reader" in statement:
            return []
        raise ServiceError("You are not authorized to view everyone's permissions")

    require_unmasked(settings, PREPARED, SimpleNamespace(release_version=release), rows)
    return asked


@pytest.mark.promise("snapshot.masked")
def test_masked_values_are_no_data() -> None:
    with pytest.raises(UnreadableError, match=r"masks shop\.people\.name for this role: .* GRANT UNMASK ON TABLE"):
        believed()


@pytest.mark.promise("snapshot.masked")
def test_masks_of_columns_that_are_not_selected_hinder_nobody() -> None:
    assert len(believed(masked=("age",))) == 1  # the masks themselves
    assert len(believed(masked=())) == 1


def test_masked_values_can_be_asked_for() -> None:
    assert believed(allow_masked_values=True) == []


def test_nodes_before_5_0_have_no_masks() -> None:
    assert believed(release="4.1.10") == []


class Node:
    """Gives pages of one value each."""

    host_id = "a"
    release_version = "5.0.9"

    def __init__(self, values: Sequence[bytes]) -> None:
        self.values = list(values)

    def send(self) -> SimpleNamespace:
        rows = SimpleNamespace(current_rows=[columns_page([[self.values.pop(0)]])])
        return SimpleNamespace(result=lambda: rows, coordinator_host=self, _paging_state=None)


def page_of(monkeypatch: pytest.MonkeyPatch, looks: Sequence[Exception | None], *answers: bytes) -> list[bytes | None]:
    """What is taken of pages that are asked for at one node, whose rights look like this one after the other.

    None where they could not be seen.
    """
    outcomes = list(looks)

    def look(*_: object) -> None:
        if (error := outcomes.pop(0)) is not None:
            raise error

    monkeypatch.setattr(tailrace_spark.snapshot.driver, "require_unmasked", look)
    node, source = Node(answers), object.__new__(PageSource)
    source._settings = SnapshotSettings(table="shop.people")
    source._unmasked_since = {}
    believes = partial(source._believes, SimpleNamespace(query_string="SELECT"))
    taken: list[bytes | None] = []
    while node.values:
        try:
            taken.append(PendingPage(node.send, believes).get().columns[0][0])
        except UnreadableError:
            raise
        except ServiceError:
            taken.append(None)
    assert outcomes == []
    return taken


@pytest.mark.promise("snapshot.masked")
def test_a_page_from_before_a_node_was_seen_to_give_what_is_stored_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node may mask a page, and hear of a grant right behind it."""
    assert page_of(monkeypatch, [None, None, None], b"p***", b"person", b"other") == [b"person", b"other"]


@pytest.mark.promise("snapshot.masked")
def test_a_page_is_not_believed_once_its_node_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnreadableError, match="masks"):
        page_of(monkeypatch, [None, None, UnreadableError("masks it")], b"person", b"person", b"p***")


@pytest.mark.promise("snapshot.masked")
def test_what_was_seen_of_a_node_counts_no_more_once_it_cannot_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The right may be gone meanwhile, and come again right behind a page."""
    pages = page_of(
        monkeypatch, [None, None, ServiceError("no answer"), None, None],
        b"p***", b"person", b"person", b"p***", b"person",
    )  # fmt: skip
    assert pages == [b"person", None, b"person"]


@pytest.mark.promise("snapshot.masked")
def test_pages_are_believed_again_at_once_where_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [*range(1000, 1004), *range(100)]  # the first page takes four looks at it
    monkeypatch.setattr(tailrace_spark.snapshot.driver, "_now", lambda: times.pop(0))
    answers = (b"p***", b"first", b"p***", b"second")
    assert page_of(monkeypatch, [None] * len(answers), *answers) == [b"first", b"second"]
