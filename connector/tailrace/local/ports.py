"""Free ports, chosen once per service directory and kept, so that a restart answers where it did before."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from secrets import SystemRandom
from threading import Lock

from tailrace_schemas.errors import ServiceError

_RANGE = range(15_000, 32_000)
"""Below the ports that the kernel gives to outgoing connections: nothing else takes one while a service restarts."""

_TRIES = 200
_given: set[tuple[str, int]] = set()
_lock = Lock()


def free_port(address: str) -> int:
    """A TCP port on which nothing listens, and which this process has not been given before.

    Raises ServiceError when the address is not one of this machine, or no port is free.
    """
    with _lock:
        for port in SystemRandom().sample(_RANGE, _TRIES):
            if (address, port) not in _given and is_free(address, port):
                _given.add((address, port))
                return port
    raise ServiceError(f"no port between {_RANGE.start} and {_RANGE.stop} is free on {address}")


def is_free(address: str, port: int) -> bool:
    """Whether a server may listen there now. Raises ServiceError when the address is not one of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, 0))
        except OSError as error:
            raise ServiceError(f"{address} is not an address of this machine: {error}") from error
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def is_open(address: str, port: int) -> bool:
    """Whether something accepts connections there."""
    try:
        with socket.create_connection((address, port), timeout=1.0):
            return True
    except OSError:
        return False


def settle_ports(directory: Path, address: str, requested: Mapping[str, int]) -> dict[str, int]:
    """A port for each name: the wanted one, or for 0 the one of the last start in `directory` if free, else a new one.

    The choice is written to `directory`/ports.json.
    """
    file = directory / "ports.json"
    earlier: dict[str, int] = json.loads(file.read_text()) if file.is_file() else {}
    chosen = {}
    for name, port in requested.items():
        last = earlier.get(name, 0)
        chosen[name] = port or (last if last and is_free(address, last) else free_port(address))
    file.write_text(json.dumps(chosen))
    return chosen
