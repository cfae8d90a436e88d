"""``python -m providers.simulator``: the demo fleet as a process, which runs until its standard input is closed.

It prints one line of JSON, the base URLs by name, once all providers answer.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping

import msgspec

from providers.simulator.simulated import run_fleet


def main() -> None:
    """Run until standard input closes, which happens whenever and however the parent process ends."""
    parser = argparse.ArgumentParser(description="Simulated LLM providers on loopback.")
    parser.add_argument("--seed", type=int, default=0, help="draws latencies and failures (default 0)")
    parser.add_argument("--base-port", type=int, default=0, help="first of the ports (default: free ones)")
    options = parser.parse_args()
    asyncio.run(_run(options.seed, options.base_port))


async def _run(seed: int, base_port: int) -> None:
    fleet = asyncio.create_task(run_fleet(_announce, seed=seed, base_port=base_port))
    closed = asyncio.create_task(asyncio.to_thread(sys.stdin.buffer.read))
    try:
        await asyncio.wait({fleet, closed}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        fleet.cancel()
        await asyncio.gather(fleet, return_exceptions=True)


def _announce(base_urls: Mapping[str, str]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(dict(base_urls)) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
