"""What only the newest SDKs say, through a gateway: in its own API it passes, elsewhere it is carried, or is told.

Fields, items and blocks are those of anthropic 2.14, openai 3.57 and google-genai 3.6, read on 2026-11-29.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from strict_vendors import Served, running_vendor
from tests.app.gateway.running_gateway import RunningGateway, serving

Json = dict[str, Any]
VENDORS: Mapping[str, tuple[str, str, str]] = {  # the stand-in, the preset, the model there
    "openai": ("openai", "openai", "gpt-4o"),
    "responses": ("openai", "openai", "gpt-6.2-sol"),
    "claude": ("anthropic", "anthropic", "claude-opus-5-5"),
    "google": ("google", "google", "gemini-3.8-flash"),
    "bedrock": ("bedrock", "bedrock_converse", "us.anthropic.claude-haiku-4-5-20251001-v1:0"),
    "mistral": ("mistral", "mistral", "mistral-large-latest"),
}
OWN: Mapping[str, tuple[str, ...]] = {
    "messages": ("claude",),
    "responses": ("openai", "responses"),
    "gemini": ("google",),
    "chat": (),
}
PATHS = {"messages": "/v1/messages", "responses": "/v1/responses", "chat": "/v1/chat/completions"}
USER: Json = {"role": "user", "content": "Hello\nsay: well"}
EMPTY: Json = {"type": "object", "properties": {}}
CITY: Json = {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}}


class Row(NamedTuple):
    """A request, and what becomes of it elsewhere: ``told`` is named as left out, ``carried`` arrives."""

    body: Json
    told: str = ""
    carried: str = ""
    gone: str = ""  # what may not arrive
    betas: str = ""
    own: bool = True  # its own vendor's stand-in takes it as it is


def message(*more: Json, **fields: Any) -> Json:
    """Return a request of Messages, which these turns follow."""
    return {"messages": [USER, *more], "max_tokens": 2000, **fields}


def after(*blocks: Json) -> Json:
    """Return one that goes on after an answer with these blocks."""
    return message({"role": "assistant", "content": [*blocks, {"type": "text", "text": "Done."}]}, USER)


def instructed(*content: Json | str, tools: tuple[str, ...] = (), **fields: Any) -> Json:
    """Return one with instructions in its middle."""
    text = content[0] if content and isinstance(content[0], str) else [*content]
    offered = {"tools": [{"name": name, "input_schema": EMPTY} for name in tools]} if tools else {}
    return message({"role": "system", "content": text, **fields}, **offered)


def changing(kind: str, tool: Json) -> Json:
    """Return a block that changes the tools."""
    return {"type": kind, "tool": tool}


EFFORT: Json = {"output_config": {"effort": "low"}}
SEARCHED: tuple[Json, Json] = (
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Oslo"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
)
CALLED: Json = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}]}
_CLICK: Json = {"type": "tool_use", "id": "toolu_1", "name": "left_click", "toolset_name": "browser", "input": {}}
CLICKED: Json = {"role": "assistant", "content": [_CLICK]}
_TABS = {"type": "browser_state", "tabs": [{"tab_id": "1", "title": "rain", "url": ""}]}
TOOLSET = {"type": "tool_result", "tool_use_id": "toolu_1", "toolset_name": "browser", "content": [_TABS]}
TOOLSETS = {"tools": [{"type": "computer_toolset_20260801"}, {"type": "browser_toolset_20260801"}]}
OFFERED = {"tools": [{"name": "f", "input_schema": EMPTY}]}
_PER_MESSAGE = "mid-conversation-output-config-2026-07-01"
_TOOL_CHANGES = "mid-conversation-tool-changes-2026-07-01,inline-tools-2026-09-15"
DEFINED = {"type": "tool_definition", "definition": {"name": "later", "input_schema": EMPTY}}

MESSAGES: Mapping[str, Row] = {
    "instructions": Row(instructed("Be brief."), carried="Be brief."),
    "an effort alone": Row(instructed(**EFFORT), betas=_PER_MESSAGE),
    "an effort without content": Row(message({"role": "system", **EFFORT}), betas=_PER_MESSAGE),
    "an effort and words": Row(instructed("Be brief.", **EFFORT), carried="Be brief.", betas=_PER_MESSAGE),
    "words for one turn": Row(
        instructed("Be brief.", clear_at="next_user_message"),
        told="messages[1].clear_at",
        carried="Be brief.",
        betas="mid-conversation-system-clear-at-2026-08-21",
    ),
    "words that stay": Row(
        instructed("Be brief.", clear_at="never"),
        carried="Be brief.",
        betas="mid-conversation-system-clear-at-2026-08-21",
    ),
    "a tool that comes later": Row(
        instructed(changing("tool_addition", DEFINED), tools=("first",)), carried="later", betas=_TOOL_CHANGES
    ),
    "a tool that goes": Row(
        instructed(changing("tool_removal", {"type": "tool_reference", "name": "gone"}), tools=("first", "gone")),
        carried="first",
        gone='"gone"',
        betas=_TOOL_CHANGES,
    ),
    "a budget of a task": Row(
        message(output_config={"task_budget": {"type": "tokens", "total": 20_000}}), told="output_config.task_budget"
    ),
    "compaction by the vendor": Row(
        message(context_management={"edits": [{"type": "compact_20260112"}]}),
        told="context_management",
        betas="compact-2026-01-12",
    ),
    "the vendor's own fallbacks": Row(
        message(fallbacks=[{"model": "claude-sonnet-5"}]), told="fallbacks", betas="server-side-fallback-2026-07-01"
    ),
    "diagnostics": Row(message(diagnostics={"previous_message_id": None}), told="diagnostics"),
    "speed": Row(message(speed="fast"), told="speed"),
    "what thoughts are bound to": Row(
        message(thinking={"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}),
        told="thinking.block_binding",
        betas="thinking-binding-controls-2026-08-01",
    ),
    "a toolset's call": Row(message(CLICKED, {"role": "user", "content": [TOOLSET]}, **OFFERED), carried="rain"),
    "a toolset": Row(message(CLICKED, {"role": "user", "content": [TOOLSET]}, **TOOLSETS), carried="browser_find"),
    "advice": Row(
        after(
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "advisor", "input": {}},
            {
                "type": "advisor_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": {"type": "advisor_result", "text": ""},
            },
        ),
        told="messages[1].content[1]",
        carried="Done.",
    ),
    "a search": Row(after(*SEARCHED), told="messages[1].content[1]", carried="Done."),
    "a fallback": Row(
        after({"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}, "trigger": {"type": "refusal"}}),
        told="messages[1].content[0]",
        carried="Done.",
    ),
    "a listing of MCP": Row(
        after({"type": "mcp_tool_listing", "mcp_server_name": "s", "tools": []}), told="messages[1].content[0]"
    ),
    "a summary": Row(
        {
            "messages": [
                {"role": "user", "content": "An old question."},
                {"role": "assistant", "content": [{"type": "compaction", "content": "They like Oslo."}]},
                USER,
            ],
            "max_tokens": 2000,
        },
        carried="They like Oslo.",
        gone="An old question.",
    ),
    "a summary that comes first": Row(
        {
            "messages": [
                {"role": "assistant", "content": [{"type": "compaction", "content": "They like Oslo."}]},
                USER,
            ],
            "max_tokens": 2000,
        },
        carried="They like Oslo.",
    ),
    "a sealed summary beside its conversation": Row(
        after({"type": "compaction", "content": None, "encrypted_content": "x"}), told="messages[1].content[0]"
    ),
}


def response(*items: Json, **fields: Any) -> Json:
    """Return a request of Responses, which these items follow."""
    return {"input": [USER, *items], "store": False, **fields}


FUNCTION: Json = {"type": "function", "name": "f", "parameters": EMPTY}
MADE: Json = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
RESULT: Json = {"type": "function_call_output", "call_id": "call_1", "output": "rain"}
RESPONSES: Mapping[str, Row] = {
    "access programs": Row(response(access_programs={"cyber": "standard"}), told="access_programs"),
    "pictures made small": Row(response(image={"context_compression": "auto"}), told="image.context_compression"),
    "caches": Row(response(prompt_cache_options={"mode": "implicit", "prewarm": False}), told="prompt_cache_options"),
    "a tool that may be late": Row(response(tools=[{**FUNCTION, "async": True}]), told="tools[0].async"),
    "a tool that may not": Row(response(tools=[{**FUNCTION, "async": False}])),
    "a call that may be late": Row(
        response({**MADE, "async": True}, RESULT, tools=[FUNCTION]), told="input[1].async", carried="rain"
    ),
    "a change of the effort": Row(
        response({"type": "configuration_update", "reasoning": {"effort": "low"}}, USER), own=False
    ),
    "a change of the format": Row(
        response(
            {
                "type": "configuration_update",
                "text": {"format": {"type": "json_schema", "name": "n", "schema": {
                    "type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
                    "additionalProperties": False}}},
            },
            USER,
        ),
        carried="additionalProperties",
    ),
    "a search": Row(
        response({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}, USER),
        told="input[1]",
    ),
    "tools that come later": Row(
        response({"type": "additional_tools", "role": "developer", "tools": [{**FUNCTION, "name": "later"}]}, USER),
        carried="later",
    ),
}  # fmt: skip


def content(*parts: Json, of: str = "user", **fields: Any) -> Json:
    """Return a request of Google's that has these parts: the user's, or of an earlier answer."""
    said: Json = {"text": "Hello\nsay: well"}
    if of == "user":
        return {"contents": [{"role": "user", "parts": [said, *parts]}], **fields}
    earlier = {"role": "model", "parts": [{"text": "Done."}, *parts]}
    return {"contents": [{"role": "user", "parts": [said]}, earlier, {"role": "user", "parts": [said]}], **fields}


def function_called(call: Json, result: Json) -> Json:
    """Return one with a call and its result."""
    signed = {"thoughtSignature": "skip_thought_signature_validator"}
    declared = {"name": "f", "parameters": CITY}
    return {
        "contents": [
            {"role": "user", "parts": [{"text": "Hello\nsay: well"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}, **call}, **signed}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"is": "rain"}, **result}}]},
        ],
        "tools": [{"functionDeclarations": [declared]}],
    }


DECLARED = {"name": "f", "behavior": "NON_BLOCKING", "parameters": CITY}
GEMINI: Mapping[str, Row] = {
    "how media is looked at": Row(
        content({"text": "x", "mediaProcessing": {}}), told="contents[0].parts[1].mediaProcessing"
    ),
    "who spoke": Row(
        content({"text": "x", "speechMetadata": {"speaker": "a"}}), told="contents[0].parts[1].speechMetadata"
    ),
    "what was said aloud": Row(
        content({"audioTranscription": {"text": "hello"}}, of="model"), told="contents[1].parts[1]", own=False
    ),
    "a tool of Google's": Row(
        content(
            {"toolCall": {"id": "a", "toolType": "GOOGLE_SEARCH_WEB", "args": {}}},
            {"toolResponse": {"id": "a", "toolType": "GOOGLE_SEARCH_WEB", "response": {}}},
            of="model",
        ),
        told="contents[1].parts[1]",
    ),
    "when a result is told": Row(
        function_called({}, {"scheduling": "SILENT"}),
        told="contents[2].parts[0].functionResponse.scheduling",
        carried="rain",
    ),
    "arguments in pieces": Row(
        function_called({"partialArgs": [{"jsonPath": "$.a", "stringValue": "x"}], "willContinue": False}, {}),
        told="contents[1].parts[0].functionCall.partialArgs",
        carried="rain",
    ),
    "a function that does not block": Row(
        content(tools=[{"functionDeclarations": [DECLARED]}]), told="tools[0].functionDeclarations[0].behavior"
    ),
    "civic answers": Row(
        content(generationConfig={"enableEnhancedCivicAnswers": True}),
        told="generationConfig.enableEnhancedCivicAnswers",
    ),
}
ROWS = {"messages": MESSAGES, "responses": RESPONSES, "gemini": GEMINI}
Gateway = tuple[RunningGateway, dict[str, Served]]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway before all of them, each a model of its own."""
    async with AsyncExitStack() as stack:
        vendors = {name: await stack.enter_async_context(running_vendor(each[0])) for name, each in VENDORS.items()}
        providers = {
            name: {"base_url": vendor.base_url, "api_key": vendor.key, "preset": VENDORS[name][1]}
            for name, vendor in vendors.items()
        }
        models = {name: {"deployments": [f"{name}/{VENDORS[name][2]}"]} for name in vendors}
        models["older"] = {"deployments": ["claude/claude-sonnet-5"]}
        yield (
            await stack.enter_async_context(serving(tmp_path, {"alpha": None}, providers=providers, models=models)),
            vendors,
        )


