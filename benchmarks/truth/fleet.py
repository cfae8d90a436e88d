"""Simulated providers that write down what they did: when the first token was due, what was sent, what is billed.

What a call is for them stands in its prompt: ``call NUMBER KIND``. A kind that a provider does not play (see
``Persona.plays``) is answered as plain text.
"""

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec
from aiohttp import web

FOURS = (" one", " two", " the", " and", " has")  # tokens that a count by characters finds exactly
WORDS = (" a", " the", " to", " racing", " first", " provider", ".", "ing", " o", " leaderboard")
PROMPT_TOKENS = 40
VERSION = "m-1"
CLAUSE = 5  # tokens of the first clause of an answer that is spoken, its full stop included
SILENCE_S = 2.0  # after that clause
CRAWL, CRAWL_S = 16, 0.4  # tokens at the end of a stream that nearly stops, and the time between two
HEADERS_SHARE, EVENT_SHARE = 0.6, 0.8  # of the time to the first token, until headers and an event without text
TROUBLE = {"fails": 500, "limited": 429}
SAID = "the simulated provider says no"


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
    write_usd: float | None = None  # and so much is written to its cache
    bills_on: bool = False  # a whole answer, though one hung up
    overstates: float = 1.0  # times the tokens there are
    thinks: int = 0  # tokens of reasoning before the answer, streamed
    tiers: Mapping[str, float] = {}  # what a token costs in each tier of service, times its price
    project: str = ""  # the tier of those who ask for none
    has_room: bool = True  # where priority is asked for; else every second such call is served as standard
    says_tier: bool = True
    searches: int = 0  # before each answer
    search_usd: float = 0.0
    speaks_usd: float | None = None  # half of its tokens are sound, at this price
    keys: Sequence[str] = ()  # names; each key is ``key-NAME-of-its-provider``
    plays: frozenset[str] = frozenset({"tool", "broken", "cut", "empty", "truncated", "spoken", "crawl"})


class Draw(msgspec.Struct, frozen=True):
    """What a provider would do with a call, whether or not it gets there."""

    ttft_s: float
    tokens: int  # of the whole answer, reasoning included
    cached: int  # of the prompt's tokens
    written: int


class Seen(msgspec.Struct):
    """One request as its provider saw it; instants are seconds on this machine's monotonic clock."""

    id: str
    call: int
    name: str
    key: str
    draw: Draw
    arrived_at: float
    arrived: datetime
    in_flight: int  # others that were under way here
    is_first: bool  # on its connection
    status: int = 200
    headers_at: float | None = None
    event_at: float | None = None
    answer_at: float | None = None  # the first text that is no reasoning
    ended_at: float = math.inf
    writes: list[float] = []  # of chunks with text
    chars: list[int] = []
    sent: int = 0  # tokens
    finish_reason: str | None = None
    prompt_tokens: int = PROMPT_TOKENS
    tier: str = ""  # that serves it
    is_told: bool = False  # the usage went out
    is_cut: bool = True  # nobody read it to its end

    @property
    def first_at(self) -> float | None:
        """The first text's instant."""
        return self.writes[0] if self.writes else None

    def cost_usd(self, persona: Persona) -> float:
        """Return what is on the bill."""
        if self.status != 200:
            return 0.0
        draw = self.draw
        cached_usd = persona.input_usd if persona.cached_usd is None else persona.cached_usd
        write_usd = persona.input_usd if persona.write_usd is None else persona.write_usd
        prompt = (self.prompt_tokens - draw.cached - draw.written) * persona.input_usd
        prompt += draw.cached * cached_usd + draw.written * write_usd
        billed = draw.tokens if persona.bills_on and self.is_cut else self.sent
        spoken = 0 if persona.speaks_usd is None else billed // 2
        tokens = prompt + (billed - spoken) * persona.output_usd + spoken * (persona.speaks_usd or 0.0)
        return tokens * persona.tiers.get(self.tier, 1.0) + persona.searches * persona.search_usd


