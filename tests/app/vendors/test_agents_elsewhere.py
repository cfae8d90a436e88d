"""What agents send that only some vendors have: their tools, what is to be stored, what they keep of answers."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from providers import events
from strict_vendors import Served, running_vendor
from tests.app.gateway.running_gateway import RunningGateway, serving
from tests.app.vendors.test_every_pair import VENDORS

Json = dict[str, Any]
Asked = tuple[RunningGateway, Mapping[str, Served]]
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PATCH = "*** Begin Patch\n*** Add File: a\n+1\n*** End Patch"


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    """A gateway before all vendors, each a model."""
    async with AsyncExitStack() as stack:
        vendors = {name: await stack.enter_async_context(running_vendor(each[0])) for name, each in VENDORS.items()}
        providers: Json = {
            name: {"base_url": vendor.base_url, "api_key": vendor.key, "preset": VENDORS[name][1]}
            for name, vendor in vendors.items()
        }
        models = {name: {"deployments": [f"{name}/{model}"]} for name, (_, _, model) in VENDORS.items()}
        yield (
            await stack.enter_async_context(serving(tmp_path, {"alpha": None}, providers=providers, models=models)),
            vendors,
        )


async def answer_of(running: RunningGateway, path: str, body: Json) -> tuple[Json, str]:
    """Return an answer, whole or as its last event says it, and what is told as left out."""
    async with running.post(body, path=path) as response:
        came, dropped = await response.read(), response.headers.get("x-holeshot-dropped", "")
    assert response.status == 200, (body["model"], came)
    if not body.get("stream"):
        return json.loads(came), dropped
    told: Json = json.loads([event.data for event in events(came)][-1])
    return told["response"], dropped


# A tool, the arguments with which the stand-in calls its function, the item of the call, and that of its result.
TOOLS: Mapping[str, tuple[Json, Json, Json, Json]] = {
    "apply_patch": (
        {"type": "custom", "name": "apply_patch", "description": "Edits.", "format": {"type": "text"}},
        {"input": PATCH},
        {"type": "custom_tool_call", "name": "apply_patch", "input": PATCH},
        {"type": "custom_tool_call_output", "output": "okapi"},
    ),
    "local_shell": (
        {"type": "local_shell"},
        {"command": ["ls"]},
        {"type": "local_shell_call"},
        {"type": "local_shell_call_output", "output": "okapi"},
    ),
}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("stream", [False, True])
async def test_servers_whose_responses_have_functions_alone_call_an_agents_other_tools(
    asked: Asked, tool: str, stream: bool
) -> None:
    running, vendors = asked
    offered, arguments, called, result = TOOLS[tool]
    function = {"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}
    for name in ("vllm", "ollama", "xai", "groq"):
        body: Json = {"model": name, "input": f"call: {tool} {json.dumps(arguments)}", "tools": [offered, function]}
        answer, _ = await answer_of(running, RESPONSES, {**body, "stream": stream})
        [call] = [item for item in answer["output"] if item["type"] == called["type"]]
        assert called.items() <= call.items()
        history = [
            {"role": "user", "content": body["input"]},
            {field: value for field, value in call.items() if field != "id"},
            {**result, "call_id": call["call_id"]},
        ]
        answer, dropped = await answer_of(running, RESPONSES, {**body, "input": history, "stream": stream})
        assert "okapi" in json.dumps(answer["output"])
        assert not dropped
        assert vendors[name].refusals == []
        # What has functions alone stays in the client's own API, and so does what the server itself keeps.
        answer, _ = await answer_of(running, RESPONSES, {**body, "tools": [function], "stream": stream})
        assert "instructions" in answer
        assert vendors[name].refusals == []
        asked_in = [seen.path.rpartition("/")[2] for seen in vendors[name].seen]
        assert asked_in == ["completions"] * 2 + ["responses"]


ID = "call_1aaaaaaaaa"
LOOK: Json = {"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}
GONE: Mapping[str, tuple[str, Json]] = {  # a call of a tool that is not offered any more, beside one that is
    "chat": (
        CHAT,
        {
            "messages": [
                {"role": "user", "content": "Hi"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": ID, "type": "function", "function": {"name": "gone", "arguments": "{}"}}],
                },
                {"role": "tool", "tool_call_id": ID, "content": "okapi"},
            ],
            "tools": [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}],
        },
    ),
    "responses": (
        RESPONSES,
        {
            "input": [
                {"role": "user", "content": "Hi"},
                {"type": "function_call", "call_id": ID, "name": "gone", "arguments": "{}"},
                {"type": "function_call_output", "call_id": ID, "output": "okapi"},
            ],
            "tools": [LOOK],
        },
    ),
    "a text": (
        RESPONSES,
        {
            "input": [
                {"role": "user", "content": "Hi"},
                {"type": "custom_tool_call", "call_id": ID, "name": "gone", "input": "x"},
                {"type": "custom_tool_call_output", "call_id": ID, "output": "okapi"},
            ],
            "tools": [LOOK],
        },
    ),
    "messages": (
        "/v1/messages",
        {
            "max_tokens": 900,
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": ID, "name": "gone", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": ID, "content": "okapi"}]},
            ],
            "tools": [{"name": "look", "input_schema": SCHEMA}],
        },
    ),
}


@pytest.mark.parametrize("form", GONE)
async def test_a_call_of_a_tool_that_is_not_offered_any_more_stays_in_the_history(asked: Asked, form: str) -> None:
    running, vendors = asked
    path, body = GONE[form]
    for name in VENDORS if form != "a text" else ("openai", "bedrock", "mistral", "vllm", "ollama", "xai", "groq"):
        answer, dropped = await answer_of(running, path, {"model": name, **body})
        assert "okapi" in json.dumps(answer), name
        assert ("tools" in dropped.split(", ")) is (name == "groq")  # where it is offered again
        assert vendors[name].refusals == []


@pytest.mark.parametrize("offered", [True, False], ids=["other tools", "no tools"])
async def test_an_earlier_call_with_a_text_is_one_of_a_function_where_there_are_no_others(
    asked: Asked, offered: bool
) -> None:
    running, vendors = asked
    path, body = GONE["chat"]
    [asks, _, result] = body["messages"]
    call = {"role": "assistant", "tool_calls": [{"id": ID, "type": "custom", "custom": {"name": "gone", "input": "x"}}]}
    body = {"messages": [asks, call, result], **({"tools": body["tools"]} if offered else {})}
    for name in VENDORS:
        answer, _ = await answer_of(running, path, {**body, "model": name})
        assert "okapi" in json.dumps(answer), name
        assert vendors[name].refusals == [], vendors[name].said
    sent = json.dumps(vendors["openai"].seen[-1].body["messages"])
    assert '"custom": {"name": "gone", "input": "x"}' in sent  # which has such tools


# What vendors' answers in chat have beside what was said, and clients send back.
OF_ANSWERS: Mapping[str, Any] = {
    "annotations": [],
    "executed_tools": [{"index": 0, "type": "search"}],
    "provider_specific_fields": {"citations": None},
    "reasoning": "Let me see.",
    "reasoning_content": "Let me see.",
}


async def test_what_an_answer_says_of_itself_keeps_no_other_vendor_out_of_its_conversation(asked: Asked) -> None:
    running, vendors = asked
    of_litellm = {"provider_specific_fields": {"thought_signature": "QUJD"}}
    function = {"name": "look", "arguments": "{}", **of_litellm}
    call = {"id": "call_1aaaaaa", "type": "function", "function": function, **of_litellm, "served_by": {"zone": "a"}}
    history = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": None, "tool_calls": [call], **OF_ANSWERS},
        {"role": "tool", "tool_call_id": call["id"], "content": "okapi"},
    ]
    tools = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
    for name in VENDORS:
        body: Json = {"model": name, "messages": history, "tools": tools}
        await answer_of(running, CHAT, body)  # it may be refused once for what is not known of it
        before = len(vendors[name].refusals)
        answer, dropped = await answer_of(running, CHAT, body)
        assert ("okapi" in json.dumps(answer["choices"]), len(vendors[name].refusals)) == (True, before)
        sent = json.dumps(vendors[name].seen[-1].body)
        assert ("executed_tools" in sent) is not ("executed_tools" in dropped), (name, dropped)


# Where the gateway puts the thoughts of a vendor's model for clients of chat, and the vendors that read them there.
SIGNED_IN: Mapping[str, frozenset[str]] = {
    "extra_content": frozenset({"gemini"}),
    "thought_signature": frozenset({"gemini"}),
    "thinking_blocks": frozenset(),
    "reasoning_details": frozenset({"openrouter"}),
}


async def test_what_only_its_maker_reads_of_an_answer_goes_to_no_other_vendor(asked: Asked) -> None:
    running, vendors = asked
    google = {"google": {"thought_signature": "QUJDREVGR0hJSktMTU5PUA=="}}
    named = {"id": "call_1aaaaaa", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    turn = {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{**named, "extra_content": google}],
        "extra_content": google,
        "thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "QUJDREVGR0hJSktMTU5PUA=="}],
    }
    history = [
        {"role": "user", "content": "look"},
        turn,
        {"role": "tool", "tool_call_id": "call_1aaaaaa", "content": "okapi"},
    ]
    tools = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
    for name in VENDORS:
        await answer_of(running, CHAT, {"model": name, "messages": history, "tools": tools})
        sent = json.dumps(vendors[name].seen[-1].body)
        left = {each for each, readers in SIGNED_IN.items() if f'"{each}"' in sent and name not in readers}
        assert (name, left) == (name, set())
    assert "thought_signature" in json.dumps(vendors["gemini"].seen[-1].body)


@pytest.mark.parametrize("stream", [False, True])
async def test_vendors_that_refuse_to_store_answer_and_the_gateway_keeps_it(asked: Asked, stream: bool) -> None:
    running, vendors = asked
    for name in ("groq", "openrouter"):
        body = {"model": name, "input": "Turn 1: say: zebra", "store": True, "stream": stream}
        answer, dropped = await answer_of(running, RESPONSES, body)
        assert dropped == "store"
        later = {**body, "input": "Turn 2: hi\nrecall: now", "previous_response_id": answer["id"]}
        answer, _ = await answer_of(running, RESPONSES, later)
        assert "turns 2" in json.dumps(answer["output"])
        assert vendors[name].refusals == []


async def test_what_codex_keeps_of_an_answer_that_broke_off_ends_no_session(asked: Asked) -> None:
    running, vendors = asked
    body: Json = {"model": "openai", "store": False, "include": ["reasoning.encrypted_content"]}
    answer, _ = await answer_of(running, RESPONSES, {**body, "input": "Turn 1: say: zebra"})
    thoughts, said = answer["output"]
    first, second = ({"role": "user", "content": text} for text in ("Turn 1: say: zebra", "Turn 2: hi\nrecall: now"))
    for history, dropped in (
        ([first, thoughts, said, second], ""),  # as it is
        ([first, thoughts, second], "input[1]"),
        ([first, {"role": "assistant", "content": "zebra"}, second, thoughts], "input[3]"),
    ):
        answer, told = await answer_of(running, RESPONSES, {**body, "input": history})
        assert ("turns 2" in json.dumps(answer["output"]), told) == (True, dropped)
    assert vendors["openai"].refusals == []


MARKED = {"prompt_cache_breakpoint": {"mode": "explicit"}}
BREAKPOINTS: Mapping[str, Json] = {
    CHAT: {"messages": [{"role": "user", "content": [{"type": "text", "text": "say: well", **MARKED}]}]},
    RESPONSES: {"input": [{"role": "user", "content": [{"type": "input_text", "text": "say: well", **MARKED}]}]},
}


@pytest.mark.parametrize("path", BREAKPOINTS)
async def test_openais_marks_of_what_to_cache_keep_no_other_vendor_out(asked: Asked, path: str) -> None:
    running, vendors = asked
    for name in VENDORS:
        await answer_of(running, path, {**BREAKPOINTS[path], "model": name})  # it may be refused once
        before = len(vendors[name].refusals)
        answer, dropped = await answer_of(running, path, {**BREAKPOINTS[path], "model": name})
        assert ("well" in json.dumps(answer), len(vendors[name].refusals)) == (True, before), vendors[name].said
        sent = json.dumps(vendors[name].seen[-1].body)
        assert ("prompt_cache_breakpoint" in sent) is not ("content" in dropped), name


OF_OPENAI: Mapping[str, Json] = {
    "a change": {"type": "configuration_update", "reasoning": {"effort": "low"}},
    "a search": {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["x"]},
    "a picture": {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "x"},
}


@pytest.mark.parametrize("item", OF_OPENAI)
async def test_items_of_openais_keep_no_server_out_of_their_conversation(asked: Asked, item: str) -> None:
    running, vendors = asked
    user = {"role": "user", "content": "say: well"}
    for name in ("vllm", "ollama", "xai", "groq"):
        body: Json = {"model": name, "input": [user, OF_OPENAI[item], user], "store": False}
        answer, dropped = await answer_of(running, RESPONSES, body)
        assert "well" in json.dumps(answer["output"])
        assert vendors[name].refusals == []
        assert (dropped == "") is (item == "a change"), dropped


async def test_groq_is_asked_whole_for_a_schema_by_clients_of_responses_too(asked: Asked) -> None:
    running, vendors = asked
    shape = {"type": "json_schema", "name": "n", "schema": {**SCHEMA, "additionalProperties": False}, "strict": True}
    body = {"model": "groq", "input": 'data: {"city": "Oslo"}', "store": False, "text": {"format": shape}}
    answer, dropped = await answer_of(running, RESPONSES, body)
    assert ("Oslo" in json.dumps(answer["output"]), dropped) == (True, "")
    assert vendors["groq"].refusals == []