async def answered(running: RunningGateway, api: str, name: str, row: Row, *, stream: bool) -> tuple[int, str, str]:
    """Ask; return the status, the text and what was left out."""
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    path = PATHS.get(api, f"/v1beta/models/{name}:{verb}")
    body = row.body if api == "gemini" else {**row.body, "model": name, **({"stream": True} if stream else {})}
    headers = {"anthropic-beta": row.betas} if row.betas else {}
    async with running.post(body, path=path, headers=headers) as came:
        return came.status, await came.text(), came.headers.get("x-holeshot-dropped", "")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ROWS)
async def test_it_is_carried_or_left_out_and_told(gateway: Gateway, api: str, stream: bool) -> None:
    running, vendors = gateway
    wrong: list[str] = []
    for title, row in ROWS[api].items():
        for name, vendor in vendors.items():
            is_own = name in OWN[api]
            if is_own and not row.own:
                continue
            status, text, dropped = await answered(running, api, name, row, stream=stream)
            sent = json.dumps(vendor.seen[-1].body) if vendor.seen else ""
            is_told = row.told in dropped and row.carried in sent and (not row.gone or row.gone not in sent)
            if status != 200 or vendor.refusals or not (not dropped if is_own else is_told):
                wrong.append(
                    f"{title} at {name}: {status} {text[:250]} dropped: {dropped} {vendor.said[-300:]}\n{sent[:900]}"
                )
            vendor.refusals.clear()
    assert not wrong, f"{len(wrong)}\n" + "\n\n".join(wrong)


