"""The stand-in of Bedrock's Converse takes what its description has, and refuses the rest with its status and words."""

from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer

from strict_vendors import Vendor, made
from strict_vendors.tests.asking import Came, ask

CLAUDE, NOVA, LLAMA = (
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "amazon.nova-pro-v1:0",
    "us.meta.llama3-3-70b-instruct-v1:0",
)
SAID = {"role": "user", "content": [{"text": "Hello"}]}
SPEC = {
    "name": "get_weather",
    "inputSchema": {"json": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
}
TOOLS = {"tools": [{"toolSpec": SPEC}]}
USE: dict[str, Any] = {"toolUse": {"toolUseId": "tooluse_1", "name": "get_weather", "input": {"city": "Berlin"}}}
RESULT: dict[str, Any] = {"toolResult": {"toolUseId": "tooluse_1", "content": [{"text": "sunny"}]}}
THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


def turn(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


@pytest.fixture
def bedrock() -> Vendor:
    return made("bedrock")


def converse(bedrock: Vendor, model: str, *messages: Any, verb: str = "converse", **fields: Any) -> Came:
    return ask(bedrock, f"/model/{model.replace(':', '%3A')}/{verb}", {"messages": list(messages or [SAID]), **fields})


def words(came: Came) -> str:
    assert came.status == 400
    return str(came.body["message"])


@pytest.mark.parametrize("model", [CLAUDE, NOVA, LLAMA])
def test_a_tool_loop_is_taken(bedrock: Vendor, model: str) -> None:
    first = converse(bedrock, model, toolConfig=TOOLS)
    assert first.body["stopReason"] == "tool_use"
    message = first.body["output"]["message"]
    result = {
        "toolResult": {"toolUseId": message["content"][0]["toolUse"]["toolUseId"], "content": [{"text": "sunny"}]}
    }
    second = converse(bedrock, model, SAID, message, turn("user", result), toolConfig=TOOLS)
    assert second.body["output"]["message"]["content"][0]["text"] == "The tools said: sunny"
    assert bedrock.refusals == []


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([turn("assistant", {"text": "Hi"})], "A conversation must start with a user message."),
        ([SAID, SAID], "A conversation must alternate between user and assistant roles."),
        (
            [SAID, turn("assistant", USE), SAID],
            "Expected toolResult blocks at messages.2.content for the following Ids: t",
        ),
        ([turn("user", RESULT)], "The number of toolResult blocks at messages.0.content exceeds the number of toolUse"),
        ([turn("user", {"text": " "})], "The text field in the ContentBlock object at messages.0.content.0 is blank."),
        ([turn("user")], "The content field in the Message object at messages.0 is empty."),
        (
            [SAID, turn("assistant", {"toolUse": {**USE["toolUse"], "input": "{}"}}), turn("user", RESULT)],
            "The format of the value at messages.1.content.0.toolUse.input is invalid. Provide a json object for the",
        ),
    ],
)
def test_a_history_in_another_order_is_refused(bedrock: Vendor, messages: list[Any], said: str) -> None:
    assert words(converse(bedrock, NOVA, *messages, toolConfig=TOOLS)).startswith(said)


def test_a_history_with_tools_needs_them_offered(bedrock: Vendor) -> None:
    said = words(converse(bedrock, NOVA, SAID, turn("assistant", USE), turn("user", RESULT)))
    assert said == "The toolConfig field must be defined when using toolUse and toolResult content blocks."


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"messages": [SAID, turn("assistant", {"toolUse": {**USE["toolUse"], "toolUseId": "a b"}})]},
            "1 validation error detected: Value at 'messages.2.member.content.1.member.toolUse.toolUseId' failed to",
        ),
        (
            {"toolConfig": {"tools": [{"toolSpec": {**SPEC, "name": "Complete Session"}}]}},
            "1 validation error detected: Value 'Complete Session' at 'toolConfig.tools.1.member.toolSpec.name' failed",
        ),
        (
            {"inferenceConfig": {"temperature": 1.5}},
            "1 validation error detected: Value '1.5' at 'inferenceConfig.temperature' failed to satisfy constraint:",
        ),
        (
            {"toolConfig": {"tools": []}},
            "1 validation error detected: Value '[]' at 'toolConfig.tools' failed to satisfy",
        ),
        ({"max_tokens": 3}, 'Unknown parameter in input: "max_tokens"'),
        (
            {"messages": [{"role": "tool", "content": []}]},
            "1 validation error detected: Value at 'messages.1.member.role'",
        ),
        ({"messages": [turn("user", {"text": 1})]}, "NUMBER_VALUE can not be converted to a String"),
    ],
)
def test_what_its_description_does_not_have_is_refused(bedrock: Vendor, fields: Any, said: str) -> None:
    came = ask(bedrock, f"/model/{NOVA}/converse", {"messages": [SAID], **fields})
    assert words(came).startswith(said)


