"""How far a subscription's snapshots are, in the meta database: the next worker goes on at the range."""

from __future__ import annotations

from tailrace_schemas.errors import CorruptError, SettingsError
from tailrace_server.meta.leases import Claim, Leases
from tailrace_spark.snapshot.progress import Request, Snapshots, State, snapshots_from_json

_UNREAD = (State.DROPPED, State.REFUSED)


class MetaNotes:
    """As `tailrace_spark.job.snapshot_notes.Notes` says, for one claim: one that is lost writes nothing.

    Nothing is asked of a stream here: `tailrace reset --snapshot` changes the progress itself.
    """

    def __init__(self, leases: Leases, claim: Claim) -> None:
        self._leases = leases
        self._claim = claim
        self._last = Snapshots()

    def read(self) -> Snapshots:
        """As Notes says. Raises ServiceError and LostLeaseError too."""
        ranges = self._leases.snapshots(self._claim)
        if ranges is not None:
            try:
                self._last = snapshots_from_json(ranges)
            except CorruptError as error:
                reference = self._claim.subscription.reference
                raise SettingsError(
                    f"subscription {reference}: {error}. Install the version that wrote it, or begin again by "
                    f"`tailrace reset {reference} --snapshot`"
                ) from error
        return self._last

    def write(self, value: Snapshots) -> None:
        """As Notes says."""
        self._leases.save_snapshots(self._claim, value.to_json())
        self._last = value

    @property
    def last(self) -> Snapshots:
        """As it was read or written last."""
        return self._last

    def requested(self) -> list[tuple[str, Request]]:
        """None, ever."""
        return []

    def take(self, name: str) -> None:
        """There is nothing to take."""

    @property
    def complaint(self) -> str:
        """Of tables that could not be read: which, and why; empty without any."""
        return "; ".join(f"{table.table}: {table.reason}" for table in self._last.tables if table.state in _UNREAD)
