"""Conversations, counted tokens and compacted responses: at who has them, for the client that made them."""

import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from aiohttp import web
from yarl import URL

from providers.simulator import ProviderTally, json_response, serve
from tests.app.gateway.apis.test_dialects import RESPONSE_BYTES
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve

MINE, OTHERS = "hs-mine", "hs-others"
MADE = {"id": "conv_1", "object": "conversation", "created_at": 1, "metadata": {"topic": "cats"}}
ITEM = {"type": "message", "id": "msg_1", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
ITEMS = {"object": "list", "data": [ITEM], "first_id": "msg_1", "last_id": "msg_1", "has_more": False}
COMPACTED = {
    "id": "resp_c",
    "object": "response.compaction",
    "output": [{"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}],
    "created_at": 1,
    "usage": {"input_tokens": 90, "output_tokens": 7, "total_tokens": 97},
}


@asynccontextmanager
async def keeper(
    refuses: Mapping[str, int] = MappingProxyType({}), lacks: str = ""
) -> AsyncIterator[tuple[str, list[tuple[str, Any]]]]:
    """Serve a provider of conversations; yield its base URL, and what it was asked.

    ``refuses``: a key, by a status; ``lacks``: a field, by 400.
    """
    asked: list[tuple[str, Any]] = []

    async def answer(request: web.Request) -> web.StreamResponse:  # noqa: PLR0911 - by path
        body = await request.read()
        path = request.path.removeprefix("/v1/")
        asked.append((f"{request.method} {path}", msgspec.json.decode(body) if body else None))
        if (status := refuses.get(request.headers["authorization"].removeprefix("Bearer "))) is not None:
            return web.json_response({"error": {"message": "not with this key"}}, status=status)
        if body and lacks in msgspec.json.decode(body):
            said = {"message": f"Unknown parameter: '{lacks}'.", "param": lacks, "code": "unknown_parameter"}
            return web.json_response({"error": {**said, "type": "invalid_request_error"}}, status=400)
        if path == "responses":
            return web.Response(body=RESPONSE_BYTES, headers={"content-type": "text/event-stream"})
        if path == "responses/input_tokens":
            return json_response({"object": "response.input_tokens", "input_tokens": 11})
        if path == "responses/compact":
            return json_response(COMPACTED)
        if request.method == "DELETE":
            return json_response({"id": "conv_1", "object": "conversation.deleted", "deleted": True})
        if path.endswith("/items"):
            return json_response(ITEMS)
        return json_response(ITEM if "/items/" in path else MADE)

    async with serve([web.route("*", "/v1/{path:.+}", answer)], ProviderTally()) as base_url:
        yield base_url, asked


def kept_at(base_url: str, **settings: Any) -> dict[str, Any]:
    return {
        "providers": {"keeper": {"base_url": base_url, "api_key": "k", "apis": ["responses"]}},
        "models": {MODEL: {"deployments": ["keeper/m"]}},
        "clients": {
            name: {"key_sha256": hashlib.sha256(key.encode()).hexdigest()}
            for name, key in (("me", MINE), ("others", OTHERS))
        },
        **settings,
    }


def known(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration whose provider is known to store responses: the gateway then does not keep them itself."""
    config["providers"]["keeper"]["preset"] = "openai"
    return config


async def asks(running: RunningGateway, method: str, path: str, body: Any = None, key: str = MINE) -> tuple[int, Any]:
    headers = {"authorization": f"Bearer {key}"}
    async with running.http.request(method, f"{running.url}/v1/{path}", json=body, headers=headers) as response:
        return response.status, await response.json()


async def test_a_conversation_is_kept_where_it_was_made_for_whom_it_was_made(serve: Serve) -> None:
    async with keeper() as (base_url, asked), serve(config=kept_at(base_url), key=MINE) as running:
        made = {"items": [{"type": "message", "role": "user", "content": "Hi"}], "metadata": {"topic": "cats"}}
        assert await asks(running, "POST", "conversations", made) == (200, MADE)
        assert asked == [("POST conversations", made)]
        assert await asks(running, "GET", "conversations/conv_1") == (200, MADE)
        changes: list[dict[str, Any]] = [{"metadata": {}}, {"metadata": None}]  # null takes it away
        for changed in changes:
            assert await asks(running, "POST", "conversations/conv_1", changed) == (200, MADE)
            assert asked[-1] == ("POST conversations/conv_1", changed)
        assert await asks(running, "GET", "conversations/conv_1/items") == (200, ITEMS)
        assert await asks(running, "POST", "conversations/conv_1/items", {"items": [ITEM]}) == (200, ITEMS)
        assert await asks(running, "GET", "conversations/conv_1/items/msg_1") == (200, ITEM)
        number = len(asked)
        for method, path in (("GET", "conversations/conv_1"), ("POST", "conversations/conv_1/items")):
            status, error = await asks(running, method, path, {"items": []} if method == "POST" else None, OTHERS)
            assert (status, error["error"]["type"]) == (404, "invalid_request_error")
        assert len(asked) == number
        assert (await asks(running, "DELETE", "conversations/conv_1"))[0] == 200


@pytest.mark.parametrize("status", [401, 429])
async def test_a_conversation_is_made_with_the_next_key_if_the_first_is_refused(serve: Serve, status: int) -> None:
    async with keeper({"first": status}) as (base_url, asked):
        config = kept_at(base_url)
        config["providers"]["keeper"] |= {"api_key": None, "api_keys": ["first", "second"]}
        async with serve(config=config, key=MINE) as running:
            assert await asks(running, "POST", "conversations", {}) == (200, MADE)
            assert [path for path, _ in asked] == ["POST conversations"] * 2
            assert (await asks(running, "GET", "conversations/conv_1"))[0] == (200 if status == 401 else 429)


async def test_a_conversation_stays_within_reach_while_its_providers_key_is_replaced(serve: Serve) -> None:
    refuses: dict[str, int] = {}
    async with keeper(refuses) as (base_url, asked):
        config = kept_at(base_url)
        config["providers"]["keeper"] |= {"api_key": "former"}
        async with serve(config=config, key=MINE) as running:

            async def requests(method: str, path: str, body: Any = None) -> int:
                """Return how many requests one takes that is answered."""
                before = len(asked)
                status, said = await asks(running, method, path, body)
                assert status == 200, said
                return len(asked) - before

            assert await requests("POST", "conversations", {}) == 1
            refuses["new"] = 401  # the provider does not know it yet
            running.replace_key("keeper", "new")
            assert await requests("POST", "conversations/conv_1/items", {"items": [ITEM]}) == 2
            assert await requests("GET", "conversations/conv_1") == 1
            refuses.clear()
            refuses["former"] = 401
            assert await requests("GET", "conversations/conv_1/items") == 2
            assert await requests("DELETE", "conversations/conv_1") == 1


@pytest.mark.parametrize("hint", ["user", "metadata"])
async def test_a_conversation_is_made_without_a_hint_that_its_provider_refuses_and_the_next_one_at_once(
    serve: Serve, hint: str
) -> None:
    body = {"items": [ITEM], "metadata": {"topic": "cats"}, "user": "somebody"}
    without = {name: value for name, value in body.items() if name != hint}
    async with keeper(lacks=hint) as (base_url, asked), serve(config=kept_at(base_url), key=MINE) as running:
        for _ in range(2):
            assert await asks(running, "POST", "conversations", body) == (200, MADE)
        assert [sent for _, sent in asked] == [body, without, without]


@pytest.mark.parametrize("metadata", [{"topic": "dogs"}, None], ids=str)
async def test_what_a_conversation_is_to_be_changed_to_is_never_left_out(
    serve: Serve, metadata: dict[str, str] | None
) -> None:
    async with keeper(lacks="metadata") as (base_url, asked), serve(config=kept_at(base_url), key=MINE) as running:
        assert await asks(running, "POST", "conversations", {}) == (200, MADE)
        for _ in range(2):
            status, said = await asks(running, "POST", "conversations/conv_1", {"metadata": metadata})
            assert (status, said["error"]["param"]) == (400, "metadata")
        assert [sent for _, sent in asked] == [{}, {"metadata": metadata}, {"metadata": metadata}]


@pytest.mark.parametrize(
    "path", ["items/..%2F..%2Fconv_2", "items/..%2F..%2F..%2Ffiles", "items/%2e%2e", "..%2Fconv_2", "items/a%5Cb"]
)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_no_name_leads_out_of_a_conversation(serve: Serve, method: str, path: str) -> None:
    async with keeper() as (base_url, asked), serve(config=kept_at(base_url), key=MINE) as running:
        await asks(running, "POST", "conversations", {})
        headers = {"authorization": f"Bearer {MINE}"}
        url = URL(f"{running.url}/v1/conversations/conv_1/{path}", encoded=True)
        async with running.http.request(method, url, headers=headers) as response:
            assert response.status in {404, 405}, await response.text()
        assert len(asked) == 1


async def test_a_response_may_go_on_in_a_conversation_of_the_same_client_only(serve: Serve) -> None:
    async with keeper() as (base_url, asked), serve(config=kept_at(base_url), key=MINE) as running:
        await asks(running, "POST", "conversations", {})
        body = {"model": MODEL, "input": "Hi", "conversation": "conv_1", "store": True}
        headers = {"authorization": f"Bearer {MINE}"}
        async with running.http.post(f"{running.url}/v1/responses", json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
        assert asked[-1][1]["conversation"] == "conv_1"
        headers = {"authorization": f"Bearer {OTHERS}"}
        async with running.http.post(f"{running.url}/v1/responses", json=body, headers=headers) as response:
            assert response.status == 404
        assert len(asked) == 2


async def test_where_several_providers_could_keep_it_a_model_is_to_be_named(serve: Serve) -> None:
    async with keeper() as (base_url, asked), keeper() as (other_url, others):
        config = kept_at(base_url)
        config["providers"]["other"] = {"base_url": other_url, "api_key": "k", "apis": ["responses"]}
        config["models"]["second"] = {"deployments": ["other/m"]}
        async with serve(config=config, key=MINE) as running:
            status, error = await asks(running, "POST", "conversations", {})
            assert (status, error["error"]["param"]) == (400, "model")
            assert await asks(running, "POST", "conversations", {"model": "second"}) == (200, MADE)
            assert (asked, others) == ([], [("POST conversations", {})])


async def test_of_several_servers_of_responses_that_which_has_conversations_keeps_it(serve: Serve) -> None:
    async with keeper() as (base_url, asked), keeper() as (other_url, others):
        config = kept_at(base_url)
        config["providers"]["keeper"]["preset"] = "openai"
        config["providers"]["groq"] = {"base_url": other_url, "api_key": "k"}
        config["providers"]["own"] = {"base_url": other_url, "api_key": "k", "apis": ["responses"]}
        config["models"]["second"] = {"deployments": ["groq/m", "own/m"]}
        async with serve(config=config, key=MINE) as running:
            assert await asks(running, "POST", "conversations", {}) == (200, MADE)
            assert (asked, others) == ([("POST conversations", {})], [])


async def test_a_provider_without_responses_keeps_no_conversation(serve: Serve) -> None:
    async with keeper() as (base_url, asked):
        config = kept_at(base_url)
        config["providers"]["keeper"]["apis"] = ["chat"]
        async with serve(config=config, key=MINE) as running:
            status, error = await asks(running, "POST", "conversations", {})
        assert (status, asked) == (400, [])
        assert "keeps no conversations" in error["error"]["message"]


async def test_tokens_of_a_response_are_counted_by_the_provider(serve: Serve) -> None:
    async with keeper() as (base_url, asked), serve(config=kept_at(base_url), key=MINE) as running:
        for said in ("Hi", [{"role": "user", "content": "Hi"}]):
            body = {"model": MODEL, "input": said}
            counted = await asks(running, "POST", "responses/input_tokens", body)
            assert counted == (200, {"object": "response.input_tokens", "input_tokens": 11})
            assert asked[-1] == ("POST responses/input_tokens", {"model": "m", "input": said})


async def test_tokens_are_estimated_where_nobody_counts_them(serve: Serve) -> None:
    async with keeper() as (base_url, asked):
        config = kept_at(base_url)
        config["providers"]["keeper"]["apis"] = ["chat"]
        async with serve(config=config, key=MINE) as running:
            status, said = await asks(running, "POST", "responses/input_tokens", {"model": MODEL, "input": "x" * 400})
        assert (status, said["object"], asked) == (200, "response.input_tokens", [])
        assert 50 < said["input_tokens"] < 200


async def test_a_compacted_response_is_a_call_and_what_it_names_is_its_clients(serve: Serve) -> None:
    async with keeper() as (base_url, asked), serve(config=kept_at(base_url), key=MINE) as running:
        body = {"model": MODEL, "input": [{"role": "user", "content": "Hi"}]}
        assert await asks(running, "POST", "responses/compact", body) == (200, COMPACTED)
        assert asked == [("POST responses/compact", {**body, "model": "m"})]
        call = await running.call()
        assert (call["endpoint"], call["prompt_tokens"], call["completion_tokens"]) == ("responses.compact", 90, 7)
        for key, status in ((MINE, 200), (OTHERS, 404)):
            again = {"model": MODEL, "input": [{"type": "item_reference", "id": "cmp_1"}], "store": True}
            headers = {"authorization": f"Bearer {key}"}
            async with running.http.post(f"{running.url}/v1/responses", json=again, headers=headers) as response:
                assert response.status == status


@pytest.mark.parametrize(
    "path",
    [
        *("v1/live", "v1/agents", "v1/vaults/v_1", "v1/webhook_endpoints", "v1/audio/voices", "v1beta/agents"),
        *("v1beta/cachedContents", f"v1beta/models/{MODEL}:embedContent", f"v1/models/{MODEL}:predict"),
    ],
)
async def test_what_is_not_offered_says_so_by_name(serve: Serve, path: str) -> None:
    async with keeper() as (base_url, _), serve(config=kept_at(base_url), key=MINE) as running:
        status, error = await asks(running, "POST", f"../{path}", {})
        assert status == 404
        assert f"/{path}" in error["error"]["message"]
        assert "does not have" in error["error"]["message"]
        assert "conversations" in error["error"]["message"]  # what it has


@pytest.mark.parametrize("path", ["responses/compact", "responses/input_tokens"])
async def test_a_response_of_another_client_is_not_found_by_any_path(serve: Serve, path: str) -> None:
    async with keeper() as (base_url, asked), serve(config=known(kept_at(base_url)), key=MINE) as running:
        headers = {"authorization": f"Bearer {MINE}"}
        body = {"model": MODEL, "input": "Hi", "store": True}
        async with running.http.post(f"{running.url}/v1/responses", json=body, headers=headers) as response:
            made = (await response.json())["id"]
        again = {"model": MODEL, "input": "And?", "previous_response_id": made}
        status, said = await asks(running, "POST", path, again, OTHERS)
        assert (status, said["error"]["param"], len(asked)) == (400, "previous_response_id", 1)
        assert (await asks(running, "POST", path, again))[0] == 200
        assert asked[-1] == (f"POST {path}", {**again, "model": "m"})
