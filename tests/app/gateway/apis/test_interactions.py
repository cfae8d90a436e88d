"""Clients of Google's Interactions API before providers of every API, and providers that have it before other clients.

The events are those of ai.google.dev/gemini-api/docs/streaming, read on 2026-11-29.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from providers import events
from providers.simulator import Drop, Raw, Status, answer
from tests.app.gateway.access.test_admission import clients, key_of
from tests.app.gateway.apis.test_dialects import MESSAGE_BYTES, RESPONSE_BYTES, providers, speaking
from tests.app.gateway.apis.test_gemini import TEXT_BYTES as GEMINI_BYTES
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve

PATH = "/v1/interactions"  # where google-genai 3.6.1 asks; older SDKs below /v1beta
ASK: dict[str, Any] = {"input": "Say hello."}
SIGNATURE = "EjQKMgERTTIHsOlQ1oMEqxYzQvHGfVnTk+Wfz5Yk7BQ/abc="
USAGE = {
    "total_input_tokens": 8,
    "total_cached_tokens": 4,
    "total_output_tokens": 2,
    "total_thought_tokens": 5,
    "total_tokens": 15,
    "input_tokens_by_modality": [{"modality": "text", "tokens": 8}],
}


def named(kind: str, **fields: Any) -> bytes:
    """Return one event as Google's servers write it."""
    return f"event: {kind}\ndata: ".encode() + json.dumps({**fields, "event_type": kind}).encode() + b"\n\n"


def whole(*steps: Mapping[str, Any], status: str = "completed", ident: str = "v1_made", **more: Any) -> dict[str, Any]:
    top = {"id": ident, "object": "interaction", "model": "gemini-3.8-flash", "status": status}
    return {**top, "steps": list(steps), "usage": USAGE, **more}


def streamed(*steps: Mapping[str, Any], status: str = "completed", ident: str = "v1_made") -> bytes:
    """Return the stream of an answer with these steps, each with the deltas under ``deltas``."""
    top = {"id": ident, "object": "interaction", "model": "gemini-3.8-flash"}
    said = [
        named("interaction.created", interaction={**top, "status": "in_progress"}),
        named("interaction.status_update", interaction_id=ident, status="in_progress"),
    ]
    for index, step in enumerate(steps):
        said.append(named("step.start", index=index, step={k: v for k, v in step.items() if k != "deltas"}))
        said += [named("step.delta", index=index, delta=delta) for delta in step["deltas"]]
        said.append(named("step.stop", index=index))
    said.append(named("interaction.completed", interaction={**top, "status": status, "usage": USAGE}))
    return b"".join([*said, b"event: done\ndata: [DONE]\n\n"])


THOUGHT = {
    "type": "thought",
    "deltas": [
        {"type": "thought_summary", "content": {"type": "text", "text": "**Greeting**"}},
        {"type": "thought_signature", "signature": SIGNATURE},
    ],
}
HELLO = {"type": "model_output", "deltas": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}
CALL = {"type": "function_call", "id": "c1", "name": "weather", "arguments": {}}
CALLS = [
    {
        **CALL,
        "deltas": [
            {"type": "arguments_delta", "arguments": '{"city":'},
            {"type": "arguments_delta", "arguments": '"Oslo"}'},
        ],
    },
    {**CALL, "id": "c2", "deltas": [{"type": "arguments_delta", "arguments": '{"city":"Rome"}'}]},
]
TEXT_BYTES = streamed(THOUGHT, HELLO)
CALLS_BYTES = streamed({"type": "thought", "deltas": THOUGHT["deltas"][1:]}, *CALLS, status="requires_action")
WEATHER = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
GOOGLE = providers(alpha=speaking("interactions", kind="gemini"))
JSON = {"content-type": "application/json"}  # google-genai says so of every request


def datas(stream: bytes) -> list[Any]:
    return [msgspec.json.decode(each.data) for each in events(stream) if each.data not in {b"", b"[DONE]"}]


def text_of(said: Mapping[str, Any]) -> str:
    contents = [each for step in said["steps"] if step["type"] == "model_output" for each in step["content"]]
    return "".join(each["text"] for each in contents)


