"""What runs at one vendor alone: beside the client's own tools it is only offered, unless the client forces it."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from providers.simulator import Raw, Status, answer
from tests.app.gateway.apis.test_dialects import MESSAGE_BYTES, RESPONSE_BYTES, speaking
from tests.app.gateway.apis.test_gemini import TEXT_BYTES
from tests.app.gateway.refusals.test_refusals_of_one_vendor import counts, of
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve

Json = dict[str, Any]
SCHEMA: Json = {"type": "object", "properties": {}}
RUN: Json = {"type": "function", "name": "run", "parameters": SCHEMA}
OWN: Json = {"name": "run", "input_schema": SCHEMA}
SEARCH: Json = {"type": "web_search_20250305", "name": "web_search"}
CODE: Json = {"type": "code_execution_20260521", "name": "code_execution"}
FIND: Json = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
DECLARED: Json = {"functionDeclarations": [{"name": "run"}]}
_FROM_CODE = ["direct", "code_execution_20260521"]


class Asked:
    """What a client asks for beside its words, and what is told as left out."""

    def __init__(self, api: str, tools: list[Json], choice: Any = None, told: tuple[str, ...] = ("tools[1]",)) -> None:
        self.api, self.told = api, told
        self.body: Json = {"tools": tools} if choice is None else {"tools": tools, "tool_choice": choice}

    async def of(self, running: RunningGateway) -> tuple[int, Json, str]:
        path, body = _PATHS[self.api]
        named = {} if self.api == "gemini" else {"model": MODEL}
        async with running.post({**named, **body, **self.body}, path=path) as response:
            return response.status, await response.json(), response.headers.get("x-holeshot-dropped", "")


_PATHS: Mapping[str, tuple[str, Json]] = {
    "responses": ("/v1/responses", {"input": "Hi", "store": False}),
    "messages": ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}),
    "gemini": (
        f"/v1beta/models/{MODEL}:generateContent",
        {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    ),
}
_RESPONSES = [RUN, {"type": "web_search"}]
_ALLOWED = [{"type": "function", "name": "run"}, {"type": "web_search"}]
OFFERED: Mapping[str, Asked] = {
    "one is to be called": Asked("responses", _RESPONSES, "required"),
    "none is to be called": Asked("responses", _RESPONSES, "none"),
    "its own is": Asked("responses", _RESPONSES, {"type": "function", "name": "run"}),
    "one of both is": Asked(
        "responses",
        _RESPONSES,
        {"type": "allowed_tools", "mode": "required", "tools": _ALLOWED},
        ("tools[1]", "tool_choice.tools[1]"),
    ),
    "Messages, one is": Asked("messages", [OWN, SEARCH], {"type": "any"}),
    "Messages, its own is": Asked("messages", [OWN, SEARCH], {"type": "tool", "name": "run"}),
    "code": Asked("messages", [OWN, CODE]),
    "a search of tools": Asked("messages", [{**OWN, "defer_loading": True}, FIND], None, ("tools[1]",)),
    "advice": Asked("messages", [OWN, {"type": "advisor_20260301", "name": "advisor", "model": "claude-opus-5-5"}]),
    "calls by code": Asked(
        "messages", [{**OWN, "allowed_callers": _FROM_CODE}, CODE], None, ("tools[1]", "tools[0].allowed_callers")
    ),
    "calls by a program": Asked("responses", [RUN, {"type": "programmatic_tool_calling"}]),
    "Google's code": Asked("gemini", [DECLARED, {"codeExecution": {}}], None, ("tools[1].codeExecution",)),
    "Google's pages": Asked("gemini", [DECLARED, {"urlContext": {}}], None, ("tools[1].urlContext",)),
    "another picture": Asked("responses", [RUN, {"type": "image_generation"}], {"type": "function", "name": "run"}),
}
FORCED: Mapping[str, Asked] = {
    "a search": Asked("responses", _RESPONSES, {"type": "web_search"}),
    "an older name": Asked(
        "responses", [RUN, {"type": "web_search_preview_2025_03_11"}], {"type": "web_search_preview"}
    ),
    "the only one allowed": Asked(
        "responses", _RESPONSES, {"type": "allowed_tools", "mode": "required", "tools": _ALLOWED[1:]}
    ),
    "a picture": Asked("responses", [RUN, {"type": "image_generation"}], {"type": "image_generation"}),
    "Messages": Asked("messages", [OWN, SEARCH], {"type": "tool", "name": "web_search"}),
    "code": Asked("messages", [OWN, CODE], {"type": "tool", "name": "code_execution"}),
    "nothing else": Asked("messages", [CODE]),
}


@pytest.mark.parametrize("name", OFFERED)
async def test_what_is_only_offered_keeps_nobody_out_and_is_told(serve: Serve, name: str) -> None:
    asked = OFFERED[name]
    async with serve(alpha=answer("Hello")) as running:
        status, body, dropped = await asked.of(running)
        assert status == 200, body
        assert set(asked.told) <= set(dropped.split(", "))
        sent = running["alpha"].received[0].body
        tools = [each["function"]["name"] for each in sent.get("tools", ())]
        assert tools in (["run"], [])
        assert "search" not in json.dumps(sent.get("tool_choice"))


@pytest.mark.parametrize("name", FORCED)
async def test_what_is_forced_keeps_out_who_cannot(serve: Serve, name: str) -> None:
    asked = FORCED[name]
    async with serve(alpha=answer("Hello")) as running:
        status, body, _ = await asked.of(running)
        assert (status, counts(running, "alpha")) == (400, [0]), body


async def test_who_is_kept_out_for_something_else_is_told_that_and_not_what_is_only_offered(serve: Serve) -> None:
    async with serve(alpha=answer("Hello")) as running:
        body = {"model": MODEL, "input": "Hi", "tools": _RESPONSES, "moderation": {"model": "omni-moderation-latest"}}
        async with running.post(body, path="/v1/responses") as response:
            status, said = response.status, (await response.json())["error"]["message"]
        assert (status, "does not support 'moderation'" in said) == (400, True)


@pytest.mark.parametrize("name", ["one is to be called", "Messages, one is", "Google's code"])
async def test_who_has_it_comes_first_and_the_others_answer_where_that_fails(serve: Serve, name: str) -> None:
    asked = OFFERED[name]
    config = {"providers": {"alpha": speaking(asked.api)}, "models": {MODEL: of(("alpha", "beta"))}}
    unable = Status(503, {"error": {"message": "busy"}})
    async with serve(alpha=[unable], beta=answer("Hello"), config=config) as running:
        running.prefer("beta", "alpha")
        status, body, dropped = await asked.of(running)
        assert status == 200, body
        assert counts(running, "alpha", "beta") == [1, 1]
        assert set(asked.told) <= set(dropped.split(", "))


SAID: Mapping[str, list[Any]] = {
    "chat": answer("Hello"),
    "messages": [Raw(MESSAGE_BYTES, token=True)],
    "responses": [Raw(RESPONSE_BYTES, token=True)],
    "gemini": [Raw(TEXT_BYTES, token=True)],
}
NEAR: Json = {"user_location": {"type": "approximate", "approximate": {"city": "Oslo", "country": "NO"}}}
_WHERE: Json = {"user_location": {"type": "approximate", "city": "Oslo", "country": "NO"}}
_CHATS: Json = {"type": "function", "function": {"name": "run", "parameters": SCHEMA}}
# By vendor, its API, the tools that it is sent without and with one of the client's own, and what is left out then.
SEARCHES: Mapping[str, tuple[str, list[Json], int, str]] = {
    "anthropic": ("messages", [{"type": "web_search_20250305", "name": "web_search", **_WHERE}], 2, ""),
    "openai": ("responses", [{"type": "web_search", **_WHERE}], 2, ""),
    "google": ("gemini", [{"googleSearch": {}}], 1, "web_search_options"),
}


@pytest.mark.parametrize("vendor", SEARCHES)
async def test_a_search_that_chat_offers_is_its_vendors_own_where_there_is_one(serve: Serve, vendor: str) -> None:
    api, tools, n_beside, left_out = SEARCHES[vendor]
    ask: Json = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "web_search_options": NEAR}
    config = {"providers": {"alpha": speaking(api, preset=vendor)}}
    async with serve(alpha=SAID[api], config=config) as running:
        async with running.post(ask) as response:
            assert response.status == 200, await response.read()
        async with running.post({**ask, "tools": [_CHATS]}) as response:
            assert response.status == 200, await response.read()
            assert left_out in response.headers.get("x-holeshot-dropped", "")
        alone, beside = (each.body for each in running["alpha"].received)
        assert alone["tools"] == tools
        assert len(beside["tools"]) == n_beside


@pytest.mark.parametrize("api", ["chat", "messages", "responses", "gemini"])
async def test_elsewhere_it_is_left_out_and_told(serve: Serve, api: str) -> None:
    ask: Json = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "web_search_options": NEAR}
    unknown = Status(400, {"error": {"message": "Unrecognized request argument supplied: web_search_options"}})
    async with serve(alpha=SAID[api], config={"providers": {"alpha": speaking(api)}}) as running:
        if api == "chat":
            running["alpha"].answers = lambda body: [unknown] if "web_search_options" in body else answer("Hello")
        async with running.post(ask) as response:
            assert response.status == 200, await response.read()
            assert response.headers["x-holeshot-dropped"] == "web_search_options"
        assert "search" not in json.dumps(running["alpha"].received[-1].body)


async def test_each_that_is_refused_after_another_is_told_by_its_place_in_the_clients_list(serve: Serve) -> None:
    def answers(body: Json) -> list[Any]:
        kind = next((each["type"] for each in body["tools"] if each["type"] != "function"), None)
        if kind is None:
            return list(answer("Hello"))
        said = f"Invalid value: '{kind}'. Supported values are: 'function' and 'custom'."
        return [Status(400, {"error": {"message": said, "param": "tools[1].type", "code": "invalid_value"}})]

    tools = [_CHATS, {"type": "web_search"}, {"type": "image_generation"}]
    ask: Json = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "tools": tools}
    async with serve(alpha=answer("Hello")) as running:
        running["alpha"].answers = answers
        for _ in range(2):
            async with running.post(ask) as response:
                assert response.status == 200, await response.read()
                assert response.headers["x-holeshot-dropped"] == "tools[1], tools[2]"
        assert counts(running, "alpha") == [4]
