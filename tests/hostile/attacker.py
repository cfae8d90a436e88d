"""Attacks a gateway, as a process of its own: ``python -m tests.hostile.attacker NAME``.

It prints the port of the hostile provider, reads the gateway's port and the seconds that the attack lasts from stdin,
and then prints how many connections ended with which status.
"""

# ruff: noqa: T201 - it speaks with its parent

import asyncio
import contextlib
import json
import os
import re
import resource
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable

from tests.hostile.attacks import ATTACKS, ORDINARY, Attack, Sent, whole

HOST = "127.0.0.1"
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_PIECE = 2**18
ASKED_THERE = "asked there"  # requests that reached its provider
_NICE = 10  # whoever attacks has machines of his own


@contextlib.asynccontextmanager
async def closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Close a connection for good, also one that the other side breaks off."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        try:
            yield
        finally:
            writer.close()
            await writer.wait_closed()


async def play(writer: asyncio.StreamWriter, sent: Sent) -> None:
    """Write ``sent``, until the other side closes."""
    for piece in (*sent.pieces, *sent.pieces[-1:] * sent.repeats):
        for at in range(0, len(piece), _PIECE):
            writer.write(piece[at : at + _PIECE])
            await writer.drain()
        if sent.pause_s:
            await asyncio.sleep(sent.pause_s)


async def provide(answer: Callable[[bytes], Sent], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request of a connection."""
    async with closing(writer):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = LENGTH.search(head)
            left, body = int(length[1]) if length else 0, b""
            while left:
                body = await reader.readexactly(min(left, _PIECE))  # of a long one the end is enough
                left -= len(body)
            sent = answer(body)
            await play(writer, sent)
            if b"connection: close" in sent.pieces[0]:
                break


async def ask(port: int, sent: Sent, says: bytes = b"") -> str:
    """Send one request; return the status of its answer, or why there is none. ``says`` must be in it."""
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return "refused"
    status, said = b"", b""
    sending = asyncio.create_task(play(writer, sent))
    try:
        async with asyncio.timeout(sent.leaves_after_s):
            while data := await reader.read(_PIECE):
                status = status or data[9:12]
                if says and says in (said := said[-len(says) :] + data):
                    return status.decode()
                if says:
                    continue
                if sending.done() and data.endswith((b"}", b"\n\n", b"0\r\n\r\n")):
                    break  # the end of most answers; the others end with their connection
    except TimeoutError:
        return "left"
    except OSError:
        return status.decode() or "reset"
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.transport.abort()
    return f"{status.decode() or 'closed'}{' without it' if says else ''}"


async def attacked(attack: Attack, request: Callable[[int], Sent], port: int, seconds: float) -> Counter[str]:
    """Attack for so long; return the answers, counted by status."""
    loop = asyncio.get_running_loop()
    end_s, number, told = loop.time() + seconds, 0, Counter[str]()

    async def again() -> None:
        nonlocal number
        while loop.time() < end_s:
            number += 1
            told[await ask(port, request(number), attack.says)] += 1

    attackers = [asyncio.create_task(again()) for _ in range(attack.parallel)]
    _, running = await asyncio.wait(attackers, timeout=seconds)
    for each in running:
        each.cancel()
    await asyncio.gather(*attackers, return_exceptions=True)
    told["unanswered"] += len(running)
    return told


def prepared(attack: Attack) -> tuple[Sent, Callable[[int], Sent]]:
    """Return the answer, and what makes a request, both made before the clock runs."""
    answer = attack.answer() if attack.answer is not None else whole(ORDINARY[attack.speaks])
    if attack.varies:
        return answer, attack.request
    request = attack.request(0)
    return answer, lambda _: request


async def main(name: str) -> None:
    """Provide and attack as stdin says."""
    os.nice(_NICE)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 16_384), most))
    [attack] = (each for each in ATTACKS if each.name == name)
    answer, request = prepared(attack)
    asked = 0

    def answered(_: bytes) -> Sent:
        nonlocal asked
        asked += 1
        return answer

    server = await asyncio.start_server(lambda *pair: provide(answered, *pair), HOST, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    port, seconds = json.loads(await asyncio.to_thread(sys.stdin.readline))
    told = await attacked(attack, request, port, seconds)
    print(json.dumps({**told, ASKED_THERE: asked}), flush=True)
    os._exit(0)  # its connections end with it


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
