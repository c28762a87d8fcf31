"""A stand-in for a server, so that starting and ending can be tested in milliseconds: a real child process."""

from __future__ import annotations

import sys
from pathlib import Path

from tailrace.local.ports import free_port
from tailrace.local.process import Child, Launch
from tailrace.local.service import LocalService

SERVER = """
import signal, socket, sys, time
port, ready, on_term = int(sys.argv[1]), sys.argv[2], sys.argv[3]
def end(number, frame):
    print("ending", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if on_term == "ignore" else end)
with socket.create_server(("127.0.0.1", port)):
    print(ready + "\\n", end="", flush=True)  # by one write, however it is buffered
    while True:
        time.sleep(0.01)
"""

# Starts a server of its own, as Python does with Spark's Java, which follows `after` seconds later or never.
WITH_A_CHILD = """
import os, signal, socket, subprocess, sys, time
port, ready, on_term = int(sys.argv[1]), sys.argv[2], sys.argv[3]
following = '''
import os, sys, time
print("child", os.getpid(), flush=True)
os.read(0, 1)
print("its parent has ended", flush=True)
time.sleep(%s)
print("following", flush=True)
''' % ("1000" if on_term == "ignore" else "0.2")
child = subprocess.Popen([sys.executable, "-u", "-c", following], stdin=subprocess.PIPE)
with socket.create_server(("127.0.0.1", port)):
    print(ready + "\\n", end="", flush=True)  # by one write, however it is buffered
    while True:
        time.sleep(0.01)
"""

FAILING = """
import sys
for number in range(100):
    print("line", number)
sys.exit(7)
"""


def launch(directory: Path, code: str = SERVER, *, on_term: str = "end", says: str = "it is ready") -> Launch:
    """A server that writes `says` and listens; it is ready when that is `it is ready`."""
    port = free_port("127.0.0.1")
    directory.mkdir(parents=True, exist_ok=True)
    return Launch(
        name="server",
        command=(sys.executable, "-u", "-c", code, str(port), says, on_term),
        directory=directory,
        address="127.0.0.1",
        port=port,
        ready_line="it is ready",
        start_seconds=30.0,
        stop_seconds=30.0,
    )


class StandIn(LocalService):
    """A LocalService that is ready at once."""

    def __init__(self, directory: Path, code: str = SERVER) -> None:
        super().__init__("server", directory)
        self.code = code

    def _prepare(self) -> Launch:
        return launch(self.directory, self.code)


def started(directory: Path, **options: str) -> Child:
    child = Child.start(launch(directory, **options))
    child.await_ready()
    return child
