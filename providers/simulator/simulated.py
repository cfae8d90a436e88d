"""A simulated provider: OpenAI's API over real HTTP on loopback, with the latencies and failures of its persona."""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from random import Random
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web

from providers.simulator.counts import Tally, Visit
from providers.simulator.loopback import json_response, serve
from providers.simulator.persona import CHAT_MODEL, EMBEDDING_MODEL, Fate, Persona, Run
from providers.simulator.rate_limit import RateLimit
from providers.simulator.speech import count_tokens, speak
from providers.simulator.wire import DONE, Answering, embeddings, error, event, model_list, usage

_SHORTEST, _LONGEST = 60, 200  # tokens of an answer
_ROLE_AT = 0.3  # the role-only chunk comes at this share of the TTFT


class SimulatedProvider:
    """One server with a persona. With the same ``seed``, its n-th request gets the same answer and the same delays."""

    def __init__(self, persona: Persona, *, seed: int, port: int = 0) -> None:
        self.persona = persona
        self.base_url = ""  # known once entered
        self._seed = seed
        self._limit = None
        if persona.requests_per_window is not None:
            self._limit = RateLimit(persona.requests_per_window, persona.window_s)
        self._tally = Tally()
        self.counts = self._tally.counts
        self.reach = self._tally.reach
        routes = [
            web.post("/v1/chat/completions", self._chat),
            web.post("/v1/embeddings", self._embed),
            web.get("/v1/models", self._list_models),
        ]
        self._server = serve(routes, self._tally, port=port)

    async def __aenter__(self) -> Self:
        self.base_url = await self._server.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.__aexit__(kind, error, trace)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = _parse(await request.read())

        async def chat(visit: Visit) -> web.StreamResponse:
            refusal = self._refuse(visit, body, CHAT_MODEL, "messages")
            if refusal is not None:
                return refusal
            return await _Answer(self.persona, self._random(), visit, request, body).give()

        return await self._tally.answer(chat)

    async def _embed(self, request: web.Request) -> web.StreamResponse:
        body = _parse(await request.read())

        async def embed(visit: Visit) -> web.StreamResponse:
            refusal = self._refuse(visit, body, EMBEDDING_MODEL, "input")
            if refusal is not None:
                return refusal
            run = self.persona.draw(self._random(), count_tokens(str(body["input"])))
            await asyncio.sleep(run.ttft_s / 3)  # a prefill without decoding
            if run.fate is not Fate.ANSWER:
                return _overloaded(visit)
            return json_response(embeddings(body["model"], body["input"]))

        return await self._tally.answer(embed)

    async def _list_models(self, _: web.Request) -> web.Response:
        return json_response(model_list([CHAT_MODEL, EMBEDDING_MODEL]))

    def _refuse(self, visit: Visit, body: Mapping[str, Any], model: str, needed: str) -> web.Response | None:
        """Return the error response to an invalid request, or to one over the rate limit."""
        if not body.get(needed):
            visit.ending = "errors"
            message = f"The body must be a JSON object with {needed!r}."
            return json_response(error(message, kind="invalid_request_error"), status=HTTPStatus.BAD_REQUEST)
        if body.get("model") != model:
            visit.ending = "errors"
            message = f"The model {body.get('model')!r} does not exist; {self.persona.name} serves {model!r}."
            return json_response(
                error(message, kind="invalid_request_error", code="model_not_found"), status=HTTPStatus.NOT_FOUND
            )
        wait_s = self._limit.admit(asyncio.get_running_loop().time()) if self._limit else None
        if wait_s is None:
            return None
        visit.ending = "rate_limited"
        return json_response(
            error("Rate limit reached for requests.", kind="requests", code="rate_limit_exceeded"),
            status=HTTPStatus.TOO_MANY_REQUESTS,
            headers={"retry-after": str(math.ceil(wait_s))},
        )

    def _random(self) -> Random:
        """Return the random generator of the current request, which does not depend on concurrent ones."""
        return Random(f"{self._seed}/{self.persona.name}/{self.counts.requests}")  # noqa: S311  # a simulation


