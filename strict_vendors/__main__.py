"""Serve strict stand-ins of vendors, so that a program can be tried at them without a key or a bill.

    python -m strict_vendors                        all of them, each on a port of its own
    python -m strict_vendors openai --port 9000     one, on a port that you choose (the next ones follow)
    python -m strict_vendors --context 30000        models that hold few tokens: see what a program does with a long session

Point your program at the base URL and give it a key of the table: the second one is of another account. What the real vendor refuses is refused with its
words, and printed here with the rule's page. Lines of your prompt decide what is answered: "call: tool {...}",
"say: words", "data: {...}", "think: ...", "fail: 429", "cut: now"; "parallel" calls two tools, "twice" one after the
other. Nothing leaves this machine; Ctrl-C ends it.
"""

import argparse
import asyncio
import json
import signal
import sys
from contextlib import AsyncExitStack

from strict_vendors import NAMES, Served, made
from strict_vendors.serving import served


async def _serve(names: list[str], port: int, context: int, *, as_json: bool) -> None:
    until = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, until.set)
    async with AsyncExitStack() as stack:
        running = [
            await stack.enter_async_context(served(made(name, context=context), port + place if port else 0))
            for place, name in enumerate(names)
        ]
        _print_table(running, as_json=as_json)
        for vendor in running:
            vendor.vendor.tells = sys.stderr
        await until.wait()


def _print_table(running: list[Served], *, as_json: bool) -> None:
    rows = [
        {"vendor": each.vendor.name, "base_url": each.base_url, "api_key": each.key, "second_account": each.second_key}
        for each in running
    ]
    if as_json:
        print(json.dumps(rows), flush=True)  # noqa: T201 - the command's answer
        return
    wide = {name: max(len(row[name]) for row in [*rows, {name: name}]) for name in rows[0]}
    for row in [{name: name for name in wide}, *rows]:
        print("  ".join(row[name].ljust(wide[name]) for name in wide).rstrip(), flush=True)  # noqa: T201 - likewise


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(
        prog="python -m strict_vendors",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("vendors", nargs="*", metavar="VENDOR", help=f"which: {', '.join(NAMES)}; all if none is named")
    parser.add_argument("--port", type=int, default=0, help="the first port; free ones if it is not given")
    parser.add_argument(
        "--context", type=int, default=0, help="the tokens that each model holds; as it really does, if not given"
    )
    parser.add_argument("--json", action="store_true", help="print the table as one line of JSON")
    told = parser.parse_args()
    unknown = [name for name in told.vendors if name not in NAMES]
    if unknown:
        parser.error(f"no stand-in of {', '.join(unknown)}; there are: {', '.join(NAMES)}")
    asyncio.run(_serve(told.vendors or list(NAMES), told.port, told.context, as_json=told.json))


if __name__ == "__main__":
    main()
