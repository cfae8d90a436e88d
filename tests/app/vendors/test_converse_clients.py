"""Botocore, and so boto3, asks the gateway by Converse in Bedrock's place, and any deployment answers."""

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any, Self

import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError
from botocore.session import get_session

from strict_vendors import Served, running_vendor
from tests.app.gateway.key_desk import sha256
from tests.app.gateway.running_gateway import RunningGateway, serving

Json = dict[str, Any]

KEY = "hs-agent-0123456789abcdef0123456789"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SPEC: Json = {
    "name": "read",
    "description": "Read a file.",
    "inputSchema": {"json": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}},
}
SESSION = get_session()  # it keeps the descriptions of services: each new one reads them from files again
# By seller, the name of a model there.
MODELS = {
    "anthropic": "claude-opus-5-5",
    "bedrock": "us.anthropic.claude-opus-5-5",
    "invoke": "us.anthropic.claude-opus-5-5",
    "openai": "gpt-5.5",
}


class Client:
    """boto3's client of a gateway with one seller."""

    def __init__(self, running: RunningGateway, vendor: Served, key: str = KEY) -> None:
        """Botocore sends a bearer's token over TLS alone: here each request gets the key as a header."""
        self.running, self.vendor = running, vendor
        config = Config(signature_version=UNSIGNED, retries={"total_max_attempts": 1})

        def of_service(name: str) -> Any:
            made = SESSION.create_client(name, region_name="us-east-1", endpoint_url=running.url, config=config)
            made.meta.events.register("before-call", lambda params, **_: params["headers"].update({"x-api-key": key}))
            return made

        self._boto, self._bedrock = of_service("bedrock-runtime"), of_service("bedrock")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._boto.close()
        self._bedrock.close()

    async def whole(self, *turns: Json, model: str = "us.anthropic.claude-opus-5-5-v1:0", **more: Any) -> Json:
        answer: Json = await asyncio.to_thread(self._boto.converse, modelId=model, messages=list(turns), **more)
        return answer

    async def profiles(self, name: str | None = None) -> list[Json]:
        """Return the profiles, or the one of this name."""
        if name is None:
            told = await asyncio.to_thread(self._bedrock.list_inference_profiles, typeEquals="SYSTEM_DEFINED")
            return list(told["inferenceProfileSummaries"])
        return [await asyncio.to_thread(self._bedrock.get_inference_profile, inferenceProfileIdentifier=name)]

    async def streamed(self, *turns: Json, model: str = "anthropic.claude-opus-5-5-v1", **more: Any) -> list[Json]:
        def read() -> list[Json]:
            answer = self._boto.converse_stream(modelId=model, messages=list(turns), **more)
            with closing(answer["stream"]) as stream:
                return list(stream)

        return await asyncio.to_thread(read)


@asynccontextmanager
async def client_of(tmp_path: Path, seller: str) -> AsyncIterator[Client]:
    async with AsyncExitStack() as stack:
        vendor = await stack.enter_async_context(running_vendor(seller))
        kind = {"bedrock": {"preset": "bedrock_converse"}, "invoke": {"preset": "bedrock_invoke"}}.get(seller, {})
        providers = {seller: {"base_url": vendor.base_url, "api_key": vendor.key, **kind}}
        models = {"claude-opus-5-5": {"deployments": [f"{seller}/{MODELS[seller]}"]}}
        clients = {"agent": {"key_sha256": sha256(KEY)}}
        running = await stack.enter_async_context(
            serving(tmp_path, {"unused": None}, providers=providers, models=models, clients=clients)
        )
        yield stack.enter_context(Client(running, vendor))
        assert [each for each in vendor.refusals if each.rule != "as asked for"] == [], vendor.said


def user(text: str, *more: Json) -> Json:
    return {"role": "user", "content": [{"text": text}, *more]}


def joined(events: list[Json], named: Callable[[Json], Any]) -> str:
    deltas = (event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event)
    return "".join(filter(None, map(named, deltas)))


