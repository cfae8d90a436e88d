"""Screenshots of an agent's earlier turns and tools, before models that see none: notes stand in their place."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from providers.simulator import Raw, Step, answer
from tests.app.gateway.apis.test_dialects import RESPONSE_BYTES
from tests.app.gateway.refusals.test_refused_fields import SEES_NOTHING, refused
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve

pytestmark = pytest.mark.asyncio(loop_scope="module")
URL = "data:image/png;base64,iVBORw0KGgo="
SHOWN: Mapping[str, Any] = {
    "chat": {"type": "image_url", "image_url": {"url": URL}},
    "responses": {"type": "input_image", "image_url": URL},
    "messages": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
    "gemini": {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
}
PATHS = {
    "chat": ("/v1/chat/completions", "messages"),
    "responses": ("/v1/responses", "input"),
    "messages": ("/v1/messages", "messages"),
    "gemini": (f"/v1beta/models/{MODEL}:generateContent", "contents"),
}
TURNS: Mapping[str, Callable[[str, Any], dict[str, Any]]] = {
    "chat": lambda role, part: {"role": role, "content": [{"type": "text", "text": "See"}, *part]},
    "messages": lambda role, part: {"role": role, "content": [{"type": "text", "text": "See"}, *part]},
    "responses": lambda role, part: {
        "role": role,
        "content": [{"type": "output_text" if role == "assistant" else "input_text", "text": "See"}, *part],
    },
    "gemini": lambda role, part: {
        "role": "model" if role == "assistant" else role,
        "parts": [{"text": "See"}, *part],
    },
}
# The call of a tool, and its result, which is a picture.
RESULTS: Mapping[str, Any] = {
    "chat": [
        {
            "role": "assistant",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "(below)"},
        TURNS["chat"]("user", [SHOWN["chat"]]),
    ],
    "responses": [
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [SHOWN["responses"]]},
    ],
    "messages": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [SHOWN["messages"]]}],
        },
    ],
    "gemini": [
        {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "name": "look",
                        "response": {"output": "(below)"},
                        "parts": [SHOWN["gemini"]],
                    }
                },
                SHOWN["gemini"],
            ],
        },
    ],
}
NAMES: Mapping[str, tuple[str, str]] = {
    "chat": ("messages[0].content[1]", "messages[3].content[1]"),
    "responses": ("input[0].content[1]", "input[2].output[0]"),
    "messages": ("messages[0].content[1]", "messages[2].content[0].content[0]"),
    "gemini": ("contents[0].parts[1]", "contents[2].parts[0].functionResponse.parts[0], contents[2].parts[1]"),
}
BLIND: Mapping[str, Any] = {"deployment": "alpha/m", "capabilities": {"vision": False}}
HOW = pytest.mark.parametrize("deployment", [BLIND, "alpha/m"], ids=["configured", "learnt"])
APIS = pytest.mark.parametrize("api", PATHS)


def seeing_nothing(body: Any) -> Sequence[Step]:
    return refused(SEES_NOTHING) if '"image_url"' in json.dumps(body) else answer("Hello")


def earlier(api: str) -> list[Any]:
    turn = TURNS[api]
    return [turn("user", [SHOWN[api]]), turn("assistant", []), turn("user", [])]


def of_tool(api: str) -> list[Any]:
    return [TURNS[api]("user", []), *RESULTS[api]]


async def ask(running: RunningGateway, api: str, turns: Sequence[Any]) -> tuple[int, str | None, str | None, str]:
    """Return the status, who answered, what was left out, and the text of the answer."""
    path, prompt = PATHS[api]
    body: dict[str, Any] = {prompt: turns} if api == "gemini" else {"model": MODEL, "max_tokens": 99, prompt: turns}
    if api == "responses":
        body["max_output_tokens"] = body.pop("max_tokens")
    async with running.post(body, path=path) as response:
        who, dropped = (response.headers.get(f"x-holeshot-{name}") for name in ("deployment", "dropped"))
        return response.status, who, dropped, await response.text()


def models(*deployments: Any, **more: Any) -> dict[str, Any]:
    return {"models": {MODEL: {"deployments": list(deployments), "race": {"mode": "single"}, **more}}}


@HOW
@APIS
async def test_a_session_with_a_picture_in_its_history_goes_on_where_nobody_sees(
    serve: Serve, api: str, deployment: Any
) -> None:
    async with serve(alpha=None, config=models(deployment)) as running:
        running["alpha"].answers = seeing_nothing
        for turns, dropped in zip((earlier(api), of_tool(api)), NAMES[api], strict=True):
            status, who, told, said = await ask(running, api, turns)
            assert (status, who, told) == (200, "alpha/m", dropped), said
            sent = json.dumps(running["alpha"].received[-1].body)
            assert "sees no pictures" in sent
            assert "iVBORw0KGgo" not in sent
        # A model that was not known to see nothing was asked once with a picture.
        assert len(running["alpha"].received) == (2 if deployment is BLIND else 3)


@HOW
@APIS
async def test_a_picture_that_the_user_asks_about_is_not_left_out(serve: Serve, api: str, deployment: Any) -> None:
    async with serve(alpha=None, config=models(deployment)) as running:
        running["alpha"].answers = seeing_nothing
        turns = [TURNS[api]("user", []), TURNS[api]("assistant", []), TURNS[api]("user", [SHOWN[api]])]
        for sent in (1, 2):
            status, _, _, said = await ask(running, api, turns)
            words = "does not support images" if deployment is BLIND else "unknown variant"
            assert (status, words in said) == (400, True)
            assert len(running["alpha"].received) == (0 if deployment is BLIND else sent)


async def test_a_turn_that_has_to_be_a_text_says_so_if_it_is_the_users_and_has_a_picture(serve: Serve) -> None:
    def answers(body: Any) -> Sequence[Step]:
        [*shown] = (str(at) for at, turn in enumerate(body["messages"]) if '"image_url"' in json.dumps(turn))
        return refused(f"messages[{shown[0]}].content must be a string") if shown else answer("Hello")

    async with serve(alpha=None, config=models("alpha/m")) as running:  # as Groq; the lists of texts are tried first
        running["alpha"].answers = answers
        for sent in (3, 4):
            assert (await ask(running, "chat", earlier("chat")))[:3] == (200, "alpha/m", NAMES["chat"][0])
            assert len(running["alpha"].received) == sent


@APIS
async def test_a_tools_picture_is_known_by_such_a_refusal_too(serve: Serve, api: str) -> None:
    def answers(body: Any) -> Sequence[Step]:
        [*shown] = (str(at) for at, turn in enumerate(body["messages"]) if '"image_url"' in json.dumps(turn))
        return refused(f"messages[{shown[0]}].content must be a string") if shown else answer("Hello")

    async with serve(alpha=None, config=models("alpha/m")) as running:  # a turn is put in before it is asked once more
        running["alpha"].answers = answers
        for sent in (3, 4):
            assert (await ask(running, api, of_tool(api)))[:3] == (200, "alpha/m", NAMES[api][1])
            assert len(running["alpha"].received) == sent


async def test_that_a_tools_result_has_to_be_a_text_says_nothing_of_the_users_pictures(serve: Serve) -> None:
    def answers(body: Any) -> Sequence[Step]:
        tools = (str(at) for at, turn in enumerate(body["messages"]) if turn["role"] == "tool")
        [*lists] = (at for at in tools if isinstance(body["messages"][int(at)]["content"], list))
        return refused(f"messages[{lists[0]}].content must be a string") if lists else answer("Hello")

    async with serve(alpha=None, config=models("alpha/m")) as running:
        running["alpha"].answers = answers
        shown = TURNS["chat"]("user", [SHOWN["chat"]])
        call, result, _ = RESULTS["chat"]
        assert (await ask(running, "chat", [shown, call, {**result, "content": [SHOWN["chat"]]}]))[0] == 400
        assert (await ask(running, "chat", [shown]))[:3] == (200, "alpha/m", None)
        assert "iVBORw0KGgo" in json.dumps(running["alpha"].received[-1].body)


@APIS
async def test_a_session_goes_on_behind_a_refused_picture_once_the_user_asks_something_else(
    serve: Serve, api: str
) -> None:
    turn = TURNS[api]
    before = [turn("user", []), turn("assistant", [])]
    async with serve(alpha=answer("Hello"), config=models(BLIND)) as running:
        for turns in ([turn("user", [SHOWN[api]])], [turn("user", []), turn("user", [SHOWN[api]])]):
            assert (await ask(running, api, [*before, *turns]))[0] == 400
        told = f"{PATHS[api][1]}[2].{'parts' if api == 'gemini' else 'content'}[1]"
        went_on = await ask(running, api, [*before, turn("user", [SHOWN[api]]), turn("user", [])])
        assert went_on[:3] == (200, "alpha/m", told)
        # Without an answer before, both may be one question.
        assert (await ask(running, api, [turn("user", [SHOWN[api]]), turn("user", [])]))[0] == 400


@HOW
async def test_who_sees_pictures_is_asked_first_and_gets_them(serve: Serve, deployment: Any) -> None:
    async with serve(alpha=None, beta=answer("Hello"), config=models(deployment, "beta/m")) as running:
        running["alpha"].answers = seeing_nothing
        running.prefer("alpha", "beta")
        shown = TURNS["chat"]("user", [SHOWN["chat"]])
        for turns in (earlier("chat"), [shown], earlier("chat")):  # also after a decision about the same shape
            assert (await ask(running, "chat", turns))[:3] == (200, "beta/m", None)
            assert "iVBORw0KGgo" in json.dumps(running["beta"].received[-1].body)
        running["beta"].answers = lambda _: refused("Service unavailable", 503)
        status, who, dropped, _ = await ask(running, "chat", earlier("chat"))
        assert (status, who, dropped) == (200, "alpha/m", NAMES["chat"][0])


@HOW
async def test_a_fallback_that_sees_pictures_comes_before_notes(serve: Serve, deployment: Any) -> None:
    config = models(deployment, fallbacks=["spare"])
    config["models"]["spare"] = {"deployments": ["beta/m"]}
    async with serve(alpha=None, beta=answer("Hello"), config=config) as running:
        running["alpha"].answers = seeing_nothing
        for _ in range(2):
            assert (await ask(running, "chat", earlier("chat")))[:3] == (200, "beta/m", None)
        assert "iVBORw0KGgo" in json.dumps(running["beta"].received[-1].body)


OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "(below)"}
RETURNED = {"type": "tool_result", "tool_use_id": "c1", "content": "(below)"}
RESPONSE = {"functionResponse": {"name": "look", "response": {"output": "(below)"}}}
WORDS = {"type": "text", "text": "[Request interrupted by user]"}
# What programs send behind a result that has no place for pictures: pi and older Codex a turn, Claude Code the same
# turn (the pages of a PDF).
BEHIND_RESULTS: Mapping[str, tuple[str, Sequence[Any], str]] = {
    "a turn of responses": (
        "responses",
        [RESULTS["responses"][0], OUTPUT, TURNS["responses"]("user", [SHOWN["responses"]])],
        "input[3].content[1]",
    ),
    "a turn of messages": (
        "messages",
        [
            RESULTS["messages"][0],
            {"role": "user", "content": [RETURNED]},
            {"role": "user", "content": [SHOWN["messages"]]},
        ],
        "messages[3].content[0]",
    ),
    "the same turn": (
        "messages",
        [RESULTS["messages"][0], {"role": "user", "content": [RETURNED, SHOWN["messages"], SHOWN["messages"], WORDS]}],
        "messages[2].content[1], messages[2].content[2]",
    ),
    "a turn of gemini": (
        "gemini",
        [
            RESULTS["gemini"][0],
            {"role": "user", "parts": [RESPONSE]},
            {"role": "user", "parts": [SHOWN["gemini"]]},
        ],
        "contents[3].parts[0]",
    ),
}
# The user's own: behind words of the user, or behind a turn that says that the tools were stopped.
OWN: Mapping[str, tuple[str, Sequence[Any]]] = {
    "messages": (
        "messages",
        [RESULTS["messages"][0], {"role": "user", "content": [RETURNED, WORDS, SHOWN["messages"]]}],
    ),
    "responses": (
        "responses",
        [
            RESULTS["responses"][0],
            OUTPUT,
            {"role": "user", "content": "<turn_aborted>"},
            TURNS["responses"]("user", [SHOWN["responses"]]),
        ],
    ),
}


@HOW
@pytest.mark.parametrize("name", BEHIND_RESULTS)
async def test_a_picture_directly_behind_a_tools_result_is_the_tools(serve: Serve, name: str, deployment: Any) -> None:
    api, turns, dropped = BEHIND_RESULTS[name]
    async with serve(alpha=None, config=models(deployment)) as running:
        running["alpha"].answers = seeing_nothing
        status, who, told, said = await ask(running, api, [TURNS[api]("user", []), *turns])
        assert (status, who, told) == (200, "alpha/m", dropped), said


@pytest.mark.parametrize("name", OWN)
async def test_a_picture_of_the_user_behind_tools_that_were_stopped_is_not_left_out(serve: Serve, name: str) -> None:
    api, turns = OWN[name]
    async with serve(alpha=answer("Hello"), config=models(BLIND)) as running:
        status, _, _, said = await ask(running, api, [TURNS[api]("user", []), *turns])
        assert (status, "does not support images" in said) == (400, True)


@HOW
@APIS
@pytest.mark.parametrize("status", [503, 429, 401])
async def test_if_the_fallback_that_sees_pictures_fails_notes_stand_in_their_place(
    serve: Serve, api: str, deployment: Any, status: int
) -> None:
    config = models(deployment, fallbacks=["spare"])
    config["models"]["spare"] = {"deployments": ["beta/m"]}
    async with serve(alpha=None, beta=None, config=config) as running:
        running["alpha"].answers = seeing_nothing
        running["beta"].answers = lambda _: refused("No room", status)
        assert (await ask(running, api, of_tool(api)))[:3] == (200, "alpha/m", NAMES[api][1])
        assert len(running["beta"].received) >= 1
        # The user's own picture is never left out: the client hears of the model that sees it.
        asked = [TURNS[api]("user", [SHOWN[api]])]
        assert (await ask(running, api, asked))[0] != 200


async def test_where_no_model_sees_the_asked_one_answers(serve: Serve) -> None:
    config = models(BLIND, fallbacks=["spare"])
    config["models"]["spare"] = {"deployments": [{**BLIND, "deployment": "beta/m"}]}
    async with serve(alpha=answer("Hello"), beta=answer("Hi"), config=config) as running:
        assert (await ask(running, "chat", of_tool("chat")))[:3] == (200, "alpha/m", NAMES["chat"][1])
        running["alpha"].answers = lambda _: refused("No room", 503)
        assert (await ask(running, "chat", of_tool("chat")))[:3] == (200, "beta/m", NAMES["chat"][1])
        assert len(running["alpha"].received) <= 3
        running["beta"].answers = lambda _: refused("No room", 503)
        assert (await ask(running, "chat", of_tool("chat")))[0] in {502, 503}
        assert len(running["beta"].received) <= 3


async def test_a_fallback_that_sees_comes_before_one_that_does_not(serve: Serve) -> None:
    config = models("alpha/m", fallbacks=["blind", "spare"])
    config["models"] |= {
        "blind": {"deployments": [{**BLIND, "deployment": "beta/m"}]},
        "spare": {"deployments": ["gamma/m"]},
    }
    fails = lambda _: refused("No room", 503)  # noqa: E731 - a script
    async with serve(alpha=None, beta=answer("Hi"), gamma=answer("Hello"), config=config) as running:
        running["alpha"].answers = fails
        assert (await ask(running, "chat", of_tool("chat")))[:3] == (200, "gamma/m", None)
        assert running["beta"].received == []
        running["gamma"].answers = fails
        assert (await ask(running, "chat", of_tool("chat")))[:3] == (200, "beta/m", NAMES["chat"][1])


async def test_what_a_call_says_of_pictures_stays_as_it_is(serve: Serve) -> None:
    said = {"type": "image", "inlineData": {"mimeType": "image/png"}}
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "draw", "input": said}]}
    result = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [SHOWN["messages"]]}],
    }
    async with serve(alpha=answer("Hello"), config=models(BLIND)) as running:
        turns = [{"role": "user", "content": "Draw"}, call, result]
        assert (await ask(running, "messages", turns))[0] == 200
        calls = running["alpha"].received[-1].body["messages"][1]["tool_calls"]
        assert json.loads(calls[0]["function"]["arguments"]) == said


async def test_a_mark_for_the_cache_and_a_beginning_of_the_answer_stay(serve: Serve) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    marked = {**SHOWN["messages"], **mark}
    config = {**models(BLIND), "providers": {"alpha": {"apis": ["messages"]}}}
    turn, beginning = TURNS["messages"], {"role": "assistant", "content": "{"}
    async with serve(alpha=None, config=config) as running:
        running["alpha"].answers = lambda _: refused("Stop", 400)
        await ask(running, "messages", [turn("user", [marked]), turn("assistant", []), turn("user", []), beginning])
        sent = running["alpha"].received[-1].body["messages"]
        assert sent[0]["content"][1] == {"type": "text", "text": sent[0]["content"][1]["text"], **mark}
        asked = [turn("user", []), turn("assistant", []), turn("user", [marked]), beginning]
        assert (await ask(running, "messages", asked))[0] == 400
        assert len(running["alpha"].received) == 1


@HOW
async def test_a_picture_stays_away_where_the_call_is_asked_in_another_form_too(serve: Serve, deployment: Any) -> None:
    def answers(body: Any) -> Sequence[Step]:
        if "iVBORw0KGgo" in json.dumps(body):
            return refused("This model does not support image input")
        kinds = [tool["type"] for tool in body["tools"]]
        if kinds != ["function"]:
            return refused(f"Invalid value: '{kinds[0]}'. Supported values are: 'function'.", param="tools[0].type")
        return [Raw(RESPONSE_BYTES, token=True)]

    path, _ = PATHS["responses"]
    body = {"model": MODEL, "input": of_tool("responses"), "tools": [{"type": "custom", "name": "apply_patch"}]}
    config = {**models(deployment), "providers": {"alpha": {"apis": ["responses"]}}}
    async with serve(alpha=None, config=config) as running:
        running["alpha"].answers = answers
        for _ in range(2):
            async with running.post(body, path=path) as response:
                assert response.status == 200, await response.text()
                assert response.headers["x-holeshot-dropped"] == NAMES["responses"][1]
        assert len(running["alpha"].received) == (3 if deployment is BLIND else 4)  # each refusal, and two answers
