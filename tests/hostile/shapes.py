"""Random shapes of bodies and answers, by a grammar of depth, width and size: what the loop does in one turn of each.

A turn is measured in CPU time of the loop's thread, so other programs do not count. The client and the provider are in
another thread. ``SHAPES_S`` says for how many seconds shapes are tried; one that takes too long becomes a line of
``attacks.py``.
"""

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from gateway.ledger import migrate
from tests.app.gateway.running_gateway import serving
from tests.hostile.attacker import HOST, ask, prepared, provide
from tests.hostile.attacks import BODIES, ORDINARY, Attack, Sent, asked, delta, post, streamed, whole
from tests.hostile.beside import configuration
from tests.patience import end_others

LONGEST_TURN_S = 0.02
LARGEST = 4 * 2**20
_SECONDS = float(os.environ.get("SHAPES_S", "60"))

LEAVES = (
    rb'1 null "" {} [] -1.5e9 "a" "\u0041\"" "<a<a" "_sk-a" {"type":"text","text":"x"} {"text":"x"} {"role":"user"}'
)
FIELDS = ("tools", "instructions", "metadata", "response_format", "stop", "system", "other", "provider")
PLACES = (b'"Hello."', b'"stop"', b'"m"', b"1", b"[{")  # of an answer, where a shape may be


