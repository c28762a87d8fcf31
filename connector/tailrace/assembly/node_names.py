"""The nodes' names, as far as DNS tells them: people know a node by its name, not by its host id."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final

_SECONDS: Final = 3.0
_AT_ONCE: Final = 32


def reverse_name(address: str) -> str | None:
    """The name that DNS, or the machine's own table of hosts, has for an address."""
    try:
        name = socket.gethostbyaddr(address)[0]
    except OSError:
        return None
    return None if name == address else name


def node_names(
    addresses: Iterable[str], resolve: Callable[[str], str | None] = reverse_name, seconds: float = _SECONDS
) -> dict[str, str]:
    """Names by address, of those that are resolved within so many seconds."""
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="names")
    futures = {address: pool.submit(resolve, address) for address in set(addresses)}
    resolved, _ = wait(futures.values(), timeout=seconds)
    pool.shutdown(wait=False, cancel_futures=True)
    names = {address: future.result() for address, future in futures.items() if future in resolved}
    return {address: name for address, name in names.items() if name is not None}


def node_words(host: str, address: str | None, name: str | None = None) -> str:
    """A node for people: name, address and host id, as far as they are known."""
    label = name or address
    if label is None:
        return f"host id {host}"
    return f"{label} ({address}), host id {host}" if name else f"{label}, host id {host}"
