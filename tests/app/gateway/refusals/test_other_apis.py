"""Providers that refuse the API in which they are asked: they are asked in another one that they have."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from providers.simulator import Raw, Status, Step, answer
from tests.app.gateway.apis.test_dialects import MESSAGE_BYTES, RESPONSE_BYTES, speaking
from tests.app.gateway.apis.test_gemini import TEXT_BYTES as GEMINI_BYTES
from tests.app.gateway.rules.asking import named
from tests.app.gateway.rules.table import item_call, responded, response_begun, response_call, response_end
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.app.gateway.shared_gateway import SharedGateways

pytestmark = pytest.mark.asyncio(loop_scope="module")
ONLY_RESPONSES = "This model is only supported in v1/responses and not in v1/chat/completions."
TOOLS_IN_RESPONSES = (
    "Function tools with reasoning_effort are not supported for gpt-5.6-terra in /v1/chat/completions. To use function"
    " tools, use /v1/responses or set reasoning_effort to 'none'."
)
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
TURN = [{"role": "user", "content": "Hi"}]
ANSWERS: dict[str, Sequence[Step]] = {
    "chat": answer("Hello"),
    "messages": [Raw(MESSAGE_BYTES, token=True)],
    "responses": [Raw(RESPONSE_BYTES, token=True)],
    "gemini": [Raw(GEMINI_BYTES, token=True)],
}
CLIENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": TURN}),
    "messages": ("/v1/messages", {"max_tokens": 50, "messages": TURN}),
    "responses": ("/v1/responses", {"input": "Hi"}),
    "gemini": (f"/v1beta/models/{MODEL}:generateContent", {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}),
}


def refusing(message: str, status: int = 404, code: str | None = None, param: str | None = "model") -> Status:
    return Status(
        status, {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}
    )


def asked(running: RunningGateway, provider: str = "alpha") -> list[str]:
    """Return the APIs of all requests to a provider."""
    names = {"chat/completions": "chat", "responses": "responses", "messages": "messages"}
    return [names[each.path.removeprefix("/v1/")] for each in running.received(provider)]


def refuse(running: RunningGateway, **refusals: Step) -> None:
    """Have alpha refuse some APIs, and answer in all others."""

    def answers(_: Any) -> Sequence[Step]:
        api = asked(running)[-1]
        return [refusals[api]] if api in refusals else ANSWERS[api]

    running["alpha"].answers = answers


def config(*apis: str, mode: str = "single", **others: Any) -> dict[str, Any]:
    return {
        "providers": {"alpha": speaking(*apis), **others},
        "models": {MODEL: {"race": {"mode": mode}}},
    }


async def call(running: RunningGateway, client: str, *, stream: Any = False, **fields: Any) -> tuple[int, str, Any]:
    path, body = CLIENTS[client]
    if client == "gemini":
        path = path.replace("generateContent", "streamGenerateContent?alt=sse") if stream else path
        body = {**body, **fields}
    else:
        body = {"model": MODEL + running.suffix, **body, "stream": stream, **fields}
    async with running.post(body, path=path) as response:
        return response.status, (await response.read()).decode(), response.headers


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", ["chat", "messages", "gemini"])
async def test_a_model_that_only_responses_has_is_asked_there_and_from_then_on(
    serve: Serve, client: str, *, stream: bool
) -> None:
    async with serve(alpha=None, config=config("chat", "responses")) as running:
        refuse(running, chat=refusing(ONLY_RESPONSES))
        for _ in range(2):
            status, said, _ = await call(running, client, stream=stream)
            assert (status, "Hello" in said) == (200, True)
        assert asked(running) == ["chat", "responses", "responses"]
        rows = await running.rows("select role, outcome, error_kind, is_extra from attempts order by call_id, number")
    assert [(row["role"], row["outcome"], row["error_kind"]) for row in rows] == [
        ("primary", "failed", "no_such_api"),
        ("api", "won", None),
        ("primary", "won", None),
    ]
    assert not any(row["is_extra"] for row in rows)


@pytest.mark.parametrize(
    "refusal",
    [
        refusing("This is not a chat model and thus not supported in the v1/chat/completions endpoint. Did you mean to"
                 " use v1/completions?"),
        refusing("The chatCompletion operation does not work with the specified model, gpt-5-codex. Please choose"
                 " different model and try again.", 400, "OperationNotSupported"),
        refusing("The requested operation is unsupported.", 400, "OperationNotSupported"),
        refusing('model "gpt-5.4" is not accessible via the /chat/completions endpoint', 400,
                 "unsupported_api_for_model"),
        Status(404, b"404 page not found", {"content-type": "text/plain"}),
        Status(405, {"detail": "Method Not Allowed"}),
        Status(501, {"error": {"code": 501, "message": "This server does not support chat", "type": "not_supported"}}),
    ],
)  # fmt: skip
async def test_each_vendors_words_lead_to_the_other_api(shared: SharedGateways, refusal: Step) -> None:
    async with shared.row(alpha=None, config=config("chat", "completions", "responses")) as running:
        refuse(running, chat=refusal)
        for _ in range(2):
            assert (await call(running, "chat"))[0] == 200
        assert asked(running) == ["chat", "responses", "responses"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", ["messages", "responses"])
@pytest.mark.parametrize(
    "refusal",
    [
        Status(404, b"404 page not found", {"content-type": "text/plain"}),
        Status(404, {"detail": "Not Found"}),
        Status(404, {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}),
        Status(404, b"<!DOCTYPE html><html><head><title>404 Not Found</title></head></html>"),
        Status(405, {"detail": "Method Not Allowed"}),
        Status(501, b"not implemented"),
        Status(200, {"error": "Unexpected endpoint or method. (POST /v1/messages)"}),
    ],
)
async def test_a_server_that_lacks_a_path_is_asked_in_chat_and_from_then_on(
    shared: SharedGateways, client: str, refusal: Step, *, stream: bool
) -> None:
    async with shared.row(alpha=None, config=config("chat", "messages", "responses")) as running:
        refuse(running, messages=refusal, responses=refusal)
        for _ in range(2):
            status, said, _ = await call(running, client, stream=stream)
            assert (status, "Hello" in said) == (200, True)
        assert asked(running) == [client, "chat", "chat"]


async def test_tools_that_only_responses_take_go_there_and_other_calls_stay_in_chat(serve: Serve) -> None:
    async with serve(alpha=None, config=config("chat", "responses")) as running:
        refusal = refusing(TOOLS_IN_RESPONSES, 400, param="reasoning_effort")
        running["alpha"].answers = lambda body: (
            [refusal] if (api := asked(running)[-1]) == "chat" and body.get("tools") else ANSWERS[api]
        )
        requests: list[dict[str, Any]] = [{"tools": TOOLS, "reasoning_effort": "low"}, {"tools": TOOLS}, {}]
        for fields in requests:
            assert (await call(running, "chat", **fields))[0] == 200
        assert running["alpha"].received[1].body["reasoning"] == {"effort": "low"}
        assert asked(running) == ["chat", "responses", "responses", "chat"]


async def test_a_server_whose_messages_have_openais_tools_alone_is_asked_in_chat(serve: Serve) -> None:
    tool = {"type": "custom", "name": "look", "input_schema": {"type": "object", "properties": {}}}
    async with serve(alpha=None, config=config("chat", "messages")) as running:
        refusal = Status(400, {"error": {"message": "[{'loc': ('body', 'tools', 0, 'type'), 'msg': \"Input should be"
                                                    " 'function'\"}]"}})  # fmt: skip
        running["alpha"].answers = lambda body: (
            [refusal] if (api := asked(running)[-1]) == "messages" and body.get("tools") else ANSWERS[api]
        )
        for _ in range(2):
            status, said, _ = await call(running, "messages", tools=[tool])
            assert (status, "Hello" in said) == (200, True)
        await call(running, "messages")
        assert asked(running) == ["messages", "messages", "chat", "chat", "messages"]


PATCH: dict[str, Any] = {"type": "custom", "name": "apply_patch", "format": {"type": "text"}}
LOOK: dict[str, Any] = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
SEARCH: dict[str, Any] = {"type": "web_search"}
_TAGS = "Input tag 'custom' found using 'type' does not match any of the expected tags: 'function', 'mcp'"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "refusal",
    [
        Status(422, b"Failed to deserialize the JSON body into the target type: tools[1].type: unknown variant"
                    b" `custom`, expected one of `function`, `web_search`, `mcp`", {"content-type": "text/plain"}),
        refusing("Invalid value: 'custom'. Supported values are: 'function' and 'mcp'.", 400, "invalid_value",
                 "tools[1].type"),
        refusing("Tool 'custom' is not supported with m.", 400, param="tools"),
        refusing("Unsupported tool type: custom", 400, param=None),
        refusing("Invalid tool type 'custom'. Only 'function' is supported.", 400, param="tools"),
        refusing("tools[1].type 'custom' is not supported", 400, param=None),
        Status(422, {"detail": [{"type": "union_tag_invalid", "loc": ["body", "tools", 1], "msg": _TAGS}]}),
    ],
)  # fmt: skip
async def test_a_type_of_tools_that_one_api_refuses_goes_to_another_and_other_calls_stay(
    shared: SharedGateways, refusal: Step, *, stream: bool
) -> None:
    async with shared.row(alpha=None, config=config("chat", "responses")) as running:
        running["alpha"].answers = lambda body: (
            [refusal] if (api := asked(running)[-1]) == "responses" and PATCH in body["tools"] else ANSWERS[api]
        )
        for tools in ([LOOK, PATCH], [SEARCH, PATCH, LOOK]):
            status, said, _ = await call(running, "responses", stream=stream, tools=tools)
            assert (status, "Hello" in said) == (200, True)
        await call(running, "responses", stream=stream, tools=[LOOK, SEARCH])
        assert asked(running) == ["responses", "chat", "chat", "responses"]
        names = [tool["function"]["name"] for tool in running.received("alpha")[1].body["tools"]]
        assert names == ["look", "apply_patch"]


NAMESPACE = {"type": "namespace", "name": "mcp", "tools": [LOOK]}
_WORDS = (
    "Invalid value: '{}'. Supported values are: 'function'.",
    "Werkzeuge dieser Art gibt es nicht (tools[1].type)",
)


def functions_alone(words: str, called: str, arguments: str) -> Callable[[Any], Sequence[Step]]:
    """Return the answers of a server of Responses that refuses all tools but functions, and calls one of these."""

    def answers(body: Any) -> Sequence[Step]:
        others = [tool["type"] for tool in body["tools"] if tool["type"] != "function"]
        if others:
            return [refusing(words.format(others[0]), 400, param="tools")]
        whole = responded(item_call(0, "call_1", called, arguments))
        events = (
            response_begun(),
            *response_call(0, "call_1", called, arguments, whole=arguments),
            response_end(whole),
        )
        return [Raw(named(*events), token=True)]

    return answers


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("words", _WORDS)
async def test_a_server_of_responses_with_functions_alone_gets_other_tools_as_functions(
    serve: Serve, words: str, *, stream: bool
) -> None:
    async with serve(alpha=None, config=config("responses")) as running:
        running["alpha"].answers = functions_alone(words, "apply_patch", json.dumps({"input": "*** a patch"}))
        for sendings in (2, 3):
            status, said, headers = await call(running, "responses", stream=stream, tools=[LOOK, PATCH, SEARCH])
            assert (status, '"custom_tool_call"' in said, "*** a patch" in said) == (200, True, True), said
            assert "tools[2]" in headers["x-holeshot-dropped"]  # the search that is only offered
            assert len(running["alpha"].received) == sendings
        assert [tool["name"] for tool in running["alpha"].received[-1].body["tools"]] == ["look", "apply_patch"]
        turn = [
            {"role": "user", "content": "Hi"},
            {"type": "custom_tool_call", "call_id": "call_1", "name": "apply_patch", "input": "*** a patch"},
            {"type": "custom_tool_call_output", "call_id": "call_1", "output": "done"},
        ]
        assert (await call(running, "responses", stream=stream, tools=[LOOK, PATCH], input=turn))[0] == 200
        assert len(running["alpha"].received) == 4
        sent = running["alpha"].received[-1].body["input"]
        assert [item.get("type", "message") for item in sent] == ["message", "function_call", "function_call_output"]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_items_about_tools_that_a_server_of_responses_refuses_are_those_of_functions(
    serve: Serve, *, stream: bool
) -> None:
    def answers(body: Any) -> Sequence[Step]:
        kinds = [item.get("type", "message") for item in body["input"]]
        other = next((kind for kind in kinds if kind not in {"message", "function_call", "function_call_output"}), "")
        words = f"Invalid value: '{other}'. Supported values are: 'message' and 'function_call'."
        if other:
            return [refusing(words, 400, "invalid_value", f"input[{kinds.index(other)}].type")]
        return functions_alone(_WORDS[0], "apply_patch", json.dumps({"input": "*** a patch"}))(body)

    said = {"role": "user", "content": "Hi"}
    added = {"type": "additional_tools", "role": "developer", "tools": [LOOK, PATCH]}
    called = [
        {"type": "custom_tool_call", "call_id": "call_1", "name": "apply_patch", "input": "*** a patch"},
        {"type": "custom_tool_call_output", "call_id": "call_1", "output": "done"},
    ]
    async with serve(alpha=None, config=config("responses")) as running:
        running["alpha"].answers = answers
        for sendings, items in ((2, [added, said]), (3, [added, said]), (4, [added, said, *called])):
            status, told, _ = await call(running, "responses", stream=stream, input=items)
            assert (status, '"custom_tool_call"' in told) == (200, True), told
            assert len(running["alpha"].received) == sendings
            assert [tool["name"] for tool in running["alpha"].received[-1].body["tools"]] == ["look", "apply_patch"]
        # A search that is only offered, and was refused, does not stand for the items.
        assert (await call(running, "responses", stream=stream, input=[said, *called], tools=[PATCH, SEARCH]))[0] == 200
    async with serve(alpha=None, config=config("responses")) as running:  # only the history has what is refused
        running["alpha"].answers = answers
        for sendings in (2, 3):
            status, told, _ = await call(running, "responses", stream=stream, input=[said, *called], tools=[LOOK])
            assert (status, len(running["alpha"].received)) == (200, sendings), told


async def test_a_server_that_is_known_for_functions_alone_gets_them_at_once(serve: Serve) -> None:
    settings = config("responses")
    settings["providers"]["alpha"]["preset"] = "vllm"
    async with serve(alpha=None, config=settings) as running:
        running["alpha"].answers = functions_alone(_WORDS[0], "apply_patch", json.dumps({"input": "*** a patch"}))
        status, said, _ = await call(running, "responses", tools=[LOOK, PATCH])
        assert (status, '"custom_tool_call"' in said, len(running["alpha"].received)) == (200, True, 1), said


OFFERS: dict[str, tuple[Any, Any, str]] = {  # own tool, hosted tool, words
    "responses": (LOOK, SEARCH, "Invalid value: 'web_search'. Supported values are: 'function' and 'custom'."),
    "messages": (
        {"name": "look", "input_schema": {"type": "object"}},
        {"type": "web_search_20250305", "name": "web_search"},
        "tools.1: Input tag 'web_search_20250305' found using 'type' does not match any of the expected tags: 'custom'",
    ),
}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("client", [*OFFERS])
async def test_a_search_that_is_only_offered_is_left_out_where_its_type_is_refused(
    serve: Serve, client: str, *, stream: bool
) -> None:
    own, search, words = OFFERS[client]
    async with serve(alpha=None, config=config(client)) as running:
        running["alpha"].answers = lambda body: (
            [refusing(words, 400, param="tools")] if search in body["tools"] else ANSWERS[client]
        )
        for sendings in (2, 3):
            status, said, headers = await call(running, client, stream=stream, tools=[own, search])
            assert (status, headers["x-holeshot-dropped"]) == (200, "tools[1]"), said
            assert len(running["alpha"].received) == sendings
        assert running["alpha"].received[-1].body["tools"] == [own]
        assert (await call(running, client, stream=stream, tools=[search]))[0] == 400  # it is all that is asked for


_DECLARED = {"functionDeclarations": [{"name": "look", "parameters": {"type": "OBJECT"}}]}


@pytest.mark.parametrize(
    "words",
    [
        "Tool use with function calling is unsupported by the model.",
        "Please enable tool_config.include_server_side_tool_invocations to use Built-in tools with Function calling.",
        "Multiple tools are supported only when they are all search tools.",
        "Invalid JSON payload received. Unknown name \"googleSearch\" at 'tools[{at}]': Cannot find field.",
    ],
)
@pytest.mark.parametrize("tools", [[_DECLARED, {"googleSearch": {}}], [{**_DECLARED, "googleSearch": {}}]])
async def test_googles_search_beside_functions_is_left_out_where_it_is_refused(
    shared: SharedGateways, tools: list[Any], words: str
) -> None:
    at, path = len(tools) - 1, "/v1beta/models/{}:generateContent"
    error = {"code": 400, "message": words.format(at=at), "status": "INVALID_ARGUMENT"}
    search: dict[str, Any] = {"googleSearch": {}}
    async with shared.row(alpha=None, config={"providers": {"alpha": {"kind": "gemini"}}}) as running:
        running["alpha"].answers = lambda body: (
            [Status(400, {"error": error})]
            if "googleSearch" in json.dumps(body["tools"]) and body["tools"] != [search]
            else [Raw(GEMINI_BYTES, token=True)]
        )
        body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "tools": tools}
        for sendings in (2, 3):
            async with running.post(body, path=path.format(MODEL + running.suffix)) as response:
                await response.read()
            assert (response.status, response.headers["x-holeshot-dropped"]) == (200, f"tools[{at}].googleSearch")
            assert (len(running.received("alpha")), running.received("alpha")[-1].body["tools"]) == (
                sendings,
                [_DECLARED],
            )
        async with running.post({**body, "tools": [search]}, path=path.format(MODEL + running.suffix)) as response:
            await response.read()
        assert running.received("alpha")[-1].body["tools"] == [search]  # alone it is what the client wants


async def test_a_tool_of_a_namespace_is_called_by_its_name_in_it_where_functions_alone_are_taken(serve: Serve) -> None:
    async with serve(alpha=None, config=config("responses")) as running:
        running["alpha"].answers = functions_alone(_WORDS[0], "mcp__look", "{}")
        status, said, _ = await call(running, "responses", tools=[NAMESPACE])
        assert status == 200, said
        [item] = [each for each in json.loads(said)["output"] if each["type"] == "function_call"]
        assert (item["name"], item["namespace"]) == ("look", "mcp")


async def test_what_a_client_calls_its_functions_is_no_type_of_tools(serve: Serve) -> None:
    async with serve(alpha=None, config=config("chat", "responses")) as running:
        refuse(running, responses=refusing("Tool 'look' is not supported with m.", 400, param="tools"))
        assert (await call(running, "responses", tools=[LOOK]))[0] == 400
        assert asked(running) == ["responses"]


async def test_a_tool_that_the_other_api_cannot_offer_keeps_its_refusal(serve: Serve) -> None:
    async with serve(alpha=None, config=config("chat", "responses")) as running:
        refuse(running, responses=refusing("Unsupported tool type: web_search", 400, param="tools"))
        status, said, _ = await call(running, "responses", tools=[SEARCH])
        assert (status, "Unsupported tool type" in said, asked(running)) == (400, True, ["responses"])


async def test_a_server_of_a_kind_that_is_not_known_is_asked_in_what_it_may_have(serve: Serve) -> None:
    async with serve(alpha=None, config={"models": {MODEL: {"race": {"mode": "single"}}}}) as running:
        refuse(running, chat=Status(404, {"detail": "Not Found"}))
        for _ in range(2):
            assert (await call(running, "messages"))[0] == 200
        assert asked(running) == ["chat", "responses", "responses"]


async def test_the_apis_that_the_operator_names_at_the_deployment_are_all_there_are(serve: Serve) -> None:
    deployments = [{"deployment": "alpha/m", "apis": ["chat"]}]
    models = {MODEL: {"deployments": deployments, "race": {"mode": "single"}}}
    async with serve(alpha=None, config={"models": models}) as running:
        refuse(running, chat=refusing(ONLY_RESPONSES))
        status, said, _ = await call(running, "chat")
        assert (status, "only supported in v1/responses" in said, asked(running)) == (424, True, ["chat"])


async def test_a_model_that_does_not_exist_is_not_asked_for_elsewhere(serve: Serve) -> None:
    async with serve(alpha=None, config=config("chat", "responses")) as running:
        gone = refusing("The model `m` does not exist or you do not have access to it.", code="model_not_found")
        refuse(running, chat=gone)
        status, said, _ = await call(running, "chat")
        assert (status, "does not exist" in said, asked(running)) == (404, True, ["chat"])


async def test_where_every_api_is_refused_the_first_refusal_is_told(serve: Serve) -> None:
    async with serve(alpha=None, config=config("chat", "responses", "messages")) as running:
        running["alpha"].script = [Status(404, b"404 page not found")]
        status, said, _ = await call(running, "chat")
        assert (status, "provider_not_found" in said, len(asked(running))) == (424, True, 3)


async def test_a_request_that_loses_too_much_elsewhere_keeps_its_refusal(serve: Serve) -> None:
    async with serve(alpha=None, config=config("chat", "responses")) as running:
        refuse(running, chat=refusing(ONLY_RESPONSES, 400))
        status, said, _ = await call(running, "chat", n=2)
        assert (status, "only supported in v1/responses" in said, asked(running)) == (400, True, ["chat"])


async def test_what_is_lost_on_the_way_is_told(serve: Serve) -> None:
    models = {MODEL: {"deployments": [{"deployment": "alpha/m", "drop_params": True}], "race": {"mode": "single"}}}
    async with serve(alpha=None, config={**config("chat", "responses"), "models": models}) as running:
        refuse(running, chat=refusing(ONLY_RESPONSES))
        status, _, headers = await call(running, "chat", stop=["x"])
        assert (status, headers["x-holeshot-dropped"]) == (200, "stop")


async def test_a_request_that_must_not_be_sent_twice_is_not(serve: Serve) -> None:
    async with serve(alpha=None, config=config("chat", "responses")) as running:
        refuse(running, responses=Status(404, {"detail": "Not Found"}))
        status, _, _ = await call(running, "responses", store=True)
        assert (status, asked(running)) == (424, ["responses"])
        for _ in range(2):  # and the next one is asked at once where it may be answered
            assert (await call(running, "responses", store=True))[0] == 200
        assert asked(running) == ["responses", "chat", "chat"]


@pytest.mark.parametrize("client", ["chat", "messages"])
async def test_the_others_of_a_race_are_not_disturbed(serve: Serve, client: str) -> None:
    settings = config("chat", "responses", mode="race", beta=speaking("chat"))
    async with serve(alpha=None, beta=[Status(503)], config=settings) as running:
        refuse(running, chat=refusing(ONLY_RESPONSES))
        status, said, headers = await call(running, client, stream=True)
        assert (status, "Hello" in said, headers["x-holeshot-provider"]) == (200, True, "alpha")
        assert (asked(running), asked(running, "beta")) == (["chat", "responses"], ["chat"])


async def test_a_server_that_was_upgraded_is_found_again(serve: Serve) -> None:
    async with serve(alpha=None, config=config("chat", "messages")) as running:
        refuse(running, messages=Status(404, b"404 page not found"))
        await call(running, "messages")
        refuse(running, chat=Status(404, b"404 page not found"))
        for _ in range(2):
            assert (await call(running, "messages"))[0] == 200
        assert asked(running) == ["messages", "chat", "chat", "messages", "messages"]


@pytest.mark.parametrize(
    "message",
    [
        "Item with id 'rs_68af' not found. Items are not persisted when `store` is set to false.",
        "Previous response with id 'resp_123' not found.",
        "No such File object: file-abc123",
    ],
)
async def test_a_404_about_what_the_request_names_is_the_requests(serve: Serve, message: str) -> None:
    async with serve(alpha=None, config=config("chat", "responses")) as running:
        refuse(running, responses=refusing(message, param="input"))
        status, said, _ = await call(running, "responses")
        assert (status, message.rsplit(maxsplit=1)[-1].strip(".") in said, "no_such_api" in said) == (404, True, False)
        assert asked(running) == ["responses"]


@pytest.mark.parametrize(
    ("model", "api"), [("gpt-5-codex", "responses"), ("gpt-5-pro", "responses"), ("gpt-4o", "chat")]
)
async def test_what_the_table_says_of_a_model_is_known_before_any_refusal(serve: Serve, model: str, api: str) -> None:
    config = {"models": {MODEL: {"deployments": [f"openai/{model}"]}}}
    async with serve(openai=[Status(503, {"error": {"message": "busy"}})], config=config) as running:
        await call(running, "chat")
        assert asked(running, "openai") == [api]


async def test_a_model_that_no_api_takes_stays_in_rotation_for_the_others(serve: Serve) -> None:
    words = "This is not a chat model and thus not supported in the v1/chat/completions endpoint."
    async with serve(alpha=None, config=config("chat", "responses", "completions")) as running:
        refuse(running, chat=refusing(words), responses=refusing("m is not supported with the Responses API.", 400))
        status, said, _ = await call(running, "chat")
        assert (status, words in said, "no_such_api" in said) == (424, True, True)
        [row] = running.gateway.steering.leaderboard(MODEL).deployments
        assert row.state == "ok"


@pytest.mark.usefixtures("views")
async def test_all_views_agree_that_a_missing_api_is_no_error_of_its_deployment(serve: Serve) -> None:
    async with serve(alpha=None, config=config("chat", "responses")) as running:
        refuse(running, chat=refusing(ONLY_RESPONSES))
        assert (await call(running, "chat"))[0] == 200
        kinds = await running.rows("select error_kind from attempts order by number")
        assert [each["error_kind"] for each in kinds] == ["no_such_api", None]
        for view in ("throughput", "throughput_1h", "throughput_5m", "leaderboard"):
            assert [each["error_rate"] for each in await running.rows(f"select error_rate from {view}")] == [0.0], view
