"""Web pages of the configured origins may call /v1 with a key of their own; no other page, and nothing else."""

import asyncio
from typing import Any

import pytest

from providers.simulator import Status, error
from tests.app.gateway.access.test_admission import clients, key_of
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, chat_body, read
from tests.app.gateway.watching.test_refusals import WRONG

PAGE, OTHER_PAGE = "https://chat.example.com", "http://localhost:5173"
EVIL = "https://evil.example"
ALLOW = "access-control-allow-origin"
NEVER = "access-control-allow-credentials"
OF_OPERATORS = ("/metrics", "/leaderboard", "/health/live", "/health/ready", "/api/x", "/admin/keys")


def config(**more: Any) -> dict[str, Any]:
    return {**clients(plain={}, admin={"admin": True}), "cors": [PAGE, OTHER_PAGE], **more}


def asking(origin: str = PAGE, *fields: str, method: str = "POST") -> dict[str, str]:
    """Return the headers with which a browser asks first."""
    asked = {"origin": origin, "access-control-request-method": method}
    return asked | ({"access-control-request-headers": ", ".join(fields)} if fields else {})


def cors_of(response: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items() if name.lower().startswith("access-")}


def options(running: RunningGateway, path: str, headers: dict[str, str]) -> Any:
    return running.http.options(running.url + path, headers=headers)


@pytest.mark.parametrize("origin", [PAGE, OTHER_PAGE])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/v1/responses/x", "/v1/nowhere", "/v2/rerank"])
async def test_a_browser_that_asks_first_needs_no_key(serve: Serve, origin: str, path: str) -> None:
    async with serve(config=config()) as running, options(running, path, asking(origin)) as response:
        assert (response.status, await response.read()) == (204, b"")
        assert cors_of(response) == {
            ALLOW: origin,
            "access-control-allow-methods": "GET, POST, DELETE",
            "access-control-max-age": "7200",
        }
        assert response.headers["vary"] == "origin"


async def test_a_page_may_send_what_sdks_send_and_nothing_that_proxies_say(serve: Serve) -> None:
    wanted = (
        *("authorization", "content-type", "X-Api-Key", "x-holeshot-race", "x-stainless-os", "openai-beta"),
        *("anthropic-version", "anthropic-dangerous-direct-browser-access", "x-request-id"),
    )
    refused = ("x-forwarded-for", "cookie", "x-evil", "x-holeshot-\u00fc", "forwarded", "", "anthropic-a b")
    async with (
        serve(config=config()) as running,
        options(running, "/v1/chat/completions", asking(PAGE, *wanted, *refused)) as response,
    ):
        assert response.headers["access-control-allow-headers"] == ", ".join(wanted).lower()


@pytest.mark.parametrize(
    "origin", [EVIL, "null", PAGE + ".evil.example", PAGE + ":8443", "http://chat.example.com", ""]
)
async def test_other_pages_are_not_let_in(serve: Serve, origin: str) -> None:
    async with serve(config=config()) as running:
        async with options(running, "/v1/chat/completions", asking(origin)) as response:
            assert response.status == 405
            assert cors_of(response) == {}
        async with running.chat({"origin": origin, **key_of("plain")}) as response:
            assert response.status == 200  # as without a browser; the page cannot read it
            assert cors_of(response) == {}
            assert response.headers["vary"] == "origin"


@pytest.mark.parametrize("path", OF_OPERATORS)
async def test_what_is_for_operators_is_for_no_page(serve: Serve, path: str) -> None:
    async with serve(config=config()) as running:
        async with options(running, path, asking(method="GET")) as response:
            assert response.status in {404, 405}
            assert cors_of(response) == {}
        async with running.get(path, headers={"origin": PAGE, **key_of("admin")}) as response:
            assert cors_of(response) == {}
            assert "vary" not in response.headers


@pytest.mark.parametrize("path", ["/v1/../metrics", "/v1/%2e%2e/metrics", "//metrics", "/v1//../metrics", "/V1/models"])
async def test_no_spelling_of_a_path_opens_what_is_for_operators(serve: Serve, path: str) -> None:
    async with serve(config=config()) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(running.url.rpartition(":")[2]))
        key = key_of("admin")["authorization"]
        head = f"GET {path} HTTP/1.1\r\nhost: x\r\norigin: {PAGE}\r\nauthorization: {key}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode())
        answer = await reader.read()
        writer.close()
    assert not (b" 200 OK" in answer and ALLOW.encode() in answer.lower())


