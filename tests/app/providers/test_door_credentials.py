"""Without a key a door's credentials are found by the field's libraries, in a thread."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from providers import (
    Credentials,
    ErrorKind,
    LiteLLM,
    Request,
    Setup,
    Upstream,
    UpstreamError,
    load_catalog,
    open_upstream,
)
from providers.dialects import MESSAGES
from providers.simulator import ProviderTally, serve
from tests.app.providers.test_bedrock_converse import ACCESS, credentials
from tests.app.providers.test_vertex_openai import write_account

__all__ = ["credentials"]

REQUEST = Request(
    "claude-opus-4-6",
    {"messages": msgspec.Raw(b'[{"role":"user","content":"hi"}]'), "max_tokens": msgspec.Raw(b"10")},
    dialect=MESSAGES,
)
ANSWER = {"type": "message", "role": "assistant", "model": "m", "id": "msg_1", "stop_reason": "end_turn"}
WHOLE = {**ANSWER, "content": [{"type": "text", "text": "Hi"}], "usage": {"input_tokens": 1, "output_tokens": 1}}


class Server:
    """A cloud, and its token servers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.refusal: tuple[int, str] | None = None

    async def answer(self, request: web.Request) -> web.Response:
        await request.read()
        if self.refusal is not None:
            return web.json_response({"message": self.refusal[1]}, status=self.refusal[0])
        self.asked.append((request.rel_url.raw_path, {name.lower(): value for name, value in request.headers.items()}))
        return web.json_response(WHOLE)

    async def token(self, _: web.Request) -> web.Response:
        return web.json_response({"access_token": "token-of-google", "expires_in": 3600, "token_type": "Bearer"})


@asynccontextmanager
async def opened(preset: str, path: str, key: str | None = None) -> AsyncIterator[tuple[Server, Upstream, str]]:
    server = Server()
    routes = [web.post("/token", server.token), web.post("/{path:.*}", server.answer)]
    async with serve(routes, ProviderTally()) as base_url:
        root = base_url.removesuffix("/v1")
        setup = Setup(name="door", vendor=load_catalog()[preset], base_url=root + path)
        upstream = open_upstream(setup, Credentials(keys=[key] if key else []), litellm=LiteLLM())
        try:
            yield server, upstream, root
        finally:
            await upstream.aclose()


async def ask(upstream: Upstream) -> bytes:
    exchange = await upstream.stream(REQUEST)
    said = b""
    while data := await exchange.read():
        said += data
    return said


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize(
    ("preset", "service"),
    [("claude_aws", "aws-external-anthropic"), ("bedrock_mantle", "bedrock-mantle"), ("bedrock_invoke", "bedrock")],
)
async def test_aws_s_doors_are_signed_for_their_own_services(preset: str, service: str) -> None:
    async with opened(preset, "/v1") as (server, upstream, _):
        assert upstream.needs_warming
        await upstream.warm_up()
        assert b"Hi" in await ask(upstream)
    path, headers = server.asked[0]
    assert f"Credential={ACCESS}/" in headers["authorization"]
    assert f"/eu-west-1/{service}/aws4_request" in headers["authorization"]
    assert path == ("/v1/model/claude-opus-4-6/invoke-with-response-stream" if service == "bedrock" else "/v1/messages")
    assert "x-api-key" not in headers


async def test_a_key_of_aws_s_doors_is_sent_as_their_sdk_sends_it() -> None:
    for preset, name, value in (
        ("claude_aws", "x-api-key", "k"),
        ("bedrock_mantle", "authorization", "Bearer k"),
        ("bedrock_invoke", "authorization", "Bearer k"),
        ("foundry", "x-api-key", "k"),
    ):
        async with opened(preset, "/v1", "k") as (server, upstream, _):
            await ask(upstream)
        assert server.asked[0][1][name] == value, preset


async def test_google_s_doors_have_tokens_of_google_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for preset, path, asked in (
        ("vertex", "/v1/projects/p/locations/l", "/publishers/anthropic/models/claude-opus-4-6:streamRawPredict"),
        ("claude_google", "/v1/projects/p/locations/global/workspaces/w/invoke/v1", "/messages"),
    ):
        async with opened(preset, path) as (server, upstream, root):
            write_account(tmp_path / "account.json", "gateway@p1.example", root)
            monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
            await ask(upstream)
        assert server.asked[0][0] == path + asked
        assert server.asked[0][1]["authorization"] == "Bearer token-of-google"


IDENTITY = """
class DefaultAzureCredential:
    def get_token(self, *scopes):
        assert scopes == ("https://ai.azure.com/.default",)
        return Token()


class Token:
    token, expires_on = "token-of-entra", 4_000_000_000
"""


async def test_foundry_has_tokens_of_entra_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The library is a stand-in: it is an extra, and asks Microsoft's servers."""
    (tmp_path / "azure").mkdir()
    (tmp_path / "azure" / "__init__.py").touch()
    (tmp_path / "azure" / "identity.py").write_text(IDENTITY)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("azure", "azure.identity"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    async with opened("foundry", "/anthropic/v1") as (server, upstream, _):
        await ask(upstream)
    assert server.asked[0][0] == "/anthropic/v1/messages"
    assert server.asked[0][1]["authorization"] == "Bearer token-of-entra"
    for name in ("azure", "azure.identity"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.parametrize(
    "refusal",
    [
        (403, "User: arn:aws:iam::1:user/a is not authorized to perform: bedrock:CountTokens on resource: x"),
        (400, "The provided model doesn't support counting tokens."),
        (400, "The provided model identifier is invalid."),
    ],
)
async def test_where_bedrock_counts_no_tokens_it_is_no_fault_of_key_or_model(refusal: tuple[int, str]) -> None:
    """CountTokens is a right of its own; the gateway estimates then, and asks for answers as before."""
    async with opened("bedrock_invoke", "", key="k") as (server, upstream, _):
        server.refusal = refusal
        with pytest.raises(UpstreamError) as caught:
            await upstream.send("messages/count_tokens", REQUEST)
        assert caught.value.kind is ErrorKind.NO_SUCH_API
