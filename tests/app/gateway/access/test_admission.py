"""Who may call, and for what: with clients configured, and without."""

import hashlib
from typing import Any

import pytest

from gateway.access.auth import FREE
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, chat_body

KEYS = {"admin": "hs-key-of-the-admin", "plain": "hs-key-of-a-client", "guest": "hs-key-of-a-guest"}


def clients(**rules: dict[str, Any]) -> dict[str, Any]:
    named = {
        name: {"key_sha256": hashlib.sha256(KEYS[name].encode()).hexdigest(), **rule} for name, rule in rules.items()
    }
    return {"clients": named}


def key_of(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[name]}"}


async def status_and_code(response: Any) -> tuple[int, str]:
    async with response as answered:
        return answered.status, (await answered.json())["error"]["code"]


@pytest.mark.parametrize(
    "header",
    [{}, {"authorization": ""}, {"authorization": "Bearer"}, {"authorization": "Basic aHM6"}],
)
async def test_without_a_key_nobody_gets_in(serve: Serve, header: dict[str, str]) -> None:
    async with serve(config=clients(plain={})) as running:
        assert await status_and_code(running.chat(header)) == (401, "invalid_api_key")
        assert await status_and_code(running.get("/v1/models", headers=header)) == (401, "invalid_api_key")
        assert running.requests == 0


async def test_a_key_is_taken_where_anthropics_clients_put_it(serve: Serve) -> None:
    async with serve(config=clients(plain={})) as running:
        async with running.chat({"x-api-key": KEYS["plain"]}) as response:
            assert response.status == 200
        assert await status_and_code(running.chat({"x-api-key": "hs-unknown"})) == (401, "invalid_api_key")


async def test_an_unknown_key_does_not_get_in_and_is_not_repeated(serve: Serve) -> None:
    async with (
        serve(config=clients(plain={})) as running,
        running.chat({"authorization": "Bearer hs-key-of-nobody"}) as response,
    ):
        assert response.status == 401
        assert "nobody" not in await response.text()


async def test_a_known_key_gets_in_and_its_owner_is_in_the_row(serve: Serve) -> None:
    async with serve(config=clients(plain={}, admin={"admin": True})) as running:
        async with running.chat(key_of("plain")) as response:
            assert response.status == 200
        assert (await running.call())["client"] == "plain"


async def test_a_key_opens_only_the_models_it_was_given(serve: Serve) -> None:
    config = clients(plain={"models": ["other"]})
    config["models"] = {"other": {"deployments": ["alpha/o"]}}
    async with serve(config=config) as running:
        assert await status_and_code(running.chat(key_of("plain"))) == (403, "forbidden")
        assert running.requests == 0
        async with running.get("/v1/models", headers=key_of("plain")) as response:
            assert [model["id"] for model in (await response.json())["data"]] == ["other"]
        async with running.chat(key_of("plain"), model="other") as response:
            assert response.status == 200


async def test_a_race_wider_than_the_key_may_start_is_refused(serve: Serve) -> None:
    config = clients(plain={}, admin={"max_width": 3})
    async with serve(alpha=None, beta=None, gamma=None, config=config) as running:
        wide = {"mode": "race", "width": 3}
        assert await status_and_code(running.chat(key_of("plain"), race=wide)) == (403, "forbidden")
        assert running.requests == 0
        async with running.chat(key_of("admin"), race=wide) as response:
            assert response.headers["x-holeshot-launched"] == "3"


async def test_ad_hoc_models_need_a_key_that_may(serve: Serve) -> None:
    async with serve(config=clients(plain={}, admin={"adhoc": True})) as running:
        async with running.chat(key_of("plain"), model="alpha/x") as response:
            error = (await response.json())["error"]
            assert (response.status, error["code"], error["param"]) == (403, "forbidden", "model")
            assert "may not name deployments directly" in error["message"]
        assert await status_and_code(running.chat(key_of("plain"), model="nobody/x")) == (404, "model_not_found")
        assert running.requests == 0
        async with running.chat(key_of("admin"), model="alpha/x") as response:
            assert response.status == 200


@pytest.mark.parametrize("rule", [{"only": ["alpha"]}, {"ignore": ["beta", "gamma"]}], ids=str)
async def test_prompts_are_kept_from_providers_a_client_does_not_want(serve: Serve, rule: dict[str, Any]) -> None:
    async with serve(alpha=None, beta=None, gamma=None, config=clients(plain=rule | {"adhoc": True})) as running:
        for fields in ({}, {"race": "single"}, {"stream": True}, {"model": "alpha/x,beta/x"}):
            async with running.chat(key_of("plain"), **fields) as response:
                assert response.headers["x-holeshot-provider"] == "alpha"
                await response.read()
        async with running.post(
            {"model": MODEL, "input": "x"}, path="/v1/embeddings", headers=key_of("plain")
        ) as response:
            assert response.headers["x-holeshot-provider"] == "alpha"
        assert await status_and_code(running.chat(key_of("plain"), model="beta/x")) == (403, "forbidden")
        assert running["beta"].counts.requests == running["gamma"].counts.requests == 0