async def test_an_effort_of_a_turn_is_the_efforts_of_who_has_one(gateway: Gateway) -> None:
    running, vendors = gateway
    row = MESSAGES["an effort alone"]
    high = row._replace(body={**row.body, "output_config": {"effort": "high"}})
    assert (await answered(running, "messages", "responses", high, stream=False))[0] == 200
    assert vendors["responses"].seen[-1].body["reasoning_effort"] == "low"
    row = RESPONSES["a change of the effort"]
    assert (await answered(running, "responses", "claude", row, stream=False))[0] == 200
    assert vendors["claude"].seen[-1].body["output_config"]["effort"] == "low"


async def test_an_older_claude_is_told_instructions_as_the_users_and_offered_the_tools_of_the_end(
    gateway: Gateway,
) -> None:
    running, vendors = gateway
    rows = {title: MESSAGES[title] for title in list(MESSAGES)[:8]}
    for title, row in rows.items():
        before = len(vendors["claude"].refusals)
        status, text, dropped = await answered(running, "messages", "older", row, stream=False)
        assert status == 200, (title, text)
        assert len(vendors["claude"].refusals) <= before + (title == "instructions"), vendors["claude"].said
        sent = json.dumps(vendors["claude"].seen[-1].body)
        assert row.carried in sent, title
        assert not row.gone or row.gone not in sent, title
        assert '"role": "system"' not in sent, title
        assert "messages[1]" in dropped, title


