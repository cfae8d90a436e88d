"""One provider of the fleet as a process: chat completions, streamed at the pace its world draws, over bare HTTP/1.1.

It logs its draw for every request, counts how each ended as seen from its side, and can be told to misbehave:
``POST /_fault/hang`` (accept and never answer), ``/_fault/limit`` (429), ``/_fault/none``. ``GET /_counts`` tells the
counts and writes out the log.
"""

import asyncio
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from io import TextIOBase
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import uvloop

from benchmarks.fleet.world import PERSONAS, World
from providers.simulator.persona import Fate
from providers.simulator.wire import DONE, Answering, error, event, usage
from tests.support.measured.serving import BACKLOG, LAST_CHUNK, STREAM_HEAD, Serving, framed, response

TOKENS = 12  # short answers: two cores carry the whole fleet, and only the first token is the matter here
ROLE_AT = 0.3  # headers and the role-only chunk come at this share of the TTFT
RETRY_AFTER_S = 1
LOG_HEAD = "number,age_s,ttft_ms,fate,ending,late_ms\n"

_NUMBER = re.compile(rb'"user" *: *"fleet-(\d+)"')
_ANSWERING = Answering("chatcmpl-fleet", "fleet-model", created=0)
_ROLE = STREAM_HEAD + framed(event(_ANSWERING.chunk({"role": "assistant", "content": ""})))
_TOKEN = framed(event(_ANSWERING.chunk({"content": " token"})))
_ERROR = framed(event(error("The model is overloaded.", code=503))) + LAST_CHUNK


class Provider:
    """What the connections of one provider share."""

    def __init__(self, name: str, world: World, age_s: Callable[[], float], log: TextIOBase) -> None:
        self.name = name
        self.world = world
        self.age_s = age_s  # how old the world is
        self.fault = "none"
        self.counts: Counter[str] = Counter()
        self._log = log

    def ended(self, line: str, ending: str) -> None:
        """Count a request's end and log what was drawn for it."""
        self.counts[ending] += 1
        self._log.write(line)

    def report(self) -> bytes:
        """Write out the log and return the counts as JSON."""
        self._log.flush()
        return msgspec.json.encode(dict(self.counts))


class Connection(Serving):
    """One connection."""

    def __init__(self, provider: Provider) -> None:
        super().__init__()
        self._provider = provider
        self._answer: Answer | None = None

    def lost(self) -> None:
        """Have what is being answered end."""
        if self._answer is not None:
            self._answer.cut()

    def finished(self) -> None:
        """Note that nothing is being answered."""
        self._answer = None

    def answer(self, request: bytes) -> None:
        """Begin, or do as told."""
        path = request.split(b" ", 2)[1].decode()
        number = _NUMBER.search(request)
        if path == "/_counts":
            self.write(response(self._provider.report()))
        elif path.startswith("/_fault/"):
            self._provider.fault = path.rpartition("/")[2]
            self.write(response({}))
        elif number is None:
            self.write(response(error("only the fleet's own calls are answered"), "404 Not Found"))
        else:
            self._answer = Answer(self._provider, self, int(number[1]))
            self._answer.begin()


class Answer:
    """One request being answered, by timers: whatever hangs up ends it at once."""

    def __init__(self, provider: Provider, connection: Connection, number: int) -> None:
        self._provider = provider
        self._connection = connection
        self._number = number
        self._began_s = connection.loop.time()
        self._began_exactly_s = time.perf_counter()  # uvloop's own clock has milliseconds
        self._age_s = provider.age_s()
        self._run = provider.world.draw(provider.name, number, self._age_s)
        self._gaps = Random(number)
        self._late_s = 0.0
        self._sent = 0  # tokens

    def begin(self) -> None:
        """Start the clock, or misbehave as told."""
        counts, fault = self._provider.counts, self._provider.fault
        counts["requests"] += 1
        if fault == "limit":
            body = error("Rate limit reached.", kind="requests", code="rate_limit_exceeded")
            self._connection.write(response(body, "429 Too Many Requests", f"retry-after: {RETRY_AFTER_S}\r\n"))
            self._end("limited")
        elif fault != "hang":
            self._at(self._run.ttft_s * ROLE_AT, self._role)

    def cut(self) -> None:
        """Take that the client hung up."""
        self._end("cut_after_first_token" if self._sent else "cut_before_first_token")

    def _role(self) -> None:
        if self._run.fate is Fate.REFUSED:
            self._connection.write(response(error("The model is overloaded.", code=503), "503 Unavailable"))
            self._end("failed")
            return
        self._connection.write(_ROLE)
        self._at(self._run.ttft_s, self._first_token)

    def _first_token(self) -> None:
        self._late_s = time.perf_counter() - self._began_exactly_s - self._run.ttft_s
        if self._run.fate is Fate.ERROR_FIRST:
            self._connection.write(_ERROR)
            self._end("failed")
            return
        self._token(self._run.ttft_s)

    def _token(self, due_s: float) -> None:
        self._sent += 1
        if self._run.fate is Fate.BREAKS and self._sent > TOKENS // 2:
            self._end("failed")
            if self._connection.transport is not None:
                self._connection.transport.abort()
            return
        if self._sent == TOKENS:
            self._connection.write(_TOKEN + _end(self._provider.world.prompt_tokens(self._number)))
            self._end("answered")
            return
        self._connection.write(_TOKEN)
        next_s = due_s + PERSONAS[self._provider.name].gap_s(self._gaps, self._run.decode_tps)
        self._at(next_s, self._token, next_s)

    def _at(self, age_s: float, step: Any, *arguments: float) -> None:
        self._connection.at(self._began_s + age_s, step, *arguments)

    def _end(self, ending: str) -> None:
        self._connection.finished()
        run = self._run
        self._provider.ended(
            f"{self._number},{self._age_s!r},{run.ttft_s * 1000!r},{run.fate},{ending},{self._late_s * 1000:.3f}\n",
            ending,
        )


def _end(prompt_tokens: int) -> bytes:
    stop = event(_ANSWERING.chunk({}, "stop")) + event(_ANSWERING.usage_chunk(usage(prompt_tokens, TOKENS)))
    return framed(stop) + framed(DONE) + LAST_CHUNK


async def serve(name: str, world: World, epoch_s: float, port: int, log: Path) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    with log.open("w") as lines:
        lines.write(LOG_HEAD)
        provider = Provider(name, world, lambda: time.time() - epoch_s, lines)
        server = await loop.create_server(lambda: Connection(provider), "127.0.0.1", port, backlog=BACKLOG)
        async with server:
            await stop.wait()


def main() -> None:
    """Be the provider that the arguments describe: PORT NAME LOG EPOCH CLIMATE SEED; the epoch is the world's begin."""
    port, name, log, epoch_s, climate, seed = sys.argv[1:]
    uvloop.run(serve(name, World(climate, int(seed)), float(epoch_s), int(port), Path(log)))


if __name__ == "__main__":
    main()
