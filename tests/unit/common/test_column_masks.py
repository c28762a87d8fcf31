"""Which columns Cassandra masks for whom, by what it answers: the words are of live nodes of 5.0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tailrace_common.column_masks import masked_columns, masked_words
from tailrace_schemas.errors import ServiceError

OF_ROLE = "LIST UNMASK ON TABLE shop.people OF reader"
OF_ALL = "LIST UNMASK ON TABLE shop.people"
RIGHT = ("reader", "reader", "<keyspace shop>", "UNMASK")
OTHERS = 'Error from server: code=2100 [Unauthorized] message="You are not authorized to view everyone\'s permissions"'
CONDITION = "SELECT name FROM shop.people WHERE name = null ALLOW FILTERING"
NULL = 'Error from server: code=2200 [Invalid query] message="Unsupported null value for column name"'
Answer = Sequence[Sequence[object]] | str


def words(answers: Mapping[str, Answer], role: str | None = "reader") -> str | None:
    """What is said of two masked columns; an answer that is a text is an error's."""

    def rows(statement: str) -> Sequence[Sequence[object]]:
        answer = {CONDITION: NULL, **answers}[statement]
        if isinstance(answer, str):
            raise ServiceError(answer)
        return answer

    return masked_words(rows, "shop", "people", ("name", "age"), role)


@pytest.mark.promise("snapshot.masked")
def test_a_role_without_unmask_is_refused_by_table_and_column_with_the_grant_that_it_needs() -> None:
    assert words({OF_ROLE: [], OF_ALL: OTHERS}) == (
        "Cassandra masks shop.people.name, shop.people.age for this role: SELECT gives masked values of what is "
        "stored. GRANT UNMASK ON TABLE shop.people TO reader; "
        "or take masked values for data: allow_masked_values = true"
    )


@pytest.mark.promise("snapshot.masked")
@pytest.mark.parametrize(
    "answers",
    [
        pytest.param({OF_ROLE: [RIGHT]}, id="granted, or inherited"),
        pytest.param({OF_ROLE: [], OF_ALL: []}, id="superuser"),
        pytest.param({OF_ROLE: [], OF_ALL: [RIGHT]}, id="superuser where others have it"),
        pytest.param(
            {OF_ROLE: "LIST PERMISSIONS operation is not supported by AllowAllAuthorizer"}, id="without an authorizer"
        ),
    ],
)
def test_a_role_that_reads_what_is_stored_is_let_through(answers: Mapping[str, Answer]) -> None:
    assert words(answers) is None


@pytest.mark.promise("snapshot.masked")
def test_a_node_that_goes_by_rights_of_before_a_grant_is_waited_for() -> None:
    """LIST shows the grant at once, and the node still masks."""
    earlier = "User reader has no UNMASK nor SELECT_MASKED permission on table shop.people, cannot query masked columns"
    with pytest.raises(ServiceError, match="keeps rights for permissions_validity"):
        words({OF_ROLE: [RIGHT], CONDITION: earlier})


def test_nobody_has_to_log_in_where_everybody_reads_what_is_stored() -> None:
    anonymous = "You have to be logged in and not anonymous to perform this request"
    assert words({OF_ALL: anonymous}, role=None) is None


@pytest.mark.promise("snapshot.masked")
@pytest.mark.parametrize(
    ("answers", "role"),
    [
        ({OF_ALL: OTHERS}, None),
        ({OF_ROLE: "<role reader> doesn't exist"}, "reader"),
        ({OF_ROLE: "You are not authorized to view reader's permissions"}, "reader"),
        ({OF_ROLE: "LIST PERMISSIONS operation is not supported by OpaAuthorizer"}, "reader"),
    ],
)
def test_what_cannot_be_told_is_refused_with_cassandras_words(answers: Mapping[str, Answer], role: str | None) -> None:
    [said] = [answer for answer in answers.values() if isinstance(answer, str)]
    assert f"as far as can be told ({said})" in str(words(answers, role))


def test_a_node_that_does_not_answer_says_nothing_of_rights() -> None:
    with pytest.raises(ServiceError, match="timed out"):
        words({OF_ROLE: "timed out"})


def test_masks_are_asked_for_by_names_as_cassandra_stores_them() -> None:
    asked: list[str] = []

    def rows(statement: str) -> Sequence[Sequence[object]]:
        asked.append(statement)
        return [("It's", "T", "name")]

    assert masked_columns(rows, "It's", "T") == ("name",)
    assert asked[0].endswith("WHERE keyspace_name = 'It''s' AND table_name = 'T'")
