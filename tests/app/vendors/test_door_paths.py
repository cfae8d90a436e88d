"""Clients of Claude at clouds ask the gateway in their place, by their paths, and any deployment answers."""

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest
from botocore.eventstream import EventStreamBuffer

from strict_vendors import running_vendor
from tests.app.gateway.key_desk import sha256
from tests.app.gateway.running_gateway import serving

Json = dict[str, Any]

MODELS = "/v1/projects/p1/locations/global/publishers/anthropic/models"
# As AnthropicVertex and AnthropicBedrock of Anthropic's SDK 2.14 send it: the model is in the address, the version in
# the body.
ASKED: Json = {
    "anthropic_version": "2026-10-21",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "say: well"}],
}
SAID_AND_CUT = [{"role": "user", "content": "cut: now\nsay: well, well, well"}]
AGENT, VIEWER = "hs-agent-0123456789abcdef0123456789", "hs-viewer-0123456789abcdef0123456789"
BEDROCKS: Json = {**ASKED, "anthropic_version": "bedrock-2023-05-31"}  # as AWS' own pages have it


@pytest.mark.parametrize("seller", ["anthropic", "vertex"])
async def test_a_client_of_vertex_ai_s_claude_is_answered_by_any_seller(tmp_path: Path, seller: str) -> None:
    async with running_vendor(seller) as vendor:
        providers = {seller: {"base_url": vendor.base_url, "api_key": vendor.key}}
        models = {"claude-opus-4-6": {"deployments": [f"{seller}/claude-opus-4-6"]}}
        async with serving(tmp_path, {"unused": None}, providers=providers, models=models) as running:
            for name in ("claude-opus-4-6", "claude-opus-4-6@default", "claude-opus-4-6@20260205"):
                async with running.post(ASKED, path=f"{MODELS}/{name}:rawPredict") as response:
                    assert response.status == 200, await response.text()
                    assert (await response.json())["content"][0]["text"] == "well"
            streamed = {**ASKED, "stream": True}
            async with running.post(streamed, path=f"{MODELS}/claude-opus-4-6:streamRawPredict") as response:
                assert response.status == 200, await response.text()
                assert b"event: message_stop" in await response.read()
            for name in ("claude-opus-4-6", "claude-opus-4-6@default", "claude-opus-4-6@20260205"):
                counted = {**{each: ASKED[each] for each in ("anthropic_version", "messages")}, "model": name}
                async with running.post(counted, path=f"{MODELS}/count-tokens:rawPredict") as response:
                    assert (await response.json())["input_tokens"] > 0
            async with running.post(ASKED, path=f"{MODELS}/claude-none:rawPredict") as response:
                assert response.status == 404
                assert (await response.json())["type"] == "error"
        assert vendor.refusals == [], vendor.said


def _read(stream: bytes) -> list[tuple[str, Json]]:
    """Return the messages of a stream as botocore reads them: what each is, and its event or error."""
    buffer = EventStreamBuffer()
    buffer.add_data(stream)
    read: list[tuple[str, Json]] = []
    for message in buffer:
        payload = msgspec.json.decode(message.payload)
        if (kind := message.headers.get(":exception-type")) is None:
            payload = msgspec.json.decode(base64.b64decode(payload["bytes"]))
            kind = payload["type"]
        read.append((kind, payload))
    return read


@pytest.mark.parametrize("seller", ["anthropic", "bedrock_invoke"])
async def test_a_client_of_bedrock_s_claude_is_answered_by_any_seller_in_its_frames(
    tmp_path: Path, seller: str
) -> None:
    async with running_vendor({"bedrock_invoke": "invoke"}.get(seller, seller)) as vendor:
        theirs = "claude-opus-4-6" if seller == "anthropic" else "us.anthropic.claude-opus-4-6-v1:0"
        providers = {seller: {"base_url": vendor.base_url, "api_key": vendor.key}}
        models = {"claude-opus-4-6": {"deployments": [f"{seller}/{theirs}"]}}
        clients = {"agent": {"key_sha256": sha256(AGENT)}, "viewer": {"key_sha256": sha256(VIEWER), "role": "viewer"}}
        async with serving(tmp_path, {"unused": None}, providers=providers, models=models, clients=clients) as running:
            key = {"authorization": f"Bearer {AGENT}"}
            for name in (
                "claude-opus-4-6",
                "anthropic.claude-opus-4-6-v1",
                "us.anthropic.claude-opus-4-6-20260205-v1:0",
                "arn%3Aaws%3Abedrock%3Aus-east-1%3A1234%3Ainference-profile%2Fglobal.anthropic.claude-opus-4-6",
            ):
                async with running.post(ASKED, path=f"/model/{name}/invoke", headers=key) as response:
                    assert response.status == 200, await response.text()
                    assert (await response.json())["content"][0]["text"] == "well"
            # As boto3 1.44.8 says it of a body where its caller names no type.
            bytes_of_boto3, unnamed = msgspec.json.encode(BEDROCKS), {**key, "content-type": "application/octet-stream"}
            for ending in ("invoke", "invoke-with-response-stream"):
                path = f"/model/anthropic.claude-opus-4-6-v1/{ending}"
                async with running.post(bytes_of_boto3, path=path, headers=unnamed) as response:
                    assert response.status == 200, await response.text()
            path = "/model/us.anthropic.claude-opus-4-6/invoke-with-response-stream"
            betas = {"anthropic_beta": ["interleaved-thinking-2025-05-14"]}
            headed = {**key, "anthropic-beta": "interleaved-thinking-2025-05-14"}  # the SDK says them in both places
            async with running.post({**BEDROCKS, **betas}, path=path, headers=headed) as response:
                assert response.headers["content-type"] == "application/vnd.amazon.eventstream"
                kinds = [kind for kind, _ in _read(await response.read())]
                assert (kinds[0], kinds[-1], response.status) == ("message_start", "message_stop", 200)
            signed = {"authorization": "AWS4-HMAC-SHA256 Credential=AKIA/20261130/us-east-1/bedrock/aws4_request"}
            for headers, status, kind in (
                (key, 404, "ResourceNotFoundException"),
                (signed, 401, "UnrecognizedClientException"),
                ({**signed, "x-api-key": AGENT}, 404, "ResourceNotFoundException"),
                ({"authorization": f"Bearer {VIEWER}"}, 403, "AccessDeniedException"),
            ):
                async with running.post(ASKED, path="/model/anthropic.claude-none/invoke", headers=headers) as response:
                    assert (response.status, response.headers["x-amzn-errortype"]) == (status, kind)
                    assert response.headers.get("x-should-retry") == ("false" if status == 401 else None)
                    [(field, said)] = (await response.json()).items()
                    assert (field, "AWS_BEARER_TOKEN_BEDROCK" in said) == ("message", status == 401)
            async with running.post({"max_tokens": 1}, path=path, headers=key) as response:
                assert (response.status, response.headers["x-amzn-errortype"]) == (400, "ValidationException")
            async with running.post({**BEDROCKS, "messages": SAID_AND_CUT}, path=path, headers=key) as response:
                kinds = [kind for kind, _ in _read(await response.read())]
                assert (kinds[0], kinds[-1]) == ("message_start", "modelStreamErrorException"), kinds
        assert vendor.refusals == [], vendor.said
        asked = next(each for each in vendor.seen if "interleaved" in str((each.headers, each.body)))
        said = asked.body.get("anthropic_beta") or asked.headers["anthropic-beta"].split(", ")
        assert said == ["interleaved-thinking-2025-05-14"]


