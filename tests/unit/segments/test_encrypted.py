"""Encrypted segments in a cdc_raw: read with their key, and nothing goes into quarantine for a wrong one."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tailrace.capture.cdcraw import CdcRaw
from tailrace.commitlog.blocks import NO_KEYS, Keys
from tailrace.state import Resume
from tailrace_schemas.errors import SettingsError
from tests.unit.capture.segments import released
from tests.unit.commitlog.recorded import KEY, KEYS, read_until_damage, recorded, sections_of

FOLDER = recorded("4.0-beta4/encrypted")
((NAME, DATA),) = FOLDER.segments.items()
ID = int(NAME.removesuffix(".log").rpartition("-")[2])
OTHER = Keys(otherwise=bytes(16))


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """A cdc_raw with the recorded segment, finished."""
    directory = tmp_path / "cdc_raw"
    directory.mkdir()
    (directory / NAME).write_bytes(DATA)
    (directory / NAME.replace(".log", "_cdc.idx")).write_text("1\nCOMPLETED")
    return directory


def payloads(capture: CdcRaw) -> list[bytes]:
    batches = iter(lambda: capture.read(1000), [])
    return [entry.payload for batch in batches for entry in batch]


@pytest.mark.parametrize("keys", [KEYS, Keys(otherwise=KEY)], ids=["alias", "raw"])
def test_it_is_read_whole(raw: Path, keys: Keys) -> None:
    with closing(CdcRaw(raw, Resume(), keys)) as capture:
        assert payloads(capture) == [frame.payload for frame in read_until_damage(DATA)[0]]
        assert not capture.quarantined


@pytest.mark.parametrize("keys", [NO_KEYS, Keys({"another": KEY})], ids=["none", "another alias"])
@pytest.mark.parametrize("index", ["1\nCOMPLETED", "100000"], ids=["finished", "written"])
def test_without_its_key_nothing_goes_on(raw: Path, keys: Keys, index: str) -> None:
    (raw / NAME.replace(".log", "_cdc.idx")).write_text(index)
    with closing(CdcRaw(raw, Resume(), keys)) as capture:
        with pytest.raises(SettingsError, match=rf"{NAME}:\d+: .* no key for alias 'testing:1': set agent\.keystore"):
            capture.read(10)
        assert not capture.quarantined


def test_a_key_that_opens_nothing_is_not_taken_for_damage(raw: Path) -> None:
    released(raw.parent, ID - 1, b"ten bytes!", completed=True)
    with closing(CdcRaw(raw, Resume(), OTHER)) as capture:
        # That another segment can be read without a key says nothing about the key.
        assert [entry.payload for entry in capture.read(10)] == [b"ten bytes!"]
        with pytest.raises(SettingsError, match=r"a wrong key, or damage\. .* see agent\.keystore") as caught:
            capture.read(10)
        assert not capture.quarantined
    assert bytes(16).hex() not in str(caught.value)


def test_damage_behind_what_the_key_opened_is_quarantined(raw: Path) -> None:
    third = sections_of(DATA)[2]
    damaged = bytearray(DATA)
    damaged[third.end.marker - 1] ^= 1
    (raw / NAME).write_bytes(damaged)
    with closing(CdcRaw(raw, Resume(), KEYS)) as capture:
        found = payloads(capture)
        assert [one.segment for one in capture.quarantined.values()] == [ID]
        assert "a wrong key, or damage" in capture.quarantined[ID].reason
    assert found == [frame.payload for frame in read_until_damage(DATA)[0] if frame.end <= third.logical]


@pytest.mark.parametrize(
    ("keys", "refusal"), [(NO_KEYS, "no key for alias"), (OTHER, "a wrong key, or damage")], ids=["none", "another"]
)
def test_what_is_parked_is_not_lost_for_a_missing_key(raw: Path, keys: Keys, refusal: str) -> None:
    """Else it would be given up after a restart, and its segment released."""
    with closing(CdcRaw(raw, Resume(), KEYS)) as capture:
        parked, *_ = capture.read(10)
        resume = Resume(parked.position, capture.open_segments())
    again = ID, dict(resume.open)[ID], (parked.offset,)
    with (
        closing(CdcRaw(raw, resume, keys)) as capture,
        pytest.raises(SettingsError, match=rf"{refusal}.*agent\.keystore"),
    ):
        list(capture.reread(1, *again))
    with closing(CdcRaw(raw, resume, KEYS)) as capture:
        assert list(capture.reread(1, *again)) == [parked]


def test_damage_before_what_is_parked_leaves_it_lost(raw: Path) -> None:
    second = sections_of(DATA)[1]
    with closing(CdcRaw(raw, Resume(), KEYS)) as capture:
        entries = [entry for batch in iter(lambda: capture.read(1000), []) for entry in batch]
        resume = Resume(entries[-1].position, capture.open_segments())
    damaged = bytearray(DATA)
    damaged[second.end.marker - 1] ^= 1
    (raw / NAME).write_bytes(damaged)
    with closing(CdcRaw(raw, resume, KEYS)) as capture:
        asked = entries[0].offset, entries[-1].offset
        assert list(capture.reread(1, ID, dict(resume.open)[ID], asked)) == [entries[0]]
