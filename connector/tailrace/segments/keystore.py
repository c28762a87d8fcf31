"""A Java keystore's bytes and its passwords to the secret keys in it."""

from __future__ import annotations

from typing import Final

from tailrace.commitlog.encryption import Keys
from tailrace.segments.jceks import JCEKS, JKS, read_jceks
from tailrace.segments.pkcs12 import read_pkcs12
from tailrace.segments.stored_keys import StoredKey, WrongPasswordError
from tailrace_schemas.errors import SettingsError

_SEQUENCE: Final = b"\x30"
"""How DER, and so PKCS #12, begins."""


def read_keystore(data: bytes, password: str, key_password: str | None = None) -> Keys:
    """The secret keys of a JCEKS or PKCS #12 keystore (Cassandra's JKSKeyProvider), by alias in lower case.

    `key_password` opens the entries; without it the keystore's does, as there. Entries that it does not open are left
    out while others do: a keystore may be shared. Raises SettingsError for a wrong password, and for anything that is
    no such keystore. Messages name neither password nor key.
    """
    entries = _entries(data, password)
    if not entries:
        raise SettingsError("the keystore has no secret key; only JCEKS and PKCS12 keystores can hold one")
    opened = {
        entry.alias.lower(): _open(entry, password if key_password is None else key_password) for entry in entries
    }
    keys = {alias: key for alias, key in opened.items() if key is not None}
    if not keys:
        raise SettingsError("no key of the keystore opens: a wrong key password, or damage")
    return Keys(keys)


def _entries(data: bytes, password: str) -> list[StoredKey]:
    try:
        if data[:4] in (JCEKS, JKS):
            return read_jceks(data, password)
        if data[:1] == _SEQUENCE:
            return read_pkcs12(data, password)
    except WrongPasswordError:
        raise SettingsError("the keystore does not open: a wrong password, or damage") from None
    except ValueError as error:
        raise SettingsError(f"not a JCEKS or PKCS12 keystore ({error})") from None
    raise SettingsError("not a JCEKS or PKCS12 keystore; keytool -importkeystore -deststoretype PKCS12 makes one")


def _open(entry: StoredKey, password: str) -> bytes | None:
    """The entry's key, None where the password does not open it. Java allows ASCII only in those of JCEKS."""
    try:
        return entry.open(password)
    except ValueError:
        return None
