"""/openapi.json is true: real answers of every operation, errors too, are held against what it says of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from gateway.admin.openapi.document import OPERATIONS
from providers.simulator import ProviderTally, json_response
from providers.simulator import serve as serve_routes
from tests.app.gateway.apis.test_dialects import COMPLETION_BYTES, MESSAGE_BYTES, RESPONSE, RESPONSE_BYTES
from tests.app.gateway.description import Description
from tests.app.gateway.key_desk import ROOT, bearer, in_database
from tests.app.gateway.relayed.samples import PICTURES, SOUND
from tests.app.gateway.running_gateway import MODEL, PROMPT, RunningGateway, Serve, chat_body

pytestmark = pytest.mark.usefixtures("views")  # of reports

OTHER = "other"  # a model of the provider that speaks every API
EVENTS = {"messages": MESSAGE_BYTES, "responses": RESPONSE_BYTES, "completions": COMPLETION_BYTES}
VECTOR = {"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}
SOCKET = "/v1/responses"
HANDSHAKE = {
    "connection": "upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}
TURNS = [{"role": "user", "parts": [{"text": "Hello"}]}]
BODIES: dict[str, Any] = {
    "embeddings": {"object": "list", "data": [VECTOR], "model": "m", "usage": {"prompt_tokens": 3, "total_tokens": 3}},
    "moderations": {"id": "modr-1", "model": "m", "results": [{"flagged": False}]},
    "rerank": {"id": "r", "results": [{"index": 0, "relevance_score": 0.9}]},
    "audio/transcriptions": {"text": "Hello"},
    "audio/translations": {"text": "Hello"},
    "images/generations": PICTURES,
    "images/edits": PICTURES,
    "images/variations": PICTURES,
    "messages/count_tokens": {"input_tokens": 9},
    "responses/input_tokens": {"object": "response.input_tokens", "input_tokens": 9},
}
VERTEX = "/v1/projects/p/locations/l/publishers/anthropic/models"
APIS = ["completions", "messages", "responses", "embeddings", "moderations", "rerank", "audio", "images"]

# What is asked, as (method, path, body): the paths of the description are found by their form.
GETS = (
    "/",
    "/docs",
    "/favicon.ico",
    "/page/style.css",
    "/page/no-such-file.js",
    "/openapi.json",
    "/api/sign-in?at=no-such-provider",
    "/api/signed-in?at=no-such-provider",
    "/health/live",
    "/.well-known/holeshot?at=no-such-login",
    "/health/ready",
    "/metrics",
    "/leaderboard",
    "/admin/facts",
    f"/leaderboard?model={MODEL}",
    "/leaderboard?model=no-such-model",
    "/leaderboard?explain=1&tools=true",
    "/leaderboard?explain=1&no_such_field=1",
    "/v1/models",
    f"/v1/models/{MODEL}",
    "/v1beta/models",
    "/v1/models?key=unused",
    f"/v1beta/models/{MODEL}",
    "/v1beta/models/no-such-model",
    "/inference-profiles",
    f"/inference-profiles/{MODEL}",
    "/inference-profiles/no-such-model",
    "/v1/models/no-such-model",
    "/api/session",
    "/api/slo",
    "/api/leaderboard",
    f"/api/leaderboard?model={MODEL}",
    "/api/leaderboard?model=no-such-model",
    "/api/explain",
    "/api/explain?tools=true&width=2",
    "/api/explain?no_such_field=1",
    "/api/calls",
    "/api/calls?window=1h&limit=1",
    "/api/calls?outcome=no_such_outcome",
    "/api/calls/{call}",
    "/api/calls/no-such-call",
    "/api/history?window=1h",
    "/api/history?window=no_such",
    "/api/slowdowns?window=7d",
    "/api/heat?metric=n",
    "/api/race-value",
    "/api/replay",
    "/api/race-value?by=client",
    "/api/refusals",
    "/api/regions",
    "/api/regions?window=no_such",
    "/api/usage",
    "/api/teams",
    "/api/alerts",
    "/api/configuration",
    "/api/configuration?no_such_field=1",
)
# A body with ``file`` is sent as a form, with that field as its file.
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/chat/completions", chat_body()),
    ("/v1/chat/completions", chat_body(stream=True)),
    ("/v1/chat/completions", chat_body(model="no-such-model")),
    ("/v1/chat/completions", {"model": MODEL}),
    ("/v1/chat/completions", chat_body(race={"width": 99})),
    ("/api/playground", chat_body(stream=True)),
    ("/api/playground", chat_body(model="no-such-model")),
    ("/v1/completions", {"model": OTHER, "prompt": "Once"}),
    ("/v1/completions", {"model": OTHER}),
    ("/v1/messages", {"model": OTHER, "messages": PROMPT, "max_tokens": 9}),
    ("/v1/messages", {"model": OTHER, "messages": PROMPT}),
    ("/v1/messages", {"model": MODEL, "messages": PROMPT, "max_tokens": 9}),
    ("/v1/responses", {"model": OTHER, "input": "Hello"}),
    ("/v1/responses", {"model": OTHER, "input": "Hello", "store": True}),
    ("/v1/responses", {"model": MODEL, "input": "Hello"}),
    ("/v1/responses", {"model": OTHER, "input": "Hello", "previous_response_id": "resp_of_nobody"}),
    ("/v1/messages/count_tokens", {"model": OTHER, "messages": PROMPT}),
    ("/v1/messages/count_tokens", {"model": MODEL, "messages": PROMPT}),
    (f"/v1beta/models/{MODEL}:generateContent", {"contents": TURNS}),
    (f"/v1beta/models/{OTHER}:generateContent", {"contents": TURNS}),
    (f"/v1beta/models/{OTHER}:generateContent", {}),
    (f"/v1beta/models/{MODEL}:streamGenerateContent", {"contents": TURNS}),
    (f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse", {"contents": TURNS}),
    (f"/v1beta/models/{MODEL}:countTokens", {"contents": TURNS}),
    (f"/v1beta/models/{OTHER}:countTokens", {}),
    (f"/v1/models/{MODEL}:generateContent", {"contents": TURNS}),
    (f"/v1/models/{MODEL}:streamGenerateContent", {"contents": TURNS}),
    (f"/v1/models/{MODEL}:countTokens", {"contents": TURNS}),
    *(
        (path, {"model": model, "input": "Hello"})
        for path in ("/v1/interactions", "/v1beta/interactions")
        for model in (MODEL, OTHER, "no-such-model")
    ),
    *(
        (f"{VERTEX}/{name}", {"messages": PROMPT, "model": OTHER, "max_tokens": 9})
        for name in (f"{OTHER}:rawPredict", "no-such-model:rawPredict", "count-tokens:rawPredict")
    ),
    *(
        (f"/model/{model}/invoke", {"messages": PROMPT, "max_tokens": 9})
        for model in (MODEL, OTHER, "anthropic.no-such-model")
    ),
    *(
        (f"/model/{model}/{path}", {"messages": [{"role": "user", "content": [{"text": "Hello"}]}]})
        for model, path in ((MODEL, "converse"), (OTHER, "converse-stream"), ("no-such-model", "converse"))
    ),
    (f"/model/{OTHER}/converse", {"messages": PROMPT}),
    *(
        (f"/model/{OTHER}/count-tokens", {"input": given})
        for given in ({"converse": {"messages": [{"role": "user", "content": [{"text": "Hello"}]}]}}, {})
    ),
    (f"{VERTEX}/{OTHER}:streamRawPredict", {"messages": PROMPT, "max_tokens": 9}),
    (f"/model/{OTHER}/invoke-with-response-stream", {"messages": PROMPT, "max_tokens": 9}),
    (f"/model/{OTHER}/invoke-with-response-stream", {"messages": PROMPT}),
    ("/v1/embeddings", {"model": OTHER, "input": "Hello"}),
    ("/v1/embeddings", {"model": OTHER}),
    ("/v1/moderations", {"model": OTHER, "input": "Hello"}),
    ("/v1/rerank", {"model": OTHER, "query": "a", "documents": ["a", "b"]}),
    ("/v2/rerank", {"model": OTHER, "query": "a", "documents": ["a", "b"]}),
    ("/v1/decisions", {"model": OTHER, "input": "Hello", "questions": [{"type": "predicate", "instructions": "?"}]}),
    ("/v1/decisions", {"model": OTHER, "input": "Hello", "questions": []}),
    ("/v1beta/decisions", {"model": OTHER, "input": "Hello", "questions": {"q": {"type": "noul"}}}),
    ("/v1/responses/compact", {"model": OTHER, "input": "Hello"}),
    ("/v1/responses/input_tokens", {"model": OTHER, "input": "Hello"}),
    ("/v1/responses/input_tokens", {"model": MODEL, "input": "Hello"}),
    ("/v1/conversations", {}),
    ("/v1/conversations", {"items": 1}),
    ("/v1/conversations/conv_of_nobody", {"metadata": {}}),
    ("/v1/conversations/conv_of_nobody/items", {"items": []}),
    ("/v1/audio/speech", {"model": OTHER, "input": "Hello", "voice": "x"}),
    ("/v1/audio/transcriptions", {"model": OTHER, "file": "file"}),
    ("/v1/audio/translations", {"model": OTHER, "file": "file"}),
    ("/v1/images/generations", {"model": OTHER, "prompt": "a cat"}),
    ("/v1/images/edits", {"model": OTHER, "prompt": "a cat", "image": "x"}),
    ("/v1/images/variations", {"model": OTHER, "file": "image"}),
)
STORED = (
    ("GET", "/v1/responses/resp_abc"),
    ("GET", "/v1/responses/resp_abc/input_items"),
    ("POST", "/v1/responses/resp_abc/cancel"),
    ("GET", "/v1/responses/resp_of_nobody"),
    ("DELETE", "/v1/responses/resp_abc"),
    ("GET", "/v1/conversations/conv_of_nobody"),
    ("DELETE", "/v1/conversations/conv_of_nobody"),
    ("GET", "/v1/conversations/conv_of_nobody/items"),
    ("GET", "/v1/conversations/conv_of_nobody/items/msg_1"),
    ("DELETE", "/v1/conversations/conv_of_nobody/items/msg_1"),
    *(
        (method, f"{path}/v1_of_nobody{below}")
        for path in ("/v1/interactions", "/v1beta/interactions")
        for method, below in (("GET", ""), ("POST", "/cancel"), ("DELETE", ""))
    ),
)
FORGOTTEN = "/admin/facts/of_nobody"
KEYS: tuple[tuple[str, str, Any], ...] = (
    ("POST", "", {"name": "app", "models": [MODEL], "rpm": 60, "require": {"zdr": True}, "expires": "2099-01-01"}),
    ("POST", "", {"name": "app"}),
    ("POST", "", {"name": "other", "no_such_field": 1}),
    ("GET", "", None),
    ("GET", "?all=1", None),
    ("GET", "/app", None),
    ("GET", "/nobody", None),
    ("PATCH", "/app", {"rpm": None, "role": "viewer"}),
    ("PATCH", "/root", {"rpm": 1}),
    ("POST", "/app/rotate", {"grace_s": 60}),
    ("POST", "/app/rotate", None),
    ("DELETE", "/app", None),
    ("DELETE", "/app", None),
)
DESKS = ("/admin/keys", "/api/keys")
SESSION = "/api/session"
SIGNED: tuple[tuple[str, Any, int], ...] = (
    ("POST", {"key": ROOT}, 204),
    ("POST", {"key": "hs-nobody"}, 401),
    ("POST", {}, 400),
    ("DELETE", None, 204),
)
LIVE = "/api/live"


@asynccontextmanager
async def provider_of_everything() -> AsyncIterator[str]:
    """Serve a provider that speaks every API but chat; yield its base URL."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        path = request.match_info["path"]
        if path in EVENTS:
            return web.Response(body=EVENTS[path], headers={"content-type": "text/event-stream"})
        if path == "audio/speech":
            return web.Response(body=SOUND, headers={"content-type": "audio/mpeg"})
        return json_response(BODIES.get(path, RESPONSE))

    async with serve_routes([web.route("*", "/v1/{path:.+}", answer)], ProviderTally()) as base_url:
        yield base_url


