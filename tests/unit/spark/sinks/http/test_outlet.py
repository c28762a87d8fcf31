"""The HTTP sink against a real server on loopback: the contract of change logs, and every answer there is."""

from __future__ import annotations

import base64
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tailrace_common.backoff import retry_after
from tailrace_common.secrets import origin
from tailrace_common.settings import load_settings
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.sinks.changelog.sink import ChangeLogSink, OpenedShares
from tailrace_spark.sinks.http.client import Breaker, HttpSender, OpenError, key_bytes, signed_headers
from tailrace_spark.sinks.http.outlet import HttpOpener, HttpOutlet
from tailrace_spark.sinks.http.settings import HttpSinkSettings
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.registry import open_sink
from tests.support.clock import ManualClock
from tests.support.letters import MemoryLetters
from tests.unit.spark.cassandra import Log, truncate
from tests.unit.spark.sinks.change_log_contract import PLAIN, ChangeLogContract, Topic, require_order
from tests.unit.spark.sinks.http.endpoint import TAKEN, Answer, Request
from tests.unit.spark.sinks.http.posted import PROMPT, Posted
from tests.unit.spark.sinks.in_tasks import LogInTasks
from tests.unit.tables import table

LOG = Log(PLAIN)
_openings = count()


@pytest.fixture
def making() -> Iterator[Callable[..., Posted]]:
    """Makes endpoints of a kind, and ends them."""
    made: list[Posted] = []

    def new(kind: type[Posted], **settings: object) -> Posted:
        made.append(kind(**settings))
        return made[-1]

    yield new
    for one in made:
        one.endpoint.close()


@pytest.fixture
def posted(making: Callable[..., Posted]) -> Callable[..., Posted]:
    return partial(making, Posted)


@dataclass(frozen=True)
class PromptOpener(HttpOpener):
    """Makes outlets that wait no longer between attempts than the tests' others."""

    def open(self) -> HttpOutlet:
        return HttpOutlet(HttpSender(self.name, self.settings, waits=PROMPT), self.settings, self.letters)


class PostedByTasks(Posted):
    """Posted by tasks, a Kafka partition in each; each opening's workers are new."""

    def sink(self, **more: object) -> Any:
        settings = self.settings.model_copy(update=more)
        outlet = HttpOutlet(HttpSender("there", settings, waits=PROMPT), settings, self.letters)
        opener = PromptOpener(f"there {next(_openings)}", settings, self.letters)
        return LogInTasks(ChangeLogSink(outlet, shares=OpenedShares(opener)))


class TestHttp(ChangeLogContract):
    sink = "http"
    server_name = f"http.server of Python {platform.python_version()}"
    kind: type[Posted] = Posted

    @pytest.fixture
    def stores(self, making: Callable[..., Posted]) -> Callable[[], Posted]:
        return partial(making, self.kind)


@pytest.mark.slow
class TestHttpByTasks(TestHttp):
    kind = PostedByTasks


def changes(number: int, keys: int = 3) -> list[Any]:
    return [LOG.update((at % keys,), (), at, w=at) for at in range(number)]


def write(posted: Posted, *batch: Any) -> Summary:
    with closing(posted.sink()) as sink:
        return write_here(sink, [Topic().piece(*batch)])


@pytest.mark.promise("sinks.one-table-alone")
def test_a_change_that_cannot_be_said_is_in_no_request(posted: Callable[..., Posted]) -> None:
    """Such as one without any cell, which has no write time: no agent publishes one, but anybody can."""
    one, topic = posted(), Topic()
    first, empty, last = topic.piece(*changes(3, keys=1)).changes
    empty = replace(empty, change=replace(empty.change, cells=()))
    with closing(one.sink()) as sink:
        assert write_here(sink, [Piece((first, empty, last))]) == Summary(3, 2, 1)
    assert [record["offset"] for record in one.endpoint.taken] == [0, 2]
    assert [letter.record_id.offset for letter in one.letters.all] == [1]


@pytest.mark.promise("http.same-ids")
def test_a_batch_that_comes_again_has_the_same_ids(posted: Callable[..., Posted]) -> None:
    """From another process, and with its pieces cut otherwise."""
    one = posted(batch_records=4, lanes=3)
    batch = changes(40, keys=7)
    topic, again = Topic(), Topic()
    with closing(one.sink()) as sink:
        write_here(sink, [topic.piece(*batch)])
    ids = [request.identity for request in one.endpoint.requests]
    assert len(set(ids)) == len(ids) > 10
    taken = list(one.endpoint.taken)
    with closing(one.sink()) as sink:
        whole = again.piece(*batch)
        parts = [type(whole)(whole.changes[at : at + 7]) for at in range(0, 40, 7)]
        write_here(sink, parts)
    assert sorted(request.identity for request in one.endpoint.requests[len(ids) :]) == sorted(ids)
    assert one.endpoint.taken == taken


