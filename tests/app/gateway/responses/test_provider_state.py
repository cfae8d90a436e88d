"""Who may name what a provider stores: what one client's answers named, another client cannot use."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from providers.simulator import Raw, Status
from tests.app.gateway.access.test_admission import clients, key_of
from tests.app.gateway.apis.test_dialects import MESSAGE_BYTES, event, speaking
from tests.app.gateway.running_gateway import MODEL, Serve

FILE = {"type": "input_file", "file_id": "file-theirs"}
ITEMS = {"chat": "messages", "responses": "input", "messages": "messages", "gemini": "contents"}
PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "gemini": f"/v1beta/models/{MODEL}:generateContent",
    "images": "/v1/images/edits",
    "audio": "/v1/audio/speech",
}
USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"file_id": {}}}}


def body_of(api: str, fields: dict[str, Any]) -> dict[str, Any]:
    model = {} if api == "gemini" else {"model": MODEL}
    plain: dict[str, dict[str, Any]] = {
        "chat": {"messages": [USER]},
        "responses": {"input": "Hi"},
        "messages": {"messages": [USER], "max_tokens": 9},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
        "images": {"prompt": "a cat", "image": "x"},
        "audio": {"input": "Hi", "voice": "alloy"},
    }
    return {**model, **plain[api], **fields}


def parts(*content: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(content)}]


NAMED: list[tuple[str, dict[str, Any], str]] = [
    ("responses", {"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].id"),
    ("responses", {"input": [USER, {"id": "msg_1"}]}, "input[1].id"),
    ("responses", {"input": [{"type": None, "id": "msg_1"}]}, "input[0].id"),
    ("responses", {"input": [{"type": "image_generation_call", "id": "ig_1"}]}, "input[0].id"),
    ("responses", {"input": parts(FILE)}, "input[0].content[0].file_id"),
    ("responses", {"input": parts({"type": "input_image", "file_id": "f"})}, "input[0].content[0].file_id"),
    (
        "responses",
        {"input": [{"type": "function_call_output", "call_id": "c", "output": [FILE]}]},
        "input[0].output[0].file_id",
    ),
    (
        "responses",
        {"input": [{"type": "computer_call_output", "call_id": "c", "output": {"file_id": "f"}}]},
        "input[0].output.file_id",
    ),
    ("responses", {"conversation": "conv_1"}, "conversation"),
    (
        "responses",
        {"prompt_cache_options": {"comparison_response_id": "resp_1"}},
        "prompt_cache_options.comparison_response_id",
    ),
    ("responses", {"conversation": {"id": "conv_1"}}, "conversation.id"),
    ("responses", {"prompt": {"id": "pmpt_1"}}, "prompt.id"),
    ("responses", {"prompt": {"variables": {"parameters": FILE}}}, "prompt.variables.parameters.file_id"),
    ("responses", {"tools": [{"type": "file_search", "vector_store_ids": ["vs"]}]}, "tools[0].vector_store_ids[0]"),
    ("responses", {"tools": [{"type": "code_interpreter", "container": "cntr_1"}]}, "tools[0].container"),
    (
        "responses",
        {"tools": [TOOL, {"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["f"]}}]},
        "tools[1].container.file_ids[0]",
    ),
    (
        "responses",
        {"tools": [{"type": "shell", "environment": {"type": "container_reference", "container_id": "c"}}]},
        "tools[0].environment.container_id",
    ),
    ("chat", {"messages": parts({"type": "file", "file": {"file_id": "f"}})}, "messages[0].content[0].file.file_id"),
    ("chat", {"messages": [USER, {"role": "assistant", "audio": {"id": "audio_1"}}]}, "messages[1].audio.id"),
    (
        "chat",
        {"messages": parts({"type": "image_url", "image_url": {"url": "gs://bucket/cat.png"}})},
        "messages[0].content[0].image_url.url",
    ),
    (
        "messages",
        {"messages": parts({"type": "document", "source": {"type": "file", "file_id": "f"}})},
        "messages[0].content[0].source.file_id",
    ),
    ("messages", {"messages": parts({"type": "container_upload", "file_id": "f"})}, "messages[0].content[0].file_id"),
    ("messages", {"container": "container_1"}, "container"),
    ("messages", {"container": {"id": "container_1"}}, "container.id"),
    (
        "messages",
        {"container": {"skills": [{"type": "anthropic", "skill_id": "xlsx"}, {"skill_id": "skill_01"}]}},
        "container.skills[1].skill_id",
    ),
    ("messages", {"thread": {"type": "continue", "previous_message_id": "msg_1"}}, "thread.previous_message_id"),
    ("messages", {"diagnostics": {"previous_message_id": "msg_1"}}, "diagnostics.previous_message_id"),
    ("messages", {"fallback_credit_token": "c" * 600}, "fallback_credit_token"),
    ("messages", {"fallback_credit_token": {"token": "credit"}}, "fallback_credit_token.token"),
    ("gemini", {"cachedContent": "cachedContents/1"}, "cachedContent"),
    ("gemini", {"cached_content": "cachedContents/1"}, "cachedContent"),
    (
        "gemini",
        {
            "contents": [
                {"parts": [{"fileData": {"fileUri": "https://generativelanguage.googleapis.com/v1beta/files/1"}}]}
            ]
        },
        "contents[0].parts[0].fileData.fileUri",
    ),
    (
        "gemini",
        {"contents": {"parts": [{"file_data": {"file_uri": "gs://bucket/x"}}]}},
        "contents.parts[0].file_data.file_uri",
    ),
    (
        "gemini",
        {"tools": [{"fileSearch": {"fileSearchStoreNames": ["fileSearchStores/1"]}}]},
        "tools[0].fileSearch.fileSearchStoreNames[0]",
    ),
    ("images", {"images": [{"file_id": "f"}]}, "images[0].file_id"),
    ("audio", {"voice": {"id": "voice_1"}}, "voice.id"),
    # At places that no table has: what is called so, and has the form of such an id.
    ("messages", {"tools": [{"type": "later", "vector_store_ids": ["vs_68"]}]}, "tools[0].vector_store_ids[0]"),
    ("responses", {"tool_choice": {"type": "x", "containerId": "cntr_68"}}, "tool_choice.containerId"),
    ("responses", {"later": {"previous_response_id": "resp_68"}}, "later.previous_response_id"),
    ("images", {"reference": {"file_id": "file-68"}}, "reference.file_id"),
    ("audio", {"later": {"skill\u005fid": "skill_68"}}, "later.skill_id"),
]


@pytest.mark.parametrize(("api", "fields", "named"), NAMED)
async def test_what_no_answer_gave_a_client_is_not_found(
    serve: Serve, api: str, fields: dict[str, Any], named: str
) -> None:
    config = {"providers": {"alpha": speaking(api)}, **clients(guest={})}
    async with serve(alpha=None, config=config) as running:
        async with running.post(body_of(api, fields), path=PATHS[api], headers=key_of("guest")) as response:
            said = await response.json()
        assert (response.status, running.requests) == (404, 0), said
    assert f"'{named}'" in said["error"]["message"]
    if api == "messages":
        assert said["error"]["type"] == "not_found_error"
    elif api == "gemini":
        assert said["error"]["status"] == "NOT_FOUND"
    else:
        assert (said["error"]["param"], said["error"]["code"]) == (named, "not_stored_for_this_key")


@pytest.mark.parametrize(
    ("api", "behind"),
    [("responses", ""), ("responses", "/compact"), ("responses", "/input_tokens"), ("chat", ""), ("audio", "")],
)
@pytest.mark.parametrize("setting", [{}, {"provider_state": "none"}])
async def test_a_response_that_no_answer_gave_a_client_is_told_as_openai_does_wherever_it_is_gone_on_from(
    serve: Serve, api: str, behind: str, setting: dict[str, Any]
) -> None:
    config = {"providers": {"alpha": {**speaking(api), "preset": "openai"}}, **setting, **clients(guest={})}
    body = body_of(api, {"previous_response_id": "resp_68"})
    async with serve(alpha=None, config=config) as running:
        async with running.post(body, path=PATHS[api] + behind, headers=key_of("guest")) as response:
            error = (await response.json())["error"]
        assert (response.status, running.requests) == (400, 0), error
    assert (error["param"], error["code"]) == ("previous_response_id", "previous_response_not_found")


@pytest.mark.parametrize("setting", [{"provider_state": "any"}, {}])
async def test_the_operator_may_let_clients_name_anything_and_without_clients_it_is_so(
    serve: Serve, setting: dict[str, Any]
) -> None:
    config = {"providers": {"alpha": speaking("responses")}, **setting, **(clients(guest={}) if setting else {})}
    headers = key_of("guest") if setting else {}
    async with serve(alpha=[Raw(answer_of({}))], config=config) as running:
        for fields in (
            {"input": [{"type": "item_reference", "id": "msg_1"}]},
            {"conversation": "conv_1"},
            {"input": parts(FILE)},
        ):
            async with running.post(body_of("responses", fields), path=PATHS["responses"], headers=headers) as response:
                assert response.status == 200, await response.text()


async def test_with_any_an_unknown_response_is_continued_where_only_one_deployment_can_have_it(serve: Serve) -> None:
    config = {"providers": {"alpha": speaking("responses")}, "provider_state": "any", **clients(guest={})}
    body = body_of("responses", {"previous_response_id": "resp_of_the_operator"})
    async with serve(alpha=[Raw(answer_of({}))], config=config) as running:
        for _ in range(2):
            async with running.post(body, path=PATHS["responses"], headers=key_of("guest")) as response:
                assert response.status == 200
    both = {"alpha": speaking("responses"), "beta": speaking("responses")}
    async with serve(alpha=None, beta=None, config={**config, "providers": both}) as running:
        async with running.post(body, path=PATHS["responses"], headers=key_of("guest")) as response:
            said = (await response.json())["error"]
        assert (response.status, said["param"]) == (400, "previous_response_id")


async def test_none_lets_nobody_name_what_is_stored(serve: Serve) -> None:
    config = {"providers": {"alpha": speaking("responses")}, "provider_state": "none", **clients(guest={})}
    async with serve(alpha=[Raw(answer_of({}))], config=config) as running:
        stored = body_of("responses", {"store": True})
        async with running.post(stored, path=PATHS["responses"], headers=key_of("guest")) as response:
            assert response.status == 200
        for fields in (
            {"previous_response_id": "resp_abc"},
            {"input": [{"type": "item_reference", "id": "msg_mine"}]},
        ):
            body = body_of("responses", fields)
            async with running.post(body, path=PATHS["responses"], headers=key_of("guest")) as response:
                assert response.status == 404
        assert running.requests == 1


OUTPUT = [
    {"type": "message", "id": "msg_mine", "role": "assistant", "content": [
        {"type": "output_text", "text": "Hi", "annotations": [
            {"type": "container_file_citation", "container_id": "cntr_mine", "file_id": "cfile_mine"}]}]},
    {"type": "code_interpreter_call", "id": "ci_mine", "container_id": "cntr_mine", "status": "completed"},
]  # fmt: skip


def answer_of(echoed: dict[str, Any], output: Any = OUTPUT) -> bytes:
    made = {"id": "resp_abc", "object": "response", "status": "completed", "model": "m", "output": output, **echoed}
    usage = {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4}
    delta = {"item_id": "msg_mine", "output_index": 0, "content_index": 0, "delta": "Hello"}
    return b"".join(
        [
            event("response.created", sequence_number=0, response={**made, "output": [], "status": "in_progress"}),
            event("response.output_text.delta", sequence_number=1, **delta),
            event("response.completed", sequence_number=2, response={**made, "usage": usage}),
        ]
    )


@pytest.mark.parametrize("stream", [False, True])
async def test_what_an_answer_named_its_client_may_name_at_that_provider(serve: Serve, stream: bool) -> None:
    config = {
        "providers": {"alpha": speaking("responses"), "beta": speaking("responses")},
        **clients(plain={}, guest={}),
    }
    script = [Raw(answer_of({}))]
    further = (
        {"input": [{"type": "item_reference", "id": "msg_mine"}]},
        {"input": [{"id": "ci_mine"}]},
        {"input": parts({"type": "input_file", "file_id": "cfile_mine"})},
        {"tools": [{"type": "code_interpreter", "container": "cntr_mine"}]},
        {"previous_response_id": "resp_abc", "input": [{"type": "item_reference", "id": "msg_mine"}]},
    )
    async with serve(alpha=script, beta=script, config=config) as running:
        first = body_of("responses", {"store": True, "stream": stream})
        async with running.post(first, path=PATHS["responses"], headers=key_of("plain")) as response:
            await response.read()
            made_by = response.headers["x-holeshot-provider"]
        for fields in further:
            body = body_of("responses", fields)
            async with running.post(body, path=PATHS["responses"], headers=key_of("guest")) as response:
                assert response.status == (400 if "previous_response_id" in fields else 404)
            for _ in range(3):
                async with running.post(body, path=PATHS["responses"], headers=key_of("plain")) as response:
                    assert (response.status, response.headers["x-holeshot-provider"]) == (200, made_by)


async def test_a_request_cannot_have_its_answer_name_what_is_anothers(serve: Serve) -> None:
    config = {"providers": {"alpha": speaking("responses")}, **clients(guest={})}
    echoed = {
        "metadata": {"id": "msg_theirs", "file_id": "msg_theirs"},
        "instructions": '"output":[{"id":"msg_theirs"}]',
        "tools": [{"type": "function", "name": "f", "parameters": {"output": [{"id": "msg_theirs"}]}}],
    }
    async with serve(alpha=[Raw(answer_of(echoed))], config=config) as running:
        stored = body_of("responses", {"store": True})
        async with running.post(stored, path=PATHS["responses"], headers=key_of("guest")) as response:
            assert response.status == 200
        body = body_of("responses", {"input": [{"type": "item_reference", "id": "msg_theirs"}]})
        async with running.post(body, path=PATHS["responses"], headers=key_of("guest")) as response:
            assert response.status == 404


@pytest.mark.parametrize("stream", [False, True])
async def test_a_container_of_messages_is_its_own_clients(serve: Serve, stream: bool) -> None:
    started = MESSAGE_BYTES.replace(
        b'"stop_sequence": null', b'"stop_sequence": null, "container": {"id": "c_mine"}', 1
    )
    config = {"providers": {"alpha": speaking("messages")}, **clients(plain={}, guest={})}
    tools = [{"type": "code_execution_20250825", "name": "code_execution"}]
    async with serve(alpha=[Raw(started)], config=config) as running:
        first = body_of("messages", {"tools": tools, "stream": stream})
        async with running.post(first, path=PATHS["messages"], headers=key_of("plain")) as response:
            await response.read()
            assert response.status == 200
        for owner, status in (("plain", 200), ("guest", 404)):
            body = body_of("messages", {"container": "c_mine"})
            async with running.post(body, path=PATHS["messages"], headers=key_of(owner)) as response:
                assert response.status == status, await response.text()


CREDIT = "sealed-" * 200
REFUSED_BYTES = MESSAGE_BYTES.replace(
    b'"stop_reason": "end_turn"',
    b'"stop_reason": "refusal", "stop_details": {"type": "refusal", "fallback_credit_token": "%b"}' % CREDIT.encode(),
)
CREATE, NO_ID = {"thread": {"type": "create"}}, {"diagnostics": {"previous_message_id": None}}
CREDITS = {"anthropic-beta": "other-2026-01-01,fallback-credit-2026-07-01"}
# What the first request asks for, the headers it has, and what a later one names of its answer.
Held = tuple[dict[str, Any], dict[str, str], dict[str, Any]]
HELD: list[Held] = [
    (CREATE, {}, {"thread": {"type": "continue", "previous_message_id": "msg_1"}}),
    (NO_ID, {}, {"diagnostics": {"previous_message_id": "msg_1"}}),
    ({}, CREDITS, {"fallback_credit_token": CREDIT}),
    ({}, CREDITS, {"fallback_credit_token": {"token": CREDIT, "mode": "best_effort"}}),
]
HELD_IDS = ["thread", "diagnostics", "credit", "credit as an object"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("named", [{"plain": {}, "guest": {}}, {}], ids=["clients", "no clients"])
@pytest.mark.parametrize("held", HELD, ids=HELD_IDS)
async def test_a_message_is_gone_on_from_where_it_was_made(
    serve: Serve,
    held: Held,
    named: dict[str, Any],
    stream: bool,
) -> None:
    first, headers, then = held
    config = {
        "providers": {each: speaking("messages") for each in ("alpha", "beta")},
        **(clients(**named) if named else {}),
    }
    script, plain = [Raw(REFUSED_BYTES)], key_of("plain") if named else {}
    async with serve(alpha=script, beta=script, config=config) as running:
        begun = body_of("messages", {**first, "stream": stream})
        async with running.post(begun, path=PATHS["messages"], headers={**plain, **headers}) as response:
            await response.read()
            made_by = response.headers["x-holeshot-provider"]
        body = body_of("messages", then)
        for _ in range(3):
            async with running.post(body, path=PATHS["messages"], headers=plain) as response:
                assert response.status == 200, await response.text()
                assert response.headers["x-holeshot-provider"] == made_by
                assert response.headers["x-holeshot-launched"] == "1"
        if named:
            async with running.post(body, path=PATHS["messages"], headers=key_of("guest")) as response:
                assert (response.status, (await response.json())["error"]["type"]) == (404, "not_found_error")


async def test_an_sdk_learns_that_its_conversation_is_not_kept_by_a_chat_provider(serve: Serve) -> None:
    config = {"providers": {"alpha": speaking("chat"), "beta": speaking("chat")}}
    async with serve(alpha=None, beta=None, config=config) as running:
        async with running.post(body_of("messages", CREATE), path=PATHS["messages"]) as response:
            error = (await response.json())["error"]
        assert (response.status, running.requests) == (400, 0)
    assert error["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


async def test_an_sdk_learns_that_its_thread_is_lost(serve: Serve) -> None:
    config = {"providers": {"alpha": speaking("messages")}, **clients(guest={})}
    body = body_of("messages", {"thread": {"type": "continue", "previous_message_id": "msg_1"}})
    async with serve(alpha=None, config=config) as running:
        async with running.post(body, path=PATHS["messages"], headers=key_of("guest")) as response:
            error = (await response.json())["error"]
        assert response.status == 404
    assert error["details"] == {"error_code": "thread_not_found"}


@pytest.mark.parametrize("held", HELD, ids=HELD_IDS)
async def test_a_message_is_gone_on_from_with_the_key_that_made_it(
    serve: Serve,
    held: Held,
) -> None:
    first, headers, then = held
    keys = {"api_key": None, "api_keys": ["key-one-0123456789", "key-two-0123456789", "key-three-0123456789"]}
    config = {"providers": {"alpha": speaking("messages", **keys)}}
    async with serve(alpha=[Raw(REFUSED_BYTES)], config=config) as running:
        async with running.post(body_of("messages", first), path=PATHS["messages"], headers=headers) as response:
            await response.read()
        for _ in range(4):
            async with running.post(body_of("messages", then), path=PATHS["messages"]) as response:
                assert response.status == 200, await response.text()
        made_by, *others = [each.headers["authorization"] for each in running["alpha"].received]
        assert others == [made_by] * 4


@pytest.mark.parametrize("held", HELD, ids=HELD_IDS)
async def test_a_key_that_must_wait_is_not_replaced_by_one_that_lacks_what_is_named(
    serve: Serve,
    held: Held,
) -> None:
    first, headers, then = held
    keys = {"api_key": None, "api_keys": ["key-one-0123456789", "key-two-0123456789"]}
    config = {"providers": {"alpha": speaking("messages", **keys)}}
    async with serve(alpha=[Raw(REFUSED_BYTES)], config=config) as running:
        async with running.post(body_of("messages", first), path=PATHS["messages"], headers=headers) as response:
            await response.read()
        running["alpha"].once([Status(429, {"error": {"message": "slower"}}, headers={"retry-after": "20"})])
        for _ in range(2):
            async with running.post(body_of("messages", then), path=PATHS["messages"]) as response:
                assert (response.status, (await response.json())["error"]["type"]) == (429, "rate_limit_error")
        made_by, other = [each.headers["authorization"] for each in running["alpha"].received]
        assert other == made_by


@pytest.mark.parametrize("then", [each[-1] for each in HELD], ids=HELD_IDS)
async def test_what_no_message_gave_is_not_found_without_clients_either_unless_the_operator_says_any(
    serve: Serve, then: dict[str, Any]
) -> None:
    config: dict[str, Any] = {"providers": {"alpha": speaking("messages")}}
    settings: list[tuple[dict[str, Any], int]] = [({}, 404), ({"provider_state": "any"}, 200)]
    for setting, status in settings:
        async with (
            serve(alpha=[Raw(MESSAGE_BYTES)], config=config | setting) as running,
            running.post(body_of("messages", then), path=PATHS["messages"]) as response,
        ):
            assert response.status == status, await response.text()
            assert running.requests == (status == 200)


async def test_with_any_an_unknown_thread_is_continued_where_only_one_deployment_can_have_it(serve: Serve) -> None:
    both = {each: speaking("messages") for each in ("alpha", "beta")}
    body = body_of("messages", HELD[0][-1])
    async with (
        serve(alpha=None, beta=None, config={"providers": both, "provider_state": "any"}) as running,
        running.post(body, path=PATHS["messages"]) as response,
    ):
        assert (response.status, running.requests) == (404, 0)
        assert (await response.json())["error"]["details"] == {"error_code": "thread_not_found"}


async def test_a_message_that_was_translated_may_be_compared_with_anywhere(serve: Serve) -> None:
    config = {"providers": {"alpha": speaking("chat"), "beta": speaking("messages")}, **clients(plain={}, guest={})}
    async with serve(alpha=None, beta=[Raw(MESSAGE_BYTES)], config=config) as running:
        first = body_of("messages", {**NO_ID, "provider": {"only": ["alpha"]}})
        async with running.post(first, path=PATHS["messages"], headers=key_of("plain")) as response:
            made = (await response.json())["id"]
        body = body_of("messages", {"diagnostics": {"previous_message_id": made}})
        async with running.post(body, path=PATHS["messages"], headers=key_of("plain")) as response:
            assert (response.status, response.headers["x-holeshot-launched"]) == (200, "2"), await response.text()
        async with running.post(body, path=PATHS["messages"], headers=key_of("guest")) as response:
            assert response.status == 404


@pytest.mark.parametrize(
    ("fields", "launched"),
    [(CREATE, "2"), ({"container": {"skills": []}}, "1"), (NO_ID, "2"), ({"thread": None, "container": None}, "2")],
)
async def test_a_message_that_stores_something_is_asked_for_once(
    serve: Serve, fields: dict[str, Any], launched: str
) -> None:
    config = {"providers": {each: speaking("messages") for each in ("alpha", "beta")}}
    async with serve(alpha=[Raw(MESSAGE_BYTES)], beta=[Raw(MESSAGE_BYTES)], config=config) as running:
        async with running.post(body_of("messages", fields), path=PATHS["messages"]) as response:
            await response.read()
        assert (response.status, response.headers["x-holeshot-launched"]) == (200, launched)


async def test_a_stored_response_is_continued_with_the_key_that_made_it(serve: Serve) -> None:
    keys = {"api_key": None, "api_keys": ["key-one-0123456789", "key-two-0123456789", "key-three-0123456789"]}
    config = {"providers": {"alpha": speaking("responses", preset="openai", **keys)}}
    further = body_of("responses", {"previous_response_id": "resp_abc"})
    async with serve(alpha=[Raw(answer_of({}))], config=config) as running:
        for body in (body_of("responses", {"store": True}), *(further,) * 4):
            async with running.post(body, path=PATHS["responses"]) as response:
                assert response.status == 200, await response.text()
        made_by, *others = [each.headers["authorization"] for each in running["alpha"].received]
        assert others == [made_by] * 4


# Where a request of Responses may have tools, with the path to the first of them.
NESTED: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "additional_tools": (
        lambda tool: {"input": [USER, {"type": "additional_tools", "role": "developer", "tools": [tool]}]},
        "input[1].tools[0]",
    ),
    "tool_search_output": (
        lambda tool: {"input": [USER, {"type": "tool_search_output", "call_id": "c", "tools": [tool]}]},
        "input[1].tools[0]",
    ),
    "namespace": (
        lambda tool: {"tools": [{"type": "namespace", "name": "n", "description": "d", "tools": [tool]}]},
        "tools[0].tools[0]",
    ),
    "namespace of an item": (
        lambda tool: {
            "input": [
                USER,
                {"type": "additional_tools", "tools": [{"type": "namespace", "name": "n", "tools": [tool]}]},
            ]
        },
        "input[1].tools[0].tools[0]",
    ),
}
TOOLS: list[tuple[dict[str, Any], str, int]] = [
    ({"type": "file_search", "vector_store_ids": ["vs_theirs"]}, "vector_store_ids[0]", 404),
    ({"type": "code_interpreter", "container": "cntr_theirs"}, "container", 404),
    ({"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file-x"]}}, "container.file_ids[0]", 404),
    (
        {"type": "shell", "environment": {"type": "container_auto", "skills": [{"skill_id": "skill_1"}]}},
        "environment.skills[0].skill_id",
        404,
    ),
    (
        {"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr_theirs"}},
        "environment.container_id",
        404,
    ),
    ({"type": "image_generation", "input_image_mask": {"file_id": "file-x"}}, "input_image_mask.file_id", 404),
    ({"type": "mcp", "server_label": "m", "server_url": "http://169.254.169.254/latest"}, "server_url", 403),
    ({"type": "mcp", "server_label": "m", "connector_id": "connector_gmail"}, "connector_id", 403),
]


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens"])
@pytest.mark.parametrize("where", NESTED)
async def test_what_tools_may_not_name_no_other_list_of_tools_may(serve: Serve, where: str, path: str) -> None:
    within, at = NESTED[where]
    config = {"providers": {"alpha": speaking("responses")}, **clients(guest={})}
    async with serve(alpha=[Raw(answer_of({}))], config=config) as running:
        for tool, field, status in TOOLS:
            body = body_of("responses", within(tool))
            async with running.post(body, path=path, headers=key_of("guest")) as response:
                said = await response.json()
            assert (response.status, running.requests) == (status, 0), said
            assert said["error"]["param"] == f"{at}.{field}"


@pytest.mark.parametrize("where", NESTED)
async def test_tools_that_name_nothing_of_a_providers_pass_wherever_they_are(serve: Serve, where: str) -> None:
    within, _ = NESTED[where]
    words = {each: {"type": "string"} for each in ("server_url", "container", "vector_store_ids", "file_ids", "tools")}
    tool = {
        "type": "function",
        "name": "f",
        "parameters": {"type": "object", "properties": words, "default": TOOLS[0][0]},
    }
    config = {"providers": {"alpha": speaking("responses")}, **clients(guest={})}
    async with serve(alpha=[Raw(answer_of({}))], config=config) as running:
        body = body_of("responses", within(tool))
        async with running.post(body, path=PATHS["responses"], headers=key_of("guest")) as response:
            assert response.status == 200, await response.text()
        assert running.requests == 1


HARMLESS: list[tuple[str, dict[str, Any]]] = [
    ("chat", {"messages": [{"role": "user", "content": 'read "file_id": "f"'}]}),
    ("chat", {"tools": [{"type": "function", "function": {"name": "f", "parameters": TOOL["parameters"]}}]}),
    ("chat", {"messages": parts({"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}})}),
    ("chat", {"messages": parts({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}})}),
    ("responses", {"input": [{"type": "message", "id": "msg_1", "role": "assistant", "content": []}, USER]}),
    (
        "responses",
        {"input": [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}, USER]},
    ),
    (
        "messages",
        {
            "messages": [
                USER,
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"file_id": "their own"}}],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]},
            ]
        },
    ),
    ("messages", {"container": {"skills": [{"type": "anthropic", "skill_id": "xlsx"}]}}),
    ("messages", {"tools": [{"name": "f", "input_schema": {"properties": {"file_id": {"default": "file-1"}}}}]}),
    ("messages", {"tools": [{"name": "f", "input_schema": {}, "input_examples": [{"file_id": "file name"}]}]}),
    ("chat", {"metadata": {"vector_store_id": "vs_1", "server_url": "https://example.com"}}),
    (
        "chat",
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {
                    "name": "n",
                    "schema": {
                        "properties": {
                            "container": {"const": "cntr_1"},
                            "server_url": {"default": "https://example.com"},
                        }
                    },
                },
            }
        },
    ),
    ("responses", {"text": {"format": {"type": "text"}, "note": {"file_id": "not of that form"}}}),
]


@pytest.mark.parametrize(("api", "fields"), HARMLESS)
async def test_what_only_looks_like_a_name_is_passed_on(serve: Serve, api: str, fields: dict[str, Any]) -> None:
    scripts = {"chat": None, "responses": [Raw(answer_of({}))], "messages": [Raw(MESSAGE_BYTES)]}
    config = {"providers": {"alpha": speaking(api)}, **clients(guest={})}
    async with serve(alpha=scripts[api], config=config) as running:
        async with running.post(body_of(api, fields), path=PATHS[api], headers=key_of("guest")) as response:
            assert response.status == 200, await response.text()
        assert running.requests == 1


async def test_names_written_with_escapes_are_found(serve: Serve) -> None:
    config = {"providers": {"alpha": speaking("responses")}, **clients(guest={})}
    plain = json.dumps(body_of("responses", {"input": parts(FILE)}))
    async with serve(alpha=None, config=config) as running:
        for written in ('"file\\u005fid"', '"\\u0066ile_id"', '"File_ID"', '"fileId"'):
            data = plain.replace('"file_id"', written).encode()
            async with running.post(data, path=PATHS["responses"], headers=key_of("guest")) as response:
                assert response.status == 404
        assert running.requests == 0


SERVERS: list[tuple[str, dict[str, Any], str]] = [
    ("responses", {"tools": [{"type": "mcp", "server_url": "https://mcp.example.com/sse"}]}, "tools[0].server_url"),
    ("responses", {"tools": [{"type": "mcp", "connector_id": "connector_gmail"}]}, "tools[0].connector_id"),
    ("responses", {"tool_choice": {"type": "mcp", "server_url": "https://mcp.example.com/"}}, "tool_choice.server_url"),
    (
        "messages",
        {"tools": [{"type": "mcp", "server_url": "https://mcp.example.com/sse"}]},
        "tools[0].server_url",
    ),
    (
        "messages",
        {"mcp_servers": [{"type": "url", "url": "https://mcp.example.com", "name": "x"}]},
        "mcp_servers[0].url",
    ),
]


@pytest.mark.parametrize(("api", "fields", "named"), SERVERS)
async def test_a_provider_calls_only_servers_that_the_operator_lists(
    serve: Serve, api: str, fields: dict[str, Any], named: str
) -> None:
    scripts = {"responses": [Raw(answer_of({}))], "messages": [Raw(MESSAGE_BYTES)]}
    config = {"providers": {"alpha": speaking(api)}, **clients(guest={})}
    async with serve(alpha=scripts[api], config=config) as running:
        async with running.post(body_of(api, fields), path=PATHS[api], headers=key_of("guest")) as response:
            message = (await response.json())["error"]["message"]
        assert (response.status, running.requests) == (403, 0)
        assert f"'{named}'" in message
        assert "mcp_hosts" in message
    config["mcp_hosts"] = ["*.example.com", "connector_gmail"]
    async with serve(alpha=scripts[api], config=config) as running:
        async with running.post(body_of(api, fields), path=PATHS[api], headers=key_of("guest")) as response:
            assert response.status == 200, await response.text()
        assert running.requests == 1


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com.evil.test/",
        "https://allowed.example.com@evil.test/",
        "https://evil.test/allowed.example.com",
        "https://evil.test\\.example.com",
        "https://evil.test#.example.com",
        "//allowed.example.com",
        "https://example.com/",
    ],
)
async def test_a_url_that_only_looks_like_a_listed_host_is_refused(serve: Serve, url: str) -> None:
    config = {"providers": {"alpha": speaking("responses")}, "mcp_hosts": ["*.example.com"], **clients(guest={})}
    async with serve(alpha=None, config=config) as running:
        body = body_of("responses", {"tools": [{"type": "mcp", "server_label": "x", "server_url": url}]})
        async with running.post(body, path=PATHS["responses"], headers=key_of("guest")) as response:
            assert (response.status, running.requests) == (403, 0)


@pytest.mark.parametrize("preset", ["vllm", "sglang", "ollama", "llama_cpp", "openrouter"])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_sdk_learns_that_its_conversation_is_not_kept_by_a_server_that_ignores_threads(
    serve: Serve, preset: str, stream: bool
) -> None:
    config = {"providers": {each: {"preset": preset} for each in ("alpha", "beta")}}
    script = [Raw(MESSAGE_BYTES)]
    refused = {
        "thread_unsupported_request": (400, CREATE),
        "thread_not_found": (404, {"thread": {"type": "continue", "previous_message_id": "msg_1"}}),
    }
    async with serve(alpha=script, beta=script, config=config) as running:
        for code, (status, thread) in refused.items():
            body = body_of("messages", {**thread, "stream": stream})
            async with running.post(body, path=PATHS["messages"]) as response:
                error = (await response.json())["error"]
            assert (response.status, error["details"]["error_code"], running.requests) == (status, code, 0)
        for plain in ({}, {"thread": None}):
            body = body_of("messages", {**plain, "stream": stream})
            async with running.post(body, path=PATHS["messages"]) as response:
                assert response.status == 200, await response.text()


async def test_a_thread_is_begun_and_gone_on_with_at_the_one_that_keeps_it(serve: Serve) -> None:
    config = {"providers": {"alpha": {"preset": "vllm"}, "beta": speaking("messages")}}
    script, first = [Raw(MESSAGE_BYTES)], {**CREATE, "provider": {"only": ["beta"]}}
    async with serve(alpha=script, beta=script, config=config) as running:
        for thread in (first, {"thread": {"type": "continue", "previous_message_id": "msg_1"}}):
            async with running.post(body_of("messages", thread), path=PATHS["messages"]) as response:
                assert response.status == 200, await response.text()
                assert response.headers["x-holeshot-provider"] == "beta"
                assert response.headers["x-holeshot-launched"] == "1"
