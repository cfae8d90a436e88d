"""The list of models, as clients of OpenAI, OpenRouter and Anthropic read it."""

from typing import Any

import pytest

from tests.app.gateway.races.test_objectives import KEY, client, keyed
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve

ANTHROPIC = {"anthropic-version": "2023-06-01"}


def priced(name: str, input_usd: float, output_usd: float, **more: Any) -> dict[str, Any]:
    price = {"input": input_usd, "output": output_usd, **more.pop("price", {})}
    return {"deployment": name, "price_per_mtok": price, "capabilities": more}


def serving(**models: Any) -> dict[str, Any]:
    """Return a configuration of these models, each a list of deployments or a whole entry."""
    entries = {name: entry if isinstance(entry, dict) else {"deployments": entry} for name, entry in models.items()}
    return {"models": {MODEL: {"deployments": ["alpha/m"]}, **entries}}


async def told(running: RunningGateway, path: str = "/v1/models", **options: Any) -> Any:
    async with running.get(path, **options) as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def one(running: RunningGateway, name: str, **options: Any) -> Any:
    """Return a model, which is the same alone and in the list."""
    alone = await told(running, f"/v1/models/{name}", **options)
    assert alone in (await told(running, **options))["data"]
    return alone


async def test_openais_clients_get_openais_list(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        page = await running.sdk.models.list()
        assert [(model.id, model.object, model.owned_by) for model in page.data] == [(MODEL, "model", "holeshot")]
        listed = await told(running)
        assert listed["object"] == "list"
        # What nobody knows is not there: null would be read as no context at all.
        assert listed["data"] == [
            {
                "id": MODEL,
                "object": "model",
                "created": 0,
                "owned_by": "holeshot",
                "deployments": ["alpha/m"],
                "name": MODEL,
                "type": "base",
                "capabilities": {"completion_chat": True},
            }
        ]


async def test_what_is_known_holds_whoever_answers(serve: Serve) -> None:
    config = serving(
        both=[
            priced("alpha/a", 1, 2, context_tokens=32_000, max_output_tokens=8_000, price={"cached_input": 0.1}),
            priced("beta/b", 0.15, 6, context_tokens=128_000, max_output_tokens=4_000),
            {**priced("beta/c", 99, 99, context_tokens=1_000), "enabled": False},
        ]
    )
    async with serve(alpha=None, beta=None, config=config) as running:
        model = await one(running, "both")
        seen = await one(running, "both", headers=ANTHROPIC)
    assert model["context_length"] == 32_000
    assert model["top_provider"] == {"context_length": 32_000, "max_completion_tokens": 4_000}
    assert model["pricing"] == {"prompt": "0.000001", "completion": "0.000006", "input_cache_read": "0.00000015"}
    assert (seen["max_input_tokens"], seen["max_tokens"]) == (32_000, 4_000)


async def test_a_price_that_is_not_everybodys_is_none(serve: Serve) -> None:
    config = serving(half=[priced("alpha/a", 1, 2), "beta/b"], free=[priced("alpha/a", 0, 0)])
    async with serve(alpha=None, beta=None, config=config) as running:
        assert "pricing" not in await one(running, "half")
        assert (await one(running, "free"))["pricing"] == {"prompt": "0", "completion": "0"}


async def test_the_operators_maximum_is_the_models(serve: Serve) -> None:
    entry = {"deployments": [priced("alpha/a", 1, 2, max_output_tokens=8_000)], "maximums": {"max_tokens": 500}}
    async with serve(alpha=None, config=serving(short=entry)) as running:
        assert (await one(running, "short"))["top_provider"] == {"max_completion_tokens": 500}


async def test_what_somebody_can_is_supported_and_what_nobody_knows_is_not_said(serve: Serve) -> None:
    able, unable = {"tools": True, "json_schema": True, "vision": True}, {"tools": False, "vision": False}
    config = serving(
        some=[{"deployment": "alpha/a", "capabilities": able}, {"deployment": "alpha/b", "capabilities": unable}],
        none=[{"deployment": "alpha/b", "capabilities": {**unable, "reasoning": True}}],
        maybe=["alpha/c", {"deployment": "alpha/b", "capabilities": unable}],
        vectors=[{"deployment": "alpha/v", "apis": ["embeddings"], "capabilities": able}],
    )
    async with serve(alpha=None, config=config) as running:
        some, none = await one(running, "some"), await one(running, "none")
        for silent in ("maybe", "vectors"):
            assert not {"supported_parameters", "architecture"} & (await one(running, silent)).keys()
    assert some["supported_parameters"] == ["tools", "tool_choice", "response_format", "structured_outputs"]
    assert some["architecture"] == {"input_modalities": ["text", "image"], "output_modalities": ["text"]}
    assert none["supported_parameters"] == ["reasoning", "include_reasoning"]
    assert none["architecture"]["input_modalities"] == ["text"]


async def test_a_client_kept_from_a_provider_is_told_of_the_others_alone(serve: Serve) -> None:
    both = [priced("alpha/a", 1, 2, context_tokens=1_000), priced("beta/b", 3, 4, context_tokens=9_000)]
    config = {**serving(both=both, secret=[priced("alpha/a", 1, 2)]), **client(ignore=["alpha"])}
    async with serve(alpha=None, beta=None, config=config, key=KEY) as running:
        model = await one(running, "both", headers=keyed())
        assert (model["context_length"], model["pricing"]["prompt"]) == (9_000, "0.000003")
        assert model["deployments"] == ["beta/b"]
        secret = await one(running, "secret", headers=keyed())
        assert "pricing" not in secret
        assert secret["deployments"] == []


async def test_a_client_that_requires_something_is_told_of_those_who_keep_it_alone(serve: Serve) -> None:
    both = [
        priced("alpha/a", 1, 2, context_tokens=1_000),
        {**priced("beta/b", 3, 4, context_tokens=9_000), "zdr": True},
    ]
    config = {**serving(both=both), **client(require={"zdr": True})}
    async with serve(alpha=None, beta=None, config=config, key=KEY) as running:
        model = await one(running, "both", headers=keyed())
        assert (model["context_length"], model["deployments"]) == (9_000, ["beta/b"])


@pytest.mark.parametrize("header", [ANTHROPIC, {"x-api-key": "any"}], ids=lambda header: next(iter(header)))
async def test_anthropics_clients_get_anthropics_list(serve: Serve, header: dict[str, str]) -> None:
    config = serving(
        claude=[{"deployment": "alpha/c", "capabilities": {"context_tokens": 200_000}}],
        vectors=[{"deployment": "alpha/v", "apis": ["embeddings"]}],
        prose=[{"deployment": "alpha/p", "apis": ["completions"]}],
        off=[{"deployment": "alpha/o", "enabled": False}],
    )
    async with serve(alpha=None, config=config) as running:
        listed = await told(running, headers=header)
        assert [model["id"] for model in listed["data"]] == ["claude", MODEL, "off"]  # a fallback may answer the last
        assert await one(running, "claude", headers=header) == {
            "type": "model",
            "id": "claude",
            "display_name": "claude",
            "created_at": "1970-01-01T00:00:00Z",
            "lifecycle": "active",
            "max_input_tokens": 200_000,
            "max_tokens": None,
        }
    assert {name: value for name, value in listed.items() if name != "data"} == {
        "has_more": False,
        "first_id": "claude",
        "last_id": "off",
    }


@pytest.mark.parametrize(
    ("query", "expected", "has_more"),
    [
        ("", "abcd", False),
        ("?limit=2", "ab", True),
        ("?limit=2&after_id=b", "cd", False),
        ("?limit=2&after_id=a", "bc", True),
        ("?after_id=d", "", False),
        ("?limit=2&before_id=d", "bc", True),
        ("?limit=2&before_id=c", "ab", False),
        ("?before_id=a", "", False),
    ],
)
async def test_anthropics_list_comes_in_pages(serve: Serve, query: str, expected: str, has_more: bool) -> None:
    config = client(models=list("abcd")) | serving(**{name: ["alpha/m"] for name in "abcd"})
    async with serve(alpha=None, config=config, key=KEY) as running:
        page = await told(running, f"/v1/models{query}", headers={**keyed(), **ANTHROPIC})
    assert "".join(model["id"] for model in page["data"]) == expected
    assert page["has_more"] is has_more
    assert (page["first_id"], page["last_id"]) == ((expected[0], expected[-1]) if expected else (None, None))


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=-1", "after_id=nobody", "before_id="])
async def test_a_page_that_is_not_there_is_refused(serve: Serve, query: str) -> None:
    async with serve(alpha=None) as running, running.get(f"/v1/models?{query}", headers=ANTHROPIC) as response:
        assert response.status == 400
        assert query.partition("=")[0] in await response.text()


async def test_a_deployment_that_is_named_directly_costs_what_is_configured(serve: Serve) -> None:
    as_another = {**priced("alpha/a", 7, 7), "as": "another"}
    config = serving(first=[as_another], second=[priced("alpha/a", 1, 2, context_tokens=32_000)])
    async with serve(alpha=None, config=config) as running:
        model = await told(running, "/v1/models/alpha/a")
        async with running.chat(model="alpha/a") as response:
            assert float(response.headers["x-holeshot-cost-usd"]) > 0
        assert (await running.call())["cost_usd"] > 0
    assert (model["context_length"], model["pricing"]["prompt"]) == (32_000, "0.000001")


async def test_messages_are_also_below_foundrys_path(serve: Serve) -> None:
    async with serve(alpha=None, beta=None, config=client()) as running:
        body = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "stream": True}
        url = f"{running.url}/anthropic/v1/messages"
        for _ in range(2):  # the first by aiohttp's router, the second past it
            async with running.http.post(url, json=body, headers={**keyed(), "x-holeshot-mode": "race"}) as response:
                assert response.status == 200, await response.text()
                assert b"message_stop" in await response.read()
        async with running.http.post(f"{url}/count_tokens", json=body, headers=keyed()) as response:
            assert (response.status, "input_tokens" in await response.json()) == (200, True)
        async with running.http.post(url, json=body) as response:
            assert (response.status, (await response.json())["error"]["type"]) == (401, "authentication_error")
        async with running.http.post(url, json={**body, "max_tokens": "x"}, headers=keyed()) as response:
            assert (response.status, (await response.json())["type"]) == (400, "error")