def test_requests_have_the_size_that_is_set(posted: Callable[..., Posted]) -> None:
    one = posted(batch_records=7, lanes=1)
    write(one, *changes(30))
    assert [len(request.changes) for request in one.endpoint.requests] == [7, 7, 7, 7, 2]
    small = posted(batch_records=1000, batch_kibibytes=2, lanes=1)
    write(small, *(LOG.insert((1,), (), at, v="x" * 900) for at in range(6)))
    assert [len(request.changes) for request in small.endpoint.requests] == [2, 2, 2]


@pytest.mark.parametrize("lanes", [1, 3])
def test_lanes_work_at_once_and_no_more_than_are_set(posted: Callable[..., Posted], lanes: int) -> None:
    """Each request waits until as many are under way as there are lanes."""
    one = posted(batch_records=1, lanes=lanes)
    barrier = threading.Barrier(lanes)
    first = threading.Semaphore(lanes)

    def answer(_: Request) -> Answer:
        if first.acquire(blocking=False):
            barrier.wait(60)
        return TAKEN

    one.endpoint.answer = answer
    write(one, *changes(40, keys=30))
    assert one.endpoint.most_at_once == lanes
    require_order(one.records())


@pytest.mark.parametrize("answer", [(500, {}, b"oops"), (503, {}, b""), (408, {}, b""), (429, {}, b""), "drop"])
def test_what_may_pass_is_tried_again(posted: Callable[..., Posted], answer: Answer) -> None:
    one = posted(retry_seconds=20)
    one.endpoint.answer = lambda request: answer if request.number < 3 else TAKEN
    assert write(one, *changes(1)) == Summary(1, 1, 0)
    assert len({request.identity for request in one.endpoint.requests}) == 1
    assert len(one.endpoint.requests) == 4


def test_what_does_not_pass_holds_the_batch(posted: Callable[..., Posted]) -> None:
    """Nothing is set aside, and nothing of a key overtakes what failed."""
    one = posted(retry_seconds=0.01, batch_records=1, lanes=1)
    one.endpoint.answer = lambda request: (503, {}, b"down") if request.number else TAKEN
    with pytest.raises(ServiceError, match=rf"^{origin(one.endpoint.url)}: HTTP 503: down$"):
        write(one, *changes(3))
    assert [record["offset"] for record in one.records()] == [0]
    assert one.letters.all == []


@pytest.mark.slow
@pytest.mark.promise("http.refused")
@pytest.mark.parametrize(("status", "kind"), [(400, "text/plain"), (451, "text/plain; charset=idna")])
def test_what_is_refused_goes_to_the_dead_letters(posted: Callable[..., Posted], status: int, kind: str) -> None:
    """Of a request, only the changes that are to blame; whatever encoding the answer says it is in."""
    one = posted(batch_records=8, lanes=1)

    def answer(request: Request) -> Answer:
        bad = any(change["columns"].get("w") == 5 for change in request.changes)
        return (status, {"Content-Type": kind}, b"w must not be 5") if bad else TAKEN

    one.endpoint.answer = answer
    assert write(one, *changes(16, keys=1)) == Summary(16, 15, 1)
    [letter] = one.letters.all
    assert (letter.record_id.offset, letter.reason) == (5, f"HTTP {status}: w must not be 5")
    assert letter.message == b"\x00message"
    require_order(one.records())
    assert {record["offset"] for record in one.records()} == {*range(16)} - {5}


def test_a_truncation_waits_for_all_lanes_and_they_for_it(posted: Callable[..., Posted]) -> None:
    """It is of all keys: when it comes everything before it has been taken, and nothing behind it has come."""
    one = posted(lanes=4, batch_records=100)
    seen: list[int] = []

    def answer(request: Request) -> Answer:
        if any(change["op"] == "truncate" for change in request.changes):
            seen.append(len(one.endpoint.taken))
            assert len(request.changes) == 1
        return TAKEN

    one.endpoint.answer = answer
    truncation = truncate(PLAIN, "a", 5)
    write(one, *changes(20, keys=20), truncation, *changes(20, keys=20))
    assert seen == [7]  # those of its partition, which are sent by several lanes
    assert one.endpoint.taken[7]["op"] == "truncate"


