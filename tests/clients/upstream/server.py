"""The upstream as a server: ``python -m tests.clients.upstream.server NAME`` prints its URL and serves until stopped.

Two of them answer alike but for their name, so that what a race forwards can be told from what it cut. Beside the
directives of ``answer.py`` a prompt may ask for trouble: ``fail: 429`` (``fail: 500 times 1 KEY`` only the first time),
``slow: 2`` (seconds before the first token), ``hang: now`` (headers, then nothing), ``break: now`` (the connection
breaks in the middle of the stream). ``spoil: NAME`` has only the upstream of that name cut its tool calls or its JSON
off, and ``mumble: NAME`` has it fall silent for a second after its first words.
"""

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.hdrs import METH_DELETE, METH_POST

from tests.clients.upstream import asked as reading
from tests.clients.upstream import chat, completions, gemini, messages, responses, strict, things
from tests.clients.upstream.answer import Answer, answer, spoilt
from tests.clients.upstream.asked import Asked
from tests.clients.upstream.conversations import Conversations
from tests.clients.upstream.counts import Counts
from tests.clients.upstream.errors import Refused, Said, in_anthropics_words, in_googles_words, in_openais_words

Json = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

KEY = "upstream-key"
FORBIDDEN_KEY = "upstream-forbidden-key"  # known, and good for nothing
MAX_BODY_BYTES = 64 * 2**20
PATIENCE_S = 10.0
_FIRST_WORDS = 3  # events
_STREAMED = "streamGenerateContent"

_OPENAI_HEADERS = {
    "x-request-id": "req_upstream",
    "openai-processing-ms": "12",
    "x-ratelimit-limit-requests": "10000",
    "x-ratelimit-remaining-requests": "9999",
    "x-ratelimit-reset-requests": "6ms",
}
_ANTHROPIC_HEADERS = {
    "request-id": "req_upstream",
    "anthropic-ratelimit-requests-limit": "4000",
    "anthropic-ratelimit-requests-remaining": "3999",
    "anthropic-ratelimit-requests-reset": "2030-01-01T00:00:00Z",
}


class Talk(msgspec.Struct, frozen=True):
    """How one dialect is read and answered."""

    read: Callable[[Json], Asked]
    whole: Callable[[Asked, Answer, str], Json]
    events: Callable[[Asked, Answer, str], Iterator[Json]]
    framed: Callable[[Iterable[Json]], Iterator[bytes]]
    headers: Mapping[str, str]


def _as_data(events: Iterable[Json]) -> Iterator[bytes]:
    for event in events:
        yield b"data: " + _json(event) + b"\n\n"
    yield b"data: [DONE]\n\n"


def _as_named(events: Iterable[Json]) -> Iterator[bytes]:
    for event in events:
        yield b"event: " + event["type"].encode() + b"\ndata: " + _json(event) + b"\n\n"


def _as_googles(events: Iterable[Json]) -> Iterator[bytes]:
    for event in events:
        yield b"data: " + _json(event) + b"\r\n\r\n"


