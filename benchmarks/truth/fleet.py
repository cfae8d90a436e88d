"""Simulated providers that write down what they did: when the first token was due, what was sent, what is billed."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec
from aiohttp import web

WORDS = (" a", " the", " to", " racing", " first", " provider", ".", "ing", " o", " leaderboard")
PROMPT_TOKENS = 40


class Persona(msgspec.Struct, frozen=True):
    """How a provider behaves, and what it charges."""

    name: str
    median_s: float  # of the time to the first token
    sigma: float = 0.6  # of its logarithm, the calls' own difficulty included
    tps: float = 400.0
    per_chunk: int = 1  # tokens
    input_usd: float = 1e-6  # per token
    output_usd: float = 3e-6
    cached_usd: float | None = None  # and so much of its prompts is cached
    bills_on: bool = False  # a whole answer, though one hung up
    overstates: float = 1.0  # times the tokens there are


class Draw(msgspec.Struct):
    """One request as the provider saw it."""

    ttft_s: float  # drawn: due so long after it arrived
    tokens: int  # of the whole answer
    cached: int  # of the prompt's tokens
    late_s: float = 0.0  # how much after that the first token was written
    sent: int = 0  # tokens
    cut: bool = True  # nobody read it to its end

    def cost_usd(self, persona: Persona) -> float:
        """Return what is on the bill."""
        cached_usd = persona.input_usd if persona.cached_usd is None else persona.cached_usd
        prompt = (PROMPT_TOKENS - self.cached) * persona.input_usd + self.cached * cached_usd
        billed = self.tokens if persona.bills_on or not self.cut else self.sent
        return prompt + billed * persona.output_usd


class Fleet:
    """All providers of one run. ``draws`` are by the call's number and the provider's name."""

    def __init__(self, personas: Mapping[str, Persona], seed: int, shared: float) -> None:
        """Make them; ``shared`` is the share of the log-variance of a first token that is the call's own difficulty."""
        self.personas = personas
        self.draws: dict[tuple[int, str], Draw] = {}
        self._seed = seed
        self._shared = shared

    def drawn(self, call: int, name: str) -> Draw:
        """Return the draw of a call at a provider: always the same, whether or not the call gets there."""
        persona = self.personas[name]
        difficulty = Random(f"{self._seed} {call}").gauss(0, 1)
        own = Random(f"{self._seed} {call} {name}")
        z = self._shared**0.5 * difficulty + (1 - self._shared) ** 0.5 * own.gauss(0, 1)
        cached = PROMPT_TOKENS // 2 if persona.cached_usd is not None and own.random() < 0.6 else 0
        tokens = own.randrange(2 * persona.per_chunk + 20, 2 * persona.per_chunk + 60)
        return Draw(persona.median_s * 2.718281828459045 ** (persona.sigma * z), tokens, cached)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Stream an answer, and write down how far it got."""
        arrived = time.monotonic()
        body = json.loads(await request.read())
        asked = body["messages"][-1]["content"].split()
        call, kind = int(asked[1]), asked[2]
        name = request.match_info["name"]
        persona, draw = self.personas[name], self.drawn(call, name)
        self.draws[call, name] = draw
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "x-request-id": f"{call}-{name}"})
        await response.prepare(request)
        await asyncio.sleep(draw.ttft_s - (time.monotonic() - arrived))
        draw.late_s = time.monotonic() - arrived - draw.ttft_s
        begun = time.monotonic()
        words = Random(f"{self._seed} {call} {name} words").choices(WORDS, k=draw.tokens)
        for at in range(0, draw.tokens, persona.per_chunk):
            some = words[at : at + persona.per_chunk]
            draw.sent = at + len(some)  # a chunk leaves when its last token is made
            await asyncio.sleep((draw.sent - persona.per_chunk) / persona.tps - (time.monotonic() - begun))
            await response.write(_event(_delta(kind, "".join(some), first=at == 0)))
        reason = {"tool": "tool_calls", "broken": "tool_calls", "cut": "length"}.get(kind, "stop")
        if kind == "tool":
            await response.write(_event({"tool_calls": [{"index": 0, "function": {"arguments": '"}'}}]}))
        await response.write(_event({}, finish_reason=reason))
        stated = round(draw.tokens * persona.overstates)
        usage: dict[str, Any] = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": stated}
        if persona.cached_usd is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": draw.cached}
        await response.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
        draw.cut = False
        await response.write(b"data: [DONE]\n\n")
        return response


@asynccontextmanager
async def serving(fleet: Fleet, port: int) -> AsyncIterator[None]:
    """Serve the fleet on loopback, each provider under its own path."""
    application = web.Application()
    application.router.add_post("/{name}/v1/chat/completions", fleet.answer)
    runner = web.AppRunner(application, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield
    finally:
        await runner.cleanup()


def _delta(kind: str, text: str, *, first: bool) -> dict[str, Any]:
    if kind not in {"tool", "broken"}:
        return {"content": text}
    text = text if not first else '{"x": "' + text
    call: dict[str, Any] = {"index": 0, "function": {"arguments": text}}
    if first:
        call |= {"id": "call_1", "type": "function"}
        call["function"]["name"] = "f"
    return {"tool_calls": [call]}


def _event(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return b"data: " + json.dumps({"id": "c", "model": "m-1", "choices": [choice]}).encode() + b"\n\n"