def test_statuses_that_are_waited_out(posted: Callable[..., Posted]) -> None:
    one = posted(hold_on=(401,), retry_seconds=20)
    one.endpoint.answer = lambda request: (401, {}, b"") if request.number == 0 else TAKEN
    assert write(one, *changes(1)) == Summary(1, 1, 0)


def test_a_redirect_is_not_followed(posted: Callable[..., Posted]) -> None:
    """A body with data goes nowhere else."""
    one, other = posted(retry_seconds=0.01), posted()
    one.endpoint.answer = lambda _: (307, {"Location": other.endpoint.url}, b"")
    with pytest.raises(ServiceError, match="HTTP 307"):
        write(one, *changes(1))
    assert other.endpoint.requests == []


@pytest.mark.promise("http.patience")
@pytest.mark.slow
def test_retry_after_is_waited_for(posted: Callable[..., Posted]) -> None:
    """All lanes wait: without it the pace is a thousandth of a second."""
    one = posted(retry_seconds=30, lanes=2, batch_records=1)
    times: list[datetime] = []

    def answer(request: Request) -> Answer:
        times.append(datetime.now(UTC))
        return (429, {"Retry-After": "1"}, b"") if request.number == 0 else TAKEN

    one.endpoint.answer = answer
    write(one, *changes(1))
    assert times[1] - times[0] >= timedelta(seconds=0.99)


@pytest.mark.promise("http.patience")
def test_more_patience_than_is_set_holds_the_batch(posted: Callable[..., Posted]) -> None:
    """At once, and again without a request, until the time has come."""
    one = posted(retry_seconds=5)
    one.endpoint.answer = lambda _: (503, {"Retry-After": "3600"}, b"")
    with closing(one.sink()) as sink:
        for _ in range(2):
            with pytest.raises(ServiceError, match="it asks to come again in 3600 s"):
                write_here(sink, [Topic().piece(*changes(1))])
    assert len(one.endpoint.requests) == 1


NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        (" 120 ", 120.0),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(NOW - timedelta(seconds=90), usegmt=True), 0.0),
        ("soon", None),
        ("-5", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, lambda: NOW) == seconds


def test_requests_are_signed_by_both_keys_while_they_change(posted: Callable[..., Posted]) -> None:
    """As Standard Webhooks has it; a body or an id that was changed is found out."""
    old, new = b"the old key", b"\x00\xff the new one"
    encoded = f"whsec_{base64.b64encode(new).decode()}"
    one = posted(signing_key=old.decode(), next_signing_key=encoded, bearer_token="hunter2")  # noqa: S106
    write(one, *changes(2, keys=1))
    [request] = one.endpoint.requests
    assert request.signed_by(old)
    assert request.signed_by(new)
    assert not request.signed_by(b"another key")
    assert not Request(0, request.headers, request.body.replace(b"shop", b"shup"), ()).signed_by(old)
    assert not Request(0, {**request.headers, "webhook-id": "x"}, request.body, ()).signed_by(old)
    assert request.headers["webhook-id"] == request.identity
    assert request.headers["Authorization"] == "Bearer hunter2"


