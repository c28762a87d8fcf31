"""The files sink on a real S3 server: the contract of change logs, settings, and credentials that nobody sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.files.store import FileStore
from tests import s3
from tests.held import package
from tests.unit.spark.sinks.change_log_contract import ChangeLogContract
from tests.unit.spark.sinks.files.stores import Stored, close_abandoned
from tests.unit.spark.sinks.on_s3 import write_by_section

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _abandoned() -> Iterator[None]:
    yield
    close_abandoned()


def keys() -> dict[str, str]:
    return {
        "endpoint": s3.endpoint(), "region": "us-east-1", "access_key": s3.ACCESS_KEY, "secret_key": s3.SECRET_KEY,
    }  # fmt: skip


def stored_at(path: str) -> Stored:
    """A path as a sink of its own has it."""
    section = FilesSinkSettings.model_validate({"path": f"s3://{path}", **keys()})
    return Stored(section, s3.filesystem(), path, local=False)


@pytest.mark.long
class TestFilesOnS3(ChangeLogContract):
    sink = "files"

    server_name = f"{package('pyarrow')}, S3 of {package('moto')}"

    @pytest.fixture
    def stores(self) -> Callable[[], Stored]:
        return lambda: stored_at(f"{s3.new_bucket()}/changes")


def test_a_section_opens_a_sink_and_its_reader(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bucket = s3.new_bucket()
    write_by_section(tmp_path, caplog, "files", f"{bucket}/a b", 'format = "jsonl"\n')
    assert [record["columns"] for record in stored_at(f"{bucket}/a b").records()] == [{"v": "x"}]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [({"path": "s3://no-such-bucket/x"}, "no-such-bucket"), ({"endpoint": "http://127.0.0.1:1"}, "bucket/x: ")],
)
def test_what_cannot_be_reached_is_told_without_credentials(wrong: dict[str, str], reason: str) -> None:
    section = FilesSinkSettings.model_validate({"path": "s3://bucket/x", **keys(), **wrong})
    with pytest.raises(ServiceError, match=reason) as raised:
        FileStore.of(section).reach()
    assert s3.SECRET_KEY not in str(raised.value)
    assert s3.ACCESS_KEY not in str(raised.value)
