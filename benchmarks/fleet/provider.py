"""One provider of the fleet as a process: chat completions, streamed at the pace its world draws, over bare HTTP/1.1.

It can be told to misbehave: ``POST /_fault/hang`` (accept and never answer), ``/_fault/limit`` (429), ``/_fault/none``.
"""

import re
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any

import uvloop

from benchmarks.fleet.world import PERSONAS, World
from providers.simulator import DONE, Answering, Fate, error, event, usage
from tests.support.measured.serving import LAST_CHUNK, STREAM_HEAD, Serving, framed, response, serve

TOKENS = 12  # short answers: two cores carry the whole fleet, and only the first token is the matter here
ROLE_AT = 0.3  # headers and the role-only chunk come at this share of the TTFT
RETRY_AFTER_S = 1

_NUMBER = re.compile(rb'"user" *: *"fleet-(\d+)"')
_ANSWERING = Answering("chatcmpl-fleet", "fleet-model", created=0)
_ROLE = STREAM_HEAD + framed(event(_ANSWERING.chunk({"role": "assistant", "content": ""})))
_TOKEN = framed(event(_ANSWERING.chunk({"content": " token"})))
_ERROR = framed(event(error("The model is overloaded.", code=503))) + LAST_CHUNK


class Provider:
    """What the connections of one provider share."""

    def __init__(self, name: str, world: World, age_s: Callable[[], float]) -> None:
        self.name = name
        self.world = world
        self.age_s = age_s  # how old the world is
        self.fault = "none"


class Connection(Serving):
    """One connection."""

    def __init__(self, provider: Provider) -> None:
        super().__init__()
        self._provider = provider

    def answer(self, request: bytes) -> None:
        """Begin, or do as told."""
        path = request.split(b" ", 2)[1].decode()
        number = _NUMBER.search(request)
        if path.startswith("/_fault/"):
            self._provider.fault = path.rpartition("/")[2]
            self.write(response({}))
        elif number is None:
            self.write(response(error("only the fleet's own calls are answered"), "404 Not Found"))
        else:
            Answer(self._provider, self, int(number[1])).begin()


class Answer:
    """One request being answered, by timers: whatever hangs up ends it at once."""

    def __init__(self, provider: Provider, connection: Connection, number: int) -> None:
        self._provider = provider
        self._connection = connection
        self._number = number
        self._began_s = connection.loop.time()
        self._run = provider.world.draw(provider.name, number, provider.age_s())
        self._gaps = Random(number)
        self._sent = 0  # tokens

    def begin(self) -> None:
        """Start the clock, or misbehave as told."""
        fault = self._provider.fault
        if fault == "limit":
            body = error("Rate limit reached.", kind="requests", code="rate_limit_exceeded")
            self._connection.write(response(body, "429 Too Many Requests", f"retry-after: {RETRY_AFTER_S}\r\n"))
        elif fault != "hang":
            self._at(self._run.ttft_s * ROLE_AT, self._role)

    def _role(self) -> None:
        if self._run.fate is Fate.REFUSED:
            self._connection.write(response(error("The model is overloaded.", code=503), "503 Unavailable"))
            return
        self._connection.write(_ROLE)
        self._at(self._run.ttft_s, self._first_token)

    def _first_token(self) -> None:
        if self._run.fate is Fate.ERROR_FIRST:
            self._connection.write(_ERROR)
        else:
            self._token(self._run.ttft_s)

    def _token(self, due_s: float) -> None:
        self._sent += 1
        if self._run.fate is Fate.BREAKS and self._sent > TOKENS // 2:
            if self._connection.transport is not None:
                self._connection.transport.abort()
            return
        if self._sent == TOKENS:
            self._connection.write(_TOKEN + _end(self._provider.world.prompt_tokens(self._number)))
            return
        self._connection.write(_TOKEN)
        next_s = due_s + PERSONAS[self._provider.name].gap_s(self._gaps, self._run.decode_tps)
        self._at(next_s, self._token, next_s)

    def _at(self, age_s: float, step: Any, *arguments: float) -> None:
        self._connection.at(self._began_s + age_s, step, *arguments)


def _end(prompt_tokens: int) -> bytes:
    stop = event(_ANSWERING.chunk({}, "stop")) + event(_ANSWERING.usage_chunk(usage(prompt_tokens, TOKENS)))
    return framed(stop) + framed(DONE) + LAST_CHUNK


def main() -> None:
    """Be the provider that the arguments describe: PORT NAME EPOCH CLIMATE SEED; the epoch is when the world began."""
    port, name, epoch_s, climate, seed = sys.argv[1:]
    provider = Provider(name, World(climate, int(seed)), lambda: time.time() - float(epoch_s))
    uvloop.run(serve(int(port), lambda: Connection(provider)))


if __name__ == "__main__":
    main()