async def test_openais_client_finds_responses_below_the_path_of_azure(serve: Serve) -> None:
    async with serve(alpha=None, config=client()) as running:
        url = f"{running.url}/openai/v1/responses"
        for body in ({"input": "Hi"}, {"input": "Hi", "stream": True}):
            async with running.http.post(url, json={"model": MODEL, **body}, headers=keyed()) as response:
                assert response.status == 200, await response.text()
                assert "output_text" in await response.text()
        async with running.http.post(url, json={"model": MODEL, "input": "Hi"}) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
async def test_a_client_of_litellms_proxy_needs_no_version_in_its_base_url(serve: Serve, path: str) -> None:
    async with serve(alpha=None, config=client()) as running:
        asked = {"input": "Hi"} if path == "/responses" else {"messages": [{"role": "user", "content": "Hi"}]}
        for stream in (False, True):
            body = {"model": MODEL, "stream": stream, **asked}
            async with running.http.post(running.url + path, json=body, headers=keyed()) as response:
                assert (response.status, "Hello" in await response.text()) == (200, True)
        async with running.http.post(running.url + path, json={"model": MODEL, **asked}) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (401, "invalid_api_key")
        listed = await told(running, "/models", headers=keyed())
        assert listed == await told(running, headers=keyed())
        assert await told(running, f"/models/{MODEL}", headers=keyed()) in listed["data"]


async def test_groqs_sdk_finds_its_paths_whatever_its_base_url(serve: Serve) -> None:
    async with serve(alpha=None, beta=None, config=client()) as running:
        mine = keyed()
        listed = await told(running, "/openai/v1/models", headers=mine)
        assert listed == await told(running, headers=mine)
        assert await told(running, f"/openai/v1/models/{MODEL}", headers=mine) in listed["data"]
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "race": {"mode": "race"}}
        url = f"{running.url}/openai/v1/chat/completions"
        for _ in range(2):  # the first by aiohttp's router, the second past it
            async with running.http.post(url, json=body, headers=mine) as response:
                assert response.status == 200, await response.text()
                assert response.headers["x-holeshot-launched"] == "2"
        async with running.http.post(url, json=body) as response:
            assert response.status == 401
            assert (await response.json())["error"]["code"] == "invalid_api_key"
