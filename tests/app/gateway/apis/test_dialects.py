"""Clients of every dialect, in front of providers that speak theirs and of providers that do not."""

import json
from typing import Any

import msgspec
import pytest

from providers import events
from providers.simulator import Delta, Drop, Hang, Raw, Status
from tests.app.gateway.access.test_admission import clients, key_of
from tests.app.gateway.running_gateway import MODEL, Serve

MESSAGE: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Say hello."}],
    "a_field_of_the_future": {"x": [1, None]},
}


def event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), json.dumps({"type": kind, **fields}).encode())


MESSAGE_START = event(
    "message_start",
    message={"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "new": 1}
    | {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 7, "output_tokens": 1}},
)
MESSAGE_TEXT = [
    event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    event("ping"),
    event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hel"}),
    event("content_block_delta", index=0, delta={"type": "text_delta", "text": "lo"}),
    event("content_block_stop", index=0),
]
MESSAGE_END = [
    event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 5}),
    event("message_stop"),
]
MESSAGE_BYTES = b"".join([MESSAGE_START, *MESSAGE_TEXT, *MESSAGE_END])
RESPONSE = {"id": "resp_abc", "object": "response", "status": "completed", "model": "m", "output": []}
RESPONSE_BYTES = b"".join(
    [
        event("response.created", sequence_number=0, response={**RESPONSE, "status": "in_progress"}),
        event(
            "response.output_text.delta",
            sequence_number=1,
            item_id="msg_1",
            output_index=0,
            content_index=0,
            delta="Hello",
        ),
        event(
            "response.completed",
            sequence_number=2,
            response={**RESPONSE, "usage": {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4}},
        ),
    ]
)
COMPLETION_BYTES = (
    b'data: {"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":"Hel","finish_reason":null}]}\n\n'
    b'data: {"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":"lo","finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)


def speaking(*apis: str, **provider: Any) -> dict[str, Any]:
    return {"apis": list(apis), **provider}


def providers(**settings: Any) -> dict[str, Any]:
    return {"config": {"providers": settings}}


@pytest.mark.parametrize(
    ("path", "api", "body", "sent"),
    [
        ("/v1/messages", "messages", MESSAGE, MESSAGE_BYTES),
        ("/v1/responses", "responses", {"model": MODEL, "input": "Hi", "new": 1}, RESPONSE_BYTES),
        ("/v1/completions", "completions", {"model": MODEL, "prompt": "Hi", "new": 1}, COMPLETION_BYTES),
    ],
)
async def test_in_its_own_dialect_every_byte_passes_untouched(
    serve: Serve, path: str, api: str, body: dict[str, Any], sent: bytes
) -> None:
    async with serve(alpha=[Raw(sent, token=True)], **providers(alpha=speaking(api))) as running:
        async with running.post({**body, "stream": True}, path=path) as response:
            assert (response.status, await response.read()) == (200, sent)
        [received] = running["alpha"].received
        added: dict[str, Any] = {"store": False} if api == "responses" else {}
        if api == "completions":
            added = {"stream_options": {"include_usage": True}}
        assert received.body == {**body, **added, "model": "m", "stream": True}
        call = await running.call()
        assert (call["endpoint"], call["status_code"], call["error_kind"]) == (api, 200, None)
        assert call["ttft_ms"] is not None
        if api == "messages":
            assert (call["prompt_tokens"], call["completion_tokens"]) == (7, 5)


async def test_a_whole_message_is_gathered_from_the_events(serve: Serve) -> None:
    async with serve(alpha=[Raw(MESSAGE_BYTES, token=True)], **providers(alpha=speaking("messages"))) as running:
        async with running.post(MESSAGE, path="/v1/messages") as response:
            said = await response.json()
        assert said["content"] == [{"type": "text", "text": "Hello"}]
        assert (said["id"], said["new"], said["stop_reason"]) == ("msg_1", 1, "end_turn")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["messages", "chat/completions"])