@pytest.mark.parametrize("seller", ["anthropic", "bedrock_invoke", "bedrock_converse"])
async def test_a_client_of_bedrock_s_has_its_prompt_counted(tmp_path: Path, seller: str) -> None:
    """As boto3's ``count_tokens`` asks, which Claude Code does too: a body of InvokeModel's, or Converse's fields."""
    stand_in = {"bedrock_invoke": "invoke", "bedrock_converse": "bedrock"}.get(seller, seller)
    async with running_vendor(stand_in) as vendor:
        theirs = "claude-opus-4-6" if seller == "anthropic" else "us.anthropic.claude-opus-4-6-v1:0"
        providers = {seller: {"base_url": vendor.base_url, "api_key": vendor.key}}
        models = {"claude-opus-4-6": {"deployments": [f"{seller}/{theirs}"]}}
        async with serving(tmp_path, {"unused": None}, providers=providers, models=models) as running:
            tools = [{"name": "f", "input_schema": {"type": "object"}}]
            body = {**BEDROCKS, "tools": tools, "anthropic_beta": ["interleaved-thinking-2025-05-14"]}
            converse: Json = {
                "messages": [{"role": "user", "content": [{"text": "say: well"}]}],
                "system": [{"text": "Be brief."}],
                "toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]},
            }
            packed = base64.b64encode(msgspec.json.encode(body)).decode()
            for given in ({"invokeModel": {"body": packed}}, {"converse": converse}):
                for name in ("anthropic.claude-opus-4-6-v1", "claude-opus-4-6"):
                    path = f"/model/{name}/count-tokens"
                    async with running.post({"input": given}, path=path) as response:
                        assert response.status == 200, await response.text()
                        [(field, tokens)] = (await response.json()).items()
                        assert (field, tokens > 0) == ("inputTokens", True)
                        is_estimated = response.headers.get("x-holeshot-estimated") == "true"
                        assert is_estimated is (seller == "bedrock_converse")
            for wrong in ({}, 5, {"invokeModel": {"body": "%"}}, {"invokeModel": {"body": "Ww=="}}):
                async with running.post({"input": wrong}, path="/model/claude-opus-4-6/count-tokens") as response:
                    assert (response.status, response.headers["x-amzn-errortype"]) == (400, "ValidationException")
        assert vendor.refusals == [], vendor.said


async def test_bedrock_s_names_of_models_are_known_below_anthropic_s_path(tmp_path: Path) -> None:
    async with running_vendor("anthropic") as vendor:
        providers = {"anthropic": {"base_url": vendor.base_url, "api_key": vendor.key}}
        models = {"claude-opus-4-6": {"deployments": ["anthropic/claude-opus-4-6"]}}
        async with serving(tmp_path, {"unused": None}, providers=providers, models=models) as running:
            # As AnthropicBedrockMantle of Anthropic's SDK 2.14 asks, whose base URL ends so.
            asked = {"model": "anthropic.claude-opus-4-6", **ASKED}
            del asked["anthropic_version"]
            async with running.post(asked, path="/anthropic/v1/messages") as response:
                assert response.status == 200, await response.text()
                assert (await response.json())["content"][0]["text"] == "well"
            counted = {name: asked[name] for name in ("model", "messages")}
            async with running.post(counted, path="/anthropic/v1/messages/count_tokens") as response:
                assert (await response.json())["input_tokens"] > 0
            for wrong in ("anthropic.claude-none", 5):
                async with running.post({**asked, "model": wrong}, path="/anthropic/v1/messages") as response:
                    assert response.status in {400, 404}
                    assert (await response.json())["type"] == "error"
        assert vendor.refusals == [], vendor.said
