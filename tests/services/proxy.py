"""A TCP proxy on loopback that refuses, stalls and cuts what stands between a client and a server, at a test's word."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from tailrace.local.ports import free_port

_BYTES: Final = 1 << 16
_SECONDS: Final = 60.0


class Proxy:
    """Listens on `address`:`port` from its entry to its exit, and passes everything on to `target` at first.

    Every method returns when it has taken effect.
    """

    address: Final = "127.0.0.1"

    def __init__(self, target: tuple[str, int]) -> None:
        self.port = free_port(self.address)
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self._open = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Future[None]] = set()
        """What a kind of proxy does besides, until its exit."""
        self._ended = False
        self.taken = 0
        """Connections that were accepted since its entry."""

    def flow(self) -> None:
        """Accept connections, and pass on what was held back and what comes."""
        self._call(self._flow)

    def refuse(self) -> None:
        """End every connection and accept none: the client is told at once."""
        self._call(self._refuse)

    def stall(self) -> None:
        """Accept connections and keep those that stand, but let nothing through: the client is told nothing."""
        self._call(self._open.clear)

    def cut(self) -> None:
        """End every connection by a reset; new ones are as before."""
        self._call(self._cut)

    def __enter__(self) -> Self:
        self._thread.start()
        self.flow()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, action: Callable[[], object]) -> None:
        async def act() -> None:
            result = action()
            if asyncio.iscoroutine(result):
                await result

        asyncio.run_coroutine_threadsafe(act(), self._loop).result(_SECONDS)

    async def _flow(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._take, self.address, self.port)
        self._open.set()

    async def _refuse(self) -> None:
        if (server := self._server) is not None:
            self._server = None
            for listener in server.sockets:
                self._loop.remove_reader(listener.fileno())
            await asyncio.sleep(0)  # a closed asyncio server drops, open, a connection that it has just accepted
            server.close()
        self._cut()

    def _cut(self) -> None:
        for end in self._ends:
            end.transport.abort()

    async def _end(self) -> None:
        """Wait until every connection is closed: the garbage collector would warn of one in the middle of some test.

        No connection's task is cancelled: one that has not begun, or is connecting, would leave its connection open.
        """
        self._ended = True
        await self._refuse()
        self._open.set()
        for task in self._tasks:
            task.cancel()
        while asyncio.all_tasks() - {asyncio.current_task()}:
            self._cut()
            await asyncio.sleep(0)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.taken += 1
        self._keep(writer)
        there: asyncio.StreamWriter | None = None
        try:
            await self._open.wait()
            if self._ended:
                return
            back, there = await asyncio.open_connection(*self._target)
            self._keep(there)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._ask(reader, there, writer))
                both.create_task(self._pass(back, writer))
        except (OSError, ExceptionGroup):
            pass  # one side is gone, or the server was not there: so is the other side then
        finally:
            for end in (writer, there):
                if end is not None:
                    self._ends.discard(end)
                    end.transport.abort()
                    with suppress(OSError):
                        await end.wait_closed()

    def _keep(self, end: asyncio.StreamWriter) -> None:
        self._ends.add(end)
        # Whenever it is closed, the other side is told by a reset, as it is by a host that is gone.
        end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def _ask(
        self, client: asyncio.StreamReader, server: asyncio.StreamWriter, answers: asyncio.StreamWriter
    ) -> None:
        """What the client says goes to the server; one that answers for the server does so to `answers`."""
        del answers
        await self._pass(client, server)

    async def _pass(self, source: asyncio.StreamReader, end: asyncio.StreamWriter) -> None:
        while data := await source.read(_BYTES):
            await self._open.wait()
            end.write(data)
            await end.drain()
        raise ConnectionResetError  # ends the other direction
