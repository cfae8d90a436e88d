"""A provider that executes a test's script, over real HTTP on loopback.

    from providers.simulator.script import Gate, RoleOnly, answer
    from providers.simulator.scripted import ScriptedProvider

    first_token = asyncio.Event()
    script = [RoleOnly(), Gate(first_token), *answer("Hel", "lo")[1:]]
    async with ScriptedProvider(script) as provider:
        ...  # send requests to provider.base_url
        await provider.requested.wait()
        first_token.set()
        await provider.reach(completions=1)

Usual scripts (every step is in ``script.py``):

    answer("Hel", "lo")                          an ordinary answer
    [Status(503)]                                refuses; Status(429, headers={"retry-after": "7"}) for a rate limit
    [Hang()]                                     hangs before headers
    [RoleOnly(), Hang()]                         sends a role, then nothing
    [Delta("a"), Delta("b"), Drop()]             dies after two tokens
    [Delta("a"), Delta("b"), ErrorEvent()]       an error in the middle
    answer("Hi")[:-1]                            no [DONE]
    [Done()]                                     [DONE] alone
    [Raw(b"data: {broken")]                      exactly these bytes

The script is executed for every request; ``provider.once(script)`` sets another one for the next request. A request
with ``stream`` false gets the tokens of the same steps as one JSON body, one for embeddings gets vectors. The response
ends after the last step. The script is also executed for requests in other dialects than chat: use ``Raw`` events then.
``provider.received`` has the requests, ``provider.counts`` their outcomes, and ``await provider.reach(disconnects=1)``
waits for an outcome. If the client hangs up, the current step ends at once.
"""

import ssl
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web

from providers.dialects.index import DIALECTS
from providers.simulator.counts import Tally, Visit
from providers.simulator.loopback import json_response, serve
from providers.simulator.performance import EmbeddingPerformance, StreamedPerformance, WholePerformance
from providers.simulator.script import Step, answer
from providers.simulator.wire import Answering, model_list


class Received(msgspec.Struct, frozen=True):
    """One received request."""

    path: str
    headers: Mapping[str, str]  # names in lower case
    body: Any


class ScriptedProvider:
    """An OpenAI-compatible server that executes ``script`` for every request, with any model and any key.

    ``tls`` makes it an https server; ``port`` 0 takes a free one; ``base_url`` is set inside ``async with``.
    """

    def __init__(
        self,
        script: Sequence[Step] | None = None,
        *,
        models: Sequence[str] = ("test-model",),
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.script: Sequence[Step] = answer("Hello", " there", "!") if script is None else script
        self.base_url = ""
        self.received: list[Received] = []
        self._once: deque[Sequence[Step]] = deque()
        self._models_served = models
        self._tally = tally = Tally()
        self._server = serve(
            [
                *(web.post(f"/v1/{dialect.path}", self._answer) for dialect in DIALECTS.values()),
                web.post("/v1/embeddings", self._embed),
                web.get("/v1/models", self._list_models),
            ],
            tally,
            port=port,
            tls=tls,
        )
        self.counts = tally.counts
        self.requested = tally.requested
        self.disconnected = tally.disconnected

    async def __aenter__(self) -> Self:
        self.base_url = await self._server.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.__aexit__(kind, error, trace)

    def once(self, script: Sequence[Step]) -> None:
        """Use ``script`` for the next request. Several such scripts are used in their order."""
        self._once.append(script)

    async def reach(self, **at_least: int) -> None:
        """Wait until every named count is at least the given number: ``await provider.reach(requests=2)``."""
        await self._tally.reach(**at_least)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        script, body = await self._receive(request)
        answering = Answering(f"chatcmpl-{len(self.received)}", body.get("model", ""), created=0)

        async def perform(visit: Visit) -> web.StreamResponse:
            if body.get("stream"):
                return await StreamedPerformance(request, visit, answering, body).play(script)
            return await WholePerformance(request, visit, answering).play(script)

        return await self._tally.answer(perform)

    async def _embed(self, request: web.Request) -> web.StreamResponse:
        script, body = await self._receive(request)
        return await self._tally.answer(lambda visit: EmbeddingPerformance(request, visit, body).play(script))

    async def _list_models(self, request: web.Request) -> web.Response:
        self._keep(request, None)
        return json_response(model_list(self._models_served))

    async def _receive(self, request: web.Request) -> tuple[Sequence[Step], Any]:
        body = msgspec.json.decode(await request.read())
        self._keep(request, body)
        return (self._once.popleft() if self._once else self.script), body

    def _keep(self, request: web.Request, body: Any) -> None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.received.append(Received(request.path, headers, body))
