"""Vertex AI behind litellm, with a service account."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from providers import LiteLLM, LiteLLMUpstream, Request
from providers.simulator import ProviderTally, Visit, serve
from tests.app.providers.families import VERTEX

TOKEN = "the-token-of-an-hour"


class Google:
    """Google's token endpoint and Vertex AI, on one server."""

    def __init__(self) -> None:
        self.tally = ProviderTally()
        self.tokens = 0
        self.keys: list[str | None] = []
        self.paths: list[str] = []

    async def token(self, _: web.Request) -> web.Response:
        self.tokens += 1
        return web.json_response({"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.keys.append(request.headers.get(VERTEX.key_header))
        self.paths.append(request.rel_url.raw_path)

        async def perform(_: Visit) -> web.StreamResponse:
            return web.Response(body=VERTEX.answer(), headers={"content-type": VERTEX.content_type})

        return await self.tally.answer(perform)


@pytest.fixture
async def litellm() -> AsyncIterator[LiteLLM]:
    library = LiteLLM()
    yield library
    await library.aclose()


async def test_a_service_account_s_token_is_fetched_once_for_many_calls(
    litellm: LiteLLM, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    google = Google()
    routes = [web.post("/token", google.token), web.post("/{path:.*}", google.answer)]
    async with serve(routes, google.tally) as base_url:
        root = base_url.removesuffix("/v1")
        key = rsa.generate_private_key(65537, 2048)
        account = {
            "type": "service_account",
            "project_id": "p1",
            "private_key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
            "client_email": "gateway@p1.example",
            "token_uri": f"{root}/token",
        }
        (tmp_path / "account.json").write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
        monkeypatch.setenv("VERTEXAI_PROJECT", "p1")
        monkeypatch.setenv("VERTEXAI_LOCATION", "us-central1")
        upstream = LiteLLMUpstream(litellm, provider="vertex", litellm_prefix="vertex_ai", base_url=root)
        for _ in range(3):
            messages = msgspec.Raw(b'[{"role":"user","content":"hi"}]')
            exchange = await upstream.stream(Request(VERTEX.model, {"messages": messages}))
            assert b"Hel" in await exchange.read()
            while await exchange.read():
                pass
        await upstream.aclose()
    assert google.tokens == 1
    assert google.paths == [VERTEX.path] * 3
    assert google.keys == [VERTEX.key_value.format(key=TOKEN)] * 3
