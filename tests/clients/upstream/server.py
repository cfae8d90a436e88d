"""The upstream as a server: ``python -m tests.clients.upstream.server NAME`` prints its URL and serves until stopped.

Three lenient vendors answer (``vendors.py``), and ``things.py`` where no strict vendor has the API. Two upstreams
answer alike but for their name, so that what a race forwards can be told from what it cut. Beside the directives of
``answer.py`` a prompt may ask for trouble as at any strict vendor: ``fail: 429`` (``fail: 500 times 1 KEY`` only the
first time), ``slow: 2`` (seconds before it begins), ``cut: now`` (the connection breaks in the middle of the stream).
``spoil: NAME`` has only the upstream of that name cut its tool calls or its JSON off, and ``mumble: NAME`` has it fall
silent for a second in the middle.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from aiohttp import web

from strict_vendors import Refused, Reply, Request, Vendor, as_data, send
from tests.clients.upstream import things
from tests.clients.upstream.counts import Counts
from tests.clients.upstream.vendors import AnyAnthropic, AnyGoogle, AnyOpenAI

Json = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MAX_BODY_BYTES = 64 * 2**20
PATIENCE_S = 10.0
THINGS = {
    "/v1/embeddings": things.embeddings,
    "/v1/moderations": things.moderations,
    "/v1/rerank": things.rerank,
    "/v2/rerank": things.rerank,
    "/v1/decisions": things.decisions,
    "/v1/images/generations": things.images,
}


class Upstream:
    """A vendor of everything, known as ``name``."""

    def __init__(self, name: str) -> None:
        self._counts = Counts()
        self._openai, self._anthropic, self._google = AnyOpenAI(name), AnyAnthropic(name), AnyGoogle(name)

    def application(self) -> web.Application:
        """Return it as an aiohttp application."""
        app = web.Application(middlewares=[self._counted], client_max_size=MAX_BODY_BYTES)
        app.add_routes([web.post(path, self._do) for path in THINGS])
        for version in ("v1", "v1beta"):
            app.add_routes([web.get(f"/{version}/models", self._models)])
            app.add_routes([web.get(f"/{version}/models/{{name:.+}}", self._model)])
        app.add_routes(
            [
                web.post("/v1beta/decisions", self._decide_googles),
                web.post("/v1/audio/speech", self._speak),
                web.post("/v1/audio/transcriptions", self._listen),
                web.post("/v1/audio/translations", self._listen),
                web.post("/v1/images/edits", self._edit),
                web.get("/control/counts", self._tell),
                web.get("/control/quiet", self._quiet),
                web.route("*", "/{path:.*}", self._talk),
            ]
        )
        return app

    def _vendor(self, request: web.Request) -> Vendor:
        if "x-goog-api-key" in request.headers:
            return self._google
        is_anthropics = request.path.startswith("/v1/messages") or "anthropic-version" in request.headers
        return self._anthropic if is_anthropics else self._openai

    @web.middleware
    async def _counted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith("/control/"):
            return await handler(request)
        with self._counts.request(request.path) as ended:
            response = await self._refusing(request, handler)
            if request.transport is not None and not request.transport.is_closing():
                ended(response.status)
            return response

    async def _refusing(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if handler == self._talk:
            return await handler(request)
        vendor = self._vendor(request)
        try:
            vendor.admit(_asked(request))
            return await handler(request)
        except Refused as refused:
            return await send(request, vendor.refusal(refused))
        except (KeyError, TypeError, ValueError) as error:
            said = f"the request is wrong: {type(error).__name__}: {error}"
            return await send(request, vendor.refusal(Refused(400, said, rule="form")))

    async def _talk(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        return await send(
            request, self._vendor(request).answer(request.method, request.raw_path, request.headers, body)
        )

    async def _decide_googles(self, request: web.Request) -> web.Response:
        return web.json_response(things.googles_decisions(await _body(request)))

    async def _do(self, request: web.Request) -> web.Response:
        body = await _body(request)
        if request.path == "/v1/decisions" and "x-goog-api-key" in request.headers:  # its SDK begins it with v1, too
            return await self._decide_googles(request)
        if body.get("model") == "missing-model":
            raise self._openai.no_model("missing-model")
        return web.json_response(THINGS[request.path](body))

    async def _tell_events(self, request: web.Request, events: Iterable[Json]) -> web.StreamResponse:
        return await send(request, Reply(blocks=as_data(events, b"")))

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        if body.get("stream_format") == "sse":
            return await self._tell_events(request, things.spoken(body))
        kind = {"wav": "audio/wav", "opus": "audio/opus"}.get(body.get("response_format") or "mp3", "audio/mpeg")
        return web.Response(body=things.SPEECH + body["input"].encode(), content_type=kind)

    async def _listen(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        file = form["file"]
        if not isinstance(file, web.FileField):
            raise Refused(400, "'file' is not a file", rule="form")
        text = f"{len(file.file.read())} bytes of {file.filename} for {form.get('model')!s}"
        if form.get("stream") == "true":
            return await self._tell_events(request, things.transcribed(text))
        if form.get("response_format") == "text":
            return web.Response(text=f"{text}\n")
        return web.json_response({"text": text, "usage": {"type": "duration", "seconds": 1}})

    async def _edit(self, request: web.Request) -> web.Response:
        form = await request.post()
        if not isinstance(form["image"], web.FileField):
            raise Refused(400, "'image' is not a file", rule="form")
        return web.json_response(things.images({"prompt": form["prompt"]}))

    async def _models(self, request: web.Request) -> web.Response:
        if "x-goog-api-key" in request.headers:
            return web.json_response({"models": [{"name": f"models/{name}"} for name in things.MODELS]})
        return web.json_response(things.models(things.MODELS))

    async def _model(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in things.MODELS:
            raise self._openai.no_model(name)
        if "x-goog-api-key" in request.headers:
            return web.json_response({"name": f"models/{name}"})
        return web.json_response(things.model(name))

    async def _tell(self, _request: web.Request) -> web.Response:
        return web.json_response(self._counts.as_json())

    async def _quiet(self, _request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._counts.quiet()
        except TimeoutError:
            return web.json_response({"quiet": False})
        return web.json_response({"quiet": True})


def _asked(request: web.Request) -> Request:
    headers = {name.lower(): value for name, value in request.headers.items()}
    return Request(request.method, request.path, headers, dict(request.query))


async def _body(request: web.Request) -> Json:
    body = await request.json()
    if not isinstance(body, dict):
        raise Refused(400, "the body is no object", rule="form")
    return body


async def _serve(name: str) -> None:
    runner = web.AppRunner(Upstream(name).application(), access_log=None, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address: tuple[str, int] = runner.addresses[0]
    print(f"http://{address[0]}:{address[1]}", flush=True)  # noqa: T201 - who started it reads its address here
    await asyncio.Event().wait()


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(description="The deterministic upstream of the suite of clients.")
    parser.add_argument("name")
    asyncio.run(_serve(parser.parse_args().name))


if __name__ == "__main__":
    main()
