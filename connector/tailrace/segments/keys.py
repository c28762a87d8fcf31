"""Keys of encrypted segments: those that a command was given, those of the settings, and those in a Java keystore."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tailrace.commitlog.blocks import NO_KEYS, Keys
from tailrace.segments.jceks import JCEKS, JKS, read_jceks
from tailrace.segments.pkcs12 import read_pkcs12
from tailrace.segments.stored_keys import StoredKey, WrongPasswordError
from tailrace_common.settings import AgentSettings
from tailrace_schemas.errors import SettingsError

KEY: Final = "TAILRACE_SEGMENT_KEY"
PASSWORD: Final = "TAILRACE_KEYSTORE_PASSWORD"  # noqa: S105 - the variable's name
KEY_PASSWORD: Final = "TAILRACE_KEYSTORE_KEY_PASSWORD"  # noqa: S105 - the variable's name
_SEQUENCE: Final = b"\x30"
"""How DER, and so PKCS #12, begins."""


def keys_of(key: str | None, keystore: Path | None, password_file: Path | None) -> Keys:
    """The keys that a command was given. Raises SettingsError; its message shows no key and no password."""
    if keystore is None:
        return NO_KEYS if key is None else _raw("--key", key)
    if key is not None:
        raise SettingsError(f"give --key (or {KEY}) or --keystore, not both")
    password = _first_line(password_file) if password_file is not None else os.environ.get(PASSWORD)
    if password is None:
        raise SettingsError(f"--keystore {keystore}: set {PASSWORD}, or give --keystore-password-file")
    return _stored("--keystore", keystore, password, os.environ.get(KEY_PASSWORD))


def keys_of_settings(settings: AgentSettings) -> Keys:
    """The keys that the agent was given. Raises SettingsError; its message shows no key and no password."""
    if settings.segment_key is not None:
        return _raw("agent.segment_key", settings.segment_key.get_secret_value())
    if settings.keystore is None or settings.keystore_password is None:
        return NO_KEYS
    key_password = settings.keystore_key_password
    password = settings.keystore_password.get_secret_value()
    return _stored(
        "agent.keystore", settings.keystore, password, None if key_password is None else key_password.get_secret_value()
    )


def _raw(name: str, digits: str) -> Keys:
    try:
        key = bytes.fromhex(digits)
    except ValueError:
        raise SettingsError(f"{name}: not hexadecimal digits") from None
    if len(key) not in (16, 24, 32):
        raise SettingsError(f"{name}: {len(key)} bytes; AES takes 16, 24 or 32, which is 32, 48 or 64 digits")
    return Keys(otherwise=key)


def _stored(name: str, keystore: Path, password: str, key_password: str | None) -> Keys:
    try:
        return read_keystore(keystore.read_bytes(), password, key_password)
    except OSError as error:
        raise SettingsError(f"{name} {keystore}: cannot be read: {error.strerror}") from None
    except SettingsError as error:
        raise SettingsError(f"{name} {keystore}: {error}") from None


def _first_line(path: Path) -> str:
    try:
        return next(iter(path.read_text(encoding="utf-8").splitlines()), "")
    except UnicodeError:
        raise SettingsError(f"--keystore-password-file {path}: not UTF-8") from None


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