def gathered(stream: bytes) -> dict[str, Any]:
    """Return the steps of a stream as an SDK sees them, checking their order."""
    steps: dict[int, Any] = {}
    open_, said = None, {}
    told = datas(stream)
    assert told[0]["event_type"] == "interaction.created"
    assert told[-1]["event_type"] == "interaction.completed", told[-1]
    for each in told:
        match each["event_type"]:
            case "step.start":
                assert open_ is None
                assert each["index"] == len(steps)
                open_, steps[each["index"]] = each["index"], {**each["step"], "deltas": []}
            case "step.delta":
                assert each["index"] == open_
                steps[open_]["deltas"].append(each["delta"])
            case "step.stop":
                assert each["index"] == open_
                open_ = None
            case "interaction.completed":
                said = each["interaction"]
    assert open_ is None
    assert stream.endswith(b"event: done\ndata: [DONE]\n\n")
    return {**said, "steps": list(steps.values())}


async def asked(running: RunningGateway, headers: Mapping[str, str] | None = None, **body: Any) -> tuple[int, Any]:
    async with running.post({"model": MODEL, **body}, headers=headers or {}, path=PATH) as response:
        if response.content_type == "text/event-stream":
            return response.status, await response.read()
        return response.status, await response.json()


async def test_googles_stream_passes_byte_for_byte_and_is_logged(serve: Serve) -> None:
    config = {
        "generation_config": {"temperature": 0.5, "max_output_tokens": 90, "a_field_of_the_future": {"x": [1, None]}}
    }
    body = {**ASK, **config, "store": False, "another_field_of_the_future": [1, {"y": None}]}
    async with serve(alpha=[Raw(TEXT_BYTES, token=True)], **GOOGLE) as running:
        assert await asked(running, **body, stream=True) == (200, TEXT_BYTES)
        [sent] = running["alpha"].received
        assert (sent.path, sent.headers["x-goog-api-key"]) == ("/v1/interactions", "upstream-alpha-secret")
        assert sent.body == {**body, "model": "m", "stream": True}
        row = await running.call()
        assert (row["endpoint"], row["streamed"], row["status_code"]) == ("interactions", 1, 200)
        [attempt] = await running.rows("select * from attempts")
        assert (row["prompt_tokens"], row["completion_tokens"]) == (8, 7)
        assert (row["cached_tokens"], row["reasoning_tokens"]) == (4, 5)
        assert (attempt["outcome"], attempt["finish_reason"], attempt["api"]) == ("won", "completed", "interactions")
        assert (row["max_tokens"], row["temperature"], attempt["ttft_ms"] > 0) == (90, 0.5, True)
        status, said = await asked(running, **body)
        assert (status, text_of(said), said["id"], said["usage"]) == (200, "Hello", "v1_made", USAGE)
        assert said["steps"][0] == {
            "type": "thought",
            "summary": [{"type": "text", "text": "**Greeting**"}],
            "signature": SIGNATURE,
        }


