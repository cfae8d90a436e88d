"""The first valid answer wins, over real sockets."""

import asyncio
import json
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

import openai
import pytest

from gateway.steering import STRIKES
from providers.simulator import Delta, Done, Finish, Gate, Hang, Raw, RoleOnly, Step, ToolCall, answer
from tests.app.gateway.apis.test_dialects import event
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.app.gateway.shared_gateway import SharedGateways

pytestmark = pytest.mark.asyncio(loop_scope="module")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: dict[str, Any] = {"tools": [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]}
FORMAT: dict[str, Any] = {
    "response_format": {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}
}
GOOD = '{"city": "Oslo"}'
_T = TypeVar("_T")
BROKEN = {
    "bad_tool_call": ('{"city": "Os', "weather"),
    "unknown_tool": (GOOD, "whether"),
    "schema_miss": ('{"town": "Oslo"}', "weather"),
}


def valid(**race: Any) -> dict[str, Any]:
    return {"models": {MODEL: {"race": {"mode": "race", "win_on": "valid", **race}}}}


def calls(arguments: str = GOOD, tool: str = "weather") -> list[Step]:
    """Call a tool, its arguments in two pieces."""
    half = len(arguments) // 2
    return [ToolCall(arguments[:half], name=tool), ToolCall(arguments[half:]), Finish("tool_calls"), Done()]


async def whole(running: RunningGateway, **options: Any) -> tuple[int, dict[str, Any]]:
    async with running.chat(**options) as response:
        return response.status, await response.json()


async def streamed(running: RunningGateway, **options: Any) -> list[dict[str, Any]]:
    async with running.chat(stream=True, **options) as response:
        assert response.status == 200
        lines = (await response.read()).decode().splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def arguments_of(events: list[dict[str, Any]]) -> str:
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    return "".join(call["function"]["arguments"] for delta in deltas for call in delta.get("tool_calls", ()))


async def early_then(running: RunningGateway, script: Sequence[Step], asking: Awaitable[_T]) -> _T:
    """Ask both providers; ``late`` begins with its script when ``early`` has ended."""
    is_over, completions = asyncio.Event(), running["early"].counts.completions
    running["late"].script = [Gate(is_over), *script]
    call = asyncio.ensure_future(asking)
    await running["early"].reach(completions=completions + 1)
    is_over.set()
    return await call


@pytest.mark.parametrize("flaw", list(BROKEN))
async def test_a_broken_tool_call_loses_to_a_valid_one_that_begins_later(serve: Serve, flaw: str) -> None:
    broken = calls(*BROKEN[flaw])
    async with serve(early=broken, late=None, config=valid()) as running:
        assert arguments_of(await early_then(running, calls(), streamed(running, **TOOLS))) == GOOD
        rows = {row["provider"]: row for row in await running.rows("select * from attempts")}
        early, late = rows["early"], rows["late"]
        assert (early["outcome"], early["error_kind"], early["flaw"]) == ("failed", "invalid_answer", flaw)
        assert (late["outcome"], late["flaw"], late["valid_ms"]) == ("won", None, late["token_ms"])
        call = await running.call()
        assert (call["status_code"], call["win_on"], call["first_was_invalid"]) == (200, "valid", 1)
        async with running.get("/metrics") as response:
            page = await response.text()
        assert f'holeshot_win_on_valid_calls_total{{first="invalid",model="{MODEL}"}} 1.0' in page


async def test_whole_answers_are_raced_alike(serve: Serve) -> None:
    async with serve(early=calls("{"), late=None, config=valid()) as running:
        status, body = await early_then(running, calls(), whole(running, **TOOLS))
        assert status == 200
        [call] = body["choices"][0]["message"]["tool_calls"]
        assert call["function"] == {"name": "weather", "arguments": GOOD}


async def test_json_that_does_not_match_its_schema_loses(serve: Serve) -> None:
    script = [Delta('{"town":'), Delta(' "Oslo"}'), Finish(), Done()]
    async with serve(early=script, late=None, config=valid()) as running:
        later: list[Step] = [Delta(GOOD), Finish(), Done()]
        events = await early_then(running, later, streamed(running, **FORMAT))
        said = "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
        assert said == GOOD