def test_models_refuse_what_they_do_not_take(bedrock: Vendor) -> None:
    long = converse(bedrock, NOVA, inferenceConfig={"maxTokens": 20_000})
    assert "exceeds the model limit of 10000. Try again" in words(long)
    streamed = converse(bedrock, LLAMA, verb="converse-stream", toolConfig=TOOLS)
    assert words(streamed) == "This model doesn't support tool use in streaming mode."
    forced = converse(bedrock, LLAMA, toolConfig={**TOOLS, "toolChoice": {"any": {}}})
    assert words(forced).startswith("This model doesn't support the toolConfig.toolChoice.any field.")
    mixed = converse(
        bedrock, LLAMA, SAID, turn("assistant", {"text": "So"}, USE), turn("user", RESULT), toolConfig=TOOLS
    )
    assert words(mixed).startswith("messages.1.content: Conversation blocks and tool use blocks cannot be provided in")
    both = converse(bedrock, CLAUDE, inferenceConfig={"temperature": 0.5, "topP": 0.5})
    assert "`temperature` and `top_p` cannot both be specified for this model." in words(both)


def test_a_use_of_a_tool_needs_its_signed_thoughts_while_claude_thinks(bedrock: Vendor) -> None:
    fields: dict[str, Any] = {"toolConfig": TOOLS, "additionalModelRequestFields": THINKING}
    first = converse(bedrock, CLAUDE, **fields)
    thought, use = first.body["output"]["message"]["content"]
    result = {"toolResult": {"toolUseId": use["toolUse"]["toolUseId"], "content": [{"text": "sunny"}]}}

    def again(*blocks: Any) -> Came:
        return converse(bedrock, CLAUDE, SAID, turn("assistant", *blocks), turn("user", result), **fields)

    assert again(thought, use).status == 200
    assert "Expected `thinking` or `redacted_thinking`, but found `tool_use`." in words(again(use))
    unsigned = {"reasoningContent": {"reasoningText": {"text": "So"}}}
    assert "messages.1.content.0.thinking.signature: Field required" in words(again(unsigned, use))
    foreign = {"reasoningContent": {"reasoningText": {"text": "So", "signature": "abc"}}}
    assert "Invalid `signature` in `thinking` block" in words(again(foreign, use))


def test_the_stream_is_one_that_botocore_reads(bedrock: Vendor) -> None:
    reply = bedrock.answer(
        "POST",
        f"/model/{CLAUDE}/converse-stream",
        {"authorization": f"Bearer {bedrock.key}"},
        b'{"messages": [{"role": "user", "content": [{"text": "Hello"}]}]}',
    )
    buffer: Any = EventStreamBuffer()
    buffer.add_data(b"".join(reply.blocks or ()))
    kinds = [event.headers[":event-type"] for event in buffer]
    assert kinds[0] == "messageStart"
    assert kinds[-2:] == ["messageStop", "metadata"]


def test_wrong_keys_and_models_are_refused_as_aws_does(bedrock: Vendor) -> None:
    body = {"messages": [SAID]}
    wrong = ask(bedrock, f"/model/{NOVA}/converse", body, {"authorization": "Bearer wrong"})
    assert (wrong.status, wrong.body["Message"]) == (
        403,
        "Authentication failed: Please make sure your API Key is valid.",
    )
    assert words(converse(bedrock, "amazon.nova-9")) == "The provided model identifier is invalid."
    plain = words(converse(bedrock, CLAUDE.removeprefix("us.")))
    assert "with on-demand throughput isn\u2019t supported." in plain


# Thoughts of this autumn's Claudes are bound as in their own API: docs.aws.amazon.com/bedrock/latest/userguide/
# claude-messages-thinking-block-binding.html, read on 2026-11-29.

NEWER = "us.anthropic.claude-opus-5-5"
CONTROLS = "thinking-binding-controls-2026-08-01"
SWITCH = {"type": "adaptive", "block_binding": {"mismatch_behavior": "drop_block"}}


def test_thoughts_are_bound_to_all_that_came_before_them(bedrock: Vendor) -> None:
    message = converse(bedrock, NEWER, toolConfig=TOOLS, system=[{"text": "It is noon."}]).body["output"]["message"]
    use = message["content"][1]["toolUse"]["toolUseId"]
    result = turn("user", {"toolResult": {"toolUseId": use, "content": [{"text": "sunny"}]}})

    def go_on(said: str = "It is noon.", **extra: Any) -> Came:
        more: dict[str, Any] = {"additionalModelRequestFields": extra} if extra else {}
        return converse(bedrock, NEWER, SAID, message, result, toolConfig=TOOLS, system=[{"text": said}], **more)

    assert go_on().status == 200
    assert '`thinking.block_binding.mismatch_behavior` to "drop_block"' in words(go_on("It is one o'clock."))
    assert go_on("It is one o'clock.", thinking=SWITCH, anthropic_beta=[CONTROLS]).status == 200
    assert words(go_on(thinking=SWITCH)).endswith("thinking.adaptive.block_binding: Extra inputs are not permitted")
    anthropics = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    refused = words(go_on(thinking=anthropics, anthropic_beta=[CONTROLS]))
    assert refused.endswith("block_binding.prefix_mismatch_behavior: Extra inputs are not permitted")


def test_newer_claudes_always_think_and_take_no_forced_tool(bedrock: Vendor) -> None:
    off = converse(bedrock, NEWER, additionalModelRequestFields={"thinking": {"type": "disabled"}})
    assert "is not supported for this model" in words(off)
    budget = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    assert "is not supported for this model" in words(converse(bedrock, NEWER, additionalModelRequestFields=budget))
    forced = converse(bedrock, NEWER, toolConfig={**TOOLS, "toolChoice": {"any": {}}})
    assert "tool_choice" in words(forced)