@pytest.mark.parametrize("instead", [True, False], ids=["instead", "beside"])
async def test_a_proxy_that_ends_messages_as_openai_does_has_answered(
    serve: Serve, path: str, *, instead: bool, stream: bool
) -> None:
    sent = MESSAGE_BYTES.removesuffix(MESSAGE_END[-1]) if instead else MESSAGE_BYTES
    script = [Raw(sent + b"data: [DONE]\n\n", token=True)]
    body = {"model": MODEL, "max_tokens": 100, "messages": MESSAGE["messages"], "stream": stream}
    async with serve(alpha=script, **providers(alpha=speaking("messages"))) as running:
        async with running.post(body, path=f"/v1/{path}") as response:
            assert response.status == 200
            said = await response.read()
        if stream and path == "messages":
            told = [json.loads(each.data) for each in events(said)]
            assert told == [json.loads(each.data) for each in events(MESSAGE_BYTES)]
        assert (await running.call())["completion_tokens"] == 5
        assert await running.outcomes() == {"alpha": "won"}


async def test_deployments_of_three_dialects_race_in_the_clients_own(serve: Serve) -> None:
    scripts = {"alpha": [Raw(MESSAGE_BYTES, token=True)], "beta": None, "gamma": [Raw(RESPONSE_BYTES, token=True)]}
    config = {
        "config": {
            "providers": {
                "alpha": speaking("messages"),
                "beta": speaking("chat"),
                "gamma": speaking("responses"),
            },
            "models": {MODEL: {"race": {"width": 1}}},
        }
    }
    body = {key: value for key, value in MESSAGE.items() if key != "a_field_of_the_future"}
    async with serve(**scripts, **config) as running:
        for name, text in (("alpha", "Hello"), ("beta", "Hello there!"), ("gamma", "Hello")):
            others = [other for other in scripts if other != name]
            provider = {"provider": {"only": [name], "ignore": others}}
            async with running.post({**body, **provider, "stream": True}, path="/v1/messages") as response:
                stream = await response.read()
            kinds = [msgspec.json.decode(each.data)["type"] for each in events(stream)]
            assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
            deltas = [msgspec.json.decode(each.data).get("delta", {}) for each in events(stream)]
            assert "".join(delta.get("text", "") for delta in deltas) == text
            assert response.headers["x-holeshot-provider"] == name


async def test_a_chat_client_is_answered_by_a_messages_deployment(serve: Serve) -> None:
    async with serve(alpha=[Raw(MESSAGE_BYTES, token=True)], **providers(alpha=speaking("messages"))) as running:
        stream = await running.sdk.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Hi"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello"
        usage = chunks[-1].usage
        assert usage is not None
        assert (usage.prompt_tokens, usage.completion_tokens) == (7, 5)


async def test_a_messages_stream_that_breaks_off_ends_in_an_error_of_its_own_shape(serve: Serve) -> None:
    script = [Raw(MESSAGE_START + MESSAGE_TEXT[0] + MESSAGE_TEXT[2], token=True), Drop()]
    async with serve(alpha=script, **providers(alpha=speaking("messages"))) as running:
        async with running.post({**MESSAGE, "stream": True}, path="/v1/messages") as response:
            last = events(await response.read())[-1]
        said = json.loads(last.data)
        assert last.raw.startswith(b"event: error\n")
        assert (said["type"], said["error"]["type"]) == ("error", "api_error")


async def test_a_translated_answer_that_breaks_off_is_no_whole_one(serve: Serve) -> None:
    async with serve(alpha=[Delta("Hel"), Drop()]) as running:
        body = {key: value for key, value in MESSAGE.items() if key != "a_field_of_the_future"}
        async with running.post({**body, "stream": True}, path="/v1/messages") as response:
            kinds = [json.loads(each.data)["type"] for each in events(await response.read())]
        assert kinds[-1] == "error"
        assert "message_stop" not in kinds


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
async def test_errors_have_the_shape_of_anthropic(serve: Serve, status: int) -> None:
    script = [Status(status, {"type": "error", "error": {"type": "overloaded_error", "message": "no."}})]
    async with serve(alpha=script, **providers(alpha=speaking("messages"))) as running:
        async with running.post(MESSAGE, path="/v1/messages") as response:
            said = await response.json()
        assert said["type"] == "error"
        assert set(said["error"]) >= {"type", "message"}
        assert said["request_id"] == response.headers["request-id"]
        assert response.status == {400: 503, 401: 424, 404: 424, 500: 503}.get(status, status)


