"""One wait for many causes."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from tailrace.capture.watch import Signal, Watch


def test_a_signal_set_before_the_wait_is_not_lost_and_counts_once() -> None:
    """The waiter consumes it."""
    wakeup = Signal()
    wakeup.set()
    wakeup.set()
    assert wakeup.wait(60) is True
    assert wakeup.wait(0) is False
    assert wakeup.wait(-1) is False


def test_another_thread_ends_the_wait() -> None:
    wakeup = Signal()
    threading.Timer(0.01, wakeup.set).start()
    assert wakeup.wait(60) is True


def test_a_signal_handler_may_set_it_in_the_waiting_thread() -> None:
    """SIGALRM arrives while this thread waits."""
    wakeup = Signal()
    before = signal.signal(signal.SIGALRM, lambda *_: wakeup.set())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        assert wakeup.wait(60) is True
    finally:
        signal.signal(signal.SIGALRM, before)


def test_an_index_that_changes_is_noticed(tmp_path: Path) -> None:
    """By file notification, without a poll."""
    wakeup = Signal()
    with Watch(tmp_path, wakeup):
        (tmp_path / "CommitLog-7-1_cdc.idx").write_text("20")
        assert wakeup.wait(60) is True


def test_a_log_that_appears_is_told_of_once(tmp_path: Path) -> None:
    """Linked from elsewhere, as Cassandra does it; what is written into it afterwards is no news."""
    (tmp_path / "elsewhere").touch()
    raw = tmp_path / "cdc_raw"
    raw.mkdir()
    wakeup, appeared = Signal(), list[Path]()
    with Watch(raw, wakeup, appeared.append):
        (raw / "CommitLog-7-1.log").hardlink_to(tmp_path / "elsewhere")
        assert wakeup.wait(60) is True
        (raw / "CommitLog-7-1.log").write_bytes(b"x")
        (raw / "CommitLog-7-1_cdc.idx").write_text("20")
        assert wakeup.wait(60) is True
    assert appeared == [raw / "CommitLog-7-1.log"]


def test_without_notification_the_poll_has_to_do(tmp_path: Path) -> None:
    """A directory that cannot be watched is no error here: reading it will say what is wrong."""
    with Watch(tmp_path / "missing", Signal()):
        pass