def test_a_signature_is_that_of_the_specifications_example() -> None:
    """standard-webhooks/spec: the test vector of its libraries."""
    key = key_bytes("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signed_headers([key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_without_keys_nothing_is_signed(posted: Callable[..., Posted]) -> None:
    one = posted()
    write(one, *changes(1))
    [request] = one.endpoint.requests
    assert "webhook-signature" not in request.headers
    assert "Authorization" not in request.headers


def test_a_breaker_opens_after_failures_in_a_row() -> None:
    clock = ManualClock()
    breaker = Breaker(2, 10.0, clock)
    breaker.failed()
    breaker.succeeded()
    breaker.failed()
    breaker.admit()
    breaker.failed()
    with pytest.raises(OpenError) as raised:
        breaker.admit()
    assert raised.value.seconds == 10.0
    clock.now = 10.0
    breaker.admit()  # one tries
    with pytest.raises(OpenError):
        breaker.admit()
    breaker.failed()
    with pytest.raises(OpenError):
        breaker.admit()
    clock.now = 20.0
    breaker.admit()
    breaker.succeeded()
    breaker.admit()
    breaker.admit()


def test_an_open_breaker_holds_the_batch_without_a_request(posted: Callable[..., Posted]) -> None:
    one = posted(breaker_failures=2, breaker_seconds=3600, lanes=1)
    one.endpoint.answer = lambda _: (500, {}, b"")
    with closing(one.sink()) as sink:
        for _ in range(3):
            with pytest.raises(ServiceError, match="nothing is sent for 3600 s more, after failures in a row"):
                write_here(sink, [Topic().piece(*changes(1))])
    assert len(one.endpoint.requests) == 2


def test_refusals_do_not_open_the_breaker(posted: Callable[..., Posted]) -> None:
    one = posted(breaker_failures=2, breaker_seconds=3600, lanes=1, batch_records=1)
    one.endpoint.answer = lambda _: (400, {}, b"")
    assert write(one, *changes(6)).dead_letters == 6


def test_a_section_opens_a_sink(tmp_path: Path, posted: Callable[..., Posted], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one = posted()
    (tmp_path / "key").write_text("hunter2\n")
    path = tmp_path / "t.toml"
    path.write_text(f'[sink.x]\ntype = "http"\nurl = "{one.endpoint.url}?a=hunter2"\nsigning_key_file = "key"\n')
    settings = load_settings(path, {})
    letters = MemoryLetters()
    sink = open_sink("x", settings.sink["x"], "p", letters=letters)
    sink.reach()
    write_here(sink, [Topic().piece(*changes(1), letters=1)])
    sink.close()
    assert one.endpoint.requests[0].signed_by(b"hunter2")
    assert len(letters.all) == 1
    assert settings.sink["x"].location == origin(one.endpoint.url)
    assert "hunter2" not in repr(settings.sink["x"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bearer_token": "hunter2\n"}, r"^sink\.there\.bearer_token: may have"),
        ({"signing_key": "whsec_%%"}, r"^sink\.there\.signing_key: .* not base64$"),
        ({"signing_key": ""}, r"^sink\.there\.signing_key: is empty"),
        ({"signing_key": "x", "next_signing_key": "whsec_"}, r"^sink\.there\.next_signing_key: is empty"),
        ({"tls_ca_file": "/none.pem"}, r"^sink\.there\.tls_ca_file: /none\.pem: "),
    ],
)
def test_keys_and_certificates_are_looked_at_when_it_opens(given: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        HttpSender("there", HttpSinkSettings.model_validate({"url": "https://h/", **given}))


ORDERS = table({"country": "text", "id": "int"}, regular={"v": "text"}, keyspace="shop", name="orders")


def test_changes_go_to_the_address_of_their_key(posted: Callable[..., Posted]) -> None:
    """In order per key, in the same requests when they come again; a truncation goes where no key does."""
    one, log = posted(batch_records=2, lanes=2), Log(ORDERS)
    one.settings = one.settings.model_copy(update={"url": f"{one.endpoint.url}/{{table}}/{{key.country}}"})
    countries = ["DE", "a/b", "*", "?x#y", "DE"]
    rows = [log.insert((countries[at % 5], at % 3), (), at, v="x") for at in range(60)]
    truncation = truncate(ORDERS, "a", 5)
    batch = [Topic("t.shop.orders").piece(*rows, truncation)]
    with closing(one.sink()) as sink:
        assert write_here(sink, batch) == Summary(61, 61, 0)
    require_order(one.records())
    for request in one.endpoint.requests:
        step = request.path.removeprefix("/changes/orders/")
        keys = {change["key"] and change["key"]["country"] for change in request.changes}
        assert [step] == ["*" if key is None else quote(key, safe="") for key in keys]
    ids = sorted(request.identity for request in one.endpoint.requests)
    with closing(one.sink()) as sink:
        write_here(sink, batch)
    assert sorted(request.identity for request in one.endpoint.requests[len(ids) :]) == ids


def test_a_key_that_names_another_directory_is_set_aside(posted: Callable[..., Posted]) -> None:
    one, log = posted(), Log(ORDERS)
    one.settings = one.settings.model_copy(update={"url": f"{one.endpoint.url}/{{key.country}}/x"})
    rows = [log.insert((country, 1), (), 1, v="x") for country in ("..", "DE", ".", "...")]
    with closing(one.sink()) as sink:
        assert write_here(sink, [Topic("t.shop.orders").piece(*rows)]) == Summary(4, 2, 2)
    assert {request.path for request in one.endpoint.requests} == {"/changes/DE/x", "/changes/.../x"}
    assert {"a step of the path" in letter.reason for letter in one.letters.all} == {True}
