"""What a stream does with rows that its tables have already, by its settings and by how it began."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tailrace_common.sections.server import ServerSettings
from tailrace_common.sections.stream import StreamSettings
from tailrace_schemas.errors import SettingsError
from tailrace_spark.job.fitness import existing_rows, require_fit
from tailrace_spark.sinks.protocol import Capabilities
from tailrace_spark.snapshot.progress import Snapshots, State, TableSnapshot, snapshots_from_json

NEW = Snapshots()
COPY = 'stream.snapshot = "initial" copies them'
UPDATES: Any = object()
LOG_TABLES, TRANSACTIONS = Capabilities(whole_updates=UPDATES), Capabilities(transactions=True)


def copied(noted: Snapshots, *, started: bool, refused: str | None = None, **stream: Any) -> bool:
    return existing_rows(StreamSettings(**stream), noted, started=started, refused=refused).copied


def test_streams_and_subscriptions_have_one_default() -> None:
    assert StreamSettings().snapshot == ServerSettings().snapshot == "initial"


def test_a_new_stream_copies_them_by_default() -> None:
    assert copied(NEW, started=False)
    assert not copied(NEW, started=False, snapshot="never")


@pytest.mark.promise("snapshots.begun-without")
def test_a_stream_that_began_without_copies_nothing_until_its_settings_say_so() -> None:
    """Neither for a setting that is gone from its file, nor for a default that an upgrade changed."""
    rows = existing_rows(StreamSettings(), NEW, started=True, refused=None)
    assert (rows.copied, rows.words) == (False, "not copied: the stream began without them")
    assert rows.advice.startswith(COPY)
    assert copied(NEW, started=True, snapshot="initial")


@pytest.mark.promise("snapshots.begun-without")
def test_a_stream_that_died_before_it_knew_its_tables_still_copies_them() -> None:
    """Spark has noted where it begins, and the snapshot has planned nothing: its choice was noted before both."""
    noted = snapshots_from_json(replace(NEW, copies=True).to_json())
    assert noted.unplanned
    assert copied(noted, started=True)
    assert not noted.with_initial(["shop.orders"], lambda: "1", 0).unplanned


def test_a_sink_that_takes_no_snapshots_gets_none() -> None:
    rows = existing_rows(StreamSettings(), NEW, started=False, refused="log tables have no rows")
    assert (rows.copied, str(rows)) == (False, "not copied: log tables have no rows")


def test_tables_that_are_copied_are_named_with_how_far_they_are() -> None:
    tables = (TableSnapshot(id="1", table="shop.a", asked=0, state=State.DONE),)
    noted = replace(NEW, copies=True, initial=True, tables=(*tables, TableSnapshot(id="2", table="shop.b", asked=0)))
    rows = existing_rows(StreamSettings(snapshot="never"), noted, started=True, refused=None)
    assert rows.words == "copied once: shop.a (done), shop.b (pending)"


@pytest.mark.parametrize(
    ("stream", "sinks"),
    [
        ({"where": {"shop.feed": "pk > 1"}}, [LOG_TABLES, TRANSACTIONS]),
        ({"columns": {"shop.feed.v": "drop"}}, [LOG_TABLES, TRANSACTIONS]),
        ({"one_copy_seconds": 60}, [TRANSACTIONS]),
    ],
)
def test_a_setting_is_refused_by_its_name(stream: dict[str, Any], sinks: list[Capabilities]) -> None:
    settings = StreamSettings(**stream)
    for capabilities in (LOG_TABLES, TRANSACTIONS):
        if capabilities in sinks:
            with pytest.raises(SettingsError, match=rf"stream\.{next(iter(stream))} is not for"):
                require_fit(settings, capabilities)
        else:
            require_fit(settings, capabilities)
    require_fit(settings, Capabilities())
