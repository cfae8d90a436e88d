"""A gateway that accepts in another way than its users' does, to measure the difference: ``launch.py LOOP serve …``.

LOOP is ``uvloop`` (libuv accepts: one connection per turn of the loop) or ``asyncio`` (asyncio's own loop and accept).
"""

import asyncio
import sys

import uvloop

LOOPS = ("uvloop", "asyncio")


def main() -> None:
    """Change what the loop is, then run the command."""
    loop = sys.argv.pop(1)
    if loop not in LOOPS:
        sys.exit(f"launch: there is no loop {loop!r}, there are {', '.join(LOOPS)}")
    if loop == "asyncio":
        uvloop.new_event_loop = asyncio.new_event_loop  # type: ignore[assignment] # the gateway asks uvloop for its loop
    from gateway.cli.main import application  # noqa: PLC0415 - reads the above

    application()()


if __name__ == "__main__":
    main()
