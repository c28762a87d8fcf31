"""Every sink that keeps dead letters, held to their contract on what it really writes to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pyarrow import fs

from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import DeadLetter, Piece
from tailrace_spark.job.replay import ReplayCounts
from tailrace_spark.sinks.changelog.dead_letter_file import DeadLetterFile
from tailrace_spark.sinks.changelog.file_dead_letters import StoredDeadLettersSink
from tailrace_spark.sinks.changelog.replayable import ReplayableLogSink
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.files.dead_letters import ReplayableFilesOutlet
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.http.client import HttpSender
from tailrace_spark.sinks.http.outlet import HttpOutlet
from tailrace_spark.sinks.protocol import DeadLetterSink
from tailrace_spark.sinks.registry import SINKS, open_sink
from tailrace_spark.sinks.sql.sink import SqlSink
from tailrace_spark.sinks.state_store.formats import FORMATS
from tests import s3
from tests.unit.spark.sinks.change_log_contract import Crash
from tests.unit.spark.sinks.delta.stores import LetteredDelta
from tests.unit.spark.sinks.files.stores import Stored
from tests.unit.spark.sinks.http.endpoint import Endpoint
from tests.unit.spark.sinks.letters_contract import LETTERS, LettersContract, understood

SECTIONS: dict[str, dict[str, object]] = {
    "sql": {"url": "sqlite:///x.db"},
    "log-tables": {"contact_points": ["h"]},
    "cassandra": {"contact_points": ["h"]},
    "kafka": {},
    "http": {"url": "http://h"},
    "rabbitmq": {"url": "amqp://h"},
    "files": {"path": "x"},
    "delta": {"path": "x"},
    "iceberg": {"path": "x"},
    "opensearch": {"url": "http://h"},
}


@pytest.mark.promise("sinks.dead-letters")
@pytest.mark.parametrize("kind", sorted(SINKS))
def test_every_sink_that_keeps_letters_gives_them_back(kind: str) -> None:
    """All but the console, which prints them."""
    settings = Settings.model_validate({"sink": {"x": {"type": kind, **SECTIONS.get(kind, {})}}})
    with closing(open_sink("x", settings.sink["x"], "t", kafka={"bootstrap.servers": "h:1"})) as sink:
        assert (sink.capabilities.dead_letters is not None) == (kind != "console")


class _Steps:
    """Dies at the step after so many; None: never."""

    def __init__(self, left: int | None) -> None:
        self._left = left

    def step(self) -> None:
        if self._left == 0:
            raise Crash
        if self._left is not None:
            self._left -= 1


def numbered(lines: str, number: int | None) -> str:
    """JSON lines with this `format`; None: with none."""
    values = [
        {name: value for name, value in json.loads(line).items() if name != "format"} for line in lines.splitlines()
    ]
    added = {} if number is None else {"format": number}
    return "".join(json.dumps({**value, **added}) + "\n" for value in values)


class Rows:
    """A SQLite database."""

    exactly_once = True

    def __init__(self, path: Path) -> None:
        self._url = f"sqlite:///{path}"

    def open(self, dies_after: int | None = None) -> DeadLetterSink:
        sink, steps = SqlSink(self._url), _Steps(dies_after)

        def changing(*of: Any) -> None:
            if of[2].startswith(("INSERT", "UPDATE", "DELETE")):
                steps.step()

        sa.event.listen(sink._engine, "before_cursor_execute", changing)
        sa.event.listen(sink._engine, "commit", lambda *_: steps.step())
        return sink

    def ids(self) -> Sequence[int]:
        engine = sa.create_engine(self._url)
        try:
            with engine.connect() as connection:
                if not sa.inspect(engine).has_table("shop_plain__rows"):
                    return []
                return list(connection.execute(sa.text("SELECT id FROM shop_plain")).scalars())
        finally:
            engine.dispose()

    def set_format(self, number: int | None) -> None:
        engine = sa.create_engine(self._url)
        with engine.begin() as connection:
            if number is None:
                FORMATS.drop(connection)
            else:
                connection.execute(sa.update(FORMATS).values(format=number))
        engine.dispose()


class TestSql(LettersContract):
    sink = "sql"
    refused_at_start = False  # its first question is refused: sql/test_earlier_versions
    waits_for_nobody = False  # SQLite lets one write at a time

    @pytest.fixture
    def stores(self, tmp_path: Path) -> Callable[[], Rows]:
        numbers = count()
        return lambda: Rows(tmp_path / f"{next(numbers)}.db")


class _DyingFile(DeadLetterFile):
    def __init__(self, path: Path, steps: _Steps) -> None:
        super().__init__(path)
        self._steps = steps

    def remove(self, letters: Sequence[DeadLetter]) -> None:
        self._steps.step()
        super().remove(letters)
        self._steps.step()


class Posts:
    """An endpoint, and a file of letters."""

    exactly_once = False

    def __init__(self, path: Path) -> None:
        self._endpoint = Endpoint()
        self._path = path

    def open(self, dies_after: int | None = None) -> DeadLetterSink:
        settings = Settings.model_validate({"sink": {"x": {"type": "http", "url": self._endpoint.url}}})
        file = _DyingFile(self._path, _Steps(dies_after))
        section: Any = settings.sink["x"]
        return StoredDeadLettersSink(HttpOutlet(HttpSender("x", section), section, file), file)

    def ids(self) -> Sequence[int]:
        return [one["key"]["id"] for one in self._endpoint.taken]

    def set_format(self, number: int | None) -> None:
        self._path.write_text(numbered(self._path.read_text(), number))

    def close(self) -> None:
        self._endpoint.close()


class TestHttp(LettersContract):
    sink = "http"

    @pytest.fixture
    def stores(self, tmp_path: Path) -> Iterator[Callable[[], Posts]]:
        with ExitStack() as made:
            numbers = count()

            def new() -> Posts:
                store = Posts(tmp_path / f"{next(numbers)}.jsonl")
                made.callback(store.close)
                return store

            yield new


class Files:
    """The root of a files sink."""

    exactly_once = True

    def __init__(self, settings: FilesSinkSettings, real: Any, root: str, *, local: bool) -> None:
        self._stored = Stored(settings, real, root, local=local)

    def open(self, dies_after: int | None = None) -> DeadLetterSink:
        return ReplayableLogSink(ReplayableFilesOutlet(self._stored.opened(dies_after), self._stored.settings))

    def ids(self) -> Sequence[int]:
        return [one["key"]["id"] for one in self._stored.records()]

    def set_format(self, number: int | None) -> None:
        store = self._stored.store
        for path in store.below("_tailrace/dead-letters"):
            store.write(path, numbered(store.read(path).decode(), number).encode())


def files_in(directory: Path) -> Files:
    """A files sink's root."""
    root = str(directory)
    return Files(FilesSinkSettings(path=root), fs.LocalFileSystem(), root, local=True)