class _Answer:
    """One chat completion that is being answered, at its drawn speed."""

    def __init__(
        self, persona: Persona, random: Random, visit: Visit, request: web.Request, body: Mapping[str, Any]
    ) -> None:
        self._persona = persona
        self._random = random
        self._visit = visit
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._started_at_s = self._loop.time()
        self._prompt_tokens = sum(count_tokens(str(_content(message))) for message in body["messages"])
        self._run: Run = persona.draw(random, self._prompt_tokens)
        self._tokens, self._reason = _limited(
            speak(random, random.randint(_SHORTEST, _LONGEST)),
            body.get("max_completion_tokens") or body.get("max_tokens"),
        )
        self._usage = usage(self._prompt_tokens, len(self._tokens))
        self._streamed = bool(body.get("stream"))
        self._usage_wanted = bool((body.get("stream_options") or {}).get("include_usage"))
        self._answering = Answering(f"chatcmpl-{random.getrandbits(64):016x}", body["model"], created=0)

    async def give(self) -> web.StreamResponse:
        """Wait, then answer, or fail as drawn."""
        if self._run.fate is Fate.REFUSED:
            await self._sleep_until(self._run.ttft_s * _ROLE_AT)
            return _overloaded(self._visit)
        return await (self._stream() if self._streamed else self._whole())

    async def _whole(self) -> web.Response:
        async for _ in self._paced():
            pass
        if self._run.fate is not Fate.ANSWER:
            return _overloaded(self._visit)
        message = {"role": "assistant", "content": "".join(self._tokens)}
        return json_response(self._answering.whole(message, self._reason, self._usage))

    async def _stream(self) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "cache-control": "no-cache"})
        role = {"role": "assistant", "content": ""}
        if self._persona.role_first:
            await self._sleep_until(self._run.ttft_s * _ROLE_AT)
            await response.prepare(self._request)
            await response.write(event(self._answering.chunk(role)))
        await self._wait_for_first_token(response)
        await response.prepare(self._request)
        if self._run.fate is Fate.ERROR_FIRST:
            self._visit.ending = "errors"
            await response.write(event(error("The model is overloaded.", code=HTTPStatus.SERVICE_UNAVAILABLE)))
            return response
        written = 0
        async for token in self._paced():
            if self._run.fate is Fate.BREAKS and written >= len(self._tokens) // 2:
                return self._break()
            delta = {"content": token} if written or self._persona.role_first else role | {"content": token}
            self._visit.first_token_sent = True
            await response.write(event(self._answering.chunk(delta)))
            written += 1
        end = event(self._answering.chunk({}, self._reason))
        if self._usage_wanted:
            end += event(self._answering.usage_chunk(self._usage))
        await response.write(end + DONE)
        return response

    async def _wait_for_first_token(self, response: web.StreamResponse) -> None:
        """Sleep until the first token is due; send comments meanwhile if the persona does."""
        every_s = self._persona.comment_every_s
        comment_at_s = self._loop.time() - self._started_at_s + (every_s or math.inf)
        while response.prepared and every_s and comment_at_s < self._run.ttft_s:
            await self._sleep_until(comment_at_s)
            await response.write(b": processing\n\n")
            comment_at_s += every_s
        await self._sleep_until(self._run.ttft_s)

    async def _paced(self) -> AsyncIterator[str]:
        """Yield each token when it is due. Deadlines are absolute, so that delays do not add up."""
        due_s = self._run.ttft_s
        for token in self._tokens:
            await self._sleep_until(due_s)
            yield token
            due_s += self._persona.gap_s(self._random, self._run.decode_tps)

    async def _sleep_until(self, age_s: float) -> None:
        await asyncio.sleep(max(0.0, self._started_at_s + age_s - self._loop.time()))

    def _break(self) -> web.Response:
        self._visit.ending = "errors"
        if self._request.transport is not None:
            self._request.transport.abort()
        return web.Response()  # cannot be delivered


def _overloaded(visit: Visit) -> web.Response:
    visit.ending = "errors"
    status = HTTPStatus.SERVICE_UNAVAILABLE
    return json_response(error("The model is overloaded.", code=status), status=status)


def _parse(raw: bytes) -> dict[str, Any]:
    """Return the body, an empty one if it is not a JSON object."""
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _content(message: Any) -> Any:
    return message.get("content", "") if isinstance(message, dict) else message


def _limited(tokens: list[str], limit: Any) -> tuple[list[str], str]:
    """Return the tokens up to the client's limit, and the finish reason."""
    if isinstance(limit, int) and limit < len(tokens):
        return tokens[: max(1, limit)], "length"
    return tokens, "stop"
