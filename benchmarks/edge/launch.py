"""A gateway that accepts in another way than its users' does, to measure the difference: ``launch.py LOOP serve …``.

LOOP is ``libuv`` (uvloop's own server: one connection per turn of the loop) or ``asyncio`` (asyncio's own loop).
"""

# ruff: noqa: SLF001 - what it replaces has no seam that the gateway would need for itself

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import Any

import uvloop

LOOPS = ("libuv", "asyncio")


class Libuv:
    """In place of the gateway's ``Acceptor``: lets libuv accept."""

    def __init__(self, sock: socket.socket, take: Any, *, on_exhausted: Callable[[], None]) -> None:
        del on_exhausted
        self._sock = sock
        self._connections = take.__self__
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._starting: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._starting = self._loop.create_task(self._start())

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _start(self) -> None:
        self._server = await self._loop.create_server(self._made, sock=self._sock, backlog=4096)

    def _made(self) -> Any:
        return self._connections._accepted("192.0.2.1")  # libuv would tell later: it is counted among the others


def main() -> None:
    """Change how it accepts, then run the command."""
    loop = sys.argv.pop(1)
    if loop not in LOOPS:
        sys.exit(f"launch: there is no loop {loop!r}, there are {', '.join(LOOPS)}")
    if loop == "asyncio":
        uvloop.new_event_loop = asyncio.new_event_loop  # type: ignore[assignment] # the gateway asks uvloop for its loop
    else:
        from gateway.connections import listener  # noqa: PLC0415 - of the checkout that is measured

        setattr(listener, "Acceptor", Libuv)  # noqa: B010 - mypy would not have it
    from gateway.cli.main import application  # noqa: PLC0415 - reads the above

    application()()


if __name__ == "__main__":
    main()