_GOOGLES = Talk(reading.from_gemini, gemini.whole, gemini.events, _as_googles, {})
TALKS = {
    "/v1/chat/completions": Talk(reading.from_chat, chat.whole, chat.events, _as_data, _OPENAI_HEADERS),
    "/v1/completions": Talk(reading.from_completions, completions.whole, completions.events, _as_data, _OPENAI_HEADERS),
    "/v1/responses": Talk(reading.from_responses, responses.whole, responses.events, _as_named, _OPENAI_HEADERS),
    "/v1/messages": Talk(reading.from_messages, messages.whole, messages.events, _as_named, _ANTHROPIC_HEADERS),
}
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
        self._name = name
        self._counts = Counts()
        self._stored: dict[str, str] = {}  # what users said, by the id of the response
        self._conversations = Conversations(name)

    def application(self) -> web.Application:
        """Return it as an aiohttp application."""
        app = web.Application(middlewares=[self._guarded], client_max_size=MAX_BODY_BYTES)
        app.add_routes([web.post(path, self._talk) for path in TALKS])
        app.add_routes([web.post(path, self._do) for path in THINGS])
        for version in ("v1", "v1beta"):
            below = f"/{version}/models/{{model}}:"
            app.add_routes([web.post(f"{below}{verb}", self._generate) for verb in ("generateContent", _STREAMED)])
            app.add_routes([web.post(f"{below}countTokens", self._count_googles_tokens)])
            app.add_routes([web.get(f"/{version}/models", self._models)])
            app.add_routes([web.get(f"/{version}/models/{{name:.+}}", self._model)])
        app.add_routes(
            [
                web.post("/v1/messages/count_tokens", self._count_tokens),
                web.post("/v1/responses/input_tokens", self._count_input),
                web.post("/v1/responses/compact", self._compact),
                web.post("/v1/conversations", self._converse),
                web.route("*", "/v1/conversations/{id}", self._conversation),
                web.route("*", "/v1/conversations/{id}/items", self._conversation_items),
                web.route("*", "/v1/conversations/{id}/items/{item}", self._conversation_item),
                web.post("/v1beta/decisions", self._decide_googles),
                web.post("/v1/audio/speech", self._speak),
                web.post("/v1/audio/transcriptions", self._listen),
                web.post("/v1/audio/translations", self._listen),
                web.post("/v1/images/edits", self._edit),
                web.get("/control/counts", self._tell),
                web.get("/control/quiet", self._quiet),
            ]
        )
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith("/control/"):
            return await handler(request)
        anthropic = request.path.startswith("/v1/messages") or "anthropic-version" in request.headers
        try:
            with self._counts.request(request.path):
                _admit(request)
                try:
                    return await handler(request)
                except (KeyError, TypeError, ValueError) as error:
                    raise Refused(400, f"the request is wrong: {type(error).__name__}: {error}") from error
        except ConnectionError:  # whoever asked has left, or the connection was to break: nobody reads an answer
            return web.Response()
        except Refused as refused:
            if "x-goog-api-key" in request.headers:
                return _refusal(in_googles_words(refused))
            return _refusal(in_anthropics_words(refused) if anthropic else in_openais_words(refused))

    async def _talk(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        strict.check(request.path, body)
        return await self._answer(request, TALKS[request.path], body)

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        said = {"model": request.match_info["model"], "stream": request.path.endswith(_STREAMED)}
        return await self._answer(request, _GOOGLES, {**await _body(request), **said})

    async def _count_googles_tokens(self, request: web.Request) -> web.Response:
        given = answer(reading.from_gemini({**await _body(request), "model": request.match_info["model"]}))
        return web.json_response({"totalTokens": given.prompt_tokens})

    async def _answer(self, request: web.Request, talk: Talk, body: Json) -> web.StreamResponse:
        asked = talk.read(body)
        if asked.model == "missing-model":
            raise Refused(404, "The model `missing-model` does not exist")
        self._fail(asked)
        if (seconds := asked.said("slow")) is not None:
            await asyncio.sleep(float(seconds))
        asked = self._remembering(asked) if request.path == "/v1/responses" else asked
        given = answer(asked)
        if asked.said("spoil") == self._name:
            given = spoilt(asked, given)
        if not asked.stream:
            if asked.said("hang") is not None:
                await asyncio.Event().wait()
            return web.Response(
                body=_json(talk.whole(asked, given, self._name)),
                content_type="application/json",
                headers=talk.headers,
            )
        return await self._stream(request, talk, asked, given)

    async def _stream(self, request: web.Request, talk: Talk, asked: Asked, given: Answer) -> web.StreamResponse:
        response = web.StreamResponse(headers={**talk.headers, "content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        if asked.said("hang") is not None:
            await asyncio.Event().wait()
        blocks = list(talk.framed(talk.events(asked, given, self._name)))
        breaks = asked.said("break") is not None
        for number, block in enumerate(blocks[: len(blocks) // 2] if breaks else blocks):
            if number == _FIRST_WORDS and asked.said("mumble") == self._name:
                await asyncio.sleep(1)
            await response.write(block)
        if breaks:
            assert request.transport is not None
            request.transport.close()
            raise ConnectionAbortedError("as asked for")
        await response.write_eof()
        return response

    def _remembering(self, asked: Asked) -> Asked:
        """Put what was said before a stored response into the system text; store this one unless it is forbidden."""
        before, conversation = asked.body.get("previous_response_id"), asked.body.get("conversation")
        if conversation is not None:
            name = conversation if isinstance(conversation, str) else conversation["id"]
            asked = msgspec.structs.replace(asked, system=self._conversations.said(name))
        if before is not None:
            if before not in self._stored:
                raise Refused(404, f"Previous response with id '{before}' not found.")
            asked = msgspec.structs.replace(asked, system=self._stored[before])
        if asked.body.get("store") is not False:
            self._stored[f"resp_{answer(asked).id}"] = asked.text
        return asked

    def _fail(self, asked: Asked) -> None:
        said = asked.said("fail")
        if said is None:
            return
        status, *often = said.split()
        if often:
            _, times, key = often
            if self._counts.failed_before(key) >= int(times):
                return
        raise Refused(int(status), f"failed with {status}, as asked for")

    async def _decide_googles(self, request: web.Request) -> web.Response:
        return web.json_response(things.googles_decisions(await _body(request)))

    async def _do(self, request: web.Request) -> web.Response:
        body = await _body(request)
        if request.path == "/v1/decisions" and "x-goog-api-key" in request.headers:  # its SDK begins it with v1, too
            return await self._decide_googles(request)
        if body.get("model") == "missing-model":
            raise Refused(404, "The model `missing-model` does not exist")
        return _answered(THINGS[request.path](body))

    async def _count_tokens(self, request: web.Request) -> web.Response:
        given = answer(reading.from_messages({"max_tokens": 1, **await _body(request)}))
        return web.json_response({"input_tokens": given.prompt_tokens}, headers=_ANTHROPIC_HEADERS)

    async def _count_input(self, request: web.Request) -> web.Response:
        return _answered(responses.counted(answer(reading.from_responses(await _body(request)))))

    async def _compact(self, request: web.Request) -> web.Response:
        asked = reading.from_responses(await _body(request))
        return _answered(responses.compacted(asked, answer(asked)))

    async def _converse(self, request: web.Request) -> web.Response:
        return _answered(self._conversations.make(await _body(request)))

    async def _conversation(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        if request.method == METH_POST:
            return _answered(self._conversations.change(name, await _body(request)))
        return _answered(
            (self._conversations.delete if request.method == METH_DELETE else self._conversations.tell)(name)
        )

    async def _conversation_items(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        if request.method == METH_POST:
            return _answered(self._conversations.add(name, await _body(request)))
        return _answered(self._conversations.items(name))

    async def _conversation_item(self, request: web.Request) -> web.Response:
        tell = self._conversations.drop if request.method == METH_DELETE else self._conversations.item
        return _answered(tell(request.match_info["id"], request.match_info["item"]))

    async def _tell_events(self, request: web.Request, events: Iterable[Json]) -> web.StreamResponse:
        response = web.StreamResponse(headers={**_OPENAI_HEADERS, "content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for event in events:
            await response.write(b"data: " + _json(event) + b"\n\n")
        await response.write_eof()
        return response

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        if body.get("stream_format") == "sse":
            return await self._tell_events(request, things.spoken(body))
        kind = {"wav": "audio/wav", "opus": "audio/opus"}.get(body.get("response_format") or "mp3", "audio/mpeg")
        return web.Response(body=things.SPEECH + body["input"].encode(), content_type=kind, headers=_OPENAI_HEADERS)

    async def _listen(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        file = form["file"]
        if not isinstance(file, web.FileField):
            raise Refused(400, "'file' is not a file")
        text = f"{len(file.file.read())} bytes of {file.filename} for {form.get('model')!s}"
        if form.get("stream") == "true":
            return await self._tell_events(request, things.transcribed(text))
        if form.get("response_format") == "text":
            return web.Response(text=f"{text}\n", headers=_OPENAI_HEADERS)
        return _answered({"text": text, "usage": {"type": "duration", "seconds": 1}})

    async def _edit(self, request: web.Request) -> web.Response:
        form = await request.post()
        if not isinstance(form["image"], web.FileField):
            raise Refused(400, "'image' is not a file")
        return _answered(things.images({"prompt": form["prompt"]}))

    async def _models(self, request: web.Request) -> web.Response:
        if "x-goog-api-key" in request.headers:
            return web.json_response({"models": [{"name": f"models/{name}"} for name in things.MODELS]})
        return _answered(things.models(things.MODELS))

    async def _model(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in things.MODELS:
            raise Refused(404, f"The model `{name}` does not exist")
        if "x-goog-api-key" in request.headers:
            return web.json_response({"name": f"models/{name}"})
        return _answered(things.model(name))

    async def _tell(self, _request: web.Request) -> web.Response:
        return web.json_response(self._counts.as_json())

    async def _quiet(self, _request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._counts.quiet()
        except TimeoutError:
            return web.json_response({"quiet": False})
        return web.json_response({"quiet": True})


def _admit(request: web.Request) -> None:
    own = request.headers.get("x-api-key") or request.headers.get("x-goog-api-key")
    key = own or request.headers.get("authorization", "").removeprefix("Bearer ")
    if key == FORBIDDEN_KEY:
        raise Refused(403, "this key may not do this")
    if key != KEY:
        raise Refused(401, "Incorrect API key provided")


async def _body(request: web.Request) -> Json:
    body = await request.json()
    if not isinstance(body, dict):
        raise Refused(400, "the body is no object")
    return body


def _answered(body: Json) -> web.Response:
    return web.json_response(body, headers=_OPENAI_HEADERS)


def _refusal(said: Said) -> web.Response:
    return web.Response(status=said.status, headers=said.headers, body=said.body)


def _json(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


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
