"""The simulated fleet, a process of its own: its arguments are PORT and SEED. Each provider is a path, /NAME/v1/….

A prompt says what its call meets: ``soak NUMBER FAULT once`` or ``… everywhere``. Once: only at who is asked first.
``GET /met`` returns a ``Met``.
"""

import asyncio
import re
import socket
import struct
import sys
from collections import Counter
from collections.abc import Sequence
from random import Random

import msgspec
import uvloop

from providers.simulator import DONE, event
from tests.support.measured.serving import LAST_CHUNK, STREAM_HEAD, Serving, framed, response, serve

# Of the time to the first token, and of its logarithm. Six, so that they are seldom all out after a 429 or a 500.
MEDIAN_S = {"swift": 0.010, "steady": 0.020, "plain": 0.020, "slow": 0.050, "distant": 0.040, "moody": 0.015}
SIGMA = {"swift": 0.3, "steady": 0.1, "plain": 0.3, "slow": 0.3, "distant": 0.1, "moody": 1.0}
NOWHERE = "nowhere"  # a provider whose port is closed
LONGEST_S = 0.5  # below the gateway's clocks
GAP_S = 0.003  # between pieces
PIECES, WORDS = 6, 4  # of an answer, and of a piece
KEPT_S = 5.0  # an idle connection

_ASKED = re.compile(rb"soak (-?\d+) (\w+) (once|everywhere)")
_GENERATION = re.compile(rb"x-generation: *(\d+)", re.IGNORECASE)
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
        return min(LONGEST_S, MEDIAN_S[provider] * self.random.lognormvariate(0, SIGMA[provider]))


class Connection(Serving):
    """One connection."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self._fleet = fleet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.after(KEPT_S, self._close)

    def data_received(self, data: bytes) -> None:
        self.stop()
        super().data_received(data)

    def answer(self, request: bytes) -> None:
        """Begin as its prompt says, or tell what was met."""
        path = request.split(b" ", 2)[1].decode()
        if path == "/met":
            fleet = self._fleet
            self._finish(response(msgspec.json.encode(Met(dict(fleet.faults), fleet.calls, fleet.generations))))
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
            self.stop()
        elif path.endswith("/embeddings"):
            self.after(first_s, self._embed, number, fault)
        else:
            self.after(first_s, self._begin, provider, number, fault)

    def _refused(self, fault: str | None) -> bool:
        """Play what comes in place of an answer, and tell whether something did."""
        if fault in _STATUS:
            more = "retry-after: 0\r\n" if fault == "limited" else ""
            self._finish(response({"error": {"message": "the simulated provider says no"}}, _STATUS[fault], more))
        elif fault == "reset":
            self._reset()
        elif fault == "garbage":
            self.write(b"\x16\x03\x01\x02\x00 this is no HTTP \r\n\r\n")
            self._close()
        else:
            return False
        return True

    def _embed(self, number: int, fault: str | None) -> None:
        if self._refused(fault):
            return
        usage = {"prompt_tokens": 8, "total_tokens": 8}
        data = [{"object": "embedding", "index": 0, "embedding": vector_of(number)}]
        answer = response({"object": "list", "data": data, "model": "m", "usage": usage})
        if fault is None:
            self._finish(answer)
            return
        self.write(answer[:-40])
        self.after(GAP_S, self._stop, fault)

    def _begin(self, provider: str, number: int, fault: str | None) -> None:
        if self._refused(fault):
            return
        words = text_of(provider, number).split(" ")
        size = -(-len(words) // PIECES)
        texts = [" ".join(words[at : at + size]) for at in range(0, len(words), size)]
        texts = [texts[0], *(f" {text}" for text in texts[1:])]
        self.write(STREAM_HEAD + _event({"role": "assistant", "content": ""}))
        self._speak(texts, 0, fault)

    def _speak(self, texts: Sequence[str], at: int, fault: str | None) -> None:
        """Send one piece after the other."""
        if at == len(texts) // 2 and fault is not None:
            if fault != "garbled":
                self._stop(fault)
                return
            self.write(framed(b'data: {"choices": [{"ind\n\n'))
        if at == len(texts):
            usage = {"prompt_tokens": 8, "completion_tokens": PIECES * WORDS, "total_tokens": 8 + PIECES * WORDS}
            told = framed(event({"id": "c", "model": "m", "choices": [], "usage": usage}) + DONE)
            self._finish(_event({}, "stop") + told + LAST_CHUNK)
            return
        self.write(_event({"content": texts[at]}))
        self.after(GAP_S, self._speak, texts, at + 1, fault)

    def _stop(self, fault: str) -> None:
        """Play what happens in mid-answer."""
        if fault == "broken":
            self._reset()
        elif fault == "ends_early":
            self.write(LAST_CHUNK)  # where a stream would end; after part of a body of known length it is more of it
            self._close()
        else:
            self.stop()

    def _reset(self) -> None:
        if self.transport is not None:
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.transport.abort()

    def _finish(self, last: bytes) -> None:
        self.write(last)
        self.after(KEPT_S, self._close)

    def _close(self) -> None:
        if self.transport is not None:
            self.transport.close()


def _event(delta: dict[str, str], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return framed(event({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}))


if __name__ == "__main__":
    met = Fleet(int(sys.argv[2]))
    uvloop.run(serve(int(sys.argv[1]), lambda: Connection(met)))