async def test_requests_that_make_no_sense_are_told_in_the_dialects_own_shape(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        for body, status, kind in [
            ({"model": "nobody", "max_tokens": 1, "messages": [{}]}, 404, "not_found_error"),
            ({"model": MODEL, "messages": [{}]}, 400, "invalid_request_error"),
            ({"model": MODEL, "max_tokens": 1, "messages": []}, 400, "invalid_request_error"),
            ({"max_tokens": 1, "messages": [{}]}, 400, "invalid_request_error"),
            ({**MESSAGE, "stream": "yes"}, 400, "invalid_request_error"),
        ]:
            async with running.post(body, path="/v1/messages") as response:
                assert (response.status, (await response.json())["error"]["type"]) == (status, kind)
        body = {"model": MODEL, "max_tokens": 1, "messages": [{"role": "user"}]}  # translated, so we must understand it
        async with running.post(body, path="/v1/messages") as response:
            assert (await response.json())["error"]["message"] == "messages[0].content: Field required"
        for path, body, param in [
            ("/v1/responses", {"model": MODEL}, "input"),
            ("/v1/responses", {"input": "Hi"}, "model"),
            ("/v1/responses", {"model": MODEL, "input": "Hi", "tools": 5}, "tools"),
            ("/v1/completions", {"model": MODEL}, "prompt"),
        ]:
            async with running.post(body, path=path) as response:
                error = (await response.json())["error"]
                assert (response.status, error["param"], error["type"]) == (400, param, "invalid_request_error")


async def test_store_is_false_unless_the_client_or_the_operator_says_otherwise(serve: Serve) -> None:
    async with serve(alpha=[Raw(RESPONSE_BYTES)], beta=[Raw(RESPONSE_BYTES)], **NATIVE) as running:
        async with running.post({"model": MODEL, "input": "Hi"}, path="/v1/responses") as response:
            assert (response.status, response.headers["x-holeshot-store"]) == (200, "false")
            assert response.headers["x-holeshot-launched"] == "2"
        async with running.post({"model": MODEL, "input": "Hi", "store": True}, path="/v1/responses") as response:
            assert "x-holeshot-store" not in response.headers
            assert response.headers["x-holeshot-launched"] == "1"


async def test_store_is_untouched_in_the_background(serve: Serve) -> None:
    async with serve(alpha=[Raw(RESPONSE_BYTES)], beta=[Raw(RESPONSE_BYTES)], **NATIVE) as running:
        body = {"model": MODEL, "input": "Hi", "background": True}
        async with running.post(body, path="/v1/responses") as response:
            assert "x-holeshot-store" not in response.headers  # its answer is no response: only the request counts here
        [sent] = [*running["alpha"].received, *running["beta"].received]
        assert "store" not in sent.body


async def test_a_stored_response_is_continued_where_it_was_made(serve: Serve) -> None:
    async with serve(alpha=[Raw(RESPONSE_BYTES)], beta=[Raw(RESPONSE_BYTES)], **NATIVE) as running:
        for stream in (False, True):
            body = {"model": MODEL, "input": "Hi", "store": True, "stream": stream}
            async with running.post(body, path="/v1/responses") as response:
                await response.read()
                made_by = response.headers["x-holeshot-provider"]
            for _ in range(5):
                further = {"model": MODEL, "input": "And?", "previous_response_id": "resp_abc"}
                async with running.post(further, path="/v1/responses") as response:
                    assert (response.status, response.headers["x-holeshot-provider"]) == (200, made_by)


async def test_a_response_nobody_knows_cannot_be_continued(serve: Serve) -> None:
    async with serve(alpha=[Raw(RESPONSE_BYTES)], **providers(alpha=speaking("responses"))) as running:
        body = {"model": MODEL, "input": "And?", "previous_response_id": "resp_other"}
        async with running.post(body, path="/v1/responses") as response:
            said = (await response.json())["error"]
        assert (response.status, said["param"]) == (400, "previous_response_id")
        assert "resp_other" in said["message"]
        assert running.requests == 0


async def test_a_raw_prompt_is_never_asked_of_a_chat_api(serve: Serve) -> None:
    async with serve(alpha=None, **providers(alpha=speaking("chat"))) as running:
        async with running.post({"model": MODEL, "prompt": "Once"}, path="/v1/completions") as response:
            said = (await response.json())["error"]
        assert (response.status, said["code"]) == (400, "unsupported_by_deployments")
        assert "alpha/m" in said["message"]
        assert running.requests == 0


async def test_a_path_the_provider_does_not_have_does_not_put_its_chat_out(serve: Serve) -> None:
    async with serve(alpha=None, **providers(alpha=speaking("chat", "responses"))) as running:
        running["alpha"].once([Status(404, {"detail": "Not Found"})])
        async with running.post({"model": MODEL, "input": "Hi"}, path="/v1/responses") as response:
            assert response.status == 200  # by way of chat
        async with running.chat() as response:
            assert response.status == 200
        board = running.gateway.steering.leaderboard(MODEL).deployments
        assert [row.state for row in board] == ["ok"]


async def test_a_messages_client_that_hangs_up_is_seen_at_the_provider(serve: Serve) -> None:
    script = [Raw(MESSAGE_START + MESSAGE_TEXT[0] + MESSAGE_TEXT[2], token=True), Hang()]
    async with serve(alpha=script, beta=script, **NATIVE_MESSAGES) as running:
        async with running.post({**MESSAGE, "stream": True}, path="/v1/messages") as response:
            await response.content.readany()
        for name in ("alpha", "beta"):
            if running[name].counts.requests:
                await running[name].reach(disconnects=1)
        assert (await running.call())["status_code"] == 499


NATIVE = providers(alpha=speaking("responses"), beta=speaking("responses"))
NATIVE_MESSAGES = providers(alpha=speaking("messages"), beta=speaking("messages"))


async def test_thoughts_of_another_providers_model_are_not_sent_back_to_who_would_refuse_them(serve: Serve) -> None:
    config = {"config": {"providers": {"alpha": speaking("messages"), "beta": speaking("responses")}}}
    thought = {"type": "thinking", "thinking": "hm", "signature": ""}
    said = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "Yes"}]},
    ]
    body = {"model": MODEL, "max_tokens": 9, "messages": [*said, {"role": "user", "content": "And?"}]}
    async with serve(alpha=[Raw(MESSAGE_BYTES, token=True)], beta=[Raw(RESPONSE_BYTES)], **config) as running:
        async with running.post({**body, "provider": {"only": ["alpha"]}}, path="/v1/messages") as response:
            assert (response.status, response.headers["x-holeshot-dropped"]) == (200, "messages[1].content[0]")
        assert running["alpha"].received[0].body["messages"][1]["content"] == [{"type": "text", "text": "Yes"}]
        items = [{"type": "reasoning", "id": "rs_translated_1_0", "summary": []}, {"role": "user", "content": "And?"}]
        asked = {"model": MODEL, "input": items, "provider": {"only": ["beta"]}}
        async with running.post(asked, path="/v1/responses") as response:
            assert (response.status, response.headers["x-holeshot-dropped"]) == (200, "input[0]")
        assert running["beta"].received[0].body["input"] == items[1:]


