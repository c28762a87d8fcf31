"""CQL names to Avro names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.avro.names import Names, avro_name, cql_name, namespace


@pytest.mark.parametrize(
    ("cql", "avro"),
    [
        ("plain", "plain"),
        ("Mixed_9", "Mixed_9"),
        ("9lives", "_x39_lives"),
        ("é", "_xe9_"),
        ("a b", "a_x20_b"),
        ("_x", "_x5f_x"),
        ("__x", "__x5f_x"),
        ("a_xb", "a_x5f_xb"),
        ("🎉", "_x1f389_"),
        ("", "_x_"),
    ],
)
def test_names_are_escaped_by_rule(cql: str, avro: str) -> None:
    assert avro_name(cql) == avro
    assert cql_name(avro) == cql


@given(st.text(max_size=12))
def test_every_name_is_legal_in_avro_and_comes_back(name: str) -> None:
    escaped = avro_name(name)
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", escaped)
    assert cql_name(escaped) == name


def test_namespaces_keep_the_dots_of_the_prefix_only() -> None:
    assert namespace("my.app", "k.s", "T-1") == "my.app.k_x2e_s.T_x2d_1"


def test_a_second_claim_of_a_name_gets_a_number() -> None:
    names = Names(("Cell",))
    assert [names.claim(name) for name in ("Cell", "a", "a", "Cell")] == ["Cell_2", "a", "a_2", "Cell_3"]