async def test_text_wins_at_once_even_where_tools_are_offered(serve: Serve) -> None:
    async with serve(talks=answer("It is cold."), calls=None, config=valid()) as running:
        running["talks"].script = [Gate(running["calls"].requested), *answer("It is cold.")]
        running["calls"].script = [*calls()[:2], Hang()]
        assert (await streamed(running, **TOOLS))[-1]
        assert (await running.outcomes())["talks"] == "won"


async def test_nobody_valid_is_the_apis_own_error_with_each_flaw(serve: Serve) -> None:
    async with serve(one=calls("{"), two=calls(tool="nope"), config=valid()) as running:
        async with running.chat(**TOOLS) as response:
            status, body = response.status, await response.json()
            assert response.headers["x-should-retry"] == "false"
        assert (status, body["error"]["code"]) == (502, "no_valid_answer")
        assert "one/m: invalid_answer: bad_tool_call" in body["error"]["message"]
        assert "two/m: invalid_answer: unknown_tool" in body["error"]["message"]
        call = await running.call()
        assert (call["status_code"], call["error_kind"], call["first_was_invalid"]) == (502, "no_valid_answer", 1)


async def test_prompts_that_a_filter_refuses_break_no_deployment(serve: Serve) -> None:
    """Else one client's prompts would take it from all others."""
    refused: list[Step] = [RoleOnly(), Finish("content_filter"), Done()]
    async with serve(one=refused, config=valid()) as running:
        for _ in range(STRIKES):
            status, body = await whole(running, **TOOLS)
            assert (status, body["error"]["code"]) == (502, "no_valid_answer")
        rows = await running.rows("select distinct error_kind, flaw, ttft_ms from attempts")
        assert [tuple(row.values()) for row in rows] == [("invalid_answer", "refusal", None)]
        [row] = running.gateway.steering.leaderboard(MODEL).deployments
        assert row.state == "ok"


async def test_it_is_an_event_of_a_stream_that_was_kept_alive(serve: Serve) -> None:
    config = valid()
    config["models"][MODEL]["keepalive_s"] = 0.05
    async with serve(one=calls("{"), two=calls("{"), config=config) as running:
        patience = asyncio.Event()
        for name in ("one", "two"):
            running[name].script = [*calls("{")[:1], Gate(patience), *calls("{")[1:]]
        async with running.chat(stream=True, **TOOLS) as response:
            first = await response.content.readline()
            patience.set()
            rest = (await response.read()).decode()
        assert first.startswith(b":")
        assert response.status == 200
        assert "no_valid_answer" in rest


async def test_or_the_best_of_them(serve: Serve) -> None:
    near, far = calls('{"town": "Oslo"}'), calls("{")
    async with serve(near=near, far=far, config=valid(invalid="best")) as running:
        assert arguments_of(await streamed(running, **TOOLS)) == '{"town": "Oslo"}'
        status, body = await whole(running, **TOOLS)
        assert status == 200
        assert body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == '{"town": "Oslo"}'


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (
            "/v1/messages",
            {
                "max_tokens": 100,
                "messages": [{"role": "user", "content": "Where?"}],
                "tools": [{"name": "weather", "input_schema": SCHEMA}],
            },
        ),
        (
            "/v1/responses",
            {
                "input": "Where?",
                "tools": [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}],
            },
        ),
    ],
)
async def test_other_apis_are_judged_through_their_translation(serve: Serve, path: str, fields: dict[str, Any]) -> None:
    async with serve(early=calls('{"town": 1}'), late=None, config=valid()) as running:

        async def ask() -> tuple[int, str]:
            async with running.post({"model": MODEL, **fields}, path=path) as response:
                return response.status, await response.text()

        status, body = await early_then(running, calls(), ask())
        assert status == 200, body
        assert "Oslo" in body
        assert "town" not in body
        status, body = await early_then(running, calls("{"), ask())
        assert status == 502
        assert "gave a valid answer" in json.loads(body)["error"]["message"]


