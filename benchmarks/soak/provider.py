"""The simulated fleet, a process of its own: ``python provider.py PORT SEED``. Each provider is a path, /NAME/v1/….

A prompt says what its call meets: ``soak NUMBER FAULT once`` or ``… everywhere``. Once: only at who is asked first.
``GET /met`` returns a ``Met``.
"""

import asyncio
import json
import re
import socket
import struct
import sys
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, cast

import msgspec
import uvloop

from benchmarks.harness.mock_upstream import Requests

# Of the time to the first token, and of its logarithm. Six, so that they are seldom all out after a 429 or a 500.
MEDIAN_S = {"swift": 0.010, "steady": 0.020, "plain": 0.020, "slow": 0.050, "distant": 0.040, "moody": 0.015}
SIGMA = {"swift": 0.3, "steady": 0.1, "plain": 0.3, "slow": 0.3, "distant": 0.1, "moody": 1.0}
LONGEST_S = 0.5  # below the gateway's clocks
GAP_S = 0.003  # between pieces
PIECES, WORDS = 6, 4  # of an answer, and of a piece
KEPT_S = 5.0  # an idle connection
BACKLOG = 1024

_ASKED = re.compile(rb"soak (-?\d+) (\w+) (once|everywhere)")
_GENERATION = re.compile(rb"x-generation: *(\d+)", re.IGNORECASE)
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: unsent bytes are dropped, and the peer gets a reset
_STATUS = {"limited": "429 Too Many Requests", "fails": "500 Internal Server Error"}


def text_of(provider: str, number: int) -> str:
    """Return what a provider answers to a call, which is nobody else's answer to any other."""
    return f"{provider} {number}" + "".join(f" w{at}" for at in range(PIECES * WORDS))


def vector_of(number: int) -> list[float]:
    """Return what is embedded for a call."""
    return [float(number)] * 16


class Met(msgspec.Struct, frozen=True):
    """What a fleet has seen: how many calls met each fault, which calls arrived, and of which configurations."""

    faults: dict[str, int]
    calls: set[int]
    generations: set[int]


class Fleet:
    """What all connections share."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.faults: Counter[str] = Counter()
        self.calls: set[int] = set()
        self.generations: set[int] = set()
        self._played: set[int] = set()

    def fault(self, number: int, fault: str, scope: str) -> str | None:
        """Return what a provider is to play for a request that has just arrived."""
        self.calls.add(number)
        if fault == "none" or (scope == "once" and number in self._played):
            return None
        if number not in self._played:
            self.faults[fault] += 1
            self._played.add(number)
        return fault

    def first_s(self, provider: str) -> float:
        """Return a time to the first token."""
        return min(LONGEST_S, MEDIAN_S[provider] * self.random.lognormvariate(0, SIGMA[provider]))


class Connection(asyncio.Protocol):
    """One kept-alive connection, one request at a time."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._requests = Requests()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        self._after(KEPT_S, self._close)

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._transport = None
        self._after(None)

    def data_received(self, data: bytes) -> None:
        self._after(None)
        if (request := self._requests.next(data)) is not None:
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        path = request.split(b" ", 2)[1].decode()
        if path == "/met":
            fleet = self._fleet
            self._send_json("200 OK", msgspec.to_builtins(Met(dict(fleet.faults), fleet.calls, fleet.generations)))
            return
        provider, asked = path.split("/")[1], _ASKED.search(request)
        assert asked is not None, "every prompt says what it meets"
        generation = _GENERATION.search(request)
        if generation is not None:
            self._fleet.generations.add(int(generation[1]))
        number = int(asked[1])
        fault = self._fleet.fault(number, asked[2].decode(), asked[3].decode())
        first_s = self._fleet.first_s(provider)
        if fault == "hang":
            self._after(None)
        elif path.endswith("/embeddings"):
            self._after(first_s, self._embed, number, fault)
        else:
            self._after(first_s, self._begin, provider, number, fault)

    def _refused(self, fault: str | None) -> bool:
        """Play what comes in place of an answer, and tell whether something did."""
        if fault in _STATUS:
            self._send_json(_STATUS[fault], {"error": {"message": "the simulated provider says no"}})
        elif fault == "reset":
            self._reset()
        elif fault == "garbage":
            self._write(b"\x16\x03\x01\x02\x00 this is no HTTP \r\n\r\n")
            self._close()
        else:
            return False
        return True

    def _embed(self, number: int, fault: str | None) -> None:
        if self._refused(fault):
            return
        usage = {"prompt_tokens": 8, "total_tokens": 8}
        data = [{"object": "embedding", "index": 0, "embedding": vector_of(number)}]
        answer = _json("200 OK", {"object": "list", "data": data, "model": "m", "usage": usage})
        if fault is None:
            self._finish(answer)
            return
        self._write(answer[:-40])
        self._after(GAP_S, self._stop, fault)

    def _begin(self, provider: str, number: int, fault: str | None) -> None:
        if self._refused(fault):
            return
        words = text_of(provider, number).split(" ")
        size = -(-len(words) // PIECES)
        texts = [" ".join(words[at : at + size]) for at in range(0, len(words), size)]
        texts = [texts[0], *(f" {text}" for text in texts[1:])]
        self._write(_STREAM_HEAD + _event({"role": "assistant", "content": ""}))
        self._speak(texts, 0, fault)

    def _speak(self, texts: Sequence[str], at: int, fault: str | None) -> None:
        """Send one piece after the other."""
        if at == len(texts) // 2 and fault is not None:
            if fault != "garbled":
                self._stop(fault)
                return
            self._write(_chunk(b'data: {"choices": [{"ind\n\n'))
        if at == len(texts):
            usage = {"prompt_tokens": 8, "completion_tokens": PIECES * WORDS, "total_tokens": 8 + PIECES * WORDS}
            told = _chunk(_data({"id": "c", "model": "m", "choices": [], "usage": usage}) + b"data: [DONE]\n\n")
            self._finish(_event({}, "stop") + told + b"0\r\n\r\n")
            return
        self._write(_event({"content": texts[at]}))
        self._after(GAP_S, self._speak, texts, at + 1, fault)

    def _stop(self, fault: str) -> None:
        """Play what happens in mid-answer."""
        if fault == "broken":
            self._reset()
        elif fault == "ends_early":
            self._write(b"0\r\n\r\n")  # where a stream would end; after part of a body of known length it is more of it
            self._close()
        else:
            self._after(None)  # stall

    def _reset(self) -> None:
        if self._transport is not None:
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()

    def _send_json(self, status: str, body: object) -> None:
        self._finish(_json(status, body))

    def _finish(self, last: bytes) -> None:
        self._write(last)
        self._after(KEPT_S, self._close)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _after(self, delay_s: float | None, act: Any = None, *arguments: Any) -> None:
        """Do this next, and nothing else that was to come; None: nothing at all."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if delay_s is None else self._loop.call_later(delay_s, act, *arguments)


def _json(status: str, body: object) -> bytes:
    raw = json.dumps(body).encode()
    more = "retry-after: 0\r\n" if status.startswith("429") else ""
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{more}content-length: {len(raw)}\r\n\r\n"
    return head.encode() + raw


def _event(delta: dict[str, str], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return _chunk(_data({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}))


def _data(event: object) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def serve(port: int, seed: int) -> None:
    """Serve until killed."""
    fleet = Fleet(seed)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(fleet), "127.0.0.1", port, backlog=BACKLOG)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