class Shape(msgspec.Struct, frozen=True):
    """A leaf of ``size`` times its bytes, within arrays and objects from the innermost out, each of a width."""

    leaf: bytes
    size: int
    around: tuple[tuple[str, int], ...]

    def written(self) -> bytes:
        """Return it as JSON of at most ``LARGEST`` bytes."""
        text = self.leaf
        if text[:1] == b'"':
            text = b'"%b"' % (text[1:-1] * min(self.size, LARGEST // len(text)))
        for kind, width in self.around:
            fit = max(1, min(width, LARGEST // (len(text) + 12)))
            if kind == "deep":
                text = b"[" * min(width, 900) + text + b"]" * min(width, 900)
            elif kind == "array":
                text = b"[" + b",".join([text] * fit) + b"]"
            else:
                text = b"{" + b",".join(b'"k%d":%b' % (each, text) for each in range(fit)) + b"}"
        return text


numbers = st.sampled_from((1, 2, 10, 100, 1000, 16_000, 50_000, 300_000, 2_000_000))
shapes = st.builds(
    Shape,
    st.sampled_from(LEAVES.split()),
    numbers,
    st.lists(st.tuples(st.sampled_from(("array", "object", "deep")), numbers), max_size=3).map(tuple),
)
apis = st.sampled_from(tuple(BODIES))


class _Turns(asyncio.SelectorEventLoop):
    """A loop that measures its turns in CPU seconds of its thread."""

    longest_s = 0.0

    def _run_once(self) -> None:
        began_s = time.thread_time()
        super()._run_once()  # type: ignore[misc] # of BaseEventLoop; nothing else sees a whole turn
        self.longest_s = max(self.longest_s, time.thread_time() - began_s)


class Gateways:
    """A gateway for each API that its provider speaks, in the loop that is measured; the rest is in another thread."""

    def __init__(self, folder: Path) -> None:
        self.loop, self._others = _Turns(), asyncio.new_event_loop()
        self._folder = folder
        self._attack: Attack | None = None
        self._end = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []
        self._ports: dict[str, int] = {}
        self._thread = threading.Thread(target=self._others.run_forever)
        self._thread.start()

    def _port(self, api: str) -> int:
        """Return the port of the gateway whose provider speaks ``api``."""
        if api not in self._ports:
            begun: asyncio.Future[int] = self.loop.create_future()
            self._running.append(self.loop.create_task(self._serve(api, begun)))
            self._ports[api] = self.loop.run_until_complete(begun)
        return self._ports[api]

    async def _serve(self, api: str, begun: asyncio.Future[int]) -> None:
        opened = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._provide, HOST, 0), self._others)
        server = await asyncio.wrap_future(opened)
        port = server.sockets[0].getsockname()[1]
        folder = self._folder / api
        folder.mkdir()
        config = configuration(folder, port, port, api)
        config["models"]["llama"] = {"deployments": ["fair/m"]}  # each gateway that tests run has it
        await migrate(f"sqlite:///{folder / 'holeshot.db'}")
        async with serving(folder, {}, **config) as running:
            begun.set_result(int(running.url.rsplit(":", 1)[1]))
            await self._end.wait()
        self._others.call_soon_threadsafe(server.close)

    async def _provide(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._attack is not None
        answer, _ = prepared(self._attack)
        await provide(lambda _: answer, reader, writer)

    def longest_s(self, attack: Attack) -> float:
        """Return the CPU seconds of the longest turn of ``attack``, sent once; the least of three if it is long."""
        port, found = self._port(attack.speaks), []
        for _ in range(3):
            self._attack, self.loop.longest_s = attack, 0.0
            asked = asyncio.run_coroutine_threadsafe(ask(port, attack.request(0)), self._others)
            self.loop.run_until_complete(asyncio.wrap_future(asked, loop=self.loop))
            found.append(self.loop.longest_s)
            if found[-1] <= LONGEST_TURN_S:
                break
        return min(found)

    def close(self) -> None:
        """End all."""
        self._end.set()
        self.loop.run_until_complete(asyncio.gather(*self._running))
        self.loop.close()
        asyncio.run_coroutine_threadsafe(end_others(), self._others).result()
        self._others.call_soon_threadsafe(self._others.stop)
        self._thread.join()
        self._others.close()


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[Gateways]:
    running = Gateways(tmp_path)
    yield running
    running.close()


def in_a_body(shape: Shape, api: str, field: str | None, *, packed: bool) -> Sent:
    """Return a request with ``shape`` in its prompt, or in another field."""
    before, after = BODIES[api].split(b"%b")
    if field is None:
        return post(api, before + shape.written() + after, packed=packed)
    return post(api, before + b'[{"text":"Hi"}]' + after[:-1] + b',"%b":%b}' % (field.encode(), shape.written()))


def in_an_answer(shape: Shape, api: str, place: bytes, *, streams: bool) -> Sent:
    """Return an answer, or an event of one, with ``shape`` somewhere in it."""
    answer = ORDINARY[api].replace(place, shape.written() + (b",{" if place == b"[{" else b""), 1)
    return streamed(delta(b'{"content":"a"}') + delta(answer)) if streams else whole(answer)


bodies = st.builds(
    lambda api, speaks, shape, field, packed: (
        f"{api} to {speaks}, {field}, {shape}",
        Attack("a key", "", 3, lambda _: in_a_body(shape, api, field, packed=packed), None, speaks),
    ),
    *(apis, apis, shapes, st.none() | st.sampled_from(FIELDS), st.booleans()),
)
answers = st.builds(
    lambda api, speaks, shape, place, streams: (
        f"{speaks} to {api}, {place!r}, streamed {streams}, {shape}",
        Attack("a provider", "", 8, asked(api), lambda: in_an_answer(shape, speaks, place, streams=streams), speaks),
    ),
    *(apis, apis, shapes, st.sampled_from(PLACES), st.booleans()),
)


@pytest.mark.parametrize("drawn", [bodies, answers], ids=["bodies", "answers"])
def test_no_shape_takes_a_turn_of_more_than_20_ms(gateways: Gateways, drawn: st.SearchStrategy[Any]) -> None:
    found, tried, end_s = dict[str, float](), 0, time.monotonic() + _SECONDS / 2

    @settings(max_examples=20, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(drawn)
    def one(each: tuple[str, Attack]) -> None:
        nonlocal tried
        said, attack = each
        longest_s = gateways.longest_s(attack) if time.monotonic() < end_s else 0.0
        tried += 1
        if longest_s > LONGEST_TURN_S:
            found[said] = round(longest_s * 1000)

    for number in itertools.count():
        seed(number)(one)()
        if time.monotonic() >= end_s:
            break
    assert not found, f"of {tried} shapes these take a turn of so many milliseconds: {found}"