class Fleet:
    """All providers of one run. ``seen`` are the requests by the call's number and the provider's name."""

    def __init__(self, personas: Mapping[str, Persona], seed: int, shared: float) -> None:
        """Make them; ``shared`` is the share of the log-variance of a first token that is the call's own difficulty."""
        self.personas = personas
        self.seen: dict[tuple[int, str], list[Seen]] = {}
        self._seed = seed
        self._shared = shared
        self._under_way = dict.fromkeys(personas, 0)
        self._connections: dict[int, object] = {}  # kept, so that no other gets its number

    def drawn(self, call: int, name: str) -> Draw:
        """Return the draw of a call at a provider: always the same."""
        persona = self.personas[name]
        difficulty = Random(f"{self._seed} {call}").gauss(0, 1)
        own = Random(f"{self._seed} {call} {name}")
        z = self._shared**0.5 * difficulty + (1 - self._shared) ** 0.5 * own.gauss(0, 1)
        cached = PROMPT_TOKENS // 2 if persona.cached_usd is not None and own.random() < 0.6 else 0
        written = PROMPT_TOKENS // 4 if persona.write_usd is not None else 0
        tokens = own.randrange(2 * persona.per_chunk + 20, 2 * persona.per_chunk + 60) + persona.thinks
        return Draw(persona.median_s * math.exp(persona.sigma * z), tokens, cached, written)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer, and write down how far it got."""
        now, wall = time.monotonic(), datetime.now(UTC)
        body = json.loads(await request.read())
        _, number, kind = _prompt(body).split()[:3]
        name = request.match_info["name"]
        call, persona = int(number), self.personas[name]
        connection = id(request.transport)
        draw, begun = self.drawn(call, name), _begun(body)
        if kind == "orphan":
            kind = "fails" if begun else "torn"  # it breaks off, and nobody finishes it
        if kind == "strict":  # a tool call, which not all can make
            kind = "broken" if "strict" in persona.plays else "tool"
        if begun:  # of an answer that broke off
            draw = msgspec.structs.replace(draw, tokens=len(self.torn_words(call)) - _tokens(begun))
        seen = Seen(
            id=f"{call}-{name}",
            call=call,
            name=name,
            key=request.headers.get("authorization", "").removeprefix("Bearer "),
            draw=draw,
            prompt_tokens=PROMPT_TOKENS + _tokens(begun),
            arrived_at=now,
            arrived=wall,
            in_flight=self._under_way[name],
            tier=_served(persona, body.get("service_tier"), call),
            is_first=connection not in self._connections,
        )
        self._connections[connection] = request.transport
        self.seen.setdefault((call, name), []).append(seen)
        self._under_way[name] += 1
        try:
            return await self._answer(request, persona, seen, kind if kind in persona.plays else "text", body)
        except ConnectionError:  # it has hung up
            return web.Response()
        finally:
            self._under_way[name] -= 1
            seen.ended_at = time.monotonic()

    async def _answer(
        self, request: web.Request, persona: Persona, seen: Seen, kind: str, body: dict[str, Any]
    ) -> web.StreamResponse:
        if kind in TROUBLE:
            seen.status = TROUBLE[kind]
            headers = {"x-request-id": seen.id, "retry-after": "0"}
            answer = web.json_response({"error": {"message": SAID}}, status=seen.status, headers=headers)
            seen.headers_at, seen.is_cut = time.monotonic(), False
            return answer
        if kind == "reset" and not seen.is_first and request.transport is not None:
            seen.status = 0
            request.transport.abort()
            return web.Response()
        if not body.get("stream"):
            return await self._whole(persona, seen)
        return await self._stream(request, persona, seen, kind)

    async def _whole(self, persona: Persona, seen: Seen) -> web.Response:
        """Answer in one piece, as long after as the stream would have ended."""
        draw = seen.draw
        await _until(seen.arrived_at + draw.ttft_s + draw.tokens / persona.tps)
        text = "".join(self._words(seen))
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        told = {"id": "c", "model": VERSION, "choices": [choice], "usage": _usage(persona, draw)}
        seen.headers_at = seen.event_at = seen.answer_at = time.monotonic()
        seen.writes, seen.chars, seen.sent = [seen.headers_at], [len(text)], draw.tokens
        seen.finish_reason, seen.is_told, seen.is_cut = "stop", True, False
        return web.json_response(told, headers={"x-request-id": seen.id})

    async def _stream(self, request: web.Request, persona: Persona, seen: Seen, kind: str) -> web.StreamResponse:
        draw = seen.draw
        write = _Messages(seen) if request.path.endswith("/messages") else _Chat(persona, seen, kind)
        headers = {"content-type": "text/event-stream", "x-request-id": seen.id}
        response = web.StreamResponse(headers=headers)
        await _until(seen.arrived_at + draw.ttft_s * HEADERS_SHARE)
        await response.prepare(request)
        seen.headers_at = time.monotonic()
        await _until(seen.arrived_at + draw.ttft_s * EVENT_SHARE)
        await response.write(write.opening())
        seen.event_at = time.monotonic()
        await _until(seen.arrived_at + draw.ttft_s)
        begun = time.monotonic()
        words = self._words(seen, kind) if kind != "empty" else []
        for at in range(0, len(words), persona.per_chunk):
            if kind == "torn" and at > len(words) / 2:
                return response  # its end is missing
            if kind == "truncated" and at > len(words) / 2 and request.transport is not None:
                request.transport.close()
                return response
            some = words[at : at + persona.per_chunk]
            pause_s = SILENCE_S if kind == "spoken" and at > CLAUSE else 0.0
            if kind == "crawl":
                pause_s = CRAWL_S * max(0, at + len(some) + CRAWL - len(words))
            # Written when the last of its tokens is made.
            await _until(begun + pause_s + (at + len(some) - persona.per_chunk) / persona.tps)
            thinks = at + len(some) <= persona.thinks
            data = write.text("".join(some), thinks=thinks)
            seen.sent = at + len(some)
            await response.write(data)
            seen.writes.append(time.monotonic())
            seen.chars.append(len("".join(some)) + write.more_chars())
            if seen.answer_at is None and not thinks:
                seen.answer_at = seen.writes[-1]
        await response.write(write.closing())
        seen.finish_reason, seen.is_told, seen.is_cut = write.reason, True, False
        return response

    def torn_words(self, call: int) -> list[str]:
        """Return the tokens of an answer that breaks off, of which all that go on with it have the same in mind."""
        words = Random(f"{self._seed} {call} words").choices(FOURS, k=self.drawn(call, "rip").tokens)
        return [" rip", *words[1:]]

    def _words(self, seen: Seen, kind: str = "text") -> list[str]:
        """Return the tokens of an answer; the first that is no reasoning says whose it is."""
        if kind == "torn":
            return self.torn_words(seen.call)
        if seen.prompt_tokens > PROMPT_TOKENS:
            return self.torn_words(seen.call)[-seen.draw.tokens :]
        if kind == "spoken":  # the clause is over with the space that follows its full stop
            words = Random(f"{self._seed} {seen.id} words").choices(FOURS, k=seen.draw.tokens)
            return [f" {seen.name}", *words[1 : CLAUSE - 1], ".", *words[CLAUSE:]]
        words = Random(f"{self._seed} {seen.id} words").choices(WORDS, k=seen.draw.tokens)
        words[self.personas[seen.name].thinks] = f" {seen.name}"
        return words


class _Chat:
    """The events of the API ``chat.completions``."""

    def __init__(self, persona: Persona, seen: Seen, kind: str) -> None:
        self._persona, self._seen, self._kind = persona, seen, kind
        self._is_tool = kind in {"tool", "broken"}
        self._begun = False
        self.reason = {"tool": "tool_calls", "broken": "tool_calls", "cut": "length"}.get(kind, "stop")

    def opening(self) -> bytes:
        return self._event({"role": "assistant", "content": ""})

    def text(self, text: str, *, thinks: bool) -> bytes:
        if thinks:
            return self._event({"reasoning_content": text})
        if not self._is_tool:
            return self._event({"content": text})
        call: dict[str, Any] = {"index": 0, "function": {"arguments": text if self._begun else '{"x": "' + text}}
        if not self._begun:
            call |= {"id": "call_1", "type": "function"}
            call["function"]["name"] = "f"
        return self._event({"tool_calls": [call]})

    def more_chars(self) -> int:
        """Return how many characters the last text had around it."""
        more = len('{"x": "') if self._is_tool and not self._begun else 0
        self._begun = True
        return more

    def closing(self) -> bytes:
        last = b""
        if self._kind == "tool":
            last = self._event({"tool_calls": [{"index": 0, "function": {"arguments": '"}'}}]})
            self._seen.writes.append(time.monotonic())
            self._seen.chars.append(len('"}'))
        usage = _usage(self._persona, self._seen.draw, self._seen.prompt_tokens) | (
            {"completion_tokens": 0} if self._kind == "empty" else {}
        )
        told = {"id": "c", "model": VERSION, "choices": [], "usage": usage}
        if self._persona.tiers and self._persona.says_tier:
            told["service_tier"] = self._seen.tier or "default"
        told["system_fingerprint"] = fingerprint(self._persona)
        return last + self._event({}, self.reason) + _data(told) + b"data: [DONE]\n\n"

    def _event(self, delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return _data({"id": "c", "model": VERSION, "choices": [choice]})


class _Messages:
    """The events of the API ``messages``."""

    reason = "end_turn"

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        draw = seen.draw
        self._usage = {"input_tokens": PROMPT_TOKENS - draw.cached - draw.written, "output_tokens": 1}
        self._usage["cache_read_input_tokens"] = draw.cached
        self._usage["cache_creation_input_tokens"] = draw.written

    def opening(self) -> bytes:
        message: dict[str, Any] = {"id": "c", "type": "message", "role": "assistant", "model": VERSION, "content": []}
        message |= {"stop_reason": None, "usage": self._usage}
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        return _named({"type": "message_start", "message": message}) + _named(block)

    def text(self, text: str, *, thinks: bool) -> bytes:
        del thinks
        return _named({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})

    def more_chars(self) -> int:
        return 0

    def closing(self) -> bytes:
        end: dict[str, Any] = {
            "type": "message_delta",
            "delta": {"stop_reason": self.reason},
            "usage": dict(self._usage),
        }
        end["usage"]["output_tokens"] = self._seen.draw.tokens
        return _named({"type": "content_block_stop", "index": 0}) + _named(end) + _named({"type": "message_stop"})


@asynccontextmanager
async def serving(fleet: Fleet, port: int) -> AsyncIterator[None]:
    """Serve the fleet on loopback, each provider under its own path."""
    application = web.Application()
    application.router.add_post("/{name}/v1/chat/completions", fleet.answer)
    application.router.add_post("/{name}/v1/messages", fleet.answer)
    runner = web.AppRunner(application, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield
    finally:
        await runner.cleanup()


def fingerprint(persona: Persona) -> str:
    """Return what a provider says of the system behind it."""
    return f"fp-{persona.name}"


def _prompt(body: dict[str, Any]) -> str:
    content = next(each["content"] for each in reversed(body["messages"]) if each["role"] == "user")
    return str(content if isinstance(content, str) else content[-1]["text"])


def _begun(body: dict[str, Any]) -> str:
    """Return the beginning of an answer that the request asks to go on with."""
    last = body["messages"][-1]
    return str(last["content"]) if last["role"] == "assistant" else ""


def _tokens(text: str) -> int:
    return len(text) // len(FOURS[0])


def _usage(persona: Persona, draw: Draw, prompt_tokens: int = PROMPT_TOKENS) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": round(draw.tokens * persona.overstates),
    }
    if persona.cached_usd is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": draw.cached}
    if persona.thinks:
        usage["completion_tokens_details"] = {"reasoning_tokens": persona.thinks}
    if persona.speaks_usd is not None:
        usage["completion_tokens_details"] = {"audio_tokens": draw.tokens // 2}
    if persona.searches:
        usage["server_tool_use"] = {"web_search_requests": persona.searches}
    return usage


def _served(persona: Persona, asked: str | None, call: int) -> str:
    """Return the tier in which a call is served that asks for one."""
    if asked is None or asked == "auto":
        return persona.project
    if asked == "priority" and not persona.has_room and call % 2:
        return ""
    return asked if asked in persona.tiers else ""


async def _until(instant: float) -> None:
    await asyncio.sleep(instant - time.monotonic())


def _data(event: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def _named(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\n".encode() + _data(event)