@pytest.mark.parametrize("seller", MODELS)
async def test_a_client_of_converse_is_answered_by_any_seller(tmp_path: Path, seller: str) -> None:
    async with client_of(tmp_path, seller) as client:
        inference = {"maxTokens": 200, "stopSequences": ["STOP"]} if seller != "openai" else {"maxTokens": 200}
        system = [{"text": "Be brief."}]
        every: list[Json] = [{}, {"inferenceConfig": inference, "system": system}]
        for more in every:
            answer = await client.whole(user("say: well"), **more)
            message = answer["output"]["message"]
            assert (message["role"], message["content"][-1]) == ("assistant", {"text": "well"})
            assert (answer["stopReason"], answer["usage"]["outputTokens"] > 0) == ("end_turn", True)
            assert answer["metrics"]["latencyMs"] >= 0
            events = await client.streamed(user("say: well, well"), **more)
            assert joined(events, lambda delta: delta.get("text")) == "well, well"
            assert [next(iter(event)) for event in events[-2:]] == ["messageStop", "metadata"]
            assert events[0] == {"messageStart": {"role": "assistant"}}
            assert events[-2]["messageStop"]["stopReason"] == "end_turn"
            assert events[-1]["metadata"]["usage"]["outputTokens"] > 0


@pytest.mark.parametrize("seller", MODELS)
async def test_a_tool_is_called_and_its_result_is_read(tmp_path: Path, seller: str) -> None:
    async with client_of(tmp_path, seller) as client:
        tools: Json = {"toolConfig": {"tools": [{"toolSpec": SPEC}]}}
        asked = user('call: read {"path": "a"}')
        answer = await client.whole(asked, **tools)
        assert answer["stopReason"] == "tool_use"
        said = answer["output"]["message"]
        [call] = [block["toolUse"] for block in said["content"] if "toolUse" in block]
        assert (call["name"], call["input"]) == ("read", {"path": "a"})
        events = await client.streamed(asked, **tools)
        [start] = [event["contentBlockStart"]["start"]["toolUse"] for event in events if "contentBlockStart" in event]
        assert start["name"] == "read"
        assert joined(events, lambda delta: delta.get("toolUse", {}).get("input")).replace(" ", "") == '{"path":"a"}'
        result = {"toolUseId": call["toolUseId"], "content": [{"json": {"a": 1}}], "status": "error"}
        answer = await client.whole(asked, said, {"role": "user", "content": [{"toolResult": result}]}, **tools)
        assert answer["stopReason"] == "end_turn"
        assert '{"a":1}' in re.sub(r"[\\ ]", "", str(client.vendor.seen[-1].body))


@pytest.mark.parametrize("seller", ["anthropic", "bedrock", "invoke"])
async def test_thoughts_are_told_and_come_back_as_they_were_signed(tmp_path: Path, seller: str) -> None:
    thinking: Json = {
        "additionalModelRequestFields": {"thinking": {"type": "adaptive"}},
        "inferenceConfig": {"maxTokens": 99},
    }
    asked = user("think: hm\nsay: well")
    async with client_of(tmp_path, seller) as client:
        answer = await client.whole(asked, **thinking)
        [thought, said] = answer["output"]["message"]["content"]
        own = thought["reasoningContent"]["reasoningText"]
        assert (bool(own["signature"]), said) == (True, {"text": "well"})
        events = await client.streamed(asked, **thinking)
        reasoning = joined(events, lambda delta: delta.get("reasoningContent", {}).get("text"))
        assert reasoning == own["text"]
        assert joined(events, lambda delta: delta.get("reasoningContent", {}).get("signature"))
        await client.whole(asked, answer["output"]["message"], user("say: again"), **thinking)
        assert own["signature"] in str(client.vendor.seen[-1].body)