@pytest.mark.parametrize(
    ("fields", "launched"),
    [
        ({"tools": [{"name": "f", "input_schema": {"type": "object"}}]}, "2"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "2"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "2"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "1"),
        ({"mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}]}, "1"),
    ],
)
async def test_messages_race_unless_the_provider_acts_for_them(
    serve: Serve, fields: dict[str, Any], launched: str
) -> None:
    scripts = {"alpha": [Raw(MESSAGE_BYTES)], "beta": [Raw(MESSAGE_BYTES)]}
    async with serve(**scripts, **NATIVE_MESSAGES) as running:
        async with running.post({**MESSAGE, **fields}, path="/v1/messages") as response:
            await response.read()
        assert (response.status, response.headers["x-holeshot-launched"]) == (200, launched)


@pytest.mark.parametrize(
    ("tool", "launched"),
    [
        ({"type": "computer"}, "2"),
        ({"type": "computer_use_preview", "display_width": 9, "display_height": 9, "environment": "browser"}, "2"),
        ({"type": "local_shell"}, "2"),
        ({"type": "shell", "environment": {"type": "local"}}, "2"),
        ({"type": "apply_patch"}, "2"),
        ({"type": "custom", "name": "f"}, "2"),
        ({"type": "namespace", "name": "n", "description": "d", "tools": []}, "2"),
        ({"type": "tool_search"}, "2"),
        ({"type": "tool_search", "execution": "client", "parameters": {}}, "2"),
        ({"type": "shell"}, "1"),
        ({"type": "shell", "environment": {"type": "container_auto"}}, "1"),
        ({"type": "programmatic_tool_calling"}, "1"),
        ({"type": "web_search"}, "1"),
        ({"type": "image_generation"}, "1"),
    ],
)
async def test_responses_race_unless_the_provider_acts_for_them(
    serve: Serve, tool: dict[str, Any], launched: str
) -> None:
    async with serve(alpha=[Raw(RESPONSE_BYTES)], beta=[Raw(RESPONSE_BYTES)], **NATIVE) as running:
        async with running.post({"model": MODEL, "input": "Hi", "tools": [tool]}, path="/v1/responses") as response:
            await response.read()
        assert (response.status, response.headers["x-holeshot-launched"]) == (200, launched)


async def test_a_stored_response_is_its_own_clients_alone(serve: Serve) -> None:
    config = {**NATIVE["config"], **clients(plain={}, guest={})}
    async with serve(alpha=[Raw(RESPONSE_BYTES)], beta=[Raw(RESPONSE_BYTES)], config=config) as running:
        stored = {"model": MODEL, "input": "Hi", "store": True}
        async with running.post(stored, path="/v1/responses", headers=key_of("plain")) as response:
            assert response.status == 200
        further = {"model": MODEL, "input": "What was said?", "previous_response_id": "resp_abc"}
        async with running.post(further, path="/v1/responses", headers=key_of("guest")) as response:
            assert (response.status, (await response.json())["error"]["param"]) == (400, "previous_response_id")
        assert running.requests == 1
        async with running.post(further, path="/v1/responses", headers=key_of("plain")) as response:
            assert response.status == 200


async def test_a_field_is_told_as_dropped_whatever_its_name(serve: Serve) -> None:
    deployment = {"deployment": "alpha/m", "drop_params": True}
    async with serve(alpha=None, config={"models": {MODEL: {"deployments": [deployment]}}}) as running:
        odd = {"x\r\nset-cookie: a=b": 1, "größe": 2, **{f"field_{number}_{'x' * 20}": number for number in range(200)}}
        for stream in (False, True):
            async with running.post({**MESSAGE, **odd, "stream": stream}, path="/v1/messages") as response:
                assert (response.status, "set-cookie" in response.headers) == (200, False)
                assert response.headers["x-holeshot-dropped"].endswith(" more")
                assert len(response.headers["x-holeshot-dropped"]) < 2100


async def test_a_response_that_nobody_stored_or_keeps_is_not_gone_on_from(serve: Serve) -> None:
    deployment = {"deployment": "alpha/m", "drop_params": True}
    config = {"models": {MODEL: {"deployments": [deployment]}}, "responses_memory": "off"}
    async with serve(alpha=None, config=config) as running:
        async with running.post({"model": MODEL, "input": "Hi", "store": True}, path="/v1/responses") as response:
            assert (response.status, response.headers["x-holeshot-dropped"]) == (200, "store")
            made = (await response.json())["id"]
        further = {"model": MODEL, "input": "And?", "previous_response_id": made}
        async with running.post(further, path="/v1/responses") as response:
            assert (response.status, (await response.json())["error"]["param"]) == (400, "previous_response_id")


@pytest.mark.parametrize("said", [{"conversation": "conv_1"}, {"prompt": {"id": "pmpt_1"}}])
async def test_what_was_said_so_far_is_never_dropped(serve: Serve, said: dict[str, Any]) -> None:
    deployment = {"deployment": "alpha/m", "drop_params": True}
    async with serve(alpha=None, config={"models": {MODEL: {"deployments": [deployment]}}}) as running:
        async with running.post({"model": MODEL, "input": "And?", **said}, path="/v1/responses") as response:
            assert (response.status, (await response.json())["error"]["code"]) == (400, "unsupported_by_deployments")
        assert running.requests == 0
