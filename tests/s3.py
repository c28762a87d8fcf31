"""A real S3 server for tests: PyPI's moto, over HTTP in a process of its own, started once, stopped with the run."""

from __future__ import annotations

import atexit
import re
import subprocess
import sys
import threading
from functools import cache
from itertools import count
from typing import Any

from pyarrow import fs

from tests.tied import tie

ACCESS_KEY, SECRET_KEY = "AKIATAILRACETEST", "hunter2hunter2"
_buckets = count()


@cache
def endpoint() -> str:
    """Its address, http://HOST:PORT; the first call starts it, in a second or two."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    tie(server.pid)
    atexit.register(_stop, server)
    said: list[str] = []
    for line in server.stderr or ():
        said.append(line)
        found = re.search(r"Running on (http://127\.0\.0\.1:\d+)", line)
        if found:
            threading.Thread(target=_drain, args=(server,), daemon=True).start()
            return found[1]
    raise RuntimeError(f"moto ended: {''.join(said[-5:])}")


def _drain(server: subprocess.Popen[str]) -> None:
    """Read what it says, or it would wait for that."""
    for _ in server.stderr or ():
        pass


def _stop(server: subprocess.Popen[str]) -> None:
    server.terminate()
    server.wait(60)


def filesystem(**more: Any) -> Any:
    """pyarrow's file system there."""
    where = {"scheme": "http", "endpoint_override": endpoint().removeprefix("http://"), "region": "us-east-1"}
    return fs.S3FileSystem(access_key=ACCESS_KEY, secret_key=SECRET_KEY, **where, **more)


def new_bucket() -> str:
    """The name of a new, empty bucket."""
    name = f"tailrace-{next(_buckets)}"
    filesystem(allow_bucket_creation=True).create_dir(name)
    return name