@pytest.mark.parametrize(
    ("api", "said"),
    [
        ("chat", answer("Hello")),
        ("messages", [Raw(MESSAGE_BYTES, token=True)]),
        ("responses", [Raw(RESPONSE_BYTES, token=True)]),
        ("gemini", [Raw(GEMINI_BYTES, token=True)]),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_of_interactions_is_answered_by_every_api(
    serve: Serve, api: str, said: Any, stream: bool
) -> None:
    kind = {"kind": "gemini"} if api == "gemini" else {}
    async with serve(alpha=said, **providers(alpha=speaking(api, **kind))) as running:
        status, got = await asked(running, **ASK, system_instruction="Be brief.", stream=stream)
        assert status == 200, got
        told = gathered(got) if stream else got
        texts = [
            each
            for step in told["steps"]
            if step["type"] == "model_output"
            for each in step.get("deltas", step.get("content"))
        ]
        assert "".join(each["text"] for each in texts) in {"Hello", "Hello there"}
        assert (told["status"], told["object"], told["id"][:3]) == ("completed", "interaction", "v1_")
        assert told["usage"]["total_output_tokens"] > 0
        sent = running["alpha"].received[0].body
        assert "Be brief." in json.dumps(sent)
        assert sent.get("store") in {None, False}


# Other clients.

CHAT_TOOLS = [{"type": "function", "function": {key: WEATHER[key] for key in ("name", "parameters")}}]


async def test_other_clients_are_answered_by_a_provider_of_interactions(serve: Serve) -> None:
    message = {"role": "user", "content": "Say hello."}
    async with serve(alpha=[Raw(TEXT_BYTES, token=True)], **GOOGLE) as running:
        async with running.chat(reasoning_effort="low", max_tokens=77, stop="halt", seed=7) as response:
            said = await response.json()
            assert response.status == 200, said
        assert said["choices"][0]["message"]["content"] == "Hello"
        assert said["choices"][0]["message"]["reasoning_content"] == "**Greeting**"
        assert said["usage"]["completion_tokens"] == 7
        sent = running["alpha"].received[0].body
        assert sent["store"] is False  # nothing of another API's client is kept
        assert sent["input"][-1]["type"] == "user_input"
        assert sent["generation_config"] == {
            "thinking_level": "low",
            "thinking_summaries": "auto",
            "max_output_tokens": 77,
            "stop_sequences": ["halt"],
            "seed": 7,
        }
        body = {"model": MODEL, "max_tokens": 50, "messages": [message]}
        async with running.post(body, path="/v1/messages") as response:
            assert (await response.json())["content"][-1]["text"] == "Hello"
        async with running.post({"model": MODEL, "input": "Hi"}, path="/v1/responses") as response:
            said = await response.json()
            assert [each["text"] for item in said["output"] for each in item.get("content", ()) if "text" in each][
                -1
            ] == "Hello"
        contents = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
        async with running.post(contents, path=f"/v1beta/models/{MODEL}:generateContent") as response:
            parts = (await response.json())["candidates"][0]["content"]["parts"]
            assert "".join(each["text"] for each in parts) == "Hello"
        assert all(each.body["store"] is False for each in running["alpha"].received)


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_and_their_results_go_through_chat_with_the_signatures_of_their_thoughts(
    serve: Serve, stream: bool
) -> None:
    async with serve(alpha=[Raw(CALLS_BYTES, token=True)], **GOOGLE) as running:
        first = {"role": "user", "content": "What is the weather?"}
        async with running.chat(messages=[first], tools=CHAT_TOOLS, stream=stream, tool_choice="required") as response:
            if stream:
                chunks = [each["choices"][0]["delta"] for each in datas(await response.read()) if each["choices"]]
                pieces = [call for delta in chunks for call in delta.get("tool_calls", ())]
                calls = [
                    {
                        **next(each for each in pieces if each["index"] == number and each.get("id")),
                        "function": {
                            "name": "weather",
                            "arguments": "".join(e["function"]["arguments"] for e in pieces if e["index"] == number),
                        },
                    }
                    for number in (0, 1)
                ]
            else:
                said = (await response.json())["choices"][0]
                assert said["finish_reason"] == "tool_calls"
                calls = said["message"]["tool_calls"]
        assert [(each["id"], each["function"]["arguments"]) for each in calls] == [
            ("c1", '{"city":"Oslo"}'),
            ("c2", '{"city":"Rome"}'),
        ]
        assert calls[0]["extra_content"] == {"google": {"thought_signature": SIGNATURE}}
        results = [{"role": "tool", "tool_call_id": each["id"], "content": "cold"} for each in calls]
        made = {"role": "assistant", "content": None, "tool_calls": calls}
        async with running.chat(messages=[first, made, *results], tools=CHAT_TOOLS) as response:
            assert response.status == 200
        asked_first, asked_next = (each.body for each in running["alpha"].received)
        assert asked_first["generation_config"] == {"tool_choice": "any"}
        assert asked_first["tools"] == [{"type": "function", **CHAT_TOOLS[0]["function"]}]  # type: ignore[dict-item]
        assert asked_next["input"] == [
            {"type": "user_input", "content": [{"type": "text", "text": "What is the weather?"}]},
            {"type": "thought", "signature": SIGNATURE},
            {"type": "function_call", "id": "c1", "name": "weather", "arguments": {"city": "Oslo"}},
            {"type": "function_call", "id": "c2", "name": "weather", "arguments": {"city": "Rome"}},
            {"type": "function_result", "call_id": "c1", "name": "weather", "result": "cold"},
            {"type": "function_result", "call_id": "c2", "name": "weather", "result": "cold"},
        ]


# Later turns.


async def turns(running: RunningGateway, headers: Mapping[str, str], **more: Any) -> tuple[Any, tuple[int, Any]]:
    """Return an answer, and how the turn after it is answered."""
    status, first = await asked(running, headers, **ASK, **more)
    assert status == 200, first
    return first, await asked(running, headers, input="And now?", previous_interaction_id=first["id"], **more)


@pytest.mark.parametrize("api", ["chat", "interactions"])
async def test_a_conversation_goes_on_from_what_the_gateway_remembers(serve: Serve, api: str) -> None:
    said: Any = answer("Hello") if api == "chat" else [Raw(TEXT_BYTES, token=True)]
    config = providers(alpha=speaking(api, **({"kind": "gemini"} if api == "interactions" else {})))
    config["config"] |= clients(plain={}, guest={})
    own, others = key_of("plain"), key_of("guest")
    async with serve(alpha=said, **config) as running:
        if api == "interactions":  # no two answers have one id
            running["alpha"].once([Raw(streamed(THOUGHT, HELLO, ident="v1_first"), token=True)])
        first, (status, second) = await turns(running, own)
        assert status == 200, second
        sent = running["alpha"].received[-1].body
        if api == "chat":
            assert [each["content"] for each in sent["messages"]] == ["Say hello.", "Hello", "And now?"]
        else:
            assert [each["type"] for each in sent["input"]] == ["user_input", "thought", "model_output", "user_input"]
            assert "previous_interaction_id" not in sent
        for path in (PATH, "/v1beta/interactions"):
            async with running.get(f"{path}/{first['id']}?stream=false", headers=own) as response:
                told = await response.json()
                assert (response.status, told["id"], text_of(told)) == (200, first["id"], "Hello")
        # Another client's is a 404, whatever is asked of it.
        status, refused = await asked(running, others, **ASK, previous_interaction_id=first["id"])
        assert (status, refused["error"]["code"]) == (404, "not_found")
        for method, rest in (("get", ""), ("post", "/cancel"), ("delete", "")):
            url = f"{running.url}{PATH}/{first['id']}{rest}"
            async with running.http.request(method, url, headers=JSON | others) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (404, "not_found")
        async with running.http.delete(f"{running.url}{PATH}/{first['id']}", headers=own) as response:
            assert (response.status, await response.json()) == (200, {})
        async with running.get(f"{PATH}/{first['id']}", headers=own) as response:
            assert response.status == 404


async def test_an_answer_of_one_api_is_none_of_another(serve: Serve) -> None:
    async with serve(alpha=answer("Hello")) as running:
        async with running.post({"model": MODEL, **ASK}, path="/v1/responses") as response:
            other = (await response.json())["id"]
        _, own = await asked(running, **ASK)
        for path, ident, continued, shown in (
            *(("/v1/responses", other, 200, 200), (PATH, own["id"], 200, 200)),
            *(("/v1/responses", own["id"], 400, 404), (PATH, other, 404, 404)),
        ):
            previous = "previous_interaction_id" if path == PATH else "previous_response_id"
            async with running.post({"model": MODEL, **ASK, previous: ident}, path=path) as response:
                assert response.status == continued, (path, await response.text())
            async with running.get(f"{path}/{ident}") as response:
                assert response.status == shown, (path, await response.text())
        async with running.http.delete(f"{running.url}{PATH}/{other}", headers=JSON) as response:
            assert response.status == 404
        async with running.get(f"/v1/responses/{other}") as response:
            assert response.status == 200


async def test_nothing_is_remembered_of_what_is_not_to_be_stored(serve: Serve) -> None:
    async with serve(alpha=answer("Hello")) as running:
        for stream in (False, True):
            status, first = await asked(running, **ASK, store=False, stream=stream)
            ident = gathered(first)["id"] if stream else first["id"]
            assert running.gateway.context.memory.size == 0
            for named_so in (ident, ""):
                status, refused = await asked(running, **ASK, previous_interaction_id=named_so)
                assert (status, refused["error"]["code"]) == (404, "not_found")
                assert ("is empty: an answer with 'store': false" in refused["error"]["message"]) is (named_so == "")


async def test_calls_of_a_streamed_answer_go_on_from_their_results(serve: Serve) -> None:
    async with serve(alpha=[Raw(CALLS_BYTES, token=True)], **GOOGLE) as running:
        _, stream = await asked(running, **ASK, tools=[WEATHER], stream=True)
        first = gathered(stream)
        assert first["status"] == "requires_action"
        results = [{"type": "function_result", "call_id": each, "result": "cold"} for each in ("c1", "c2")]
        status, said = await asked(
            running, input=results, tools=[WEATHER], previous_interaction_id=first["id"], store=False
        )
        assert status == 200, said
        assert [each["type"] for each in running["alpha"].received[-1].body["input"]] == [
            *("user_input", "thought", "function_call", "function_call"),
            *("function_result", "function_result"),
        ]


async def test_what_is_stored_at_google_goes_on_there_alone(serve: Serve) -> None:
    config = providers(**{name: speaking("interactions", preset="google") for name in ("alpha", "beta")})
    config["config"] |= clients(plain={}, guest={})
    own = key_of("plain")
    scripts = {name: [Raw(streamed(HELLO, ident=f"v1_of_{name}"), token=True)] for name in ("alpha", "beta")}
    async with serve(**scripts, **config) as running:
        first, (status, second) = await turns(running, own, store=True)
        assert status == 200, second
        [made_by] = {name for name in scripts if running[name].received}
        assert first["id"] == f"v1_of_{made_by}"
        sent = running[made_by].received
        assert [each.body.get("previous_interaction_id") for each in sent] == [None, first["id"]]
        status, _ = await asked(running, key_of("guest"), **ASK, previous_interaction_id=first["id"])
        assert status == 404
        for method, rest in (("get", ""), ("post", "/cancel"), ("delete", "")):
            url = f"{running.url}{PATH}/{first['id']}{rest}"
            async with running.http.request(method, url, headers=JSON | key_of("guest")) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (404, "not_found")
        assert len(running[made_by].received) == 2


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        ({"agent": "deep-research", "input": "Look.", "background": True}, {"agent": "m", "background": True}),
        ({"model": MODEL, "input": "Look.", "background": True}, {"model": "m", "background": True}),
        ({"model": MODEL, "input": "Look.", "tools": [{"type": "google_search"}]}, {"model": "m", "store": False}),
    ],
)
async def test_agents_and_what_runs_at_google_go_to_one_deployment_that_has_them(
    serve: Serve, body: dict[str, Any], sent: dict[str, Any]
) -> None:
    config = providers(**{name: speaking("interactions", kind="gemini") for name in ("alpha", "beta")})
    raced = {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "race", "width": 2}}
    config["config"]["models"] = {"deep-research": raced}
    made = whole({"type": "model_output", "content": [{"type": "text", "text": "Hello"}]})
    begun = {**made, "steps": [], "status": "in_progress", "usage": None}
    said = [Status(200, begun if body.get("background") else made)]
    async with serve(alpha=said, beta=said, **config) as running:
        async with running.post(body, path=PATH) as response:
            got = await response.json()
            assert response.status == 200, got
        [asked_once] = [each for name in ("alpha", "beta") for each in running[name].received]
        told = {name: value for name, value in asked_once.body.items() if name not in {"stream", "input", "tools"}}
        assert told == sent
        assert got["status"] == ("in_progress" if body.get("background") else "completed")
    async with serve(alpha=None) as running:
        status, refused = await asked(running, **body) if "model" in body else (400, {"error": {"code": ""}})
        assert status == 400, refused


