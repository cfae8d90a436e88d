"""A simulated provider: OpenAI's API over real HTTP on loopback, with the latencies and failures of its persona."""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from http import HTTPStatus
from random import Random
from types import MappingProxyType, TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web

from providers.simulator.persona import CHAT_MODEL, DEMO_FLEET, EMBEDDING_MODEL, Fate, Persona, RequestDraws
from providers.simulator.wire import (
    DONE,
    Answering,
    ProviderTally,
    Visit,
    embeddings,
    error,
    event,
    json_response,
    model_list,
    serve,
    usage,
)

# The text of simulated answers: English sentences about racing and latency, in tokens, determined by the seed.

_OPENINGS = (
    "A holeshot is decided before the first corner.",
    "Think of every request as a start from the gate.",
    "Latency is felt long before it is measured.",
    "The fastest rider on average is not always the first one out of the gate.",
    "Nobody remembers the median; everybody remembers the one time they had to wait.",
    "Two starters are harder to hold up than one.",
)
_SUBJECTS = (
    "the slow tail",
    "a second attempt",
    "the provider that answered first yesterday",
    "a crowded grid",
    "the time to the first token",
    "a hedged request",
    "the rider on the inside line",
    "a cold connection",
    "the leaderboard",
    "a cancelled loser",
)
_VERBS = (
    "decides more than",
    "costs less than",
    "says little about",
    "matters as much as",
    "hides behind",
    "is easier to plan than",
    "changes faster than",
    "teaches us something about",
)
_OBJECTS = (
    "the average anyone puts on a slide",
    "the speed on the straight",
    "a single number measured last week",
    "the patience of whoever is waiting",
    "what the answer itself is worth",
    "the next minute of traffic",
    "a good start from the gate",
    "the price of a few spare tokens",
)
_LINKS = (
    "In practice",
    "Over a long day",
    "Seen from the pit lane",
    "On a bad afternoon",
    "At the ninety-ninth percentile",
)
_ADVICE = (
    "Start two when the odds are even, and stop one as soon as the other speaks.",
    "Measure the losers as well, or the board will flatter everyone.",
    "Keep a warm connection ready, because a handshake is time nobody gets back.",
    "Spend the extra attempt where waiting would hurt most.",
    "When a provider asks for a pause, give it one and run the others.",
    "Watch the first token for the feeling and the last token for the bill.",
    "A race that is won early leaves the rest of the lap to be enjoyed.",
    "Let the clock judge, not the reputation.",
)
_LONGEST_PIECE = 8  # characters; longer words are two tokens


def speak(random: Random, length: int) -> list[str]:
    """Return about ``length`` tokens, up to the end of a sentence. Joined, they are the text."""
    tokens: list[str] = []
    for sentence in _sentences(random):
        tokens += _tokens(sentence, first=not tokens)
        if len(tokens) >= length:
            return tokens
    raise AssertionError("sentences never end")


def count_tokens(text: str) -> int:
    """Return the number of tokens of a text for the simulated providers, about four characters each."""
    return (len(text) + 3) // 4


def _sentences(random: Random) -> Iterator[str]:
    yield random.choice(_OPENINGS)
    while True:
        subjects = random.sample(_SUBJECTS, len(_SUBJECTS))
        advice = random.sample(_ADVICE, len(_ADVICE))
        for number, subject in enumerate(subjects):
            claim = f"{subject} {random.choice(_VERBS)} {random.choice(_OBJECTS)}."
            yield f"{random.choice(_LINKS)}, {claim}" if random.random() < 1 / 3 else claim[0].upper() + claim[1:]
            if number < len(advice) and random.random() < 1 / 2:
                yield advice[number]


def _tokens(sentence: str, *, first: bool) -> Iterator[str]:
    for number, word in enumerate(sentence.split(" ")):
        piece = word if first and number == 0 else f" {word}"
        if len(word) > _LONGEST_PIECE:
            middle = len(piece) // 2
            yield piece[:middle]
            yield piece[middle:]
        else:
            yield piece


# The request limit of a simulated account: a number of requests per window, and the delay until the next one.


class RateLimit:
    """At most ``requests`` in ``window_s`` seconds. Refused requests do not count."""

    def __init__(self, requests: int, window_s: float) -> None:
        self._requests = requests
        self._window_s = window_s
        self._admitted_at_s: deque[float] = deque()

    def admit(self, now_s: float) -> float | None:
        """Count a request and return None, or return the seconds until the next one will be admitted."""
        while self._admitted_at_s and self._admitted_at_s[0] <= now_s - self._window_s:
            self._admitted_at_s.popleft()
        if len(self._admitted_at_s) >= self._requests:
            return self._admitted_at_s[0] + self._window_s - now_s
        self._admitted_at_s.append(now_s)
        return None


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
        self._tally = ProviderTally()
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
            return json_response(embeddings(body))

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
        self._run: RequestDraws = persona.draw(random, self._prompt_tokens)
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
        comment_at_s = self._run.ttft_s * _ROLE_AT + (every_s or math.inf)
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


# Several simulated providers, each on its own port.


class SimulatedFleet:
    """A running fleet: ``async with Fleet(DEMO_FLEET, seed=1) as fleet: fleet.base_urls["sim-swift"]``.

    ``base_port`` 0 takes free ports; otherwise the n-th persona listens on ``base_port + n``.
    """

    def __init__(self, personas: Sequence[Persona] = DEMO_FLEET, *, seed: int = 0, base_port: int = 0) -> None:
        self.providers: Mapping[str, SimulatedProvider] = MappingProxyType(
            {
                persona.name: SimulatedProvider(persona, seed=seed, port=base_port and base_port + number)
                for number, persona in enumerate(personas)
            }
        )
        self._running = AsyncExitStack()

    @property
    def base_urls(self) -> dict[str, str]:
        """Each provider's base URL by its name; known once the fleet is entered."""
        return {name: provider.base_url for name, provider in self.providers.items()}

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as starting:
            for provider in self.providers.values():
                await starting.enter_async_context(provider)
            self._running = starting.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._running.aclose()


async def run_fleet(
    announce: Callable[[Mapping[str, str]], None],
    personas: Sequence[Persona] = DEMO_FLEET,
    *,
    seed: int = 0,
    base_port: int = 0,
) -> None:
    """Run a fleet until cancelled; call ``announce`` with the base URLs once all of them answer.

    Raises:
        OSError: a port is taken.

    """
    async with SimulatedFleet(personas, seed=seed, base_port=base_port) as fleet:
        announce(fleet.base_urls)
        await asyncio.Event().wait()