def searches(arguments: str) -> list[Step]:
    """Call a tool of a namespace, as a provider with Responses does."""
    item = {"type": "function_call", "id": "fc_1", "call_id": "c_1", "namespace": "docs", "name": "search"}
    item |= {"arguments": "", "status": "in_progress"}
    head = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
    said = [
        event("response.created", response=head),
        event("response.output_item.added", output_index=0, item=item),
        event("response.function_call_arguments.delta", output_index=0, item_id="fc_1", delta=arguments),
        event("response.output_item.done", output_index=0, item={**item, "arguments": arguments}),
        event("response.completed", response={**head, "status": "completed"}),
    ]
    return [Raw(b"".join(said), token=True)]


@pytest.mark.parametrize(("arguments", "flaw"), [(GOOD, None), ('{"town": 1}', "schema_miss")])
async def test_a_tool_in_a_namespace_is_offered_by_its_own_name(serve: Serve, arguments: str, flaw: str | None) -> None:
    providers = {name: {"apis": ["responses"]} for name in ("one", "two")}
    inner = {"type": "function", "name": "search", "parameters": SCHEMA}
    fields = {"input": "Where?", "tools": [{"type": "namespace", "name": "docs", "tools": [inner]}]}
    script = searches(arguments)
    async with serve(one=script, two=script, config={**valid(), "providers": providers}) as running:
        async with running.post({"model": MODEL, "stream": True, **fields}, path="/v1/responses") as response:
            assert response.status == (200 if flaw is None else 502)
        attempts = await running.rows("select flaw, judged_as from attempts where outcome in ('won', 'failed')")
        assert {(each["flaw"], each["judged_as"]) for each in attempts} == {(flaw, "tools")}


async def test_a_request_may_ask_for_it_but_not_for_the_impossible(serve: Serve) -> None:
    async with serve(early=calls("{"), late=None) as running:
        asking = streamed(running, **TOOLS, race={"win_on": "valid"})
        assert arguments_of(await early_then(running, calls(), asking)) == GOOD
        asked = running.requests
        status, body = await whole(running, **TOOLS, race={"win_on": "valid", "mode": "single"})
        assert status == 400
        assert "win_on valid needs a second deployment to ask" in body["error"]["message"]
        assert running.requests == asked


async def test_without_anything_to_check_the_first_token_wins(serve: Serve) -> None:
    async with serve(one=answer("Hi"), two=[Hang()], config=valid()) as running:
        await streamed(running)
        assert (await running.call())["win_on"] == "any"


async def test_an_answer_whose_end_never_follows_its_finish_reason_still_wins(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.racing.timeouts.FINISH_GRACE_S", 0.5)
    hangs: list[Step] = [*calls()[:-1], Hang()]
    fields = {"max_tokens": 100, "messages": [{"role": "user", "content": "Where?"}]}
    tools = {"tools": [{"name": "weather", "input_schema": SCHEMA}]}
    async with serve(one=hangs, config=valid()) as running:
        async with running.post({"model": MODEL, **fields, **tools}, path="/v1/messages") as response:
            assert response.status == 200, await response.text()
            assert "Oslo" in await response.text()
        assert await running.outcomes() == {"one": "won"}


async def test_openais_sdk_reads_the_answer_that_came_in_one_piece(serve: Serve) -> None:
    async with serve(early=calls("{"), late=None, config=valid()) as running:

        async def ask() -> str:
            stream = await running.sdk.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "Where?"}], stream=True, **TOOLS
            )
            return "".join(
                [
                    call.function.arguments or ""
                    async for chunk in stream
                    for call in chunk.choices[0].delta.tool_calls or ()
                    if call.function is not None
                ]
            )

        assert await early_then(running, calls(), ask()) == GOOD
        running["early"].script = running["late"].script = calls("{")
        with pytest.raises(openai.APIStatusError) as raised:
            await running.sdk.with_options(max_retries=2).chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "Where?"}], **TOOLS
            )
        assert (raised.value.status_code, raised.value.code) == (502, "no_valid_answer")
        assert running["early"].counts.requests == 2  # it was not sent again


