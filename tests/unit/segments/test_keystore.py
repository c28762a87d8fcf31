"""Java keystores: those that Java wrote, their passwords, and what is none."""

from __future__ import annotations

import contextlib
import hashlib

import pytest

from tailrace.segments import jceks
from tailrace.segments.keys import read_keystore
from tailrace.segments.stored_keys import triple_des_cbc
from tailrace_schemas.errors import SettingsError
from tests.unit.commitlog.recorded import KEY, ROOT

STORES = ROOT / "keystores"
PASSWORD = "cassandra"  # noqa: S105 - of the test keystores
OTHER = bytes.fromhex("5b580ef7c05053e49aa4244736ae5744")


def store(name: str) -> bytes:
    return (STORES / name).read_bytes()


@pytest.mark.slow
def test_keys_by_alias_whatever_its_case() -> None:
    keys = read_keystore(store("cassandra.jceks"), PASSWORD)
    assert keys.key("testing:1") == keys.key("TESTING:1") == KEY
    assert keys.key("testing:2") == OTHER
    assert keys.key("testing:3") is None


# What pyjks 20 and Java itself read in these, too. They hold a private key and a certificate beside the secret keys.
BY_KEYTOOL = {
    "one": bytes.fromhex("93b461e2d8ecff2223f90af8fb709f6f"),
    "two": bytes.fromhex("1311980997a5fac7d0017b916b84df412c3205acbd20884c"),
    "three": bytes.fromhex("0a5e314d3d806b40fd0d54a07d65ab993b4fc47f07de320463f3bb73553ccaaa"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["keytool.p12", "keytool-legacy.p12", "keytool.jceks"])
def test_keystores_of_keytool(name: str) -> None:
    keys = read_keystore(store(name), PASSWORD)
    assert {alias: keys.key(alias) for alias in BY_KEYTOOL} == BY_KEYTOOL
    assert keys.key("Three") == BY_KEYTOOL["three"]
    assert (keys.key("private"), keys.key("trusted")) == (None, None)
    assert (keys.key("des") is not None) == (name == "keytool.jceks")


def test_a_salt_of_equal_halves_opens_as_java_sealed_it() -> None:
    sealed = bytes.fromhex("c8b1b8fc7d3ec0b137976d24cb5b60094d251c130270f8ce06b9bfa8bb79cb16")  # by Java 17
    key, iv = jceks._derived(PASSWORD.encode(), bytes([1, 2, 3, 4] * 2), 20)
    assert triple_des_cbc(key, iv, sealed) == b"what Java makes of equal halves"


@pytest.mark.slow
def test_nothing_shows_a_key() -> None:
    keys = read_keystore(store("cassandra.jceks"), PASSWORD)
    assert repr(keys) == str(keys) == "Keys()"


@pytest.mark.slow
def test_keys_with_a_password_of_their_own() -> None:
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
    ("empty.jks", PASSWORD, None, "has no secret key; only JCEKS and PKCS12 keystores can hold one"),
    ("keytool.p12", "wrong!", None, "does not open: a wrong password, or damage"),
    ("keytool.p12", "pässwörd", None, "does not open: a wrong password, or damage"),
    ("keytool.p12", PASSWORD, "wrong!", "no key of the keystore opens"),
    ("keytool-legacy.p12", "", None, "does not open: a wrong password, or damage"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "password", "key_password", "words"), REFUSED)
def test_what_does_not_open_is_told_without_secrets(
    name: str, password: str, key_password: str | None, words: str
) -> None:
    with pytest.raises(SettingsError, match=words) as caught:
        read_keystore(store(name), password, key_password)
    said = str(caught.value)
    # No chain either: it is what a traceback would show.
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    for secret in (password, key_password):
        assert not secret or secret == PASSWORD or secret not in said


@pytest.mark.parametrize(
    "data",
    [b"", b"\xce\xce\xce\xce", b"-----BEGIN PRIVATE KEY-----\n", bytes(100), b"\x30\x80", b"\x30\x03\x02\x01\x03"],
)
def test_other_files(data: bytes) -> None:
    with pytest.raises(SettingsError, match="not a JCEKS or PKCS12 keystore"):
        read_keystore(data, PASSWORD)


def test_cut_and_damaged_everywhere() -> None:
    whole = store("cassandra.jceks")
    for offset in range(len(whole)):
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << offset % 8
        for data in (whole[:offset], bytes(damaged)):
            with pytest.raises(SettingsError):
                read_keystore(data, PASSWORD)


@pytest.mark.long
def test_pkcs12_cut_and_damaged_everywhere() -> None:
    """The checksum covers the keys. In what names the checksum itself, some bits have no meaning."""
    whole = store("cassandra.p12")
    for offset in range(len(whole)):
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << offset % 4
        with pytest.raises(SettingsError):
            read_keystore(whole[:offset], PASSWORD)
        with contextlib.suppress(SettingsError):
            assert read_keystore(bytes(damaged), PASSWORD).by_alias == {"testing:1": KEY}


@pytest.mark.slow
def test_damage_behind_the_checksum_ends_in_an_error() -> None:
    """The checksum is made again over the damage, so that entries and objects are what is damaged."""
    body = store("keytool.jceks")[:-20]
    for offset in range(4, len(body)):
        damaged = bytearray(body)
        damaged[offset] ^= 1 << offset % 8
        digest = hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + damaged).digest()  # noqa: S324
        with contextlib.suppress(ValueError):
            jceks.read_jceks(bytes(damaged) + digest, PASSWORD)


@pytest.mark.slow
def test_a_keystore_that_holds_a_key_of_others_too() -> None:
    """Two entries, each with a password of its own: what opens is used."""
    assert read_keystore(store("shared.jceks"), PASSWORD).key("testing:1") == KEY
    assert read_keystore(store("shared.jceks"), PASSWORD).key("theirs") is None
