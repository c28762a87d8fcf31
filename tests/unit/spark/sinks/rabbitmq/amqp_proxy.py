"""A proxy before RabbitMQ that counts a client's frames, and at one of them lets the client's process die."""

from __future__ import annotations

import asyncio

from tests.services.proxy import Proxy

_HEADER = 7  # type, channel and size; behind the payload stands one byte more
_HEARTBEAT = 8


class FrameProxy(Proxy):
    """With `dies_after` n: n // 2 frames are passed on, then either the next one is not (even n), or it and what
    follows are, but no answer comes back (odd n). From then on every connection is cut.
    """

    def __init__(self, target: tuple[str, int], dies_after: int | None = None) -> None:
        super().__init__(target)
        self._left = None if dies_after is None else dies_after // 2
        self._deaf = dies_after is not None and dies_after % 2 == 1
        self._dead = False
        self._answers = True
        self.heartbeats = 0
        self.publishes = 0

    def hold_answers(self) -> None:
        """From now on the client hears nothing; what it says is passed on."""
        self._answers = False

    async def _ask(
        self, client: asyncio.StreamReader, server: asyncio.StreamWriter, answers: asyncio.StreamWriter
    ) -> None:
        del answers
        server.write(await _exactly(client, 8))  # "AMQP" and its version
        while True:
            await self._open.wait()
            head = await _exactly(client, _HEADER)
            frame = head + await _exactly(client, int.from_bytes(head[3:]) + 1)
            self.heartbeats += frame[0] == _HEARTBEAT
            self.publishes += frame[0] == 1 and frame[7:11] == b"\x00\x3c\x00\x28"  # basic.publish
            if self._left is not None and frame[0] != _HEARTBEAT:
                if self._left == 0 and not self._deaf:
                    self._dead = True
                    raise ConnectionResetError
                self._dead = self._dead or self._left == 0
                self._left = max(0, self._left - 1)
            server.write(frame)
            await server.drain()

    async def _pass(self, source: asyncio.StreamReader, end: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            await self._open.wait()
            if self._dead:  # RabbitMQ has done what it answers
                raise ConnectionResetError
            if self._answers:
                end.write(data)
                await end.drain()
        raise ConnectionResetError


async def _exactly(source: asyncio.StreamReader, size: int) -> bytes:
    try:
        return await source.readexactly(size)
    except asyncio.IncompleteReadError:
        raise ConnectionResetError from None