LOW: Json = {"role": "system", "content": [], **EFFORT}
RAIN: Json = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}]}
AND_MORE: Json = {"role": "user", "content": [*RAIN["content"], {"type": "text", "text": "And more"}]}
SAID: Json = {"role": "assistant", "content": "Done."}
MEDIUM: Json = {"role": "system", "content": [], "output_config": {"effort": "medium"}}


@pytest.mark.parametrize(
    ("turns", "effort"),
    [
        ([LOW], "low"),
        ([instructed("Be brief.")["messages"][1], LOW], "low"),
        ([SAID, LOW, USER], "low"),
        ([CALLED, RAIN, LOW], "high"),
        ([CALLED, AND_MORE, LOW], "low"),
        ([CALLED, RAIN, LOW, SAID, USER], "low"),
        ([MEDIUM, CALLED, RAIN, LOW], "medium"),
        ([SAID, LOW, MEDIUM, USER], "medium"),
        ([LOW, SAID, USER], "low"),
    ],
)
async def test_an_effort_that_does_not_follow_new_input_waits_for_the_next(
    gateway: Gateway, turns: list[Json], effort: str
) -> None:
    """platform.claude.com/docs/en/build-with-claude/effort-per-message, read on 2026-11-29."""
    running, vendors = gateway
    row = Row(message(*turns, output_config={"effort": "high"}, **OFFERED), betas=_PER_MESSAGE)
    assert (await answered(running, "messages", "responses", row, stream=False))[0] == 200
    sent = vendors["responses"].seen[-1].body
    assert (sent.get("reasoning_effort") or sent["reasoning"]["effort"]) == effort


@pytest.mark.parametrize("told", ["", [], [{"type": "text", "text": ""}]])
async def test_a_tool_that_failed_without_a_word_is_told_to_claude_with_one(gateway: Gateway, told: Any) -> None:
    running, vendors = gateway
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    body = {
        "messages": [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": told, "is_error": True},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": EMPTY}}],
    }
    status, text, _ = await answered(running, "chat", "claude", Row(body), stream=False)
    assert (status, vendors["claude"].refusals) == (200, []), text
    (block,) = vendors["claude"].seen[-1].body["messages"][-1]["content"]
    assert (block["is_error"], block["content"]) == (True, "Error")


async def test_a_conversation_that_only_claude_can_read_is_not_begun_anew_elsewhere(gateway: Gateway) -> None:
    running, _ = gateway
    sealed = {"role": "assistant", "content": [{"type": "compaction", "content": None, "encrypted_content": "x"}]}
    row = Row({"messages": [sealed, USER], "max_tokens": 2000})
    status, text, _ = await answered(running, "messages", "openai", row, stream=False)
    assert status == 400
    assert "only Claude can read this summary" in text


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_of_compaction_is_answered_by_claude_alone(gateway: Gateway, stream: bool) -> None:
    running, _ = gateway
    row = Row(message(compaction={"type": "summarize"}), betas="compact-2026-09-04")
    status, text, _ = await answered(running, "messages", "claude", row, stream=stream)
    assert status == 200
    assert '"stop_reason":"compaction"' in text.replace(": ", ":")
    assert "Summary of 1 turns." in text
    status, text, _ = await answered(running, "messages", "openai", row, stream=stream)
    assert status == 400
    assert "'compaction'" in text
