"""Seals what browsers keep for servers, by the key in a file, so that nobody can read or make it but a server."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

from tailrace_schemas.errors import SettingsError


class Sealer:
    """Seals and opens with the key of a file, which is Fernet's."""

    def __init__(self, file: Path) -> None:
        """Nothing is read yet."""
        self._file = file

    def seal(self, text: str) -> str:
        """The text, sealed. Raises SettingsError without a key."""
        return self._key().encrypt(text.encode()).decode()

    def open(self, sealed: str) -> str:
        """What was sealed. Raises SettingsError for what this key has not sealed."""
        try:
            return self._key().decrypt(sealed.encode()).decode()
        except InvalidToken:
            raise SettingsError(f"server.key_file {self._file}: its key has not sealed this") from None

    def make(self) -> bool:
        """Make the file, which only this user may read, and say whether it is new; one that is there stays."""
        new = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        try:
            if self._file.exists():
                return False
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(f"{Fernet.generate_key().decode()}\n")
            os.link(new, self._file)  # another server may make it at the same moment
        except FileExistsError:
            return False
        except OSError as error:
            raise SettingsError(f"server.key_file {self._file}: cannot be made: {error.strerror}") from None
        finally:
            new.unlink(missing_ok=True)
        return True

    def _key(self) -> Fernet:
        try:
            return Fernet(self._file.read_text("ascii").split()[0])
        except (OSError, UnicodeDecodeError) as error:
            words = error.strerror if isinstance(error, OSError) else "not text"
            raise SettingsError(f"server.key_file {self._file}: cannot be read: {words}") from None
        except (ValueError, IndexError):
            raise SettingsError(
                f"server.key_file {self._file}: has no key, which is 32 bytes in base64; remove it, and "
                "`tailrace server-key new` makes another"
            ) from None