@pytest.mark.parametrize("path", ["/metrics", "/leaderboard", f"/leaderboard?model={MODEL}"])
async def test_what_operators_look_at_needs_an_admin(serve: Serve, path: str) -> None:
    async with serve(config=clients(plain={}, admin={"admin": True})) as running:
        assert await status_and_code(running.get(path)) == (401, "invalid_api_key")
        assert await status_and_code(running.get(path, headers=key_of("plain"))) == (403, "forbidden")
        async with running.get(path, headers=key_of("admin")) as response:
            assert response.status == 200


@pytest.mark.parametrize("path", ["/health/live", "/health/ready"])
async def test_health_needs_no_key_and_tells_no_secret(serve: Serve, path: str) -> None:
    async with serve(config=clients(plain={})) as running, running.get(path) as response:
        assert (response.status, (await response.json())["status"]) == (200, "ok")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://127.0.0.1:4000"},
        {"host": "evil.example"},
        {"host": "evil.example:4000"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "192.168.0.1"},
    ],
    ids=str,
)
async def test_without_clients_a_web_page_cannot_spend_the_keys(serve: Serve, headers: dict[str, str]) -> None:
    async with serve() as running:
        assert await status_and_code(running.chat(headers)) == (403, "forbidden")
        for path in ("/v1/models", "/metrics", "/leaderboard"):
            assert await status_and_code(running.get(path, headers=headers)) == (403, "forbidden")
        assert running.requests == 0


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1", "127.1.2.3:80", "[::1]:4000"])
async def test_without_clients_programs_on_this_machine_get_in(serve: Serve, host: str) -> None:
    async with serve() as running, running.chat({"host": host}) as response:
        assert response.status == 200


async def test_with_clients_a_foreign_host_is_fine(serve: Serve) -> None:
    async with (
        serve(config=clients(plain={})) as running,
        running.chat({"host": "llm.example", **key_of("plain")}) as response,
    ):
        assert response.status == 200


async def test_a_form_cannot_be_posted_even_with_a_key(serve: Serve) -> None:
    async with serve(config=clients(plain={})) as running:
        assert await status_and_code(form(running)) == (415, "unsupported_media_type")


def form(running: RunningGateway) -> Any:
    return running.http.post(
        f"{running.url}/v1/chat/completions", data=chat_body() | {"messages": "x"}, headers=key_of("plain")
    )


# An identity proxy before the gateway may put a token of its own into `authorization`.

_OF_A_PROXY = {"authorization": "Bearer eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwczovL2FjY291bnRzLmdvb2dsZS5jb20ifQ.c2ln"}


@pytest.mark.parametrize("name", ["x-api-key", "x-goog-api-key"])
@pytest.mark.parametrize("before", [_OF_A_PROXY, {"authorization": "Bearer of-some-proxy"}])
async def test_a_key_counts_beside_an_authorization_that_is_no_key_of_the_gateway(
    serve: Serve, name: str, before: dict[str, str]
) -> None:
    async with serve(config=clients(plain={})) as running:
        async with running.chat({**before, name: KEYS["plain"]}) as response:
            assert response.status == 200
        assert (await running.call())["client"] == "plain"
        for other in ({}, {name: "hs-unknown"}, {name: ""}):
            assert await status_and_code(running.chat({**before, **other})) == (401, "invalid_api_key")


async def test_the_good_one_of_three_keys_counts(serve: Serve) -> None:
    async with serve(config=clients(plain={})) as running:
        wrong = {"x-api-key": "hs-unknown", **_OF_A_PROXY}
        async with running.chat({**wrong, "x-goog-api-key": KEYS["plain"]}) as response:
            assert response.status == 200
        url = f"/v1beta/models?key={KEYS['plain']}"
        async with running.get(url, headers=_OF_A_PROXY) as response:
            assert response.status == 200


async def test_what_is_a_key_in_authorization_is_not_looked_past(serve: Serve) -> None:
    expired = clients(plain={"expires": "2020-01-01T00:00:00Z"}, admin={"admin": True})
    async with serve(config=expired) as running:
        headers = {**key_of("plain"), "x-api-key": KEYS["admin"]}
        assert await status_and_code(running.chat(headers)) == (401, "key_expired")


async def test_several_wrong_keys_in_one_request_are_one_guess(serve: Serve) -> None:
    async with serve(config=clients(plain={})) as running:
        wrong = {**_OF_A_PROXY, "x-api-key": "hs-one", "x-goog-api-key": "hs-two"}
        for _ in range(FREE):
            assert await status_and_code(running.chat(wrong)) == (401, "invalid_api_key")
        assert running.gateway.context.wrong_keys.delayed == 0
        assert await status_and_code(running.chat(wrong)) == (401, "invalid_api_key")
        assert running.gateway.context.wrong_keys.delayed == 1
