"""Which headers cross the gateway: by a list, in both directions."""

from typing import Any

import pytest
from multidict import CIMultiDict

from providers.simulator import Headers, Raw, answer
from tests.app.gateway.apis.test_dialects import MESSAGE_BYTES
from tests.app.gateway.running_gateway import MODEL, Serve

SENT = {
    "authorization": "Bearer the-clients-own",
    "x-api-key": "the-clients-own",
    "cookie": "session=the-clients-own",
    "x-forwarded-for": "203.0.113.7",
    "x-custom": "private",
    "user-agent": "their-agent/1.0",
    "accept-encoding": "br",
    "openai-organization": "org-of-the-client",
    "x-holeshot-tags": "a=b",
    "openai-beta": "assistants=v2",
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "tools",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}
PASSED = {name: SENT[name] for name in ("openai-beta", "traceparent")}  # to OpenAI's APIs
ASKED: dict[str, Any] = {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
OURS = {"host", "accept", "authorization", "content-type", "content-length", "accept-encoding", "user-agent"}


async def test_the_upstream_sees_its_own_key_and_the_headers_on_the_list(serve: Serve) -> None:
    async with serve(alpha=None, beta=None) as running:
        running.answer_once_all_are_asked()
        async with running.chat(SENT) as response:
            assert response.status == 200
        for name, provider in running.providers.items():
            [received] = provider.received
            assert received.headers["authorization"] == f"Bearer upstream-{name}-secret"
            assert received.headers["accept-encoding"] == "identity"
            assert received.headers["user-agent"] == "holeshot"
            assert {key: received.headers.get(key) for key in PASSED} == PASSED
            assert received.headers.keys() <= OURS | PASSED.keys()
            assert "the-clients-own" not in str(received)


async def test_what_a_client_says_in_several_lines_of_a_header_is_said_in_one(serve: Serve) -> None:
    lines = (("openai-beta", "one"), ("openai-beta", "two"))
    async with serve() as running:
        async with running.chat(CIMultiDict(lines)) as response:
            assert response.status == 200
        [received] = running["alpha"].received
    assert received.headers["openai-beta"] == "one, two"


@pytest.mark.parametrize(
    ("api", "path", "body"),
    [
        ("messages", "/v1/messages", ASKED),
        ("messages", "/v1/chat/completions", {"messages": ASKED["messages"]}),
        ("chat", "/v1/messages", ASKED),
        ("chat", "/v1/chat/completions", {"messages": ASKED["messages"]}),
        ("responses", "/v1/responses", {"input": "Hi"}),
        ("embeddings", "/v1/embeddings", {"input": "Hi"}),
    ],
)
async def test_a_vendors_headers_go_to_that_vendors_api_alone(
    serve: Serve, api: str, path: str, body: dict[str, Any]
) -> None:
    config = {"providers": {"alpha": {"apis": [api]}}}
    sent = {"openai-beta": "theirs", "anthropic-beta": "theirs", "x-goog-user-project": "theirs"}
    async with serve(alpha=[Raw(MESSAGE_BYTES)] if api == "messages" else None, config=config) as running:
        async with running.post({**body, "model": MODEL}, path=path, headers=sent) as response:
            await response.read()
        [received] = running["alpha"].received
    own = "anthropic-beta" if api == "messages" else "openai-beta"
    assert sent.keys() & received.headers.keys() == {own}


async def test_embeddings_send_no_more_than_that(serve: Serve) -> None:
    async with serve() as running:
        async with running.post({"model": MODEL, "input": "x"}, path="/v1/embeddings", headers=SENT) as response:
            assert response.status == 200
        [received] = running["alpha"].received
    assert received.headers["authorization"] == "Bearer upstream-alpha-secret"
    assert received.headers.keys() <= OURS | PASSED.keys()


async def test_a_provider_gets_the_headers_its_operator_configured(serve: Serve) -> None:
    provider = {"organization": "org-ours", "headers": {"x-title": "race", "openai-beta": "ours"}}
    async with serve(config={"providers": {"alpha": provider}}) as running:
        async with running.chat(SENT) as response:
            assert response.status == 200
        headers = running["alpha"].received[0].headers
    assert (headers["openai-organization"], headers["x-title"], headers["openai-beta"]) == ("org-ours", "race", "ours")


async def test_the_client_sees_no_upstream_header_but_those_on_the_list(serve: Serve) -> None:
    upstream = {
        "set-cookie": "session=upstream",
        "server": "secret-server/1.0",
        "x-request-id": "req-1",
        "x-ratelimit-remaining-tokens": "99",
        "x-internal-node": "10.0.0.1",
        "openai-organization": "org-ours",
        "access-control-allow-origin": "*",
        "x-holeshot-provider": "impostor",
    }
    async with serve(alpha=[Headers(upstream), *answer("Hi")]) as running:
        for stream in (False, True):
            async with running.chat(stream=stream) as response:
                await response.read()
            names = {name.lower() for name in response.headers}
            assert response.headers["x-holeshot-upstream-request-id"] == "req-1"
            assert response.headers["x-ratelimit-remaining-tokens"] == "99"
            assert response.headers["x-holeshot-provider"] == "alpha"
            assert "secret-server" not in response.headers["server"]
            foreign = {name for name in names if not name.startswith(("x-holeshot-", "x-ratelimit-"))}
            assert foreign <= {
                "content-type",
                "content-length",
                "transfer-encoding",
                "cache-control",
                "x-accel-buffering",
                "date",
                "server",
                "x-request-id",
                "request-id",
            }
            assert response.headers["x-request-id"] == response.headers["x-holeshot-call-id"]


@pytest.mark.parametrize(
    "path",
    ["/leaderboard", "/health/live", "/health/ready", "/metrics", "/v1/models", "/v1/nothing", "/nothing"],
)
async def test_no_browser_guesses_what_an_answer_is(serve: Serve, path: str) -> None:
    async with serve() as running, running.get(path) as response:
        assert response.headers["x-content-type-options"] == "nosniff"


async def test_no_browser_guesses_what_an_error_of_a_call_is(serve: Serve) -> None:
    async with serve() as running, running.post(b"no JSON") as response:
        assert (response.status, response.headers["x-content-type-options"]) == (400, "nosniff")
