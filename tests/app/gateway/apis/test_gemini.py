"""Clients of Google's generateContent before providers of every API, and providers that speak it before other clients.

The bytes of Google's are as its servers send them: lines end with CR LF, the usage is a total so far in each event, and
the end of the response is the end of the answer.
"""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from providers import events
from providers.simulator import Drop, Gate, Raw, Status
from tests.app.gateway.access.test_admission import KEYS, clients
from tests.app.gateway.apis.test_dialects import MESSAGE_BYTES, providers, speaking
from tests.app.gateway.running_gateway import MODEL, Serve, chat_body

ASK: dict[str, Any] = {"contents": [{"role": "user", "parts": [{"text": "Say hello."}]}]}
SIGNATURE = "EjQKMgERTTIHsOlQ1oMEqxYzQvHGfVnTk+Wfz5Yk7BQ/abc="
GENERATE = f"/v1beta/models/{MODEL}:generateContent"
STREAM = f"/v1beta/models/{MODEL}:streamGenerateContent"
SENT_TO = "/v1/models/m:streamGenerateContent"


def google(
    *parts: Mapping[str, Any], finish: str | None = None, answer: int | None = None, thoughts: int | None = None
) -> bytes:
    """Return one event as Google's servers write it."""
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}}
    if finish is not None:
        candidate["finishReason"] = finish
    usage: dict[str, Any] = {"promptTokenCount": 8}
    if answer is not None:
        usage["candidatesTokenCount"] = answer
    usage |= {"totalTokenCount": 8 + (answer or 0) + (thoughts or 0), "cachedContentTokenCount": 4}
    usage["promptTokensDetails"] = [{"modality": "TEXT", "tokenCount": 8}]
    if thoughts is not None:
        usage["thoughtsTokenCount"] = thoughts
    said = {"candidates": [{**candidate, "index": 0}], "usageMetadata": usage}
    facts = {"modelVersion": "gemini-2.5-flash", "responseId": "AdVRaMmDCYekqtsPrb_-iAw"}
    return b"data: " + json.dumps({**said, **facts}).encode() + b"\r\n\r\n"


TEXT = [
    google({"text": "**Greeting**", "thought": True}, thoughts=5),
    google({"text": "Hel"}, answer=1, thoughts=5),
    google({"text": "lo"}, answer=2, thoughts=5),
    google({"text": "", "thoughtSignature": SIGNATURE}, finish="STOP", answer=2, thoughts=5),
]
TEXT_BYTES = b"".join(TEXT)
CALLS_BYTES = google(
    {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}, "thoughtSignature": SIGNATURE},
    {"functionCall": {"name": "weather", "args": {"city": "Rome"}}},
    answer=20,
) + google({"text": ""}, finish="STOP", answer=20)
BLOCKED = {
    "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
    "usageMetadata": {"promptTokenCount": 8, "totalTokenCount": 8},
    "modelVersion": "gemini-2.5-flash",
}
BLOCKED_BYTES = b"data: " + json.dumps(BLOCKED).encode() + b"\r\n\r\n"

