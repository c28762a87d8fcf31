"""A Java keystore's bytes and its passwords to the keys in it."""

from __future__ import annotations

from typing import Any

from tailrace.commitlog.encryption import Keys
from tailrace_schemas.errors import SettingsError


def read_keystore(data: bytes, password: str, key_password: str | None = None) -> Keys:
    """The secret keys of a JCEKS keystore (Cassandra's JKSKeyProvider), by alias.

    `key_password` opens the entries; without it the keystore's does, as there. Entries that it does not open are left
    out while others do: a keystore may be shared. Raises SettingsError for a wrong password, for anything that is no
    JCEKS keystore, and where the library for it is not installed. Messages name neither password nor key.
    """
    try:
        import jks
    except ImportError:
        raise SettingsError("reading a keystore needs pyjks: pip install 'tailrace[keystore]'") from None
    try:
        store = jks.KeyStore.loads(data, password, try_decrypt_keys=False)
        opened = [
            _open(jks, entry, password if key_password is None else key_password)
            for entry in store.secret_keys.values()
        ]
    except jks.KeystoreSignatureException:
        raise SettingsError("the keystore does not open: a wrong password, or damage") from None
    except Exception as error:
        # What the library meets inside of it, which may be anything, and may name what it met.
        raise SettingsError(
            f"not a JCEKS keystore ({type(error).__name__}); keytool -importkeystore -deststoretype JCEKS makes one"
        ) from None
    if not opened:
        raise SettingsError("the keystore has no secret key; only JCEKS keystores can hold one")
    keys = {alias: key for alias, key in opened if key is not None}
    if not keys:
        raise SettingsError("no key of the keystore opens: a wrong key password, or damage")
    return Keys(keys)


def _open(jks: Any, entry: Any, password: str) -> tuple[str, bytes | None]:
    """An entry's alias and its key, None where the password does not open it."""
    try:
        entry.decrypt(password)
    except (jks.DecryptionFailureException, UnicodeError, ValueError):
        # Java allows ASCII only in these passwords; the library says so by the latter two.
        return entry.alias.lower(), None
    return entry.alias.lower(), bytes(entry.key)