async def test_files_marks_and_formats_are_those_of_messages(tmp_path: Path) -> None:
    async with client_of(tmp_path, "anthropic") as client:
        image = {"image": {"format": "png", "source": {"bytes": PIXEL}}}
        text = {"document": {"format": "md", "name": "notes", "source": {"bytes": b"# Notes"}}}
        mark = {"cachePoint": {"type": "default", "ttl": "1h"}}
        schema = '{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}'
        form = {"type": "json_schema", "structure": {"jsonSchema": {"schema": schema}}}
        answer = await client.whole(
            user('data: {"a": "b"}', image, text, mark),
            system=[{"text": "Be brief."}, {"cachePoint": {"type": "default"}}],
            toolConfig={"tools": [{"toolSpec": SPEC}, {"cachePoint": {"type": "default"}}], "toolChoice": {"auto": {}}},
            outputConfig={"textFormat": form},
            requestMetadata={"team": "a"},
        )
        assert answer["output"]["message"]["content"][-1]["text"].replace(" ", "") == '{"a":"b"}'
        assert answer["ResponseMetadata"]["HTTPHeaders"]["x-holeshot-ignored"] == "requestMetadata"
        body = client.vendor.seen[-1].body
        assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
        assert body["tools"][0]["cache_control"] == {"type": "ephemeral"}
        [_, picture, notes] = body["messages"][0]["content"]
        assert base64.b64decode(picture["source"]["data"]) == PIXEL
        assert notes["source"] == {"type": "text", "media_type": "text/plain", "data": "# Notes"}
        assert (notes["title"], notes["cache_control"]) == ("notes", {"type": "ephemeral", "ttl": "1h"})


async def test_a_document_s_name_which_converse_demands_keeps_no_other_model_out(tmp_path: Path) -> None:
    async with running_vendor("openai") as vendor:
        providers = {"openai": {"base_url": vendor.base_url, "api_key": vendor.key}}
        models = {"gpt-5": {"deployments": ["openai/gpt-5"]}}
        document = {"document": {"format": "txt", "name": "notes", "source": {"bytes": "aGVsbG8="}}}
        asked = {"messages": [{"role": "user", "content": [document, {"text": "say: well"}]}]}
        async with (
            serving(tmp_path, {"unused": None}, providers=providers, models=models) as running,
            running.post(asked, path="/model/gpt-5/converse") as response,
        ):
            assert response.status == 200, await response.text()
            assert "title" in response.headers["x-holeshot-dropped"]
        assert vendor.refusals == [], vendor.said
        assert "hello" in str(vendor.seen[-1].body)


async def test_errors_are_those_that_boto3_knows(tmp_path: Path) -> None:
    async with client_of(tmp_path, "anthropic") as client:
        with pytest.raises(ClientError, match="claude-none") as raised:
            await client.whole(user("say: well"), model="anthropic.claude-none")
        assert raised.value.response["Error"]["Code"] == "ResourceNotFoundException"
        guarded: Json = {"guardrailIdentifier": "g", "guardrailVersion": "1"}
        with pytest.raises(ClientError, match="guardrailConfig") as raised:
            await client.whole(user("say: well"), guardrailConfig=guarded)
        assert raised.value.response["Error"]["Code"] == "ValidationException"
        stored = {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://a/b"}}}}
        with pytest.raises(ClientError, match="S3") as raised:
            await client.whole(user("say: well", stored))
        assert raised.value.response["Error"]["Code"] == "ValidationException"
        with pytest.raises(EventStreamError, match="modelStreamErrorException"):
            await client.streamed(user("cut: now\nsay: well, well, well"))
        with Client(client.running, client.vendor, "hs-wrong") as wrong, pytest.raises(ClientError) as raised:
            await wrong.whole(user("say: well"))
        assert raised.value.response["Error"]["Code"] == "UnrecognizedClientException"
        with pytest.raises(ClientError) as raised:
            await client.whole(user("fail: 429"))
        assert raised.value.response["Error"]["Code"] == "ThrottlingException"


async def test_each_model_is_a_profile_by_any_of_its_names(tmp_path: Path) -> None:
    async with client_of(tmp_path, "anthropic") as client:
        listed = {each["inferenceProfileId"]: each["status"] for each in await client.profiles()}
        assert listed["claude-opus-5-5"] == "ACTIVE"
        for name in ("claude-opus-5-5", "us.anthropic.claude-opus-5-5-v1:0"):
            [found] = await client.profiles(name)
            assert found["models"] == [{"modelArn": "arn:aws:bedrock:::foundation-model/anthropic.claude-opus-5-5"}]
        with pytest.raises(ClientError, match="claude-none") as raised:
            await client.profiles("claude-none")
        assert raised.value.response["Error"]["Code"] == "ResourceNotFoundException"
        with Client(client.running, client.vendor, "hs-wrong") as wrong, pytest.raises(ClientError) as raised:
            await wrong.profiles()
        assert raised.value.response["Error"]["Code"] == "UnrecognizedClientException"
