"""Who owns cdc_raw: one agent at a time by a lock, and a mark that outlives the agent (docs/contracts.md section 1).

An agent deletes what it has published, so two of them on one directory delete each other's segments. The kernel ends
the lock with the process, however that ends. The mark stays: what its agent has not published is still its to publish.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from tailrace.segments.files import OWNER_MARK
from tailrace_common.closing import Closing
from tailrace_common.locks import lock_soon, try_lock
from tailrace_schemas.errors import FencedError, SettingsError
from tailrace_schemas.formats import require_format

_LOG: Final = logging.getLogger("tailrace.capture")
_VERSION: Final = 1
_POLL_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """An agent as its mark names it. `prefix` and `host` say who owns the directory, the rest helps people to find it.

    `kafka` is its bootstrap.servers; `transactional`: Kafka fences the older of two such agents; `since` is when it
    started, in ISO 8601.
    """

    prefix: str
    host: str
    kafka: str
    transactional: bool
    hostname: str
    pid: int
    since: str

    def owns_as(self, other: Owner) -> bool:
        """Whether both are agents of the same prefix and host: what one has not published, the other publishes."""
        return (self.prefix, self.host) == (other.prefix, other.host)

    def fences(self, other: Owner) -> bool:
        """Whether Kafka ends `other` when this one starts."""
        return self.owns_as(other) and self.kafka == other.kafka and self.transactional and other.transactional

    def __str__(self) -> str:
        process = f"started {self.since} on {self.hostname}, pid {self.pid}"
        return f'the agent with topics.prefix = "{self.prefix}" of host {self.host} ({process})'


def read_owner(directory: Path) -> Owner | None:
    """The owner that the mark in a directory names; None without a mark. Raises SettingsError for what is no mark."""
    path = directory / OWNER_MARK
    try:
        mark = json.loads(path.read_bytes())
        require_format(str(path), mark.pop("version"), _VERSION, otherwise=", or give --take-over")
        return Owner(**mark)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}; let this user read it") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"{path}: cannot be read ({error}), so the owner of this directory is unknown. If no other agent is to "
            "publish its segments, start once with `tailrace agent --take-over`"
        ) from error


def write_owner(directory: Path, owner: Owner) -> None:
    """Put a mark into a directory, whole or not at all. Raises OSError."""
    partial = directory / f"{OWNER_MARK}.{os.getpid()}"
    try:
        partial.write_text(json.dumps({**asdict(owner), "version": _VERSION}) + "\n", "utf-8")
        partial.replace(directory / OWNER_MARK)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


class Ownership(Closing):
    """A directory that is this agent's until it is closed; the mark stays then. Made by `own`.

    `lost` is called, in a thread, when another agent has become the owner: this one must end.
    """

    def __init__(self, directory: Path, owner: Owner, descriptor: int, lost: Callable[[str], None]) -> None:
        self._directory = directory
        self._owner = owner
        self._descriptor = descriptor
        self._lost = lost
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.taken_from: Owner | None = None
        """The owner before, where it was an agent of another prefix or host: it has deleted what it published."""

    def hold(self) -> Self:
        """The lock is ours: put up our mark."""
        try:
            write_owner(self._directory, self._owner)
        except OSError as error:
            _LOG.warning(
                "%s: cannot write the owner mark: %s; the lock alone keeps other agents away while this one runs",
                self._directory,
                error.strerror,
            )
        return self

    def wait(self, poll_seconds: float) -> Self:
        """Take the lock over, in a thread, once the older agent that Kafka fences has ended."""
        self._thread = threading.Thread(target=self._poll, args=(poll_seconds,), name="owner", daemon=True)
        self._thread.start()
        return self

    def join(self, seconds: float) -> None:
        """Wait until the lock is taken over, or the directory is lost; at most so long."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _poll(self, seconds: float) -> None:
        while not self._over.wait(seconds):
            locked = try_lock(self._descriptor)
            try:
                mark = read_owner(self._directory)
            except SettingsError as error:
                self._lost(str(error))
                return
            if mark is not None and not mark.owns_as(self._owner):
                self._lost(f"{self._directory}: {mark} has taken it over; this agent ends")
                return
            if locked:
                self.hold()
                return

    def close(self) -> None:
        """End the lock; the mark stays."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        os.close(self._descriptor)


def own(
    directory: Path,
    owner: Owner,
    *,
    take_over: bool = False,
    lost: Callable[[str], None] = lambda _: None,
    wait: Callable[[float], object] = time.sleep,
    poll_seconds: float = _POLL_SECONDS,
) -> Ownership:
    """Make a directory this agent's, to be closed. A newer transactional agent of the same prefix and host comes in
    beside the older one, which Kafka fences.

    Raises FencedError while another agent owns it, SettingsError where the mark names an agent of another prefix or
    host; not for `take_over`.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    ownership = Ownership(directory, owner, descriptor, lost)
    try:
        if not lock_soon(descriptor, wait):
            running = _running_owner(directory)
            if running is not None and owner.fences(running):
                return ownership.wait(poll_seconds)
            raise FencedError(_busy_words(directory, owner, running))
        ownership.taken_from = _previous(directory, owner, take_over)
        return ownership.hold()
    except BaseException:
        ownership.close()
        raise


def _previous(directory: Path, owner: Owner, take_over: bool) -> Owner | None:
    """The mark's owner where it is another one than this agent. Raises SettingsError; not for `take_over`."""
    try:
        mark = read_owner(directory)
    except SettingsError:
        if not take_over:
            raise
        return None
    if mark is None or mark.owns_as(owner):
        return None
    if not take_over:
        raise SettingsError(
            f'agent.cdc_raw_directory: {directory} is owned by {mark}. This agent has topics.prefix = "{owner.prefix}" '
            f"and host {owner.host}: it would publish what that one has not published yet, and delete it. "
            "If a setting is wrong, correct it. If the prefix or the node was changed on purpose, disable the other "
            "agent, then start this one once with `tailrace agent --take-over`"
        )
    _LOG.warning("%s: this agent took it over from %s", directory, mark)
    return mark


def _running_owner(directory: Path) -> Owner | None:
    try:
        return read_owner(directory)
    except SettingsError:
        return None


def _busy_words(directory: Path, owner: Owner, running: Owner | None) -> str:
    if running is not None and not running.owns_as(owner):
        return (
            f"another agent reads {directory}: {running}. It deletes segments once they are published, so a second "
            f'agent would lose changes. Stop it first, or let this one (topics.prefix = "{owner.prefix}", host '
            f"{owner.host}) read its own node's cdc_raw (agent.cdc_raw_directory)"
        )
    name = "" if running is None else f": {running}"
    return (
        f"another agent reads {directory}{name}: stop it first. With agent.delivery = at-least-once, or other "
        "[kafka] settings than its own, the one that runs stays"
    )


def this_agent(prefix: str, host: str, kafka: str, *, transactional: bool, now: float) -> Owner:
    """This process as an owner. `now` is wall-clock time in seconds."""
    since = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
    return Owner(
        prefix=prefix,
        host=host,
        kafka=kafka,
        transactional=transactional,
        hostname=os.uname().nodename,
        pid=os.getpid(),
        since=since,
    )
