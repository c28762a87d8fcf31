"""A child is started, awaited, stopped and never left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tailrace.local.process import Child, directory_lock, is_held, run_to_end
from tailrace_schemas.errors import ServiceError
from tests.support.waiting import until
from tests.unit.local.servers import FAILING, SERVER, WITH_A_CHILD, StandIn, launch, started


def is_gone(pid: int) -> bool:
    """Whether the process has ended; somebody may still have to take note of that."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


def pid_of_child(child: Child) -> int:
    """The process id that WITH_A_CHILD's own child logs, once its whole line is in the log."""
    log = child.launch.log
    return int(until(lambda: _CHILD.search(log.read_text()), "the child's line in the log")[1])


_CHILD: Final = re.compile(r"^child (\d+)\n", re.MULTILINE)


def test_ready_then_stopped_in_order(tmp_path: Path) -> None:
    child = started(tmp_path)
    assert child.running
    child.stop()
    assert is_gone(child.pid)
    assert child.launch.log.read_text() == "it is ready\nending\n"
    child.stop()


def test_child_that_ignores_sigterm_is_ended_by_force(tmp_path: Path) -> None:
    child = Child.start(replace(launch(tmp_path, on_term="ignore"), stop_seconds=0.1))
    child.await_ready()
    child.stop()
    assert not child.running
    assert is_gone(child.pid)


@pytest.mark.parametrize(
    ("on_term", "seconds", "said"),
    [
        ("end", 30.0, ["its parent has ended", "following"]),
        pytest.param("ignore", 2.0, ["its parent has ended"], marks=pytest.mark.slow),
    ],
    ids=["follows", "ended by force"],
)
def test_nothing_that_it_started_is_left(tmp_path: Path, on_term: str, seconds: float, said: list[str]) -> None:
    child = Child.start(replace(launch(tmp_path, WITH_A_CHILD, on_term=on_term), stop_seconds=seconds))
    child.await_ready()
    pid = pid_of_child(child)
    child.stop()
    assert is_gone(pid)
    assert child.launch.log.read_text().splitlines()[2:] == said


def test_kill_takes_what_it_started_along(tmp_path: Path) -> None:
    child = Child.start(launch(tmp_path, WITH_A_CHILD))
    child.await_ready()
    pid = pid_of_child(child)
    child.kill()
    assert is_gone(pid)


def test_kill_gives_no_chance(tmp_path: Path) -> None:
    child = started(tmp_path)
    child.kill()
    assert not child.running
    assert "ending" not in child.launch.log.read_text()
    child.kill()


def test_child_that_ends_at_its_start_is_quoted(tmp_path: Path) -> None:
    child = Child.start(launch(tmp_path, FAILING))
    with pytest.raises(ServiceError) as caught:
        child.await_ready()
    message = str(caught.value)
    assert message.startswith(f"server ended at its start with exit code 7. Its log is {tmp_path}/server.log")
    assert message.endswith("  line 98\n  line 99")
    assert "line 1\n" not in message


def test_child_that_never_gets_ready_is_ended(tmp_path: Path) -> None:
    child = Child.start(replace(launch(tmp_path, says="not yet"), start_seconds=0.2))
    with pytest.raises(ServiceError, match=r"server was not ready after 0 s. Its log is .*"):
        child.await_ready()
    assert not child.running


@pytest.mark.slow
def test_readiness_of_an_earlier_start_does_not_count(tmp_path: Path) -> None:
    started(tmp_path).stop()
    again = Child.start(replace(launch(tmp_path, says="not yet"), start_seconds=0.2))
    with pytest.raises(ServiceError, match="was not ready"):
        again.await_ready()


def test_one_server_per_directory(tmp_path: Path) -> None:
    child = started(tmp_path)
    assert is_held(tmp_path, "server")
    with pytest.raises(ServiceError, match=f"server still runs in {tmp_path}: stop it first"):
        directory_lock(tmp_path, "server", seconds=0.1)
    child.kill()
    assert not is_held(tmp_path, "server")
    directory_lock(tmp_path, "server", seconds=0.1).close()
    assert not is_held(tmp_path / "nowhere", "server")


