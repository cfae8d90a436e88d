"""A TCP relay with the round trip of a wide-area network: what it is given, it passes on a while later, in both ways.

A connection is usable after one round trip, as if its handshake had travelled; bandwidth is not limited.
"""

import asyncio
import sys
from typing import cast

import uvloop


class End(asyncio.Protocol):
    """One side of a relayed connection. ``peer`` is the other one, once there is one."""

    def __init__(self, one_way_s: float) -> None:
        self.peer: End | None = None
        self._one_way_s = one_way_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._transport = None
        if self.peer is not None:
            self._loop.call_later(self._one_way_s, self.peer.drop)

    def data_received(self, data: bytes) -> None:
        if self.peer is not None:
            self._loop.call_later(self._one_way_s, self.peer.write, data)

    @property
    def is_gone(self) -> bool:
        """Whether the connection has ended."""
        return self._transport is None

    def write(self, data: bytes) -> None:
        """Send what the peer was given."""
        if self._transport is not None:
            self._transport.write(data)

    def drop(self) -> None:
        """End as the peer ended."""
        if self._transport is not None:
            self._transport.abort()


class NearEnd(End):
    """The side of the client."""

    def __init__(self, port: int, one_way_s: float) -> None:
        super().__init__(one_way_s)
        self._port = port
        self._early: list[bytes] = []  # what came before the handshake would have been over
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = self._loop.create_task(self._connect())

    def data_received(self, data: bytes) -> None:
        if self.peer is None:
            self._early.append(data)
        else:
            super().data_received(data)

    async def _connect(self) -> None:
        _, far = await self._loop.create_connection(lambda: End(self._one_way_s), "127.0.0.1", self._port)
        self._loop.call_later(2 * self._one_way_s, self._open, far)

    def _open(self, far: End) -> None:
        far.peer, self.peer = self, far
        if self.is_gone:
            far.drop()
        for data in self._early:
            self.data_received(data)
        self._early.clear()


async def relay(port: int, target_port: int, one_way_s: float) -> None:
    """Relay until killed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: NearEnd(target_port, one_way_s), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(relay(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
