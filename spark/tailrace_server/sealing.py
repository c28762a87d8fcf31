"""Seals secrets with keys in a file, so that the meta database alone gives none of them away."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from tailrace_schemas.errors import SettingsError


class Sealer:
    """Seals with the first key of a file, and opens with any of them. A line of the file is a key of Fernet's."""

    def __init__(self, file: Path) -> None:
        """Nothing is read yet: what needs no secret needs no key."""
        self._file = file

    def seal(self, text: str) -> str:
        """The text, sealed. Raises SettingsError without a key."""
        return MultiFernet(self._keys()).encrypt(text.encode()).decode()

    def open(self, sealed: str) -> str:
        """What was sealed. Raises SettingsError where no key of the file fits."""
        try:
            return MultiFernet(self._keys()).decrypt(sealed.encode()).decode()
        except InvalidToken:
            raise SettingsError(
                f"server.key_file {self._file}: none of its keys opens the secrets of the meta database; give every "
                "server the file of the one that sealed them"
            ) from None

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self._file.exists()

    def make(self) -> None:
        """Make the file with a new key, which only this user may read. Another's file is left as it is."""
        try:
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return
        except OSError as error:
            raise SettingsError(f"server.key_file {self._file}: cannot be made: {error.strerror}") from None
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{Fernet.generate_key().decode()}\n")

    def add(self) -> None:
        """Put a new key behind the others: this file opens what will be sealed with it. Raises SettingsError."""
        self._write([*self._lines(), Fernet.generate_key().decode()])

    def use_newest(self) -> None:
        """Seal with the last key of the file from now on."""
        *older, newest = self._lines()
        self._write([newest, *older])

    def keep_first(self) -> None:
        """Forget all keys but the one that seals."""
        self._write(self._lines()[:1])

    def _keys(self) -> list[Fernet]:
        try:
            return [Fernet(line) for line in self._lines()]
        except ValueError:
            raise SettingsError(
                f"server.key_file {self._file}: a line is no key: each has 32 bytes in base64; "
                "`tailrace server-key new` adds one"
            ) from None

    def _lines(self) -> list[str]:
        try:
            lines = self._file.read_text("ascii").split()
        except FileNotFoundError:
            raise SettingsError(
                f"server.key_file {self._file}: no such file; copy it from the server that sealed the secrets of this "
                "meta database"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            words = error.strerror if isinstance(error, OSError) else "not text"
            raise SettingsError(f"server.key_file {self._file}: cannot be read: {words}") from None
        if not lines:
            raise SettingsError(f"server.key_file {self._file}: has no key")
        return lines

    def _write(self, lines: list[str]) -> None:
        new = self._file.with_name(f".{self._file.name}.new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write("".join(f"{line}\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._file)