def test_start_waits_for_one_that_is_ending(tmp_path: Path) -> None:
    first = started(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(Child.start, launch(tmp_path))
        first.stop()
        child = second.result(60)
    child.await_ready()
    child.stop()


_ANSWERING: Final = SERVER.replace(
    "with socket", 'signal.signal(signal.SIGWINCH, lambda *_: print("lives", flush=True))\nwith socket'
)


def test_child_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    """The kernel's death signal belongs to a thread, and that one has to live as long as the process."""
    with ThreadPoolExecutor(1) as pool:
        child = pool.submit(started, tmp_path, code=_ANSWERING).result()
        thread = Path(f"/proc/self/task/{pool.submit(threading.get_native_id).result()}")
    until(lambda: not thread.exists(), "the thread's end, of which the kernel has told its children")
    os.kill(child.pid, signal.SIGWINCH)  # a SIGTERM would come first
    until(lambda: "lives" in child.launch.log.read_text() or not child.running, "the child's answer")
    assert child.running
    child.stop()
    assert child.launch.log.read_text().endswith("ending\n")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_child_ends_when_its_parent_dies(tmp_path: Path, number: signal.Signals) -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
    parent.send_signal(number)
    assert parent.wait(60) == -number
    until(lambda: is_gone(pid), "the child's end")
    assert (tmp_path / "server.log").read_text().endswith("ending\n")
    assert not is_held(tmp_path, "server")


_PARENT = """
import signal, sys
from pathlib import Path
from tests.unit.local.servers import started
signal.signal(signal.SIGINT, signal.SIG_DFL)
print(started(Path(sys.argv[1])).pid, flush=True)
signal.pause()
"""


@pytest.mark.slow
def test_child_ends_when_its_parent_exits(tmp_path: Path) -> None:
    program = _PARENT.replace("signal.pause()", "")
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, capture_output=True, timeout=600)
    until(lambda: is_gone(int(done.stdout)), "the child's end")


def test_guard_runs_nothing_for_a_parent_that_is_gone(tmp_path: Path) -> None:
    from tailrace.local import guard

    command = [sys.executable, "-I", "-S", guard.__file__, "1", "/bin/sh", "-c", f"touch {tmp_path}/ran"]
    if os.getpid() == 1:
        pytest.skip("this process is the first of its system")
    assert subprocess.run(command, check=False).returncode == 1
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_reaches_the_parent_only(tmp_path: Path) -> None:
    child = started(tmp_path)
    assert os.getpgid(child.pid) != os.getpgid(0)
    child.stop()


@pytest.mark.slow
def test_tool_runs_to_its_end(tmp_path: Path) -> None:
    assert run_to_end("tool", (sys.executable, "-c", "print('done')"), tmp_path) == "done\n"
    with pytest.raises(
        ServiceError, match=r"tool ended with exit code 7. Its log is .*tool.log, which ends:\n(.|\n)*99"
    ):
        run_to_end("tool", (sys.executable, "-c", FAILING), tmp_path)
    command = launch(tmp_path, SERVER).command
    with pytest.raises(ServiceError, match=r"tool took longer than 0 s; its log is .*tool.log"):
        run_to_end("tool", command, tmp_path, seconds=0.2)


@pytest.mark.slow
def test_a_tool_does_not_outlive_an_interrupt(tmp_path: Path) -> None:
    log, tool = tmp_path / "tool.log", "import os, signal; print(os.getpid(), flush=True); signal.pause()"

    def interrupt() -> None:
        until(lambda: log.exists() and log.read_text().endswith("\n"), "the tool's line in the log")
        os.kill(os.getpid(), signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_to_end("tool", (sys.executable, "-c", tool), tmp_path)
    assert is_gone(int(log.read_text()))


@pytest.mark.slow
def test_service_is_a_context_and_restarts_in_place(tmp_path: Path) -> None:
    service = StandIn(tmp_path / "service")
    with pytest.raises(ServiceError, match="was not started"):
        _ = service.pid
    with service:
        first = service.pid
        with pytest.raises(ServiceError, match="runs already"):
            service.start()
        assert service.restart().running
        assert service.pid != first
        service.kill()
        assert not service.running
        service.start()
    assert not service.running
    assert service.log.read_text().count("it is ready") == 3
    assert service.log.read_text().count("ending") == 2


def test_stop_from_another_thread_ends_a_start(tmp_path: Path) -> None:
    service = StandIn(tmp_path, SERVER.replace("print(ready", "print('not yet'"))
    with ThreadPoolExecutor(1) as pool:
        start = pool.submit(service.start)
        until(lambda: service.running, "the service")
        service.kill()
        with pytest.raises(ServiceError, match="ended at its start with signal SIGKILL"):
            start.result(60)
