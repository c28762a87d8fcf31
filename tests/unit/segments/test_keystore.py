"""Java keystores: those that Java wrote, their passwords, and what is none."""

from __future__ import annotations

import sys

import pytest

from tailrace.segments.keystore import read_keystore
from tailrace_schemas.errors import SettingsError
from tests.unit.commitlog.recorded import KEY, ROOT

STORES = ROOT / "keystores"
PASSWORD = "cassandra"  # noqa: S105 - of the test keystores
OTHER = bytes.fromhex("5b580ef7c05053e49aa4244736ae5744")


def store(name: str) -> bytes:
    return (STORES / name).read_bytes()


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jks", None)
    with pytest.raises(SettingsError, match=r"needs pyjks: pip install 'tailrace\[keystore\]'"):
        read_keystore(store("cassandra.jceks"), PASSWORD)


def test_keys_by_alias_whatever_its_case() -> None:
    pytest.importorskip("jks")
    keys = read_keystore(store("cassandra.jceks"), PASSWORD)
    assert keys.key("testing:1") == keys.key("TESTING:1") == KEY
    assert keys.key("testing:2") == OTHER
    assert keys.key("testing:3") is None


def test_nothing_shows_a_key() -> None:
    pytest.importorskip("jks")
    keys = read_keystore(store("cassandra.jceks"), PASSWORD)
    assert repr(keys) == str(keys) == "Keys()"


def test_keys_with_a_password_of_their_own() -> None:
    pytest.importorskip("jks")
    assert read_keystore(store("key-password.jceks"), PASSWORD, "of the key").key("testing:1") == KEY


REFUSED = [
    # keystore, password, key password, what is said
    ("cassandra.jceks", "wrong!", None, "does not open: a wrong password, or damage"),
    ("cassandra.jceks", "", None, "does not open: a wrong password, or damage"),
    ("cassandra.jceks", "pässwörd", None, "does not open: a wrong password, or damage"),
    ("cassandra.jceks", PASSWORD, "wrong!", "no key of the keystore opens: a wrong key password, or damage"),
    ("cassandra.jceks", PASSWORD, "", "no key of the keystore opens"),
    ("cassandra.jceks", PASSWORD, "pässwörd", "no key of the keystore opens"),
    ("key-password.jceks", PASSWORD, None, "no key of the keystore opens"),
    ("empty.jceks", PASSWORD, None, "has no secret key"),
    ("empty.jks", PASSWORD, None, "has no secret key; only JCEKS keystores can hold one"),
    ("cassandra.p12", PASSWORD, None, r"not a JCEKS keystore .*-deststoretype JCEKS makes one"),
]


@pytest.mark.parametrize(("name", "password", "key_password", "words"), REFUSED)
def test_what_does_not_open_is_told_without_secrets(
    name: str, password: str, key_password: str | None, words: str
) -> None:
    pytest.importorskip("jks")
    with pytest.raises(SettingsError, match=words) as caught:
        read_keystore(store(name), password, key_password)
    said = str(caught.value)
    # No chain either: it is what a traceback would show.
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    for secret in (password, key_password):
        assert not secret or secret == PASSWORD or secret not in said


@pytest.mark.parametrize("data", [b"", b"\xce\xce\xce\xce", b"-----BEGIN PRIVATE KEY-----\n", bytes(100)])
def test_other_files(data: bytes) -> None:
    pytest.importorskip("jks")
    with pytest.raises(SettingsError, match="not a JCEKS keystore"):
        read_keystore(data, PASSWORD)


@pytest.mark.slow
def test_cut_and_damaged_everywhere() -> None:
    pytest.importorskip("jks")
    whole = store("cassandra.jceks")
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        for data in (whole[:at], bytes(damaged)):
            with pytest.raises(SettingsError):
                read_keystore(data, PASSWORD)


@pytest.mark.slow
def test_a_keystore_that_holds_a_key_of_others_too() -> None:
    """Two entries, each with a password of its own: what opens is used."""
    pytest.importorskip("jks")
    assert read_keystore(store("shared.jceks"), PASSWORD).key("testing:1") == KEY
    assert read_keystore(store("shared.jceks"), PASSWORD).key("theirs") is None
