"""Services that start side by side: what is said of one that dies while another still starts."""

from __future__ import annotations

import re
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tailrace.local.service import LocalService
from tailrace.local.services import await_all
from tailrace_schemas.errors import ServiceError
from tests.unit.local.servers import SERVER, StandIn

# Ready, and dead once that was seen: its last words are the reason.
DYING = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    print(sys.argv[2], flush=True)
    server.accept()
print("java.lang.OutOfMemoryError", flush=True)
sys.exit(3)
"""
NEVER_READY = SERVER.replace("print(ready", "print('starting'")


@pytest.mark.slow
def test_a_service_that_dies_while_another_starts_ends_the_start(tmp_path: Path) -> None:
    """With its name and the end of its log, though the other one would start for two minutes."""
    dying, slow = StandIn(tmp_path / "dying", DYING), StandIn(tmp_path / "slow", NEVER_READY)
    words = f"server ended by itself. Its log is {dying.log}, which ends:\n  it is ready\n  java.lang.OutOfMemoryError"
    with ThreadPoolExecutor(2) as pool:
        starting: dict[Future[Any], LocalService] = {pool.submit(service.start): service for service in (dying, slow)}
        try:
            with pytest.raises(ServiceError, match=re.escape(words)):
                await_all(starting)
        finally:
            slow.kill()
