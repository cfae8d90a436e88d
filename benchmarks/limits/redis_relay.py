"""A relay in front of Redis as a process: it passes everything on, until SIGUSR1; again from SIGUSR2.

Of its own process, so that neither the load's work nor the gateways' delays what it passes on.
"""

import asyncio
import signal
import sys

import uvloop

from tests.support.relay import Relay

HANG, RESUME = signal.SIGUSR1, signal.SIGUSR2


async def serve(port: int, redis_port: int) -> None:
    """Serve until told to stop."""
    relay = Relay("127.0.0.1", redis_port)
    relay.port = port
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(HANG, relay.hang)
    loop.add_signal_handler(RESUME, relay.resume)
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    await relay.listen()
    await stop.wait()
    await relay.cut()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
