"""Which files of tests `make integration` collects."""

from pathlib import Path

import pytest

from tests.service_files import TESTS, needs_services

UNIT = TESTS / "unit"


@pytest.mark.parametrize(
    ("file", "needs"),
    [
        (TESTS / "integration" / "test_agent.py", True),
        (UNIT / "spark" / "sinks" / "sql" / "test_sink.py", True),
        (UNIT / "spark" / "sinks" / "test_letters.py", True),
        (UNIT / "server" / "meta" / "test_contract.py", True),
        (UNIT / "commitlog" / "test_frames.py", False),
        (UNIT / "spark" / "sinks" / "kafka" / "test_avro.py", False),
    ],
)
def test_files_are_judged_by_their_marks_and_fixtures(file: Path, needs: bool) -> None:
    assert needs_services(file) is needs


def test_a_fixture_that_takes_a_marked_one_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.service_files.TESTS", tmp_path)
    (tmp_path / "conftest.py").write_text(
        "@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.integration)])\ndef server(): ...\n"
        "@pytest.fixture\ndef client(server): ...\n",
        encoding="utf-8",
    )
    for name, fixture, needs in (("test_a.py", "client", True), ("test_b.py", "clients", False)):
        file = tmp_path / name
        file.write_text(f"def test_it({fixture}): ...\n", encoding="utf-8")
        assert needs_services(file) is needs
