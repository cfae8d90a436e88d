"""A client that takes one tool call at a time gets one, also of a vendor that cannot be asked for that."""

import json
from typing import Any

import pytest

from providers.simulator import Raw, Status, Step
from strict_vendors import running_vendor
from tests.app.gateway.running_gateway import MODEL, Serve

VENDORS = {
    "google": ("google", "gemini-2.5-flash"),
    "bedrock": ("bedrock_converse", "us.anthropic.claude-haiku-4-5-20251001-v1:0"),
}
ASKED = "parallel: the weather in two cities?"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "weather", "parameters": SCHEMA}
REQUESTS: dict[str, dict[str, Any]] = {
    "chat/completions": {
        "messages": [{"role": "user", "content": ASKED}],
        "tools": [{"type": "function", "function": FUNCTION}],
        "parallel_tool_calls": False,
    },
    "responses": {
        "input": ASKED,
        "tools": [{"type": "function", **FUNCTION, "strict": False}],
        "parallel_tool_calls": False,
    },
    "messages": {
        "messages": [{"role": "user", "content": ASKED}],
        "tools": [{"name": "weather", "input_schema": SCHEMA}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "max_tokens": 1000,
    },
}


def calls_in(said: str, *, stream: bool) -> int:
    """Return how many calls an answer has, in any API."""
    if stream:
        events = [json.loads(line[6:]) for line in said.splitlines() if line.startswith("data: {")]
        begun = {
            call["index"]
            for event in events
            for choice in event.get("choices", ())
            for call in choice["delta"].get("tool_calls", ())
        }
        items = [event.get("item") or event.get("content_block") or {} for event in events]
        added = [each for each in items if each.get("type") in {"function_call", "tool_use"}]
        return len(begun) or len({each.get("call_id") or each["id"] for each in added})
    answer = json.loads(said)
    if "choices" in answer:
        assert answer["choices"][0]["finish_reason"] == "tool_calls"
        return len(answer["choices"][0]["message"]["tool_calls"])
    items = answer.get("output") or answer.get("content")
    return sum(each["type"] in {"function_call", "tool_use"} for each in items)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", REQUESTS)
@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_client_that_takes_one_call_gets_the_first(serve: Serve, vendor: str, api: str, stream: bool) -> None:
    preset, model = VENDORS[vendor]
    async with running_vendor(vendor) as served:
        provider = {"preset": preset, "base_url": served.base_url, "api_key": served.key}
        config = {"providers": {vendor: provider}, "models": {"m": {"deployments": [f"{vendor}/{model}"]}}}
        async with serve(config=config, key="unused") as running:
            counts = []
            for one in (True, False):
                body = {**REQUESTS[api], "model": "m", "stream": stream}
                if not one:
                    body = {
                        name: each for name, each in body.items() if name not in {"parallel_tool_calls", "tool_choice"}
                    }
                async with running.post(body, path=f"/v1/{api}") as response:
                    said = await response.text()
                    assert response.status == 200, said
                counts.append(calls_in(said, stream=stream))
            assert counts == [1, 2]
            assert not served.refusals


# By a server that refuses the field by its name.

TWICE = {
    "chat/completions": [
        {"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None},
        *(
            {
                "index": 0,
                "delta": {
                    "tool_calls": [
                        {
                            "index": number,
                            "id": f"c{number}",
                            "type": "function",
                            "function": {"name": "weather", "arguments": '{"city":"Rome"}'},
                        }
                    ]
                },
                "finish_reason": None,
            }
            for number in range(2)
        ),
        {"index": 0, "delta": {}, "finish_reason": "tool_calls"},
    ]
}


def calling_twice() -> bytes:
    chunks = [
        {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        for choice in TWICE["chat/completions"]
    ]
    return "".join(f"data: {json.dumps(each)}\n\n" for each in chunks).encode() + b"data: [DONE]\n\n"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", REQUESTS)
async def test_a_server_that_refuses_to_hear_of_it_fails_no_call_and_the_client_gets_the_first(
    serve: Serve, api: str, stream: bool
) -> None:
    def answered(body: Any) -> list[Step]:
        said = {"error": {"message": "Unrecognized request argument supplied: parallel_tool_calls"}}
        return [Status(400, said)] if "parallel_tool_calls" in body else [Raw(calling_twice(), token=True)]

    body = {**REQUESTS[api], "model": MODEL, "stream": stream}
    async with serve(alpha=None) as running:
        running["alpha"].answers = answered
        for sendings in (2, 3):
            async with running.post(body, path=f"/v1/{api}") as response:
                said = await response.text()
                assert (response.status, calls_in(said, stream=stream)) == (200, 1), said
                own = "tool_choice" if api == "messages" else "parallel_tool_calls"
                assert own in response.headers["x-holeshot-dropped"]
            assert len(running["alpha"].received) == sendings
        free = {name: each for name, each in body.items() if name not in {"parallel_tool_calls", "tool_choice"}}
        async with running.post(free, path=f"/v1/{api}") as response:
            assert calls_in(await response.text(), stream=stream) == 2
