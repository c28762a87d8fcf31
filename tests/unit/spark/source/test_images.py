"""Images for queries of one's own, and in the sinks that write JSON: docs/images.md does what it says."""

from __future__ import annotations

import io
import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace_common.settings import load_settings
from tailrace_schemas.avro import Encoder
from tailrace_schemas.change import Change
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.position import Position
from tailrace_spark.batch.delivery import MicroBatch, Piece
from tailrace_spark.sinks.changelog.sink import Batch, ChangeLogSink
from tailrace_spark.sinks.console.outlet import ConsoleOutlet
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.registry import SINKS, open_sink
from tailrace_spark.sinks.sink_type import Kind
from tailrace_spark.source.images import ImageStore, imaged
from tests.unit.spark.cassandra import Log, truncate, with_source
from tests.unit.spark.published import records_of, schemas_of
from tests.unit.spark.sinks.change_log_contract import PLAIN, Topic
from tests.unit.spark.sinks.pages import example

DOCUMENT = Path(__file__).parents[4] / "docs" / "images.md"
ENCODER = Encoder(PLAIN, "t")
SCHEMAS = schemas_of(ENCODER)
LOG = Log(PLAIN)


def records(*changes: Change | None) -> pa.Table:
    """As a micro-batch's frame has them, the last one first; None is a record that is no change."""
    values = [b"no change" if change is None else ENCODER.value(change) for change in changes]
    return records_of("t.shop.plain", values)[::-1]


class Frame:
    """A micro-batch that has come to the driver."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def toArrow(self) -> pa.Table:
        return self._table


def test_the_example_for_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    known: dict[str, Any] = {"schemas": SCHEMAS}
    exec(compile(example("../images"), "docs/images.md", "exec"), known)  # noqa: S102 - it is ours
    batch = Frame(records(LOG.insert((1,), (), 10, v="a"), LOG.update((1,), (), 20, v="b"), LOG.delete((1,), (), 30)))
    expected = (
        "0 c {'id': 1} None {'v': 'a'} ('v',)\n"
        "1 u {'id': 1} {'v': 'a'} {'v': 'b'} ('v',)\n"
        "2 d {'id': 1} {'v': 'b'} None ('v',)\n"
    )
    for batch_id in (0, 0):  # it comes again
        known["take"](batch, batch_id)
        assert capsys.readouterr().out == expected


def test_the_records_of_one_truncation_take_what_is_there_once(tmp_path: Path) -> None:
    """Hosts tell of a statement by their own clocks, and the second one after a row was written behind it."""

    def of(host: str, offset: int, change: Change) -> Change:
        return with_source(change, host=host, position=Position(1, 1, offset))

    topic = Topic()
    pieces = [
        topic.piece(of("a", 1, LOG.insert((1,), (), 10, v="a"))),
        topic.piece(truncate(PLAIN, "a", 100_000_000, Position(1, 1, 9))),
        topic.piece(of("a", 10, LOG.insert((2,), (), 10**9, v="b"))),
        topic.piece(truncate(PLAIN, "b", 100_001_000, Position(1, 1, 9))),
    ]
    with closing(ImageStore(f"sqlite:///{tmp_path}/images.db")) as store:
        images = [
            [(image.op.value, image.key["id"]) for image in change.images.images or ()]
            for piece in pieces
            for imaged_piece in store.imaged([piece])
            for change in imaged_piece.changes
            if change.images is not None
        ]
    assert images == [[("c", 1)], [("d", 1)], [("c", 2)], []]


def test_records_that_are_no_changes_are_dead_letters(tmp_path: Path) -> None:
    with closing(ImageStore(f"sqlite:///{tmp_path}/images.db")) as store:
        [piece] = imaged(records(None, LOG.insert((1,), (), 10, v="a")), store, SCHEMAS)
    assert [one.record_id.offset for one in piece.dead_letters] == [0]
    assert [one.record_id.offset for one in piece.changes] == [1]


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_example_for_sinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's settings, and the JSON that it shows."""
    monkeypatch.chdir(tmp_path)
    Path("t.toml").write_text(example("../images", "toml"), encoding="utf-8")
    name, section = load_settings("t.toml", {}).stream_sink()
    sink = open_sink(name, section, "tailrace")
    sink.reach()
    write_here(sink, [Topic().piece(LOG.insert((1,), (), 10, v="a"), LOG.update((1,), (), 20, v="b"))])
    sink.close()
    first, second = lines(capsys.readouterr().out)
    assert first["images"][0]["op"] == "c"
    assert second["images"] == json.loads(example("../images", "json"))