@asynccontextmanager
async def described(serve: Serve, **settings: Any) -> AsyncIterator[tuple[RunningGateway, Description]]:
    """A gateway with a model of each kind, and what it says of itself."""
    async with provider_of_everything() as base_url:
        config: dict[str, Any] = {
            "providers": {"all": {"base_url": base_url, "api_key": "k", "apis": APIS}},
            "models": {OTHER: {"deployments": ["all/m"]}},
            "slo": {"fast": {"model": OTHER, "ttft_ms": 500, "tok_s": 45}},
            "teams": {"research": {"rpm": 60_000}},
            **settings,
        }
        async with serve(config=config) as running:
            yield running, await Description.of(running)


def sent(body: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a request with this body."""
    if "file" not in body:
        return {"json": body}
    form = aiohttp.FormData({"model": body["model"]})
    form.add_field(body["file"], SOUND, filename="a", content_type="application/octet-stream")
    return {"data": form}


async def test_answers_to_get_are_as_described(serve: Serve) -> None:
    async with described(serve) as (running, description):
        async with running.chat(stream=True) as response:
            await response.read()
            call_id = response.headers["x-holeshot-call-id"]
        await running.gateway.ledger.flush()
        for template in GETS:
            path = template.replace("{call}", call_id)
            async with running.get(path, headers={"accept": "text/html"} if path == "/" else {}) as response:
                assert (response.status >= 400) == ("no-such" in path or "no_such" in path), await response.text()
                await description.check(description.path_of("GET", path), response)


async def test_answers_to_calls_are_as_described(serve: Serve) -> None:
    async with described(serve) as (running, description):
        for path, body in CALLS:
            async with running.http.post(running.url + path, **sent(body)) as response:
                await description.check(description.path_of("POST", path), response, foreign=True)


async def test_answers_about_stored_responses_are_as_described(serve: Serve) -> None:
    async with described(serve) as (running, description):
        async with running.post({"model": OTHER, "input": "Hi", "store": True}, path="/v1/responses") as response:
            assert response.status == 200
        for method, path in STORED:
            options: dict[str, Any] = {"json": {}} if method == "POST" else {}
            async with running.http.request(method, running.url + path, **options) as response:
                assert (response.status == 200) == ("nobody" not in path), await response.text()
                await description.check(description.path_of(method, path), response, foreign=True)


@pytest.mark.parametrize("desk", DESKS)
async def test_answers_about_keys_are_as_described(serve: Serve, desk: str) -> None:
    async with described(serve, **in_database()) as (running, description):
        for method, path, body in KEYS:
            url = running.url + desk + path
            async with running.http.request(method, url, json=body, headers=bearer(ROOT)) as response:
                await description.check(description.path_of(method, desk + path), response)


async def test_an_answer_to_forgetting_what_is_not_known_is_as_described(serve: Serve) -> None:
    async with described(serve) as (running, description), running.http.delete(running.url + FORGOTTEN) as response:
        assert response.status == 404
        await description.check(description.path_of("DELETE", FORGOTTEN), response)


async def test_answers_to_signing_in_and_out_are_as_described(serve: Serve) -> None:
    async with described(serve, **in_database()) as (running, description):
        for method, body, status in SIGNED:
            headers = {"origin": running.url, "sec-fetch-site": "same-origin", "content-type": "application/json"}
            async with running.http.request(method, running.url + SESSION, json=body, headers=headers) as response:
                await description.check(SESSION, response)
                assert response.status == status


async def test_live_streams_are_as_described(serve: Serve) -> None:
    async with described(serve) as (running, description), running.get(LIVE) as response:
        assert (await response.content.readline()).startswith(b"event: hello")
        said = description.document["paths"][LIVE]["get"]["responses"]["200"]["content"]
        assert list(said) == [response.content_type]


async def test_a_handshake_is_answered_as_described(serve: Serve) -> None:
    async with described(serve) as (running, description):
        async with running.http.ws_connect(running.url + SOCKET):
            pass
        async with running.get(SOCKET) as response:
            await description.check(SOCKET, response)
        assert "101" in description.document["paths"][SOCKET]["get"]["responses"]


async def test_whoever_has_no_key_is_refused_as_described(serve: Serve) -> None:
    async with described(serve, **in_database()) as (running, description):
        for operation in OPERATIONS:
            path = (
                operation.path.replace("{id}", "x")
                .replace("{name}", "x")
                .replace("{model}", "x")
                .replace("{path}", "style.css")
                .replace("{project}/locations/{location}", "p/locations/l")
            )
            kind = next(iter(operation.body["content"])) if operation.body else "application/json"
            options: dict[str, Any] = {"data": b"{}", "headers": {"content-type": kind}}
            if operation.method == "GET":
                options = {"headers": HANDSHAKE} if operation.path == SOCKET else {}
            async with running.http.request(operation.method, running.url + path, **options) as response:
                await description.check(operation.path, response)
                assert (response.status == 401) == bool(operation.access.security), operation.path


async def test_an_unknown_method_is_refused_as_described(serve: Serve) -> None:
    async with described(serve) as (running, description):
        async with running.http.put(f"{running.url}/v1/models") as response:
            error = msgspec.convert(await response.json(), dict[str, Any])["error"]
        assert (response.status, error["code"]) == (405, "method_not_allowed")
        assert error["code"] in description.document["components"]["responses"]["Error"]["x-error-codes"]


async def test_every_operation_is_held_against_its_description(serve: Serve) -> None:
    async with described(serve) as (_, description):
        asked = {("GET", path) for path in GETS} | {("POST", path) for path, _ in CALLS} | set(STORED)
        asked |= {(method, desk + path) for desk in DESKS for method, path, _ in KEYS}
        asked |= {(method, SESSION) for method, _, _ in SIGNED} | {
            ("GET", LIVE),
            ("GET", SOCKET),
            ("DELETE", FORGOTTEN),
            ("GET", "/api/own"),  # of a person: tests/app/gateway/access/test_own_calls.py
        }
        held = {(method, description.path_of(method, path)) for method, path in asked}
        unheld = description.operations - held
        assert not unheld, f"{sorted(unheld)}: add a request of each to GETS, CALLS, STORED, KEYS or SIGNED above"
