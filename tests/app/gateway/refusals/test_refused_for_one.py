"""What the request of one client teaches of a model takes nothing from those of others."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.typing import EventDict

from providers.simulator import Status, Step
from tests.app.gateway.apis.test_dialects import speaking
from tests.app.gateway.refusals.test_refused_fields import (
    ANSWERS,
    CALLED,
    QUESTION,
    learnt,
    refused,
    refusing,
    strictly,
    told,
)
from tests.app.gateway.responses.test_named_items import NAME, at
from tests.app.gateway.running_gateway import MODEL, Serve
from tests.app.gateway.shared_gateway import SharedGateways

pytestmark = pytest.mark.asyncio(loop_scope="module")
DROPPING = {"models": {MODEL: {"deployments": [{"deployment": "alpha/m", "drop_params": True}]}}}


def pydantic(message: str, *place: Any) -> dict[str, Any]:
    return {"detail": [{"type": "bool_parsing", "loc": ["body", *place], "msg": message}]}


async def test_a_wrong_value_of_strict_leaves_others_strict(serve: Serve) -> None:
    said = pydantic("Input should be a valid boolean, unable to interpret input", "tools", 0, "function", "strict")
    wrong, right = strictly("f", additionalProperties=False), strictly("g", additionalProperties=False)
    wrong["tools"][0]["function"]["strict"] = "maybe"

    def answered(body: Any) -> Sequence[Step]:
        return refused(said, 422) if body["tools"][0]["function"].get("strict") == "maybe" else ANSWERS["chat"]

    async with serve(alpha=None) as running:
        running["alpha"].answers = answered
        assert (await told(running, wrong))[0] in {400, 422}
        assert len(running["alpha"].received) == 1
        assert await told(running, right) == (200, None)
        assert running["alpha"].received[-1].body["tools"] == right["tools"]


async def test_a_wrong_value_in_a_history_leaves_others_theirs(serve: Serve) -> None:
    said = pydantic("Input should be a valid string", "messages", 1, "reasoning_content")

    def answered(body: Any) -> Sequence[Step]:
        thoughts = [each.get("reasoning_content", "") for each in body["messages"]]
        return ANSWERS["chat"] if all(isinstance(each, str) for each in thoughts) else refused(said, 422)

    def asked(thought: Any) -> dict[str, Any]:
        return {"messages": [*QUESTION, {"role": "assistant", "content": "a", "reasoning_content": thought}, *QUESTION]}

    async with serve(alpha=None) as running:
        running["alpha"].answers = answered
        assert await told(running, asked(5)) == (200, "messages.reasoning_content")  # a hint fails no call
        assert len(running["alpha"].received) == 2
        assert await told(running, asked("hm")) == (200, None)
        assert running["alpha"].received[-1].body["messages"] == asked("hm")["messages"]


@pytest.mark.parametrize(
    ("said", "beside"),
    [
        ("`reasoning_effort` is not supported when `response_format` is json_object", "response_format"),
        ("Thinking is not supported when tool_choice forces a tool", "tool_choice"),
        ("temperature is not supported when thinking is enabled", "reasoning_effort"),
    ],
)
async def test_what_is_refused_beside_another_field_is_left_out_there_alone(
    shared: SharedGateways, said: str, beside: str
) -> None:
    lost = "temperature" if said.startswith("temp") else "reasoning_effort"
    values = {
        "response_format": {"type": "json_object"},
        "tool_choice": "required",
        "reasoning_effort": "low",
        "temperature": 0.5,
    }
    both = {"messages": QUESTION, **{name: values[name] for name in (lost, beside)}}
    alone = {"messages": QUESTION, lost: values[lost]}
    async with shared.row(alpha=None, config=DROPPING) as running:
        running["alpha"].answers = lambda body: refused(said) if {lost, beside} <= body.keys() else ANSWERS["chat"]
        assert await told(running, both) == (200, lost)
        assert await told(running, alone) == (200, None)
        assert running.received("alpha")[-1].body[lost] == values[lost]
        assert await told(running, both) == (200, lost)
        assert len(running.received("alpha")) == 2 + 1 + 2


async def test_nobodys_name_is_in_a_fact(serve: Serve, logged: list[EventDict]) -> None:
    said = pydantic("Input should be a valid address", "user")
    async with serve(alpha=None, config=DROPPING) as running:
        running["alpha"].answers = lambda body: refused(said, 422) if "user" in body else ANSWERS["chat"]
        assert (await told(running, {"messages": QUESTION, "user": "somebody"}))[0] in {400, 422}
        async with running.get("/leaderboard") as response:
            assert "somebody" not in await response.text()
    assert "somebody" not in json.dumps([str(entry) for entry in logged if entry["event"] == "deployment.learnt"])


TEMPLATE = (
    "\n------------\nWhile executing CallExpression at line 47, column 32 in source:\n...{{- raise_exception('After the"
    " optional system message, con...\n^\nError: Jinja Exception: Only user and assistant turns are allowed here"
)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("said", [TEMPLATE, "image input is not supported - hint: you may need to provide the mmproj"])
async def test_a_wrong_request_that_a_server_calls_its_own_fault_is_told_as_one(
    shared: SharedGateways, said: str, stream: bool, path: str
) -> None:
    prompt = {"input": "Hi"} if path.endswith("responses") else {"messages": QUESTION, "max_tokens": 9}
    async with shared.row(alpha=refused(said, 500)) as running:
        for _ in range(12):  # and the server stays in rotation
            async with running.post(
                {"model": MODEL + running.suffix, **prompt, "stream": stream}, path=path
            ) as response:
                assert response.status == 400
                assert said.split(" - ", maxsplit=1)[0].splitlines()[-1] in (await response.json())["error"]["message"]
        running["alpha"].answers = lambda _: ANSWERS["chat"]
        assert (await told(running, prompt, path))[0] == 200


async def test_another_model_is_asked_where_the_template_of_one_refuses_a_request(serve: Serve) -> None:
    deployments = {MODEL: ["alpha/m", "beta/m", "gamma/m"], "other": ["delta/m"]}
    models: dict[str, Any] = {name: {"deployments": each} for name, each in deployments.items()}
    models[MODEL] |= {"fallbacks": ["other"], "race": {"mode": "single"}}
    refusing = refused(TEMPLATE, 500)
    async with serve(alpha=refusing, beta=refusing, gamma=None, delta=None, config={"models": models}) as running:
        running.prefer("alpha", "beta", "gamma", first_s=5.0)  # the other model is not asked as these are late
        assert (await told(running, {"messages": QUESTION}))[0] == 200
        assert len(running["gamma"].received) == 1
        running["gamma"].answers = lambda _: refusing
        assert (await told(running, {"messages": QUESTION}))[0] == 200
        assert len(running["delta"].received) == 1


def limit(body: Any) -> int:
    return int(body.get("max_tokens", 0) or body.get("max_completion_tokens", 0))


LONGEST = {
    "OpenAI": "max_completion_tokens is too large: 64000. This model supports at most 16384 completion tokens, whereas"
    " you provided 64000.",
    "Groq": "`max_tokens` must be less than or equal to `16384`, the maximum value for `max_tokens` is less than the"
    " `context_window` for this model",
    "Anthropic": "max_tokens: 64000 > 16384, which is the maximum allowed number of output tokens for m",
    "DeepSeek": "Invalid max_tokens value, the valid range of max_tokens is [1, 16384]",
    "Alibaba": "<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 16384]",
    "ByteDance": "The parameter max_tokens specified in the request is not valid: integer above maximum value, expected"
    " a value <= 16384, but got 64000 instead. Request id: 02177243",
    "OpenAI's schema": "Invalid 'max_tokens': integer above maximum value. Expected a value <= 16384, but got 64000"
    " instead.",
    "Bedrock": "The maximum tokens you requested exceeds the model limit of 16384. Try again with a maximum tokens"
    " value that is lower than 16384.",
    "Google": "Unable to submit request because it has a maxOutputTokens value of 64000 but the supported range is from"
    " 1 (inclusive) to 16385 (exclusive). Update the value and try again.",
    "a proxy": "max_tokens (current value: 64000) must be between 0 and 16384 ",
}


@pytest.mark.parametrize("api", ["chat", "messages"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("vendor", LONGEST)
async def test_a_ceiling_of_messages_is_lowered_to_what_a_refusal_states(
    shared: SharedGateways, vendor: str, stream: bool, api: str
) -> None:
    asked = {"max_tokens": 64000, "messages": QUESTION, "stream": stream}
    async with shared.row(alpha=None, config={"providers": {"alpha": speaking(api)}}) as running:
        running["alpha"].answers = lambda body: refused(LONGEST[vendor]) if limit(body) > 16384 else ANSWERS[api]
        for sendings in (2, 3):
            async with running.post({"model": MODEL + running.suffix, **asked}, path="/v1/messages") as response:
                await response.read()
            assert (response.status, response.headers.get("x-holeshot-lowered")) == (200, "max_tokens")
            assert "x-holeshot-dropped" not in response.headers
            assert len(running.received("alpha")) == sendings
        assert limit(running.received("alpha")[-1].body) == 16384
        async with running.post({"model": MODEL + running.suffix, **asked}) as response:  # likewise in chat
            await response.read()
        assert (response.status, response.headers.get("x-holeshot-lowered")) == (200, "max_tokens")


async def test_reasoning_that_xai_cannot_read_is_left_out_and_told(serve: Serve) -> None:
    async with at(serve, [("xai", "grok-4.5")]) as (running, [xai]):
        thought = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "made elsewhere"}
        asked = {"model": NAME, "input": [*QUESTION, thought, *QUESTION], "store": False}
        async with running.post(asked, path="/v1/responses") as response:
            assert (response.status, response.headers["x-holeshot-dropped"]) == (200, "input[1]")
        assert len(xai.refusals) == 1


@pytest.mark.parametrize(("vendor", "model"), [("vllm", "Qwen/Qwen3.5-27B"), ("llama_cpp", "qwen3.5-27b.gguf")])
@pytest.mark.parametrize("content", ["Be brief.", [{"type": "text", "text": "Be brief."}]], ids=["text", "parts"])
async def test_system_prompts_among_the_messages_of_messages_are_the_users_where_a_template_refuses_them(
    serve: Serve, vendor: str, model: str, content: Any
) -> None:
    async with at(serve, [(vendor, model)]) as (running, [own]):
        said = [*QUESTION, {"role": "assistant", "content": "Yes?"}, {"role": "system", "content": content}, *QUESTION]
        asked = {"model": NAME, "max_tokens": 50, "system": "You help.", "messages": said}
        async with running.post(asked, path="/v1/messages") as response:
            assert (response.status, response.headers["x-holeshot-dropped"]) == (200, "messages[2].role")
        assert own.refusals == []


@pytest.mark.parametrize("content", ["Be brief.", [{"type": "input_text", "text": "Be brief."}]], ids=["text", "parts"])
async def test_system_prompts_among_the_items_of_responses_go_first_or_are_the_users(
    serve: Serve, content: Any
) -> None:
    brief = {"role": "developer", "content": content}
    asked = {"model": NAME, "instructions": "You help.", "input": [brief, *QUESTION, brief, *QUESTION], "store": False}
    async with at(serve, [("vllm", "Qwen/Qwen3.5-27B")]) as (running, [own]):
        async with running.post(asked, path="/v1/responses") as response:
            assert (response.status, response.headers["x-holeshot-dropped"]) == (200, "input[2].role")
        assert own.refusals == []


async def test_of_responses_the_refusal_may_say_it_and_nothing_is_lost(serve: Serve) -> None:
    def answer(body: Any) -> Sequence[Step]:
        is_first = all(each.get("role") != "developer" for each in body["input"])
        return ANSWERS["responses"] if is_first else refused("System message must be at the beginning.")

    items = [{"role": "developer", "content": "Be brief."}, *QUESTION, {"role": "developer", "content": "In verse."}]
    asked = {"model": MODEL, "instructions": "You help.", "input": items, "store": False}
    async with serve(alpha=None, config={"providers": {"alpha": speaking("responses")}}) as running:
        running["alpha"].answers = answer
        for sendings in (2, 3):
            async with running.post(asked, path="/v1/responses") as response:
                await response.read()
            assert (response.status, response.headers["x-holeshot-dropped"]) == (200, "input[2].role")
            assert len(running["alpha"].received) == sendings
        body = running["alpha"].received[-1].body
    assert body["instructions"] == "You help.\n\nBe brief."
    assert [each["content"] for each in body["input"]] == [QUESTION[0]["content"], "<system>\nIn verse.\n</system>"]


async def test_a_wrong_history_of_responses_stays_wrong(serve: Serve) -> None:
    said = "System message must be at the beginning."
    asked = {"model": MODEL, "input": [*QUESTION, {"role": "developer"}], "store": False}
    async with serve(alpha=refused(said), config={"providers": {"alpha": speaking("responses")}}) as running:
        async with running.post(asked, path="/v1/responses") as response:
            assert response.status == 400
        assert len(running["alpha"].received) <= 2


async def test_so_they_are_where_only_the_refusal_says_it(serve: Serve) -> None:
    def answer(body: Any) -> Sequence[Step]:
        is_first = all(each["role"] != "system" for each in body["messages"])
        return ANSWERS["messages"] if is_first else refused("System message must be at the beginning.")

    asked = {"max_tokens": 50, "messages": [*QUESTION, {"role": "system", "content": "Be brief."}, *QUESTION]}
    async with serve(alpha=None, config={"providers": {"alpha": speaking("messages")}}) as running:
        running["alpha"].answers = answer
        for sendings in (2, 3):
            async with running.post({"model": MODEL, **asked}, path="/v1/messages") as response:
                await response.read()
            assert (response.status, response.headers["x-holeshot-dropped"]) == (200, "messages[1].role")
            assert len(running["alpha"].received) == sendings


@pytest.mark.parametrize("model", ["gpt-4.1", "gpt-5"])
async def test_azure_is_asked_in_a_version_that_has_all_of_its_models(serve: Serve, model: str) -> None:
    asked = {"model": NAME, "messages": QUESTION}
    async with at(serve, [("azure", model)]) as (running, [azure]), running.post(asked) as response:
        assert response.status == 200, await response.text()
        assert azure.refusals == []


async def test_azures_remedy_is_told_to_its_operator_as_a_setting(serve: Serve) -> None:
    older = {"query": {"api-version": "2024-10-21"}}
    async with at(serve, [("azure", "gpt-5")], provider=older) as (running, _):
        async with running.post({"model": NAME, "messages": QUESTION}) as response:
            assert (response.status, "enabled only for api" in await response.text()) == (400, True)
        [row] = await running.rows("select error_message from attempts")
    assert 'query: { api-version: "2024-12-01-preview" }' in row["error_message"]


ROOMS = {
    "vLLM": "'max_tokens' or 'max_completion_tokens' is too large: 64000. This model's maximum context length is 64001"
    " tokens and your request has 24235 input tokens (64000 > 64001 - 24235).",
    "others": "This model's maximum context length is 64001 tokens. However, you requested 88235 tokens (24235 in the"
    " messages, 64000 in the completion). Please reduce the length of the messages or completion.",
    "vLLM today": "This model's maximum context length is 64001 tokens. However, you requested 64000 output tokens and"
    " your prompt contains at least 24235 input tokens, for a total of at least 88235 tokens.",
    "Anthropic": "input length and `max_tokens` exceed context limit: 24235 + 64000 > 64001, decrease input length or"
    " `max_tokens` and try again",
    "OpenRouter": "This endpoint's maximum context length is 64001 tokens. However, you requested about 88235 tokens"
    " (24000 of text input, 235 of tool input, 64000 in the output). Please reduce the length of either one, or use the"
    ' "middle-out" transform to compress your prompt automatically.',
    "Mistral": "Prompt contains 24235 tokens and 0 draft tokens, too large for model with 64001 maximum context length",
    "SGLang": "Requested token count exceeds the model's maximum context length of 64001 tokens. You requested a total"
    " of 88235 tokens: 24235 tokens from the input messages and 64000 tokens for the completion. Please reduce the"
    " number of tokens in the input messages or the completion to fit within the limit.",
    "Together": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 64001. Given: 24235 `inputs`"
    " tokens and 64000 `max_new_tokens`",
}


@pytest.mark.parametrize("api", ["chat", "messages"])
@pytest.mark.parametrize("vendor", ROOMS)
async def test_a_ceiling_of_messages_is_lowered_to_what_its_prompt_leaves_of_the_context(
    shared: SharedGateways, vendor: str, api: str
) -> None:
    asked = {"max_tokens": 64000, "messages": QUESTION}
    async with shared.row(alpha=None, config={"providers": {"alpha": speaking(api)}}) as running:
        running["alpha"].answers = lambda body: refused(ROOMS[vendor]) if limit(body) > 39766 else ANSWERS[api]
        async with running.post({"model": MODEL + running.suffix, **asked}, path="/v1/messages") as response:
            await response.read()
        assert (response.status, response.headers.get("x-holeshot-lowered")) == (200, "max_tokens")
        assert [limit(each.body) for each in running.received("alpha")] == [64000, 39766]
        async with running.post(
            {"model": MODEL + running.suffix, **asked, "max_tokens": 39000}, path="/v1/messages"
        ) as response:
            assert "x-holeshot-lowered" not in response.headers
        assert len(running.received("alpha")) == 3


@pytest.mark.parametrize("raced", [False, True], ids=["alone", "raced"])
async def test_what_llama_cpp_does_not_stream_is_asked_for_whole_and_streamed_it_stays_refused(
    serve: Serve, raced: bool
) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    asked = {"model": NAME, "messages": QUESTION, "tools": [tool], "logprobs": True}
    kinds = [("llama_cpp", "local")] * (1 + raced)
    async with at(serve, kinds) as (running, vendors):
        for _ in range(3):
            assert (await told(running, asked))[0] == 200
        for vendor in vendors:
            refused_streams = [each for each in vendor.refusals if each.rule == "logprobs"]
            assert len(refused_streams) <= 1 + raced, vendor.said  # a second, if the first was cut with its race
        sent = sum(len(vendor.refusals) for vendor in vendors)
        assert (await told(running, asked | {"stream": True}))[0] == 400
        assert sum(len(vendor.refusals) for vendor in vendors) <= sent + len(vendors)


WITH_STREAMS = "logprobs is not supported with tools + stream"


@pytest.mark.parametrize("said", [WITH_STREAMS, "logprobs is not supported for streaming"])
async def test_what_is_refused_of_streams_alone_is_kept_in_a_whole_answer_and_left_out_of_a_stream(
    shared: SharedGateways, said: str
) -> None:
    async with shared.row(alpha=None, config=DROPPING) as running:
        running["alpha"].answers = lambda body: (
            refused(said) if body["stream"] and "logprobs" in body else ANSWERS["chat"]
        )
        for sendings in (2, 3):
            assert await told(running, {"messages": QUESTION, "logprobs": True}) == (200, None)
            assert len(running.received("alpha")) == sendings
            assert running.received("alpha")[-1].body["logprobs"] is True
        assert await told(running, {"messages": QUESTION, "logprobs": True, "stream": True}) == (200, "logprobs")
        assert await told(running, {"messages": QUESTION, "logprobs": True}) == (200, None)


async def test_what_is_refused_whole_as_well_stays_so_after_one_more_try(serve: Serve) -> None:
    async with serve(alpha=refused(WITH_STREAMS), config=DROPPING) as running:
        for sendings in (2, 4):
            assert await told(running, {"messages": QUESTION, "logprobs": True}) == (400, None)
            assert len(running["alpha"].received) == sendings


async def test_a_length_that_is_taken_after_all_is_forgotten(serve: Serve) -> None:
    said = "This model's maximum context length is 150 tokens, your prompt has 200. context_length_exceeded"
    asked = {"messages": [{"role": "user", "content": "word " * 200}]}

    async def refuses() -> list[str]:
        async with running.get("/leaderboard") as response:
            [row] = (await response.json())["models"][0]["deployments"]
        return list(row.get("refuses") or ())

    async with serve(alpha=refused(said, code="context_length_exceeded")) as running:
        assert (await told(running, asked))[0] == 400
        assert len(await refuses()) == 1
        running["alpha"].script = ANSWERS["chat"]
        assert (await told(running, asked))[0] == 200
        assert await refuses() == []


# The role ``developer``, as vendors refuse it at a server that is known by its kind alone (pages: see refusals.py).
OF_DEVELOPER: list[tuple[int, Any]] = [
    (
        400,
        {
            "error": {
                "message": "Failed to deserialize the JSON body into the target type: messages[0].role: unknown variant"
                " `developer`, expected one of `system`, `user`, `assistant`, `tool`, `latest_reminder` at line 1"
            }
        },
    ),
    (400, {"error": {"message": "'messages.0' : discriminator property 'role' has invalid value"}}),
    (400, {"error": {"message": "developer is not one of ['system', 'assistant', 'user'] - 'messages.['0'].role'"}}),
    (400, {"error": {"message": "Invalid request: role 'developer' is not supported"}}),
    (400, {"error": {"message": "invalid params, invalid role: developer (2013)"}}),
    (400, {"object": "error", "message": "Unexpected message role.", "type": "BadRequestError", "code": 400}),
    (
        422,
        {
            "detail": [
                {
                    "type": "union_tag_invalid",
                    "loc": ["body", "messages", 0],
                    "msg": "Input tag 'developer' found using 'role' does not match any of the expected tags: 'system'",
                }
            ]
        },
    ),
    (
        422,
        {
            "detail": [
                {"type": "literal_error", "loc": ["body", "messages", 0, "role"], "msg": "Input should be 'system'"}
            ]
        },
    ),
]


@pytest.mark.parametrize("refusal", OF_DEVELOPER, ids=lambda refusal: str(refusal[1])[:60])
async def test_the_role_developer_is_named_system_where_it_is_refused_and_nothing_else_changes(
    shared: SharedGateways, refusal: tuple[int, Any]
) -> None:
    def answered(body: Any) -> Sequence[Step]:
        roles = [message["role"] for message in body["messages"]]
        return [Status(*refusal)] if "developer" in roles else ANSWERS["chat"]

    texts = [{"type": "text", "text": "Hi"}, {"type": "text", "text": "you"}]
    later = [{"role": "user", "content": texts}, {"role": "user", "content": "Go on."}]
    asked = {"messages": [{"role": "developer", "content": "Be brief."}, *later, {"role": "developer", "content": "x"}]}
    async with shared.row(alpha=None) as running:
        running["alpha"].answers = answered
        for sendings in (2, 3):
            async with running.post({"model": MODEL + running.suffix, **asked}) as response:
                assert response.status == 200, await response.text()
                assert "x-holeshot-dropped" not in response.headers
            assert len(running.received("alpha")) == sendings
        sent = running.received("alpha")[-1].body["messages"]
    assert sent == [{"role": "system", "content": "Be brief."}, *later, {"role": "system", "content": "x"}]


async def test_another_role_that_is_refused_stays_wrong(serve: Serve) -> None:
    said = "messages[0].role: unknown variant `model`, expected one of `system`, `user`, `assistant`, `tool`"
    async with serve(alpha=refused(said)) as running:
        async with running.post({"model": MODEL, "messages": [{"role": "model", "content": "Hi"}]}) as response:
            assert (response.status, said in await response.text()) == (400, True)
        assert len(running["alpha"].received) == 1


async def test_a_404_that_names_a_field_takes_nobody_out(serve: Serve) -> None:
    field = {"functions": [{"name": "f", "parameters": {"type": "object", "properties": {}}}]}
    async with serve(alpha=None) as running:
        running["alpha"].answers = refusing("functions", status=404)
        assert (await told(running, {"messages": QUESTION, **field}))[0] == 400
        assert (await told(running, {"messages": QUESTION}))[0] == 200


# Words of Perplexity, SambaNova and Cerebras, learnt by one refusal.


async def test_turns_of_one_role_are_one_turn_where_roles_should_be_alternating(serve: Serve) -> None:
    words = "After the (optional) system message(s), user and assistant roles should be alternating."
    async with serve(alpha=None) as running:
        running["alpha"].answers = lambda body: refused(words) if len(body["messages"]) > 1 else ANSWERS["chat"]
        await learnt(running, {"messages": [*QUESTION, *QUESTION]}, dropped=None)


async def test_contents_are_texts_where_a_server_expected_one_of_them(serve: Serve) -> None:
    words = "Unable to tokenize message for model m: Invalid 'content' type. Expected one of: ['str'], got list."
    async with serve(alpha=None) as running:
        running["alpha"].answers = lambda body: (
            refused(words) if any(isinstance(each["content"], list) for each in body["messages"]) else ANSWERS["chat"]
        )
        await learnt(running, {"messages": CALLED}, dropped=None)


async def test_tools_of_which_some_are_strict_are_sent_as_none_is_where_they_may_not_be_mixed(serve: Serve) -> None:
    words = "Tools with mixed values for 'strict' are not allowed. Please set all tools to 'strict: true'"
    tools = [*strictly("f", additionalProperties=False)["tools"], {"type": "function", "function": {"name": "g"}}]
    async with serve(alpha=None) as running:
        running["alpha"].answers = lambda body: (
            refused(words, 422) if body["tools"][0]["function"].get("strict") else ANSWERS["chat"]
        )
        await learnt(running, {"messages": QUESTION, "tools": tools}, dropped="tools.strict")