class TestFiles(LettersContract):
    sink = "files"
    refused_at_start = False

    @pytest.fixture
    def stores(self, tmp_path: Path) -> Callable[[], Files]:
        numbers = count()
        return lambda: files_in(tmp_path / str(next(numbers)))


@pytest.mark.promise("sinks.dead-letters")
def test_a_batch_that_has_what_was_replayed_takes_its_file_away(tmp_path: Path) -> None:
    """As of a stream without its checkpoint; one that sets it aside again leaves the file, and another replay too."""
    contract, store = TestFiles(), files_in(tmp_path)
    contract.deliver(store, *LETTERS[:1])
    for _ in range(2):
        assert contract.replay(store) == ReplayCounts(taken=1)
        contract.require(store, 0)
        contract.deliver(store, *LETTERS[:1])
        contract.require(store, 0)
    contract.deliver_understood(store, *LETTERS[:1])
    contract.require(store, 0)
    assert contract.waiting(store) == []


@pytest.mark.promise("sinks.dead-letters")
def test_a_replay_that_a_stream_overtakes_is_run_again(tmp_path: Path) -> None:
    """One that begins to write there meanwhile has the letters, or the changes, that count."""
    contract, store = TestFiles(), files_in(tmp_path)
    contract.deliver(store, *LETTERS[:2])

    def beside(records: Any) -> Iterator[Piece]:
        contract.deliver(store, *LETTERS[2:3])
        yield from understood(records)

    with pytest.raises(ServiceError, match="run this again"):
        contract.replay(store, beside)
    contract.require(store)
    assert contract.replay(store) == ReplayCounts(taken=3)
    contract.require(store, 0, 1, 2)


@pytest.mark.long
@pytest.mark.integration
class TestFilesOnS3(LettersContract):
    sink = "files"
    refused_at_start = False

    @pytest.fixture
    def stores(self) -> Callable[[], Files]:
        def new() -> Files:
            path = f"{s3.new_bucket()}/changes"
            return Files(FilesSinkSettings(path=f"s3://{path}"), s3.filesystem(), path, local=False)

        return new


@pytest.mark.parametrize("mode", ["history", pytest.param("current", marks=pytest.mark.long)])
class TestDelta(LettersContract):
    sink = "delta"

    @pytest.fixture
    def stores(self, tmp_path: Path, mode: str) -> Callable[[], LetteredDelta]:
        numbers = count()
        return lambda: LetteredDelta(
            DeltaSinkSettings.model_validate({"path": str(tmp_path / str(next(numbers))), "mode": mode, "buckets": 2})
        )


def test_a_history_is_asked_which_letters_it_has(tmp_path: Path) -> None:
    """A replay dies between the commit of a change and that of its letter."""
    contract = TestDelta()
    store = LetteredDelta(DeltaSinkSettings.model_validate({"path": str(tmp_path)}))
    contract.deliver(store, *LETTERS[:2])
    with pytest.raises(ServiceError):
        contract.replay(store, dies_after=2)
    assert sorted(store.ids()) == [0, 1]
    assert len(contract.waiting(store)) == 2
    assert contract.replay(store) == ReplayCounts(taken=2)
    contract.require(store, 0, 1)


@pytest.mark.promise("upgrade.later-records")
def test_a_file_of_a_later_versions_letters_is_refused(tmp_path: Path) -> None:
    with closing(Posts(tmp_path / "letters.jsonl")) as store:
        TestHttp().test_letters_of_a_later_version_are_refused_before_anything_is_written(lambda: store)


@pytest.mark.promise("upgrade.later-records")
def test_a_lake_of_a_later_version_is_refused(tmp_path: Path) -> None:
    store = LetteredDelta(DeltaSinkSettings.model_validate({"path": str(tmp_path)}))
    TestDelta().test_letters_of_a_later_version_are_refused_before_anything_is_written(lambda: store)


@pytest.mark.slow
@pytest.mark.parametrize("inside", ["the stream's batch", "the replay"])
def test_of_a_history_and_a_replay_one_fails(tmp_path: Path, inside: str) -> None:
    """Both write the same place, which was not there when they began."""
    store = LetteredDelta(DeltaSinkSettings.model_validate({"path": str(tmp_path)}))
    TestDelta().test_a_stream_that_understands_them_delivers_meanwhile(lambda: store, inside)
