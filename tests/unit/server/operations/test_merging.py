"""Settings with changes of some: name by name at every depth."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_server.operations.merging import merged

KAFKA = {
    "type": "kafka",
    "kafka": {"bootstrap.servers": "a:1", "ssl.ca.location": "/ca"},
    "registry": {"url": "http://r"},
}


@pytest.mark.parametrize(
    ("changes", "result"),
    [
        ({}, {}),
        ({"topic": "x"}, {"topic": "x"}),
        ({"kafka": {"bootstrap.servers": "b:2"}}, {"kafka": {"bootstrap.servers": "b:2", "ssl.ca.location": "/ca"}}),
        (
            {"kafka": {"bootstrap": {"servers": "b:2"}}},
            {"kafka": {"bootstrap.servers": "b:2", "ssl.ca.location": "/ca"}},
        ),
        ({"kafka.ssl.ca.location": None}, {"kafka": {"bootstrap.servers": "a:1"}}),
        ({"kafka": {"ssl": {"ca": {"location": None}}}}, {"kafka": {"bootstrap.servers": "a:1"}}),
        ({"kafka": {"client.id": "me"}}, {"kafka": {**KAFKA["kafka"], "client": {"id": "me"}}}),  # type: ignore[dict-item]
        ({"registry": {"url": None}}, {"registry": None}),
        ({"registry": None}, {"registry": None}),
        ({"images": {"url": "sqlite:///x"}}, {"images": {"url": "sqlite:///x"}}),
        ({"registry": {"basic": {"user": "u"}}}, {"registry": {"url": "http://r", "basic": {"user": "u"}}}),
    ],
)
def test_what_is_not_named_stays(changes: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    before = copy.deepcopy(KAFKA)
    wanted = {name: value for name, value in {**KAFKA, **result}.items() if value is not None}
    assert merged(KAFKA, changes) == wanted
    assert before == KAFKA  # what is stored is not touched


def test_a_file_takes_the_place_of_its_value() -> None:
    assert merged({"url": "a"}, {"url_file": "/b"}) == {"url_file": "/b"}
    assert merged({"url_file": "/b"}, {"url": "a"}) == {"url": "a"}
    assert merged({"kafka": {"sasl.password": "x", "a": 1}}, {"kafka": {"sasl.password_file": "/b"}}) == {
        "kafka": {"a": 1, "sasl": {"password_file": "/b"}}
    }
    assert merged({"tls_ca_file": "/ca"}, {"tls_ca_file": "/cb"}) == {"tls_ca_file": "/cb"}


_names = st.sampled_from(["a", "b", "c"])
_trees = st.recursive(
    st.integers(0, 3), lambda below: st.dictionaries(_names, below, min_size=1, max_size=3), max_leaves=6
)


@pytest.mark.slow
@given(settings=st.dictionaries(_names, _trees, max_size=3), changes=st.dictionaries(_names, _trees, max_size=3))
def test_a_change_is_there_and_again_it_changes_nothing(settings: dict[str, Any], changes: dict[str, Any]) -> None:
    result = merged(settings, changes)
    assert merged(result, changes) == result
    for name in settings.keys() - changes.keys():
        assert result[name] == settings[name]
    for name, value in changes.items():
        if not isinstance(value, dict):
            assert result[name] == value
        elif isinstance(settings.get(name), dict):
            assert result[name] == merged(settings[name], value)
