"""What a model or its operator has run at a provider is sent there once at a time, and its clients are told why."""

from typing import Any

import pytest

from providers.simulator import Raw, answer
from tests.app.gateway.apis.test_dialects import MESSAGE_BYTES, RESPONSE_BYTES, speaking
from tests.app.gateway.responses.test_provider_state import answer_of
from tests.app.gateway.running_gateway import MODEL, Serve

SEARCH = {"tools": [{"type": "web_search"}]}
RACE = {"mode": "race", "width": 2, "audit_share": 0}


def of_model(*deployments: Any, **settings: Any) -> dict[str, Any]:
    return {"models": {MODEL: {"deployments": list(deployments), "race": RACE, **settings}}}


ONCE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a suffix of the model": (of_model("alpha/m:online", "beta/m:online"), {}),
    "the operator's field": (
        of_model(*({"deployment": f"{name}/m", "extra_body": {"enable_search": True}} for name in ("alpha", "beta"))),
        {},
    ),
    "the operator's tool": (
        of_model(*({"deployment": f"{name}/m", "extra_body": SEARCH} for name in ("alpha", "beta"))),
        {},
    ),
    "the operator's default": (of_model("alpha/m", "beta/m", defaults={"search_parameters": {"mode": "on"}}), {}),
    "the client's field": (of_model("alpha/m", "beta/m"), {"plugins": [{"id": "web"}]}),
}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("way", ONCE)
async def test_it_is_asked_for_once_and_told(serve: Serve, way: str, stream: bool) -> None:
    config, fields = ONCE[way]
    async with serve(alpha=answer("ok"), beta=answer("ok"), config=config) as running:
        async with running.chat(stream=stream, **fields) as response:
            await response.read()
        assert response.status == 200
        assert response.headers["x-holeshot-narrowed"] == "stateful"
        assert running.requests == 1


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        (of_model("alpha/m", "beta/m"), {"plugins": [{"id": "web", "enabled": False}]}),
        (of_model("alpha/m", "beta/m"), {"search_parameters": {"mode": "off"}}),
        (of_model("alpha/m:free", {"deployment": "beta/m", "extra_body": {"top_k": 4}}), {}),
    ],
)
async def test_what_is_switched_off_is_raced(serve: Serve, config: dict[str, Any], fields: dict[str, Any]) -> None:
    async with serve(alpha=answer("ok"), beta=answer("ok"), config=config) as running:
        async with running.chat(**fields) as response:
            await response.read()
        assert response.headers["x-holeshot-launched"] == "2"
        assert "x-holeshot-narrowed" not in response.headers


async def test_a_deployment_that_is_named_directly_or_in_a_list_is_told_by_its_name(serve: Serve) -> None:
    async with serve(alpha=answer("ok"), beta=answer("ok")) as running:
        for model, launched in (("alpha/m:online,beta/m:online", "1"), ("alpha/m,beta/m", "2")):
            async with running.chat({"x-holeshot-race": "race"}, model=model) as response:
                await response.read()
            assert response.headers["x-holeshot-launched"] == launched


async def test_explain_says_that_it_is_not_raced(serve: Serve) -> None:
    config = of_model("alpha/m:online", "beta/m:online")
    async with (
        serve(alpha=answer("ok"), beta=answer("ok"), config=config) as running,
        running.get(f"/leaderboard?explain=1&model={MODEL}") as response,
    ):
        [model] = (await response.json())["models"]
    assert len(model["explanation"]["launches"]) == 1
    assert model["explanation"]["narrowed"] == "stateful"