@pytest.mark.parametrize(
    "race",
    [
        {"invalid": "best"},
        {"win_on": "any", "invalid": "error"},
        {"win_on": "valid", "mode": "single"},
        {"win_on": "valid", "invalid": "worst"},
        {"win_on": "first"},
        {"win_on": ["valid"]},
        {"profile": "singer"},
        "valid",
    ],
)
@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Where?"}]}),
        ("/v1/completions", {"prompt": "Where?"}),
        ("/v1/responses", {"input": "Where?"}),
        ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "Where?"}]}),
    ],
)
async def test_what_cannot_be_meant_is_refused_by_each_api_and_nobody_is_asked(
    shared: SharedGateways, path: str, fields: dict[str, Any], race: Any
) -> None:
    async with shared.row(one=None, two=None) as running:
        for stream in (False, True):
            body = {"model": MODEL + running.suffix, "stream": stream, "race": race, **fields}
            async with running.post(body, path=path) as response:
                said = await response.json()
                assert response.status == 400
                assert "race" in said["error"]["message"]
                assert said["error"]["type"] == "invalid_request_error"
                assert said.get("type") == ("error" if path == "/v1/messages" else None)
        assert [running.received(name) for name in ("one", "two")] == [[], []]
        assert await running.rows(f"select * from attempts where model = '{MODEL}{running.suffix}'") == []


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": []},
        {"tools": None},
        {**TOOLS, "tool_choice": "none"},
        {**TOOLS, "tool_choice": "required"},
        {"tools": [{"type": "function"}]},
        {"tools": [{"type": "function", "function": {"name": "weather", "parameters": "nothing"}}]},
        {"tools": "weather"},
        {"response_format": {"type": "json_schema"}},
        {"response_format": "json"},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"required": "city"}}}},
        {**TOOLS, "n": 3},
        {**FORMAT, "n": 3},
        {**FORMAT, "stream_options": {"include_usage": True}},
    ],
)
@pytest.mark.parametrize("invalid", ["error", "best"])
@pytest.mark.parametrize("win_on", ["valid", "sentence"])
async def test_whatever_is_asked_every_call_ends_with_an_answer_or_an_error_of_the_api(
    shared: SharedGateways, fields: dict[str, Any], invalid: str, win_on: str
) -> None:
    race = {"mode": "race", "win_on": win_on} | ({"invalid": invalid} if win_on == "valid" else {})
    async with shared.row(one=answer('{"city": "Oslo"}'), two=answer("Oslo")) as running:
        model = MODEL + running.suffix
        for stream in (False, True):
            async with running.chat(model=model, stream=stream, race=race, **fields) as response:
                body = await response.read()
                assert response.status in {200, 400, 502}
                if response.status != 200:
                    assert json.loads(body)["error"]["message"]
                elif stream:
                    assert b"data: [DONE]" in body or b'"error"' in body
        rows = await running.rows(f"select error_kind from calls where model = '{model}'")
        assert {row["error_kind"] for row in rows} <= {None, "no_valid_answer", "invalid_request"}


@pytest.mark.parametrize("race", [{}, {"invalid": "best"}], ids=["error", "best"])
async def test_the_next_in_the_order_of_the_request_is_asked_without_a_budget(
    serve: Serve, race: dict[str, Any]
) -> None:
    async with serve(early=calls("{"), late=calls(), config=valid(**race)) as running:
        async with running.chat(provider={"order": ["early", "late"]}, **TOOLS) as response:
            body = await response.json()
        assert response.status == 200
        assert "x-holeshot-narrowed" not in response.headers
        assert body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == GOOD


async def test_an_error_does_not_say_that_every_deployment_was_asked_where_it_was_one(serve: Serve) -> None:
    async with serve(early=calls("{"), late=calls(), config=valid()) as running:
        status, body = await whole(running, provider={"only": ["early"]}, **TOOLS)
        assert (status, "every" in body["error"]["message"]) == (502, False)
