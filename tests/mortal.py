"""What tests that kill a database with -9 do with it, whichever it is."""

from __future__ import annotations

from typing import Protocol


class Victim(Protocol):
    """Somebody who is killed while others wait."""

    def kill(self) -> None:
        """kill -9; it has ended when this returns."""


class Mortal(Victim, Protocol):
    """A database server of a test's own that is killed, and then started again on its files."""

    def new_database(self) -> str:
        """The URL of a new, empty database."""

    def start(self) -> None:
        """Start it again, at the same address; it recovers from its log."""