@pytest.mark.parametrize("stream", [False, True])
async def test_a_page_reads_its_answer_and_the_gateways_headers(serve: Serve, stream: bool) -> None:
    async with (
        serve(config=config()) as running,
        running.chat({"origin": PAGE, **key_of("plain")}, stream=stream) as response,
    ):
        assert response.status == 200
        assert await response.read()
        found = cors_of(response)
        assert (found.pop(ALLOW), response.headers["vary"]) == (PAGE, "origin")
        shown = found.pop("access-control-expose-headers").split(", ")
        assert {"x-holeshot-call-id", "x-holeshot-provider", "x-holeshot-ttft-ms", "x-request-id"} <= set(shown)
        assert set(shown) <= {name.lower() for name in response.headers}
        assert "content-type" not in shown
        assert found == {}


async def test_a_page_reads_relayed_answers_and_comments_before_streams(serve: Serve) -> None:
    async with (
        serve(config=config(models={MODEL: {"keepalive_s": 0.001}})) as running,
        running.chat({"origin": PAGE, **key_of("plain")}, stream=True) as response,
        running.post({"model": MODEL, "input": "x"}, path="/v1/embeddings", headers={"origin": PAGE, **key_of("plain")})
        as relayed,
        running.get("/v1/models", headers={"origin": PAGE, **key_of("plain")}) as models,
    ):  # fmt: skip
        assert [each.headers[ALLOW] for each in (response, relayed, models)] == [PAGE] * 3


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, chat_body(), 401),
        (WRONG, chat_body(), 401),
        (key_of("plain"), chat_body(model="nobody"), 404),
        (key_of("plain"), b" " * 300_000, 413),
        (key_of("plain"), b"no json", 400),
        ({**key_of("plain"), "content-type": "text/plain"}, b"x", 415),
    ],
    ids=str,
)
async def test_a_page_reads_why_it_is_refused(serve: Serve, headers: dict[str, str], body: Any, status: int) -> None:
    async with (
        serve(config=config(max_body_mb=0.25)) as running,
        running.post(body, headers={"origin": PAGE, **headers}) as response,
    ):
        assert (response.status, response.headers[ALLOW]) == (status, PAGE)
        assert (await response.json())["error"]["message"]


async def test_a_page_reads_when_it_may_come_again(serve: Serve) -> None:
    script = [Status(429, error("slow down"), {"retry-after": "7"})]
    async with (
        serve(alpha=script, config=config()) as running,
        running.chat({"origin": PAGE, **key_of("plain")}) as response,
    ):
        assert (response.status, response.headers[ALLOW]) == (429, PAGE)
        assert "retry-after" in response.headers["access-control-expose-headers"].split(", ")


async def test_an_answer_that_waited_is_readable_too(serve: Serve) -> None:
    async with serve(config=config()) as running:
        for _ in range(6):
            async with running.get("/v1/models", headers={"origin": PAGE, **WRONG}) as response:
                assert (response.status, response.headers[ALLOW]) == (401, PAGE)
        assert running.gateway.context.wrong_keys.delayed == 1


async def test_no_answer_lets_a_page_use_cookies(serve: Serve) -> None:
    async with serve(config=config()) as running:
        for headers in ({"origin": PAGE, "cookie": "a=b"}, {"origin": PAGE, "cookie": "a=b", **key_of("plain")}):
            async with running.chat(headers) as response:
                assert NEVER not in response.headers
        async with options(running, "/v1/models", {**asking(), "cookie": "a=b"}) as response:
            assert NEVER not in response.headers


async def test_options_that_are_no_preflight_are_refused_as_before(serve: Serve) -> None:
    async with serve(config=config()) as running, options(running, "/v1/models", {"origin": PAGE}) as response:
        assert (response.status, response.headers["allow"]) == (405, "GET, HEAD")
        assert response.headers[ALLOW] == PAGE


async def test_by_default_no_page_is_let_in(serve: Serve) -> None:
    async with serve(config=clients(plain={})) as running:
        async with options(running, "/v1/models", asking()) as response:
            assert (response.status, cors_of(response)) == (405, {})
        async with running.chat({"origin": PAGE, **key_of("plain")}) as response:
            assert (response.status, cors_of(response)) == (200, {})
            assert "vary" not in response.headers


async def test_a_reload_lets_a_page_in_and_out(serve: Serve) -> None:
    async with serve(config=clients(plain={})) as running:
        for origins, status in (([PAGE], 204), ([], 405)):
            running.gateway.reload(read({**running.config, "cors": origins}, running.folder))
            async with options(running, "/v1/models", asking()) as response:
                assert response.status == status
