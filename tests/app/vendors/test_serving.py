"""Strict vendors over HTTP: what OpenAI's own SDK does by default works, and what a command prints can be used."""

import asyncio
import json
import signal
import sys
from typing import Any

import aiohttp
import openai
import pytest

from strict_vendors import Served, running_vendor

TOOL: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def sdk(vendor: Served) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=vendor.base_url, api_key=vendor.key, max_retries=0)


def outputs(output: Any) -> list[Any]:
    return [
        {"type": "function_call_output", "call_id": item.call_id, "output": "rain"}
        for item in output
        if item.type == "function_call"
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_openais_guide_to_functions_works_as_it_stands(stream: bool) -> None:
    async with running_vendor("openai") as vendor, sdk(vendor) as client:
        given: list[Any] = [{"role": "user", "content": "weather, in parallel, twice"}]
        said: list[str] = []
        while not said:
            if stream:
                events = await client.responses.create(model="gpt-5", input=given, tools=[TOOL], stream=True)  # type: ignore[list-item] # a plain dict
                response = [event async for event in events][-1].response  # type: ignore[union-attr] # the last one
            else:
                response = await client.responses.create(model="gpt-5", input=given, tools=[TOOL])  # type: ignore[list-item] # likewise
            given += [*response.output, *outputs(response.output)]
            said += [response.output_text] if response.output_text else []
        assert said == ["The tools said: rain"]
        assert len(vendor.seen) == 3
        assert vendor.refusals == [], vendor.said


async def test_a_refusal_is_seen_with_its_rule_and_page() -> None:
    async with running_vendor("openai") as vendor, sdk(vendor) as client:
        with pytest.raises(openai.BadRequestError, match="Use 'max_completion_tokens' instead"):
            await client.chat.completions.create(
                model="gpt-5", max_tokens=9, messages=[{"role": "user", "content": "Hello"}]
            )
        (refusal,) = vendor.refusals
        assert refusal.rule == "max_completion_tokens"
        assert refusal.page.startswith("https://")


async def test_an_answer_is_cut_once_when_the_text_asks_for_it() -> None:
    async with running_vendor("anthropic") as vendor, aiohttp.ClientSession() as session:
        headers = {"x-api-key": vendor.key, "anthropic-version": "2023-06-01"}
        prompt = {"role": "user", "content": "cut: once here\nsay: one two three four five"}
        body = {"model": "claude-sonnet-4-5", "max_tokens": 99, "stream": True, "messages": [prompt]}

        async def ask() -> str:
            async with session.post(f"{vendor.base_url}/messages", json=body, headers=headers) as response:
                text = ""
                try:
                    async for line in response.content:
                        text += line.decode()
                except aiohttp.ClientPayloadError:
                    return f"{text} cut"
                return text

        assert (await ask()).endswith(" cut")
        assert "message_stop" in await ask()


async def test_a_websocket_keeps_the_last_response_though_it_is_not_stored() -> None:
    async with (
        running_vendor("openai") as vendor,
        aiohttp.ClientSession(headers={"authorization": f"Bearer {vendor.key}"}) as session,
        session.ws_connect(f"{vendor.base_url}/responses") as socket,
    ):

        async def turn(**fields: Any) -> Any:
            await socket.send_json({"type": "response.create", "model": "gpt-5-codex", "store": False, **fields})
            while True:
                event = await socket.receive_json()
                if event["type"] in {"response.completed", "error"}:
                    return event.get("response") or event

        warm = await turn(generate=False, input="You are terse.", tools=[TOOL])
        assert warm["output"] == []
        first = await turn(
            input=[{"role": "user", "content": "weather?"}], tools=[TOOL], previous_response_id=warm["id"]
        )
        call = first["output"][-1]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
        second = await turn(input=[result], previous_response_id=first["id"])
        assert second["output"][-1]["content"][0]["text"] == "The tools said: rain"
        gone = await turn(input="Hello", previous_response_id=first["id"])
        assert (gone["status"], gone["error"]["code"]) == (400, "previous_response_not_found")


async def test_one_command_serves_them_and_prints_their_addresses() -> None:
    command = [sys.executable, "-m", "strict_vendors", "openai", "anthropic", "--json"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        rows = json.loads(await process.stdout.readline())
        assert [row["vendor"] for row in rows] == ["openai", "anthropic"]
        async with openai.AsyncOpenAI(base_url=rows[0]["base_url"], api_key=rows[0]["api_key"]) as client:
            assert "gpt-5" in [model.id async for model in client.models.list()]
    finally:
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0


async def test_it_has_two_accounts_each_with_its_own_key() -> None:
    async with running_vendor("openai") as vendor, aiohttp.ClientSession() as http:
        for key, status in ((vendor.key, 200), (vendor.second_key, 200), ("sk-wrong", 401)):
            headers = {"authorization": f"Bearer {key}"}
            async with http.get(f"{vendor.base_url}/models", headers=headers) as response:
                assert response.status == status
        assert (len(vendor.seen), len(vendor.refusals)) == (3, 1)
