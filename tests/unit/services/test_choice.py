"""TAILRACE_TEST_SERVICES is obeyed, or refused with what to do."""

from __future__ import annotations

import pytest

from tailrace.local.ports import free_port
from tests.services.choice import ChoiceError, Means, choose, engine_trouble


def never_asked() -> str | None:
    raise AssertionError("the engine is asked only for containers")


@pytest.mark.parametrize("environ", [{}, {"TAILRACE_TEST_SERVICES": ""}, {"TAILRACE_TEST_SERVICES": "local"}])
def test_child_processes_unless_asked_otherwise(environ: dict[str, str]) -> None:
    assert choose(environ, never_asked) is Means.LOCAL


def test_containers_where_an_engine_answers() -> None:
    assert choose({"TAILRACE_TEST_SERVICES": "containers"}, lambda: None) is Means.CONTAINERS


def test_containers_without_an_engine_are_refused() -> None:
    with pytest.raises(
        ChoiceError, match=r"no container engine answers \(no socket\): start one, .* or unset TAILRACE"
    ):
        choose({"TAILRACE_TEST_SERVICES": "containers"}, lambda: "no socket")


def test_other_values_are_refused() -> None:
    with pytest.raises(ChoiceError, match="TAILRACE_TEST_SERVICES is 'docker', not local or containers"):
        choose({"TAILRACE_TEST_SERVICES": "docker"}, never_asked)


def test_engine_is_really_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a `docker` command exists says nothing: here nothing listens."""
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{free_port('127.0.0.1')}")
    assert engine_trouble() is not None
