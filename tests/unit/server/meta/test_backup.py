"""The meta database as lines: what is restored is what was there, on any of its databases; else nothing is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace_schemas.errors import CorruptError
from tailrace_server.meta.backup import lines_of, restore
from tailrace_server.meta.credentials import ApiKeys, Role
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.leases import Leases
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model import transitions
from tailrace_server.model.delivery import News, PartitionProgress
from tailrace_server.model.subscription import ConflictError, LostLeaseError, Shape, Start
from tests.unit.server.requests import CLUSTER, request

WHO = "an operator"
NEWS = News(wrote=True, letters=2, complete_seconds=1.0)


@pytest.fixture
def content(subscriptions: Subscriptions, database: MetaDatabase, worker: Callable[..., Leases]) -> str:
    """Two subscriptions, one of them running, a cancelled one and a key: its key as it was shown."""
    shape = Shape(where="name = 'Straße'", columns={"email": "hash"}, stream={"trigger_seconds": 0.5})
    for asked in (request("a", shape=shape), request("b", start=Start("latest")), request("c")):
        subscriptions.subscribe(asked, WHO)
    claim = next(claim for claim in worker("w").claim(3) if claim.subscription.name == "a")
    worker("w").save(claim, {("t", 0): PartitionProgress(7, 9), ("t", 1): PartitionProgress(2**40)}, NEWS)
    last = subscriptions.all(CLUSTER)[-1]
    subscriptions.change(last.id, "cancel", WHO, transitions.cancelled)
    return ApiKeys(database).add("ci", Role.OPERATE)


@pytest.mark.promise("subscription.backup")
def test_what_is_restored_is_what_was_there(
    database: MetaDatabase, subscriptions: Subscriptions, content: str, tmp_path: Path, worker: Callable[..., Leases]
) -> None:
    lines = list(lines_of(database))
    assert content not in "".join(lines)
    with MetaDatabase(f"sqlite:///{tmp_path / 'other.db'}") as other:
        other.prepare()
        assert restore(other, lines)["subscribe"] == 3
        restored = Subscriptions(other)
        running = subscriptions.all(CLUSTER, cancelled=True)
        again = restored.all(CLUSTER, cancelled=True)
        assert [(item.id, item.reference, item.shape, item.start, item.state) for item in again] == [
            (item.id, item.reference, item.shape, item.start, item.state) for item in running
        ]
        assert {item.owner for item in again} == {None}
        identities = [item.id for item in running]
        assert restored.progress(identities) == subscriptions.progress(identities)
        assert restored.audit(None, 100) == subscriptions.audit(None, 100)
        assert restored.deliveries(identities)[1] == subscriptions.deliveries(identities)[1]
        caller = ApiKeys(other).caller(content)
        assert caller is not None
        assert caller.role is Role.OPERATE
        assert list(lines_of(other)) == lines
        # And back, into the one that it is of.
        with pytest.raises(ConflictError, match=r"is not empty: .* or give --replace"):
            restore(database, lines_of(other))
        claims = worker("w2", 60.0).claim(9)
        restore(database, lines, replace=True)
        assert list(lines_of(database)) == lines
        for claim in claims:
            with pytest.raises(LostLeaseError):
                worker("w2").save(claim, {("t", 0): PartitionProgress(8)})


@pytest.mark.promise("subscription.backup")
@pytest.mark.parametrize("count", [0, 1])
def test_no_id_comes_again_after_a_restore(
    database: MetaDatabase, subscriptions: Subscriptions, tmp_path: Path, count: int
) -> None:
    """Nor one that was given behind the backup: sinks have it, and would take the new one's records for written."""
    with MetaDatabase(f"sqlite:///{tmp_path / 'lost.db'}") as lost:
        lost.prepare()
        earlier = Subscriptions(lost)
        for number in range(count):
            earlier.subscribe(request(f"before{number}"), WHO)
        lines = list(lines_of(lost))
        given = {earlier.subscribe(request(f"behind{number}"), WHO)[0].id for number in range(3)}
    for _ in range(2):
        restore(database, lines, replace=True)
        given.add(subscriptions.subscribe(request("again"), WHO)[0].id)
    assert len(given) == 5


@pytest.mark.promise("subscription.backup")
def test_a_backup_is_of_one_moment_and_holds_up_nobody(database: MetaDatabase, subscriptions: Subscriptions) -> None:
    subscriptions.subscribe(request("before"), WHO)
    lines = lines_of(database)
    head = next(lines)
    subscriptions.subscribe(request("meanwhile"), WHO)
    names = [row["name"] for line in lines if (row := json.loads(line).get("row")) and "sink_type" in row]
    assert (json.loads(head)["format"], names) == (1, ["before"])


@pytest.mark.usefixtures("content")
def test_what_is_no_whole_backup_changes_nothing(database: MetaDatabase) -> None:
    lines = list(lines_of(database))
    row = next(index for index, line in enumerate(lines) if '"subscribe"' in line)
    newer = json.loads(lines[row])
    newer["row"]["colour"] = "red"
    for wrong, words in (
        ([], "no head"),
        (['{"format": 2}', *lines[1:]], "format 1"),
        (lines[:-1], "its last line is missing"),
        ([*lines[:-2], lines[-1]], "the backup is cut: it has"),
        ([*lines[:row], *lines[row + 1 :]], "the backup is cut|does not fit the others"),
        ([*lines[:row], json.dumps(newer), *lines[row + 1 :]], r"has no column colour: .*; the backup is of revision"),
        ([lines[0], '{"table": "worker", "row": {}}', lines[-1]], "no row of a table of this version: worker"),
        ([lines[0], "{"], "line 2 of the backup is not JSON"),
    ):
        with pytest.raises(CorruptError, match=words):
            restore(database, wrong, replace=True)
    assert list(lines_of(database)) == lines