def test_without_the_setting_there_are_none() -> None:
    out = io.StringIO()
    with closing(ChangeLogSink(ConsoleOutlet(out, tables=False))) as sink:
        write_here(sink, [Topic().piece(LOG.insert((1,), (), 10, v="a"))])
    [line] = lines(out.getvalue())
    assert "images" not in line


class Dying:
    """A console whose commits fail, so often."""

    def __init__(self, out: io.StringIO, failures: int) -> None:
        self._console = ConsoleOutlet(out, tables=False)
        self._failures = failures

    def reach(self) -> None: ...

    def begin(self, batch: MicroBatch) -> Batch:
        if self._failures:
            self._failures -= 1
            return _Failing()
        return self._console.begin(batch)

    def close(self) -> None: ...


class _Failing(Batch):
    def put(self, _: object) -> None: ...

    def set_aside(self, _: object) -> None: ...

    def commit(self) -> Any:
        raise ServiceError("the store is away")

    def abandon(self) -> None: ...


@pytest.fixture
def batch() -> list[Piece]:
    topic = Topic()
    return [topic.piece(LOG.insert((1,), (), 10, v="a")), topic.piece(LOG.update((1,), (), 20, v="b"))]


@pytest.mark.promise("images.repeated")
def test_a_batch_whose_sink_failed_carries_the_images_that_it_had(tmp_path: Path, batch: list[Piece]) -> None:
    """By the same process, and by the next one."""
    out = io.StringIO()
    url = f"sqlite:///{tmp_path}/images.db"
    for failures in (2, 0):
        with closing(ChangeLogSink(Dying(out, failures), ImageStore(url))) as sink:
            for _ in range(failures):
                with pytest.raises(ServiceError, match="away"):
                    write_here(sink, batch)
            write_here(sink, batch)
    found = [line["images"] for line in lines(out.getvalue())]
    row = {"key": {"id": 1}, "changed": ["v"]}
    assert found == 2 * [
        [{"op": "c", **row, "before": None, "after": {"v": "a"}}],
        [{"op": "u", **row, "before": {"v": "a"}, "after": {"v": "b"}}],
    ]


@pytest.mark.promise("images.repeated")
def test_all_parts_of_a_batch_carry_the_images_that_they_had(tmp_path: Path, batch: list[Piece]) -> None:
    """What crashed behind the last part comes again from the first one on."""
    out, url = io.StringIO(), f"sqlite:///{tmp_path}/images.db"
    for _ in range(2):
        with closing(ChangeLogSink(ConsoleOutlet(out, tables=False), ImageStore(url))) as sink:
            for part in batch:
                write_here(sink, [part], MicroBatch("", 4, here=True))
    images = [line["images"] for line in lines(out.getvalue())]
    assert images[2:] == images[:2]


def test_the_database_of_images_is_reached_before_anything_is_written(tmp_path: Path) -> None:
    with (
        closing(
            ChangeLogSink(ConsoleOutlet(io.StringIO(), tables=False), ImageStore(f"sqlite:///{tmp_path}/no/i.db"))
        ) as sink,
        pytest.raises(ServiceError, match=r"images in .*is no directory"),
    ):
        sink.reach()


def test_all_change_logs_in_json_take_the_setting() -> None:
    """Those whose records have types of their own do not."""
    logs = [kind for kind in SINKS.values() if Kind.CHANGE_LOG in kind.kinds]
    typed = {"delta", "iceberg"}
    assert {kind.name for kind in logs if "images" not in kind.settings.model_fields} == typed
    named = re.search(r"where `images` names a database: (.*?)\.\n", DOCUMENT.read_text(encoding="utf-8"))
    assert named is not None
    assert {kind.name for kind in logs if f"`{kind.name}`" in named[1]} == {kind.name for kind in logs} - typed