# Refusals.


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({"input": "Hi", "model": "no-such-model"}, 404, "not_found"),
        ({"model": MODEL}, 400, "invalid_request"),
        ({"input": "Hi"}, 400, "invalid_request"),
        (
            {"model": MODEL, "input": [{"type": "function_result", "call_id": "c", "result": "x"}]},
            400,
            "invalid_request",
        ),
    ],
)
async def test_refusals_have_the_shape_of_interactions(
    serve: Serve, body: dict[str, Any], status: int, word: str
) -> None:
    async with serve(alpha=None) as running, running.post(body, path=PATH) as response:
        said = await response.json()
        assert (response.status, said["error"]["code"], sorted(said["error"])) == (status, word, ["code", "message"])


async def test_a_refusal_of_googles_keeps_its_words_and_a_failure_is_an_event(serve: Serve) -> None:
    wrong = {"error": {"code": "invalid_request", "message": "Field 'x' is not known."}}
    begun = TEXT_BYTES[: TEXT_BYTES.index(b"event: step.stop", TEXT_BYTES.index(b"Hel"))]
    async with serve(alpha=[Status(400, wrong)], **GOOGLE) as running:
        status, said = await asked(running, **ASK)
        assert (status, said["error"]["code"], said["error"]["message"]) == (
            400,
            "invalid_request",
            wrong["error"]["message"],
        )
        running["alpha"].once([Raw(begun, token=True), Drop()])
        status, said = await asked(running, **ASK, stream=True)
        assert status == 200
        last = datas(said)[-1]
        assert (last["event_type"], last["error"]["code"]) == ("error", "internal")
    async with serve(
        alpha=[Status(429, {"error": {"code": "rate_limit_exceeded", "message": "quota"}})], **GOOGLE
    ) as running:
        status, said = await asked(running, **ASK)
        assert (status, said["error"]["code"]) == (429, "rate_limit_exceeded")


