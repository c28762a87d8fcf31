"""The hosts that `.offsets` knows."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from tailrace.publish.hosts import HostRecord, host_of, hosts_of, lost_hosts
from tailrace.publish.offsets import OffsetsLostError, encode_offsets, encode_parked, offsets_key, parked_key
from tailrace.state import Parked, Resume
from tailrace_common.kafka import Record
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.position import Position
from tailrace_schemas.progress import Progress

AT = Resume(Position(1, 7, 40))
LATER = Resume(Position(1, 7, 90))


def record(host: str, value: bytes | None, offset: int = 0, cluster: str = "c") -> Record:
    return Record(offset, 1000 * offset, offsets_key(cluster, host), value)


def test_the_last_record_of_a_host_counts() -> None:
    """With the time of that one."""
    found = hosts_of([record("b", encode_offsets(AT)), record("a", encode_offsets(AT), 1), record("b", None, 2)])
    assert found == (HostRecord("c", "a", AT, 1000),)
    found = hosts_of([record("a", encode_offsets(AT)), record("a", None, 1), record("a", encode_offsets(LATER), 2)])
    assert found == (HostRecord("c", "a", LATER, 2000),)


def test_a_cluster_s_name_may_have_a_slash() -> None:
    """A host id never has."""
    assert hosts_of([record("a", encode_offsets(AT), cluster="x/y")])[0].cluster == "x/y"


def test_a_host_s_parked_mutations_are_part_of_its_record() -> None:
    """They have records of their own beside it."""
    lot = Parked(1, 7, 99, UUID(int=1), 40, (40, 50), 1, "why")
    records = [record("a", encode_offsets(AT)), Record(1, 9, parked_key("c", "a", lot.key), encode_parked(lot))]
    assert hosts_of([*records, record("b", encode_offsets(AT))]) == (
        HostRecord("c", "a", replace(AT, parked=(lot,)), 0),
        HostRecord("c", "b", AT, 0),
    )


def test_keys_of_others_are_left_out() -> None:
    """And nothing fails."""
    value = encode_offsets(AT)
    assert hosts_of([Record(0, 0, key, value) for key in (None, b"", b"other", b"\xff")]) == ()


def test_an_unreadable_record_is_shown_as_such() -> None:
    """It hides no other host."""
    later, fine = hosts_of([record("a", b'{"version": 9}'), record("b", encode_offsets(AT))])
    assert (later.resume, "format 9" in later.problem) == (None, True)
    assert fine.resume == AT


def test_the_age_is_never_negative() -> None:
    """The broker's clock may be ahead."""
    one = HostRecord("c", "a", AT, 5000)
    assert (one.age(7.5), one.age(4.0)) == (2.5, 0.0)


def test_a_host_is_found_by_its_id() -> None:
    """Under one cluster's name, or the one that is named."""
    hosts = [HostRecord("c", "a", AT, 0), HostRecord("c", "b", AT, 0), HostRecord("d", "b", LATER, 0)]
    assert host_of(hosts, "a") is hosts[0]
    assert host_of(hosts, "b", "d") is hosts[2]
    with pytest.raises(SettingsError, match=r"the clusters 'c', 'd': set cluster\.name"):
        host_of(hosts, "b")
    with pytest.raises(SettingsError, match=r"host x .* the hosts are: a, b, b"):
        host_of(hosts, "x")
    with pytest.raises(SettingsError, match="the hosts are: none"):
        host_of([], "x")


def progress(host: str, position: Position, parked: int = 0) -> Progress:
    return Progress("c", host, position, position, 1_700_000_000_000, parked=parked)


def test_a_record_that_was_deleted_is_missed() -> None:
    """Not that of a host that was retired, nor of one that has read nothing yet."""
    keys = {offsets_key("c", "kept"), offsets_key("c", "retired"), offsets_key("other", "lost"), None}
    told = [progress(host, Position(1, 7, 40)) for host in ("kept", "retired", "lost")]
    assert lost_hosts(keys, [*told, progress("new", Position(1, -1, 0)), progress("adopted", Position(2, -1, 0))]) == (
        told[2],
        progress("adopted", Position(2, -1, 0)),
    )


def test_what_a_deleted_record_means_is_said() -> None:
    words = str(OffsetsLostError(("cdc.offsets", "cdc.progress"), progress("h", Position(1, 7, 40), parked=3)))
    assert words.startswith(
        "cdc.offsets has no record of host h, and cdc.progress says that its agent had published up"
    )
    assert "up to 1/7:40 at 2023-11-14T22:13:20+00:00, 3 parked mutations:" in words
    assert "`tailrace offsets restore`" in words