GOOGLE = providers(alpha=speaking("gemini", kind="gemini"))
BOTH_GOOGLE = providers(alpha=speaking("gemini", kind="gemini"), beta=speaking("gemini", kind="gemini"))
WEATHER = {"name": "weather", "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}}}


def datas(stream: bytes) -> list[Any]:
    return [msgspec.json.decode(event.data) for event in events(stream)]


def content_of(folder: Path) -> bytes:
    """Return the content of all files: the database, and what is spooled."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def texts(said: Any, *, thought: bool = False) -> str:
    parts = [part for one in said.get("candidates", ()) for part in one.get("content", {}).get("parts", ())]
    return "".join(part.get("text", "") for part in parts if bool(part.get("thought")) is thought)


async def test_googles_stream_passes_byte_for_byte_and_is_logged(serve: Serve) -> None:
    config = {"generationConfig": {"temperature": 0.5, "maxOutputTokens": 90, "aFieldOfTheFuture": {"x": [1, None]}}}
    body = {**ASK, **config, "another_field_of_the_future": [1, {"y": None}]}
    async with serve(alpha=[Raw(TEXT_BYTES, token=True)], **GOOGLE) as running:
        async with running.post(body, path=f"{STREAM}?alt=sse") as response:
            assert (response.status, await response.read()) == (200, TEXT_BYTES)
            assert response.content_type == "text/event-stream"
        [sent] = running["alpha"].received
        assert (sent.path, sent.headers["x-goog-api-key"]) == (SENT_TO, "upstream-alpha-secret")
        assert "authorization" not in sent.headers
        assert sent.body == {**ASK, **config, "anotherFieldOfTheFuture": [1, {"y": None}]}
        row = await running.call()
        assert (row["endpoint"], row["streamed"], row["status_code"]) == ("generate_content", 1, 200)
        [attempt] = await running.rows("select * from attempts")
        assert (row["prompt_tokens"], row["completion_tokens"]) == (8, 7)
        assert (row["cached_tokens"], row["reasoning_tokens"]) == (4, 5)
        assert (attempt["outcome"], attempt["finish_reason"], attempt["api"]) == ("won", "STOP", "generate_content")
        assert (row["max_tokens"], row["temperature"], attempt["ttft_ms"] > 0) == (90, 0.5, True)


async def test_the_stream_without_events_is_one_array(serve: Serve) -> None:
    async with serve(alpha=[Raw(TEXT_BYTES, token=True)], **GOOGLE) as running:
        async with running.post(ASK, path=STREAM) as response:
            said = await response.json()
            assert (response.status, response.content_type) == (200, "application/json")
        assert said == datas(TEXT_BYTES)
        running["alpha"].script = [Raw(TEXT[1], token=True), Drop()]
        async with running.post(ASK, path=STREAM) as response:
            *before, last = await response.json()
        assert before == datas(TEXT[1])
        assert last["error"]["status"] in {"INTERNAL", "UNAVAILABLE"}


async def test_the_whole_answer_is_gathered(serve: Serve) -> None:
    async with serve(alpha=[Raw(TEXT_BYTES, token=True)], **GOOGLE) as running:
        async with running.post(ASK, path=GENERATE) as response:
            said = await response.json()
        [candidate] = said["candidates"]
        assert candidate["content"] == {
            "parts": [
                {"text": "**Greeting**", "thought": True},
                {"text": "Hello"},
                {"text": "", "thoughtSignature": SIGNATURE},
            ],
            "role": "model",
        }
        assert (candidate["finishReason"], candidate["index"]) == ("STOP", 0)
        assert said["usageMetadata"]["totalTokenCount"] == 15
        assert said["responseId"] == "AdVRaMmDCYekqtsPrb_-iAw"


@pytest.mark.parametrize("path", [f"{STREAM}?alt=sse", GENERATE, "/v1/chat/completions"])
async def test_a_proxy_that_ends_googles_stream_as_openai_does_has_answered(serve: Serve, path: str) -> None:
    async with serve(alpha=[Raw(TEXT_BYTES + b"data: [DONE]\n\n", token=True)], **GOOGLE) as running:
        body = chat_body() if path.endswith("completions") else ASK
        async with running.post(body, path=path) as response:
            said = await response.read()
            assert (response.status, b"[DONE]" in said, b"error" in said) == (200, False, False)
        assert await running.outcomes() == {"alpha": "won"}


@pytest.mark.parametrize("path", [f"{STREAM}?alt=sse", GENERATE, "/v1/chat/completions"])
async def test_a_stream_that_comes_as_an_array_is_the_same(serve: Serve, path: str) -> None:
    async with serve(alpha=[Status(200, datas(TEXT_BYTES))], **GOOGLE) as running:
        body = chat_body() if path.endswith("completions") else ASK
        async with running.post(body, path=path) as response:
            said = await response.read()
            assert (response.status, b"lo" in said) == (200, True)
        row = await running.call()
        assert (row["completion_tokens"], row["error_kind"]) == (7, None)


async def test_its_newer_version_is_the_same(serve: Serve) -> None:
    async with serve(alpha=[Raw(TEXT_BYTES, token=True)], **GOOGLE) as running:
        for verb in ("generateContent", "streamGenerateContent", "streamGenerateContent?alt=sse", "countTokens"):
            if verb == "countTokens":
                running["alpha"].once([Status(200, {"totalTokens": 2})])
            async with running.post(ASK, path=f"/v1/models/{MODEL}:{verb}") as response:
                assert (response.status, await response.read() != b"") == (200, True)
        async with running.post({}, path=f"/v1/models/{MODEL}:generateContent") as response:
            assert (await response.json())["error"]["status"] == "INVALID_ARGUMENT"
        async with running.get("/v1/models", headers={"x-goog-api-key": "unused"}) as response:
            assert [model["name"] for model in (await response.json())["models"]] == [f"models/{MODEL}"]
        async with running.get("/v1/models") as response:
            assert [model["id"] for model in (await response.json())["data"]] == [MODEL]


async def test_googles_providers_are_raced(serve: Serve) -> None:
    scripts = {"alpha": [Raw(TEXT_BYTES, token=True)], "beta": [Raw(TEXT_BYTES, token=True)]}
    async with serve(**scripts, **BOTH_GOOGLE) as running, running.post(ASK, path=f"{STREAM}?alt=sse") as response:
        assert (await response.read(), response.headers["x-holeshot-launched"]) == (TEXT_BYTES, "2")


@pytest.mark.parametrize(
    ("fields", "launched"),
    [
        ({"tools": [{"functionDeclarations": [WEATHER]}]}, "2"),
        ({"tools": [{"function_declarations": [WEATHER]}]}, "2"),
        ({"tools": [{"googleSearch": {}}]}, "1"),
        ({"tools": [{"code_execution": {}}]}, "1"),
    ],
)
async def test_they_race_unless_the_provider_acts_for_them(serve: Serve, fields: dict[str, Any], launched: str) -> None:
    scripts = {"alpha": [Raw(TEXT_BYTES, token=True)], "beta": [Raw(TEXT_BYTES, token=True)]}
    body = {**ASK, **fields}
    async with serve(**scripts, **BOTH_GOOGLE) as running, running.post(body, path=GENERATE) as response:
        assert (response.status, response.headers["x-holeshot-launched"]) == (200, launched)


async def test_a_blocked_prompt_is_told_as_google_tells_it_if_nobody_else_answers(serve: Serve) -> None:
    scripts = {"alpha": [Raw(BLOCKED_BYTES)], "beta": [Raw(TEXT_BYTES, token=True)]}
    async with serve(**scripts, **BOTH_GOOGLE) as running:
        async with running.post(ASK, path=GENERATE) as response:
            assert texts(await response.json()) == "Hello"
        running["beta"].script = [Raw(BLOCKED_BYTES)]
        async with running.post(ASK, path=GENERATE) as response:
            assert (response.status, await response.json()) == (200, BLOCKED)
        async with running.post(ASK, path=f"{STREAM}?alt=sse") as response:
            assert (response.status, await response.read()) == (200, BLOCKED_BYTES)


async def test_chat_is_answered_by_google(serve: Serve) -> None:
    async with serve(alpha=[Raw(TEXT_BYTES, token=True)], **GOOGLE) as running:
        stream = await running.sdk.chat.completions.create(
            model=MODEL,
            messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
            max_tokens=50,
            reasoning_effort="low",
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello"
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
        usage = chunks[-1].usage
        assert usage is not None
        assert usage.completion_tokens_details is not None
        assert (usage.prompt_tokens, usage.completion_tokens) == (8, 7)
        assert usage.completion_tokens_details.reasoning_tokens == 5
        [sent] = running["alpha"].received
        assert sent.path == SENT_TO
        assert sent.body == {
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "generationConfig": {
                "maxOutputTokens": 50,
                "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"},
            },
            "store": False,
        }


async def test_a_chat_clients_tools_keep_googles_signatures(serve: Serve) -> None:
    function = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    tools = [{"type": "function", "function": function}]
    async with serve(alpha=[Raw(CALLS_BYTES, token=True)], **GOOGLE) as running:
        async with running.chat(tools=tools) as response:
            [choice] = (await response.json())["choices"]
        message = choice["message"]
        assert choice["finish_reason"] == "tool_calls"
        assert [json.loads(call["function"]["arguments"])["city"] for call in message["tool_calls"]] == ["Oslo", "Rome"]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "rain"} for call in message["tool_calls"]]
        turns = [{"role": "user", "content": "Weather?"}, message, *results]
        async with running.chat(tools=tools, messages=turns) as response:
            assert response.status == 200
        model, user = running["alpha"].received[-1].body["contents"][1:]
        assert [part.get("thoughtSignature") for part in model["parts"]] == [SIGNATURE, None]
        assert [part["functionResponse"]["response"] for part in user["parts"]] == [{"output": "rain"}] * 2
        [row] = await running.rows("select tool_calls from attempts limit 1")
        assert row["tool_calls"] == 2


async def test_messages_are_answered_by_google(serve: Serve) -> None:
    body = {"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
    async with serve(alpha=[Raw(TEXT_BYTES, token=True)], **GOOGLE) as running:
        async with running.post(body, path="/v1/messages") as response:
            said = await response.json()
        assert (said["content"], said["stop_reason"]) == ([{"type": "text", "text": "Hello"}], "end_turn")
        assert said["usage"]["output_tokens"] == 7


async def test_googles_clients_are_answered_by_chat_and_by_messages(serve: Serve) -> None:
    both = providers(beta=speaking("messages"))
    async with serve(alpha=None, beta=[Raw(MESSAGE_BYTES, token=True)], **both) as running:
        for name, text, other in (("alpha", "Hello there!", "beta"), ("beta", "Hello", "alpha")):
            body = {**ASK, "systemInstruction": {"parts": {"text": "Be brief."}}}
            body |= {"provider": {"only": [name], "ignore": [other]}}
            async with running.post(body, path=f"{STREAM}?alt=sse") as response:
                said = datas(await response.read())
            assert "".join(texts(each) for each in said) == text
            assert said[-1]["candidates"][0]["finishReason"] == "STOP"
            assert said[-1]["usageMetadata"]["candidatesTokenCount"] > 0
            async with running.post(body, path=GENERATE) as response:
                assert texts(await response.json()) == text
        assert running["alpha"].received[0].body["messages"] == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Say hello."},
        ]


async def test_errors_have_googles_shape(serve: Serve) -> None:
    refused = {"error": {"code": 400, "message": "Invalid value", "status": "INVALID_ARGUMENT"}}
    async with serve(alpha=[Status(400, refused)], **GOOGLE) as running:
        for path, body, status, word in (
            (GENERATE, {}, 400, "INVALID_ARGUMENT"),
            (GENERATE, {"contents": []}, 400, "INVALID_ARGUMENT"),
            (GENERATE, {**ASK, "generationConfig": 5}, 400, "INVALID_ARGUMENT"),
            (GENERATE, {**ASK, "generationConfig": {"maxOutputTokens": "many"}}, 400, "INVALID_ARGUMENT"),
            ("/v1beta/models/nobody:generateContent", ASK, 404, "NOT_FOUND"),
            ("/v1beta/models/nobody:noSuchVerb", ASK, 404, "NOT_FOUND"),
            ("/v1beta/files", ASK, 404, "NOT_FOUND"),
            (GENERATE, ASK, 400, "INVALID_ARGUMENT"),
            (f"{STREAM}?alt=sse", ASK, 400, "INVALID_ARGUMENT"),
        ):
            async with running.post(body, path=path) as response:
                error = (await response.json())["error"]
                assert (response.status, error["code"], error["status"]) == (status, status, word), (path, body, error)
        running["alpha"].script = [Status(429, refused)]
        async with running.post(ASK, path=GENERATE) as response:
            assert (response.status, (await response.json())["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")


async def test_a_key_that_google_refuses_is_the_operators_fault(serve: Serve) -> None:
    detail = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    said = {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT", "details": [detail]}
    async with serve(alpha=[Status(400, {"error": said})], **GOOGLE) as running:
        async with running.post(ASK, path=GENERATE) as response:
            assert response.status == 424
        [row] = await running.rows("select error_kind from attempts")
        assert row["error_kind"] == "provider_auth"


async def test_a_stream_that_breaks_off_ends_in_an_error_of_googles_shape(serve: Serve) -> None:
    async with serve(alpha=[Raw(TEXT[1], token=True), Drop()], **GOOGLE) as running:
        async with running.post(ASK, path=f"{STREAM}?alt=sse") as response:
            *before, last = datas(await response.read())
        assert before == datas(TEXT[1])
        assert set(last["error"]) == {"code", "message", "status"}


@pytest.mark.parametrize("query", ["?alt=sse", ""])
async def test_only_blank_lines_are_sent_until_the_first_token(serve: Serve, query: str) -> None:
    go = asyncio.Event()
    deployment = {"deployments": ["alpha/m"], "keepalive_s": 0.02}
    config = {"config": {**GOOGLE["config"], "models": {MODEL: deployment}}}
    async with serve(alpha=[Gate(go), Raw(TEXT_BYTES, token=True)], **config) as running:
        async with running.post(ASK, path=f"{STREAM}{query}") as response:
            before = await response.content.readany()
            go.set()
            said = await response.read()
        assert (response.status, before != b"", before.strip()) == (200, True, b"")
    assert said.strip().startswith(b"data: " if query else b"[")


async def test_tokens_are_counted_by_google_and_estimated_by_others(serve: Serve) -> None:
    path = f"/v1beta/models/{MODEL}:countTokens"
    async with serve(alpha=None) as running:
        async with running.post(ASK, path=path) as response:
            assert (response.status, response.headers["x-holeshot-estimated"]) == (200, "true")
            assert (await response.json())["totalTokens"] > 0
        async with running.post({"generateContentRequest": {"model": "models/x", **ASK}}, path=path) as response:
            assert (await response.json())["totalTokens"] > 0
        async with running.post({}, path=path) as response:
            error = (await response.json())["error"]
            assert (response.status, error["status"]) == (400, "INVALID_ARGUMENT")


async def test_models_are_listed_in_googles_format(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        async with running.get("/v1beta/models") as response:
            [model] = (await response.json())["models"]
        assert (model["name"], model["displayName"]) == (f"models/{MODEL}", MODEL)
        async with running.get(f"/v1beta/models/{MODEL}") as response:
            assert await response.json() == model
        async with running.get("/v1beta/models/nobody") as response:
            assert (response.status, (await response.json())["error"]["status"]) == (404, "NOT_FOUND")


async def test_a_key_is_taken_where_googles_clients_send_it_and_is_seen_nowhere_else(
    serve: Serve, capfd: pytest.CaptureFixture[str]
) -> None:
    key, wrong = KEYS["plain"], "hs-wrong-1234567890-wrong"
    config = {**GOOGLE["config"], **clients(plain={})}
    async with serve(alpha=[Raw(TEXT_BYTES, token=True)], config=config) as running:
        for path, headers, status in (
            (GENERATE, {"x-goog-api-key": key}, 200),
            (f"{GENERATE}?key={key}", {}, 200),
            (f"{STREAM}?alt=sse&key={key}", {}, 200),
            (f"/v1beta/models/nobody:generateContent?key={key}", {}, 404),
            (f"/v1beta/files?key={key}", {}, 404),
            (f"{GENERATE}?key={wrong}", {}, 401),
            (GENERATE, {"x-goog-api-key": wrong}, 401),
            (GENERATE, {}, 401),
            (f"/v1/chat/completions?key={key}", {}, 401),  # no other API has its key in the address
        ):
            async with running.post(ASK, path=path, headers=headers) as response:
                said = await response.text()
                assert response.status == status, (path, said)
                assert key not in said + str(response.headers)
                assert wrong not in said
        async with running.get(f"/v1beta/models?key={key}") as response:
            assert response.status == 200
        assert not any(key in str(sent.headers) + sent.path for sent in running["alpha"].received)
        for table in ("calls", "attempts", "refusals"):
            assert not any(key in str(row) or wrong in str(row) for row in await running.rows(f"select * from {table}"))
        folder = running.folder
    seen = content_of(folder)
    out = "".join(capfd.readouterr()).encode()
    for secret in (key.encode(), wrong.encode()):
        assert secret not in out
        assert secret not in seen


async def test_a_model_in_the_address_may_have_slashes_and_be_escaped(serve: Serve) -> None:
    async with serve(alpha=[Raw(TEXT_BYTES, token=True)], **GOOGLE) as running:
        for name in ("nobody/at/all", "nobody%2Fat%2Fall"):
            url = f"{running.url}/v1beta/models/{name}:generateContent"
            async with aiohttp.ClientSession() as http, http.post(url, json=ASK) as response:
                assert "nobody/at/all" in (await response.json())["error"]["message"]
