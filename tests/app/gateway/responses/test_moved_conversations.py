"""A conversation goes on at another provider, key or deployment than that which gave the earlier turns."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from structlog.typing import EventDict

from providers.simulator import Raw, Status, Step, answer
from tests.app.gateway.apis.test_dialects import MESSAGE_BYTES, RESPONSE_BYTES, event, speaking
from tests.app.gateway.apis.test_gemini import TEXT_BYTES as GEMINI_BYTES
from tests.app.gateway.apis.test_gemini import google
from tests.app.gateway.running_gateway import MODEL, Serve


class Made(NamedTuple):
    """A conversation in one API with reasoning that only its maker can read, and how that API refuses it elsewhere."""

    path: str
    api: str
    body: dict[str, Any]
    mark: str  # in the reasoning
    refusal: str
    answer: bytes
    dropped: str
    without: Any  # the conversation that is sent without it


def refusing(message: str, code: str | None = None) -> Status:
    return Status(400, {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}})


SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}
REASONING = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "made elsewhere"}
RESPONSES = Made(
    "/v1/responses",
    "responses",
    {"input": [user := {"role": "user", "content": "Hi"}, REASONING, {"id": "msg_1", **SAID}, user], "store": False},
    "made elsewhere",
    "The encrypted content enc... could not be verified.",
    RESPONSE_BYTES,
    "input[1]",
    [user, SAID, user],
)
TEXT = {"type": "text", "text": "Hello"}
THOUGHT = {"type": "thinking", "thinking": "Hm", "signature": "made elsewhere"}
MESSAGES = Made(
    "/v1/messages",
    "messages",
    {"max_tokens": 9, "messages": [user, {"role": "assistant", "content": [THOUGHT, TEXT]}, user]},
    "made elsewhere",
    "messages.1.content.0: Invalid `signature` in `thinking` block",
    MESSAGE_BYTES,
    "messages[1].content[0]",
    [user, {"role": "assistant", "content": [TEXT]}, user],
)
REDACTED = MESSAGES._replace(
    body={
        "max_tokens": 9,
        "messages": [
            user,
            {"role": "assistant", "content": [{"data": "made elsewhere", "type": "redacted_thinking"}, TEXT]},
            user,
        ],
    },
    refusal="messages.1.content.0: Invalid `data` in `redacted_thinking` block",
)
UNSIGNED = "skip_thought_signature_validator"  # Google's word for calls of other models
CALL = {"functionCall": {"name": "f", "args": {}}}
RESULT = {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": "x"}}}]}
ASKED = {"role": "user", "parts": [{"text": "Hi"}]}
GEMINI = Made(
    f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse",
    "gemini",
    {"contents": [ASKED, {"role": "model", "parts": [{**CALL, "thoughtSignature": "bWFkZQ=="}]}, RESULT]},
    "bWFkZQ==",
    "Corrupted thought signature.",
    GEMINI_BYTES,
    "contents[1].parts[0].thoughtSignature",
    [ASKED, {"role": "model", "parts": [{**CALL, "thoughtSignature": UNSIGNED}]}, RESULT],
)
ALL = [
    pytest.param(RESPONSES, id="encrypted"),
    pytest.param(MESSAGES, id="signed"),
    pytest.param(REDACTED, id="redacted"),
    pytest.param(GEMINI, id="google"),
]


def reads(made: Made, *, own: bool) -> Callable[[Any], Sequence[Step]]:
    """Return a provider that answers, and refuses reasoning unless it is its ``own``."""
    refusal = refusing(made.refusal, "invalid_encrypted_content" if made is RESPONSES else None)
    return lambda body: [refusal] if made.mark in json.dumps(body) and not own else [Raw(made.answer, token=True)]


def marked(body: Any) -> bool:
    return RESPONSES.mark in json.dumps(body)


def asked(made: Made, **fields: Any) -> dict[str, Any]:
    return made.body if made is GEMINI else {"model": MODEL, **made.body, **fields}


@pytest.mark.parametrize("mode", ["single", "auto", "race"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("made", ALL)
async def test_reasoning_that_nobody_can_read_is_left_out_and_told(
    serve: Serve, made: Made, mode: str, stream: bool
) -> None:
    config = {
        "providers": {name: speaking(made.api) for name in ("alpha", "beta")},
        "models": {MODEL: {"race": {"mode": mode}}},
    }
    path = made.path if stream else made.path.replace("streamGenerateContent?alt=sse", "generateContent")
    async with serve(alpha=None, beta=None, config=config) as running:
        for name in ("alpha", "beta"):
            running[name].answers = reads(made, own=False)
        async with running.post(asked(made, stream=stream), path=path) as response:
            answered = await response.read()
        rows = await running.rows("select outcome, error_kind from attempts order by number")
    assert (response.status, b"Hel" in answered or not stream) == (200, True)
    assert response.headers["x-holeshot-dropped"] == made.dropped
    assert [row["error_kind"] for row in rows] == ["bad_request", "bad_request", None]
    sent = [each.body for name in ("alpha", "beta") for each in running[name].received]
    [without] = [each for each in sent if made.mark not in json.dumps(each)]
    assert made.without in without.values()


@pytest.mark.parametrize("mode", ["single", "auto", "race"])
@pytest.mark.parametrize("made", ALL)
async def test_the_deployment_that_can_read_the_reasoning_answers(serve: Serve, made: Made, mode: str) -> None:
    config = {
        "providers": {name: speaking(made.api) for name in ("alpha", "beta", "gamma")},
        "models": {MODEL: {"race": {"mode": mode}}},
    }
    async with serve(alpha=None, beta=None, gamma=None, config=config) as running:
        running.prefer("alpha", "beta", "gamma")
        for name in ("alpha", "beta", "gamma"):
            running[name].answers = reads(made, own=name == "gamma")
        async with running.post(asked(made, stream=True), path=made.path) as response:
            await response.read()
    assert (response.status, response.headers["x-holeshot-provider"]) == (200, "gamma")
    assert "x-holeshot-dropped" not in response.headers


ANSWERS = {  # one by each API with the reasoning of ``Made``
    "responses": event("response.output_item.done", output_index=0, item=REASONING),
    "messages": event("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "made elsewhere"}),
    "gemini": google({"text": "Hm", "thought": True, "thoughtSignature": "bWFkZQ=="}),
}


@pytest.mark.parametrize("mode", ["single", "auto"])
@pytest.mark.parametrize("made", [RESPONSES, MESSAGES, GEMINI], ids=lambda made: made.api)
async def test_a_conversation_goes_on_where_its_reasoning_was_made(serve: Serve, made: Made, mode: str) -> None:
    config = {
        "providers": {name: speaking(made.api) for name in ("alpha", "beta")},
        "models": {MODEL: {"race": {"mode": mode}}},
    }
    async with serve(alpha=None, beta=None, config=config) as running:
        running.prefer("beta", "alpha", first_s=5.0)  # no hedge is due
        for name in ("alpha", "beta"):
            running[name].answers = reads(made, own=name == "beta")
        running["beta"].script = [Raw(ANSWERS[made.api] + made.answer, token=True)]
        first = {"contents": made.body["contents"][:1]} if made is GEMINI else asked(made, stream=True)
        if made is not GEMINI:
            first = {**first, next(name for name in ("input", "messages") if name in made.body): [user]}
        running["beta"].answers = None
        async with running.post(first, path=made.path) as response:
            await response.read()
        running["beta"].answers = reads(made, own=True)
        running.prefer("alpha", "beta", first_s=5.0)
        for _ in range(3):
            async with running.post(asked(made, stream=True), path=made.path) as response:
                await response.read()
            assert (response.status, response.headers["x-holeshot-provider"]) == (200, "beta")
        refused = [each for each in running["alpha"].received if made.mark in json.dumps(each.body)]
        assert len(refused) <= (mode == "auto")  # a stranger is raced only until it is known as one


async def test_who_cannot_read_the_reasoning_is_told_and_not_sent_it_again(serve: Serve) -> None:
    config = {
        "providers": {name: speaking("responses") for name in ("alpha", "beta")},
        "models": {MODEL: {"race": {"mode": "single"}}},
    }

    async def ask(body: Any = None) -> str:
        async with running.post(body or asked(RESPONSES), path=RESPONSES.path) as response:
            await response.read()
        assert response.status == 200
        return str(response.headers["x-holeshot-provider"])

    async def refuses() -> dict[str, list[str]]:
        async with running.get("/leaderboard") as response:
            rows = (await response.json())["models"][0]["deployments"]
        return {row["deployment"]: row["refuses"] for row in rows if row.get("refuses")}

    async with serve(alpha=None, beta=None, config=config) as running:
        running.prefer("beta", "alpha")
        running["beta"].script = [Raw(ANSWERS["responses"] + RESPONSES.answer, token=True)]
        assert await ask({"model": MODEL, "input": [user], "stream": True, "store": False}) == "beta"
        running["alpha"].answers = reads(RESPONSES, own=False)
        running["beta"].answers = lambda _: [Status(503, {})]
        assert await ask() == "alpha"  # without the reasoning
        assert await refuses() == {"alpha/m": ["encrypted reasoning of beta/m"]}
        assert await ask() == "alpha"
        assert [marked(each.body) for each in running["alpha"].received] == [True, False, False]
        running["beta"].answers = reads(RESPONSES, own=True)
        running["alpha"].answers = lambda _: [Status(503, {})]
        assert await ask() == "beta"  # with the reasoning, as it was made there
        assert marked(running["beta"].received[-1].body)
        assert await refuses() == {"alpha/m": ["encrypted reasoning of beta/m"]}


@pytest.mark.parametrize("made", ALL[:3])
async def test_reasoning_whose_maker_nobody_knows_is_refused_once_at_each_provider(serve: Serve, made: Made) -> None:
    config = {
        "providers": {name: speaking(made.api) for name in ("alpha", "beta")},
        "models": {MODEL: {"race": {"mode": "single"}}},
    }
    async with serve(alpha=None, beta=None, config=config) as running:

        async def ask(*served: str) -> None:
            for name in ("alpha", "beta"):
                is_served = name in served
                running[name].answers = reads(made, own=name == "beta") if is_served else lambda _: [Status(503, {})]
            async with running.post(asked(made), path=made.path) as response:
                await response.read()
            assert response.status == 200

        running.prefer("alpha", "beta")
        for _ in range(3):
            await ask("alpha")
        of_alpha = [each.body for each in running["alpha"].received if made.mark in json.dumps(each.body)]
        assert len(of_alpha) == 1
        await ask("beta")
        assert made.mark in json.dumps(running["beta"].received[-1].body)  # nothing says that beta cannot read it


async def test_thoughts_that_come_in_chat_are_refused_once_elsewhere(serve: Serve) -> None:
    config = {
        "providers": {"alpha": speaking("messages"), "beta": speaking("chat")},
        "models": {MODEL: {"race": {"mode": "single"}, "deployments": ["alpha/claude-sonnet-4-5", "beta/m"]}},
    }
    block = {"type": "thinking", "thinking": "Hm"}
    refused: list[int] = []

    def alphas(body: Any) -> Sequence[Step]:
        is_refused = '"signature"' in json.dumps(body)
        refused[-1:] = [refused[-1] + is_refused]
        return [refusing(MESSAGES.refusal)] if is_refused else [Raw(MESSAGE_BYTES, token=True)]

    async with serve(alpha=None, beta=None, config=config) as running:
        running["alpha"].answers = alphas
        conversation: list[Any] = [user]
        for signature in ("first", "second", "third", "fourth"):
            running.prefer("beta", "alpha")
            call = {"id": signature, "type": "function", "function": {"name": "f", "arguments": "{}"}}
            delta = {
                "role": "assistant",
                "content": None,
                "thinking_blocks": [{**block, "signature": signature}],
                "tool_calls": [{"index": 0, **call}],
            }
            chunk = json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode()
            running["beta"].script = [Raw(b"data: %b\n\n" % chunk, token=True), *answer()[1:]]
            async with running.post({"model": MODEL, "messages": conversation, "stream": True}) as response:
                await response.read()
            result = {"role": "tool", "tool_call_id": signature, "content": "x"}
            conversation += [{**delta, "tool_calls": [call]}, result]
            running.prefer("alpha", "beta")
            refused.append(0)
            running["beta"].answers = lambda _: [Status(503, {})]
            async with running.post({"model": MODEL, "messages": conversation, "stream": True}) as response:
                await response.read()
            assert (response.status, response.headers["x-holeshot-provider"]) == (200, "alpha")
            running["beta"].answers = None
    assert refused == [1, 1, 0, 0]  # from the first refusal on, the gateway looks at who makes thoughts in chat


@pytest.mark.parametrize("made", [RESPONSES, MESSAGES, GEMINI], ids=lambda made: made.api)
async def test_of_several_keys_the_one_that_could_read_the_reasoning_is_asked_from_then_on(
    serve: Serve, made: Made
) -> None:
    keys = ["key-of-one-organisation", "key-of-another-organisation", "key-of-a-third-organisation"]
    config = {"providers": {"alpha": speaking(made.api, api_key=None, api_keys=keys)}}
    async with serve(alpha=None, config=config) as running:
        refusal = reads(made, own=False)
        answering, received = [Raw(made.answer, token=True)], running["alpha"].received
        running["alpha"].answers = lambda body: answering if keys[2] in str(received[-1].headers) else refusal(body)
        counts = []
        for _ in range(3):
            async with running.post(asked(made, stream=True), path=made.path) as response:
                await response.read()
            assert response.status == 200
            counts.append(len(running["alpha"].received))
    assert counts[1:] == [counts[0] + 1, counts[0] + 2]
    assert counts[0] <= len(keys)


async def test_where_asking_without_the_reasoning_fails_the_next_deployment_is_asked_so(serve: Serve) -> None:
    def broken(body: Any) -> Sequence[Step]:
        return reads(MESSAGES, own=False)(body) if MESSAGES.mark in json.dumps(body) else [Status(503, {})]

    config = {"providers": {name: speaking("messages") for name in ("alpha", "beta")}}
    async with serve(alpha=None, beta=None, config=config) as running:
        running.prefer("alpha", "beta")
        running["alpha"].answers, running["beta"].answers = broken, reads(MESSAGES, own=False)
        async with running.post(asked(MESSAGES), path=MESSAGES.path) as response:
            assert (response.status, response.headers["x-holeshot-provider"]) == (200, "beta")
        running["beta"].answers = broken
        async with running.post(asked(MESSAGES), path=MESSAGES.path) as response:
            assert response.status >= 500


async def test_a_model_between_tools_that_loses_its_thinking_does_not_think_on(serve: Serve) -> None:
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}
    turns = [user, {"role": "assistant", "content": [THOUGHT, use]}, result]
    body = {
        "model": MODEL,
        "max_tokens": 2000,
        "messages": turns,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    async with serve(alpha=None, config={"providers": {"alpha": speaking("messages")}}) as running:
        running["alpha"].answers = reads(MESSAGES, own=False)
        async with running.post(body, path="/v1/messages") as response:
            assert response.status == 200
        assert response.headers["x-holeshot-dropped"] == "messages[1].content[0], thinking"
        assert "thinking" not in running["alpha"].received[-1].body


SYSTEMS = [
    {"role": "system", "content": "You are an agent."},
    {"role": "developer", "content": "Rules of the sandbox."},
    {"role": "user", "content": "Hi"},
]


async def test_a_server_that_refuses_the_order_of_roles_is_asked_once_more_and_then_at_once_as_it_wants(
    serve: Serve, logged: list[EventDict]
) -> None:
    def template(body: Any) -> Sequence[Step]:
        roles = [message["role"] for message in body["messages"]]
        says = {"error": {"message": "System message must be at the beginning."}}
        return answer("Hello") if roles == ["system", "user"] else [Status(400, says)]

    async with serve(alpha=None) as running:
        running["alpha"].answers = template
        for sendings in (2, 3):
            async with running.post({"model": MODEL, "messages": SYSTEMS}) as response:
                assert response.status == 200
            assert len(running["alpha"].received) == sendings
    [told] = [entry for entry in logged if entry["event"] == "deployment.strict_order"]
    assert told["set"] == "history: { alternating: true, one_system: true, plain_texts: true, user_after_tool: false }"
    assert running["alpha"].received[-1].body["messages"][0]["content"] == "You are an agent.\n\nRules of the sandbox."


OF_LATER_SYSTEM: list[tuple[int, Any]] = [
    (
        400,
        {"error": {"message": "role 'system' is not supported on this model"}},
    ),  # Anthropic, of models before Opus 4.8
    (400, {"error": {"message": "messages.1.role: Input should be 'user' or 'assistant'"}}),
    (400, {"error": {"message": "messages[1].role must be either 'user' or 'assistant', but got 'system'"}}),
    (400, {"error": {"message": "invalid params, chat content has invalid message role: system (2013)"}}),  # MiniMax
    (400, {"detail": "System messages are not allowed"}),
    (  # DeepSeek
        400,
        {
            "error": {
                "message": "Failed to deserialize the JSON body into the target type: messages[1].role: "
                "unknown variant `system`, expected `user` or `assistant` at line 1 column 93"
            }
        },
    ),
    (  # GLM
        422,
        {
            "detail": [
                {
                    "type": "literal_error",
                    "loc": ["body", "messages", 1, "role"],
                    "msg": "Input should be 'user' or 'assistant'",
                    "input": "system",
                }
            ]
        },
    ),
]


@pytest.mark.parametrize(("status", "says"), OF_LATER_SYSTEM)
async def test_a_claude_that_refuses_later_system_messages_gets_them_as_the_users(
    serve: Serve, status: int, says: Any
) -> None:
    """Claude Code sends some: alone it asks again without, but in a race it never hears who refuses them."""

    def older(body: Any) -> Sequence[Step]:
        roles = {message["role"] for message in body["messages"]}
        return [Raw(MESSAGE_BYTES, token=True)] if roles == {"user"} else [Status(status, says)]

    turns = [user, {"role": "system", "content": "The plan has changed."}]
    body = {"model": MODEL, "max_tokens": 9, "system": "Be brief.", "messages": turns}
    async with serve(alpha=None, config={"providers": {"alpha": speaking("messages")}}) as running:
        running["alpha"].answers = older
        for sendings in (2, 3):
            async with running.post(body, path="/v1/messages") as response:
                assert response.status == 200, await response.text()
                assert response.headers["x-holeshot-dropped"] == "messages[1].role"
            assert len(running["alpha"].received) == sendings
        last = running["alpha"].received[-1].body["messages"][-1]
    assert last == {"role": "user", "content": "<system>\nThe plan has changed.\n</system>"}


async def test_another_400_is_not_asked_again(serve: Serve) -> None:
    async with serve(alpha=[Status(400, {"error": {"message": "the prompt is too long"}})]) as running:
        async with running.post({"model": MODEL, "messages": SYSTEMS}) as response:
            assert response.status == 400
        assert len(running["alpha"].received) == 1


async def test_an_operator_says_beforehand_what_a_server_takes(serve: Serve) -> None:
    ids = {"chat": {"longest": 9, "shortest": 9, "letters": "alphanumeric"}}
    config = {"providers": {"alpha": {"history": {"one_system": True, "call_ids": ids}}}}
    function = {"name": "f", "arguments": "{}"}
    called = {"role": "assistant", "tool_calls": [{"id": "call_abcdef", "type": "function", "function": function}]}
    history = [*SYSTEMS, called, {"role": "tool", "tool_call_id": "call_abcdef", "content": "rain"}]
    async with serve(alpha=None, config=config) as running:
        async with running.post({"model": MODEL, "messages": history}) as response:
            assert response.status == 200
        [received] = running["alpha"].received
    roles = [message["role"] for message in received.body["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]
    call_id = received.body["messages"][3]["tool_call_id"]
    assert (len(call_id), received.body["messages"][2]["tool_calls"][0]["id"]) == (9, call_id)


async def test_a_server_that_refuses_lists_of_texts_is_asked_once_more_and_then_at_once_with_texts(
    serve: Serve,
) -> None:
    def takes_texts(body: Any) -> Sequence[Step]:
        says = {"error": {"message": "messages[1]: invalid type: sequence, expected a string at line 1 column 9"}}
        return answer("Hello") if isinstance(body["messages"][0]["content"], str) else [Status(400, says)]

    parts = [{"type": "text", "text": "Hi"}, {"type": "text", "text": "there"}]
    async with serve(alpha=None) as running:
        running["alpha"].answers = takes_texts
        for sendings in (2, 3):
            async with running.post({"model": MODEL, "messages": [{"role": "user", "content": parts}]}) as response:
                assert response.status == 200
            assert len(running["alpha"].received) == sendings
    assert running["alpha"].received[-1].body["messages"] == [{"role": "user", "content": "Hi\n\nthere"}]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_server_that_refuses_to_be_asked_for_usage_is_asked_once_more_without(
    serve: Serve, stream: bool
) -> None:
    """The gateway asks for it, and the client did not."""

    def strict(body: Any) -> Sequence[Step]:
        says = {"error": {"message": "Unrecognized request argument supplied: stream_options"}}
        return [Status(400, says)] if "stream_options" in body else answer("Hello")

    asked = {"model": MODEL, "messages": SYSTEMS[2:], "stream": stream}
    async with serve(alpha=None) as running:
        running["alpha"].answers = strict
        for sendings in (2, 3):
            async with running.post(asked) as response:
                assert response.status == 200
                assert b"Hello" in await response.read()
            assert len(running["alpha"].received) == sendings
        rows = await running.rows("select outcome, role, error_kind from attempts")
    found = Counter((row["role"], row["outcome"], row["error_kind"]) for row in rows)
    assert found == {("primary", "failed", "form_refused"): 1, ("form", "won", None): 1, ("primary", "won", None): 1}


@pytest.mark.parametrize("known", [False, True], ids=["both at once", "one is known"])
async def test_a_server_that_refuses_usage_and_lists_of_texts_is_sent_neither(serve: Serve, known: bool) -> None:
    def strict(body: Any) -> Sequence[Step]:
        if "stream_options" in body:
            return [Status(400, {"error": {"message": "Unrecognized request argument supplied: stream_options"}})]
        says = {"error": {"message": "messages[1]: invalid type: sequence, expected a string at line 1 column 9"}}
        return answer("Hello") if isinstance(body["messages"][0]["content"], str) else [Status(400, says)]

    listed = [{"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "there"}]}]
    async with serve(alpha=None) as running:
        running["alpha"].answers = strict
        if known:
            async with running.post({"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}) as response:
                assert response.status == 200
        for sendings in (4, 5) if known else (3, 4):
            async with running.post({"model": MODEL, "messages": listed}) as response:
                assert response.status == 200
            assert len(running["alpha"].received) == sendings


@pytest.mark.parametrize(
    ("more", "statuses"),
    [({}, [200, 200]), ({"continuous_usage_stats": True}, [400, 400])],
    ids=["by itself", "beside a must"],
)
async def test_usage_that_a_client_asks_for_is_left_out_and_told_where_it_is_refused(
    serve: Serve, more: dict[str, bool], statuses: list[int]
) -> None:
    """Most programs ask for usage unasked: opencode, Qwen Code and pi do."""

    def strict(body: Any) -> Sequence[Step]:
        says = {"error": {"message": "Unrecognized request argument supplied: stream_options"}}
        return [Status(400, says)] if "stream_options" in body else answer("Hello")

    usage = {"include_usage": True, **more}
    asked = {"model": MODEL, "messages": SYSTEMS[2:], "stream": True, "stream_options": usage}
    async with serve(alpha=None) as running:
        running["alpha"].answers = strict
        for status in statuses:
            async with running.post(asked) as response:
                assert response.status == status
                assert ("x-holeshot-dropped" in response.headers) is (status == 200)
                assert (b"Hello" in await response.read()) is (status == 200)
        assert len(running["alpha"].received) == (3 if more == {} else 2)
        found = await running.rows("select status_code, dropped, tokens_source from calls order by started_at")
    of_usage = ('["stream_options"]', "estimated") if more == {} else (None, None)
    assert [(row["status_code"], row["dropped"], row["tokens_source"]) for row in found] == [
        (status, *of_usage) for status in statuses
    ]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_events_without_a_blank_line_between_reach_the_client_apart(
    serve: Serve, path: str, stream: bool
) -> None:
    chunks = [
        {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": reason}]}
        for text, reason in (("Hel", None), ("lo", None), ("", "stop"))
    ]
    together = b"\n".join(b"data: " + json.dumps(chunk).encode() for chunk in chunks) + b"\ndata: [DONE]\n\n"
    async with serve(alpha=[Raw(together, token=True)]) as running:
        asked = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
        async with running.post(asked, path=path) as response:
            body = await response.read()
        assert response.status == 200
    if stream:
        assert all(b"\ndata" not in event for event in body.split(b"\n\n") if b"event:" not in event)
    assert b"Hel" in body
    assert b"lo" in body


BARE = [
    b'error: {"code":500,"message":"out of slots","type":"server_error"}\n\n',
    b'{"error":{"message":"out of slots"}}\n',
]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("error", BARE, ids=["field", "line"])
async def test_an_error_that_a_server_sends_as_no_data_is_told(serve: Serve, path: str, error: bytes) -> None:
    said = {"id": "c", "choices": [{"index": 0, "delta": {"content": "Hel"}, "finish_reason": None}]}
    async with serve(alpha=[Raw(b"data: " + json.dumps(said).encode() + b"\n\n", token=True), Raw(error)]) as running:
        asked = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "stream": True}
        asked = {"model": MODEL, "input": "Hi", "stream": True} if path == "/v1/responses" else asked
        async with running.post(asked, path=path) as response:
            body = await response.read()
    assert b"out of slots" in body