async def test_a_server_of_googles_kind_without_interactions_is_asked_in_its_other_api(serve: Serve) -> None:
    config = providers(alpha=speaking("gemini", kind="gemini"))
    del config["config"]["providers"]["alpha"]["apis"]
    missing = Status(404, {"error": {"code": 404, "message": "Not found", "status": "NOT_FOUND"}})
    async with serve(alpha=[missing], **config) as running:
        running["alpha"].answers = lambda body: [missing] if "input" in body else [Raw(GEMINI_BYTES, token=True)]
        status, said = await asked(running, **ASK)
        assert (status, text_of(said)) == (200, "Hello")


async def test_what_chat_lacks_keeps_a_deployment_out_or_is_named(serve: Serve) -> None:
    async with serve(alpha=answer("Hello")) as running:
        body = {**ASK, "labels": {"a": "b"}, "model": MODEL}
        async with running.post(body, path=PATH) as response:
            assert (response.status, response.headers["x-holeshot-dropped"]) == (200, "labels")
        status, said = await asked(running, **ASK, response_modalities=["image"])
        assert (status, "response_modalities" in said["error"]["message"]) == (400, True)
        async with running.chat() as response:
            assert response.status == 200


async def test_steps_are_gathered_whatever_their_numbers_are_and_arguments_keep_their_digits(serve: Serve) -> None:
    call = {**CALL, "deltas": [{"type": "arguments_delta", "arguments": '{"x":1.10,"y":1e400}'}]}
    said = streamed(HELLO, call, status="requires_action")
    odd = said.replace(b'"index": 0, "delta"', b'"index": "0", "delta"', 1)
    assert odd != said
    async with serve(alpha=[Raw(odd, token=True)], **GOOGLE) as running:
        async with running.post({"model": MODEL, **ASK, "store": False}, path=PATH) as response:
            got = await response.read()
        assert (response.status, text_of(json.loads(got))) == (200, "Hello"), got
        assert b'"arguments":{"x":1.10,"y":1e400}' in got