READ = {"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}}
PLAIN = {"models": {MODEL: {"deployments": ["alpha/m"]}}}


@pytest.mark.parametrize("choice", [{}, {"tool_choice": "required"}], ids=["free", "any"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_an_agent_that_may_search_works_without_at_a_model_that_cannot_and_is_told(
    serve: Serve, stream: bool, choice: dict[str, str]
) -> None:
    body = {"model": MODEL, "input": "Hi", "stream": stream, "tools": [READ, {"type": "web_search"}], **choice}
    async with serve(alpha=answer("ok"), config=PLAIN) as running:
        async with running.post(body, path="/v1/responses") as response:
            assert response.status == 200, await response.read()
            assert response.headers["x-holeshot-dropped"] == "tools[1]"
        assert [tool["function"]["name"] for tool in running["alpha"].received[0].body["tools"]] == ["read"]


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "web_search"}]},
        {"tools": [READ, {"type": "web_search"}], "tool_choice": {"type": "web_search"}},
        {"tools": [READ, {"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}]},
    ],
    ids=str,
)
async def test_what_a_client_came_for_is_not_left_out(serve: Serve, fields: dict[str, Any]) -> None:
    async with serve(alpha=answer("ok"), config=PLAIN) as running:
        async with running.post({"model": MODEL, "input": "Hi", **fields}, path="/v1/responses") as response:
            assert response.status == 400
            assert "drop_params: true leaves it out" in await response.text()
        assert running.requests == 0


async def test_of_two_deployments_the_one_that_can_search_answers(serve: Serve) -> None:
    config = {
        "models": {MODEL: {"deployments": ["alpha/m", {"deployment": "beta/m", "apis": ["responses"]}]}},
        "providers": {"beta": {"apis": ["responses"]}},
    }
    body = {"model": MODEL, "input": "Hi", "tools": [READ, {"type": "web_search"}]}
    async with serve(alpha=answer("ok"), beta=[Raw(RESPONSE_BYTES, token=True)], config=config) as running:
        async with running.post(body, path="/v1/responses") as response:
            await response.read()
        assert not running["alpha"].received
        assert running["beta"].received[0].body["tools"] == body["tools"]


_CHATS = {"type": "function", "function": {"name": "read", "parameters": READ["parameters"]}}
_ASK = {"messages": [{"role": "user", "content": "Hi"}]}
LEFT_OUT: dict[str, tuple[str, str, dict[str, Any]]] = {  # by client: another API, the path, and what it offers
    "Responses": ("chat", "/v1/responses", {"input": "Hi", "tools": [READ, {"type": "web_search"}]}),
    "Codex": (
        "chat",
        "/v1/responses",
        {"input": "Hi", "tools": [READ, {"type": "tool_search", "execution": "client"}, {"type": "web_search"}]},
    ),
    "pictures": (
        "messages",
        "/v1/responses",
        {"input": "Hi", "tools": [READ, {"type": "web_search"}, {"type": "image_generation"}]},
    ),
    "chat": ("messages", "/v1/chat/completions", {**_ASK, "tools": [_CHATS, {"type": "web_search"}]}),
    "chat's field": ("messages", "/v1/chat/completions", {**_ASK, "tools": [_CHATS], "web_search_options": {}}),
    "Messages": (
        "chat",
        "/v1/messages",
        {
            **_ASK,
            "max_tokens": 9,
            "tools": [
                {"name": "read", "input_schema": READ["parameters"]},
                {"type": "web_search_20250305", "name": "web_search"},
            ],
        },
    ),
    "Google": (
        "chat",
        f"/v1beta/models/{MODEL}:generateContent",
        {
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
            "tools": [{"functionDeclarations": [{"name": "read"}]}, {"googleSearch": {}}],
        },
    ),
}


@pytest.mark.parametrize("client", LEFT_OUT)
async def test_what_every_deployment_is_asked_without_cannot_run_twice_so_the_call_is_raced(
    serve: Serve, client: str
) -> None:
    api, path, body = LEFT_OUT[client]
    config = {"providers": {name: speaking(api) for name in ("alpha", "beta")}, **of_model("alpha/m", "beta/m")}
    script = answer("ok") if api == "chat" else [Raw(MESSAGE_BYTES, token=True)]
    named = {} if client == "Google" else {"model": MODEL}
    async with (
        serve(alpha=script, beta=script, config=config) as running,
        running.post({**named, **body}, path=path) as response,
    ):
        assert response.status == 200, await response.read()
        assert response.headers["x-holeshot-launched"] == "2"
        assert "x-holeshot-narrowed" not in response.headers
        assert response.headers["x-holeshot-dropped"]


@pytest.mark.parametrize("more", [{"store": True}, {"background": True}, {"previous_response_id": "resp_1"}], ids=str)
async def test_what_is_kept_is_asked_for_once_also_without_what_is_only_offered(
    serve: Serve, more: dict[str, Any]
) -> None:
    body = {"model": MODEL, "input": "Hi", "tools": [READ, {"type": "web_search"}], **more}
    async with (
        serve(alpha=answer("ok"), beta=answer("ok"), config=of_model("alpha/m", "beta/m")) as running,
        running.post(body, path="/v1/responses") as response,
    ):
        await response.read()
        assert running.requests < 2


NAMESPACE = {"type": "namespace", "name": "n", "description": "d"}
SPEAK = {"providers": {name: speaking("responses") for name in ("alpha", "beta")}, **of_model("alpha/m", "beta/m")}


@pytest.mark.parametrize(
    ("within", "launched"),
    [
        ([READ, {"type": "web_search"}], "1"),
        ([{**NAMESPACE, "tools": [READ, {"type": "code_interpreter", "container": {"type": "auto"}}]}], "1"),
        ([READ], "2"),
        ([{**NAMESPACE, "tools": [READ]}], "2"),
    ],
    ids=str,
)
@pytest.mark.parametrize("where", ["namespace", "additional_tools", "tool_search_output"])
async def test_what_runs_there_is_asked_for_once_also_among_tools_within_others(
    serve: Serve, where: str, within: list[dict[str, Any]], launched: str
) -> None:
    turn: dict[str, Any] = {"role": "user", "content": "Hi"}
    fields = (
        {"input": "Hi", "tools": [{**NAMESPACE, "tools": within}]}
        if where == "namespace"
        else {"input": [turn, {"type": where, "role": "developer", "call_id": "c", "tools": within}]}
    )
    script = [Raw(answer_of({}))]
    async with (
        serve(alpha=script, beta=script, config=SPEAK) as running,
        running.post({"model": MODEL, **fields}, path="/v1/responses") as response,
    ):
        assert response.status == 200, await response.read()
        assert response.headers["x-holeshot-launched"] == launched
        assert response.headers.get("x-holeshot-narrowed") == ("stateful" if launched == "1" else None)
