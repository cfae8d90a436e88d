"""The stand-in of Anthropic's Messages takes what its document has, and refuses the rest with its words."""

from typing import Any

import pytest

from strict_vendors import Vendor, made
from strict_vendors.tests.asking import USER, Came, ask

TOOL = {"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
ASK = {"role": "user", "content": "weather, in parallel"}
THINKING = {"type": "enabled", "budget_tokens": 2000}
SONNET, HAIKU, OPUS = "claude-sonnet-4-5", "claude-haiku-4-5", "claude-opus-4-7"


@pytest.fixture
def anthropic() -> Vendor:
    return made("anthropic")


def speak(vendor: Vendor, *messages: Any, path: str = "", beta: str = "", **fields: Any) -> Came:
    headers = {"x-api-key": vendor.key, "anthropic-version": "2023-06-01", "anthropic-beta": beta}
    body = {"model": SONNET, "max_tokens": 4000, "messages": list(messages or [USER]), **fields}
    return ask(vendor, f"/v1/messages{path}", body, headers=headers)


def said(came: Came, status: int = 400, kind: str = "invalid_request_error") -> str:
    """Return the words of a refusal, whose rule has a page."""
    assert came.page.startswith("https://"), came.body
    assert (came.status, came.body["type"], came.body["error"]["type"]) == (status, "error", kind)
    assert came.body["request_id"].startswith("req_")
    return str(came.body["error"]["message"])


def results(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "rain"}
        for block in content
        if block["type"] == "tool_use"
    ]


@pytest.mark.parametrize("fields", [{}, {"thinking": THINKING}])
def test_a_tool_loop_is_taken_with_the_blocks_that_it_gave(anthropic: Vendor, fields: dict[str, Any]) -> None:
    content = speak(anthropic, ASK, tools=[TOOL], **fields).body["content"]
    assert [block["type"] for block in content][-2:] == ["tool_use", "tool_use"]
    turn = [ASK, {"role": "assistant", "content": content}, {"role": "user", "content": results(content)}]
    assert speak(anthropic, *turn, tools=[TOOL], **fields).body["content"][-1]["text"] == "The tools said: rain; rain"
    assert anthropic.refusals == []


def test_a_loop_of_tools_keeps_its_calls_and_results_together(anthropic: Vendor) -> None:
    content = speak(anthropic, ASK, tools=[TOOL]).body["content"]
    first, second = results(content)
    turn = [ASK, {"role": "assistant", "content": content}]
    missing = (
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use`"
    )
    end = " block must have a corresponding `tool_result` block in the next message."
    both = f"{first['tool_use_id']}, {second['tool_use_id']}"
    for given, names in (
        ([first], second["tool_use_id"]),
        ([{"type": "text", "text": "so"}, first, second], both),
        ([{"type": "text", "text": "so"}], both),
    ):
        assert said(speak(anthropic, *turn, {"role": "user", "content": given})) == missing.format(names) + end
    assert said(speak(anthropic, {"role": "user", "content": [first]})) == (
        f"messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {first['tool_use_id']}. Each"
        " `tool_result` block must have a corresponding `tool_use` block in the previous message."
    )
    twice = [ASK, {"role": "assistant", "content": [content[0], content[0]]}, {"role": "user", "content": [first]}]
    assert said(speak(anthropic, *twice)) == "messages.1.content.1: `tool_use` ids must be unique"


def test_thoughts_come_back_as_they_were_signed(anthropic: Vendor) -> None:
    content = speak(anthropic, ASK, tools=[TOOL], thinking=THINKING).body["content"]
    thoughts, *calls = content
    assert thoughts["type"] == "thinking"

    def back(*blocks: Any) -> Came:
        turn = [ASK, {"role": "assistant", "content": blocks}, {"role": "user", "content": results(content)}]
        return speak(anthropic, *turn, tools=[TOOL], thinking=THINKING)

    wrong = "messages.1.content.0: Invalid `signature` in `thinking` block"
    assert said(back({**thoughts, "signature": "c2lnbmVk"}, *calls)) == wrong
    assert said(back({**thoughts, "thinking": "Something else."}, *calls)) == wrong
    other = made("anthropic", account="another")
    others = speak(other, ASK, tools=[TOOL], thinking=THINKING).body["content"][0]
    assert back(others, *calls).status == 200
    unsigned = {"type": "thinking", "thinking": "hm"}
    assert said(back(unsigned, *calls)) == "messages.1.content.0.thinking.signature: Field required"
    assert said(back(*calls)).startswith(
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is"
        " enabled, a final `assistant` message must start with a thinking block"
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"stop": ["x"]}, "stop: Extra inputs are not permitted"),
        ({"temperature": 1.5}, "temperature: Input should be less than or equal to 1"),
        ({"max_tokens": 64_001},
         f"max_tokens: 64001 > 64000, which is the maximum allowed number of output tokens for {SONNET}"),
        ({"thinking": {"type": "enabled", "budget_tokens": 512}},
         "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"),
        ({"thinking": {"type": "enabled", "budget_tokens": 4000}},
         ("`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at"
         " https://docs.claude.com/en/docs/build-with-claude/extended-thinking#max-tokens-and-context-window-size")),
        ({"thinking": THINKING, "temperature": 0.5},
         ("`temperature` may only be set to 1 when thinking is enabled. Please consult our documentation at"
         " https://docs.claude.com/en/docs/build-with-claude/extended-thinking"
         "#important-considerations-when-using-extended-thinking")),
        ({"thinking": THINKING, "tools": [TOOL], "tool_choice": {"type": "any"}},
         "Thinking may not be enabled when tool_choice forces tool use."),
        ({"temperature": 0.5, "top_p": 0.5},
         "`temperature` and `top_p` cannot both be specified for this model. Please use only one."),
        ({"tools": [{**TOOL, "name": "a b"}]},
         "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"),
        ({"tools": [{"name": "f", "input_schema": {}}]}, "tools.0.custom.input_schema.type: Field required"),
        ({"tools": [{"name": "f", "input_schema": {"type": "object", "anyOf": []}}]},
         "tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"),
        ({"tools": [TOOL, TOOL]}, "tools: Tool names must be unique."),
        ({"model": OPUS, "temperature": 0}, "`temperature` is deprecated for this model."),
        ({"model": OPUS, "thinking": THINKING},
         ('"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and'
         ' "output_config.effort" to control thinking behavior.')),
        ({"model": HAIKU, "thinking": {"type": "adaptive"}}, "adaptive thinking is not supported on this model"),
        ({"model": HAIKU, "output_config": {"effort": "low"}}, "This model does not support the effort parameter."),
        ({"context_management": {"edits": []}}, "context_management: Extra inputs are not permitted"),
        ({"system": [{"type": "text", "text": ""}]}, "system: text content blocks must be non-empty"),
        ({"system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}] * 5},
         "A maximum of 4 blocks with cache_control may be provided. Found 5."),
    ],
)  # fmt: skip
def test_a_field_is_refused(anthropic: Vendor, fields: dict[str, Any], words: str) -> None:
    assert said(speak(anthropic, **fields)) == words


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([{"role": "user", "content": [{"type": "text", "text": ""}]}], "messages: text content blocks must be non-empty"),
        ([{"role": "user", "content": [{"type": "text", "text": "", "cache_control": {"type": "ephemeral"}}]}],
         "messages.0.content.0.text: cache_control cannot be set for empty text blocks"),
        ([{"role": "user", "content": ""}],
         "messages.0: all messages must have non-empty content except for the optional final assistant message"),
        ([{"role": "system", "content": "x"}, USER], "messages.0.role: Input should be 'user' or 'assistant'"),
        ([{**USER, "name": "x"}], "messages.0.name: Extra inputs are not permitted"),
        ([USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "a.b", "name": "f", "input": {}}]}],
         "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"),
        ([USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": "{}"}]}],
         "messages.1.content.0.tool_use.input: Input should be a valid dictionary"),
        ([USER, {"role": "assistant", "content": "so "}],
         "messages: final assistant content cannot end with trailing whitespace"),
    ],
)  # fmt: skip
def test_a_history_is_refused(anthropic: Vendor, messages: list[Any], words: str) -> None:
    assert said(speak(anthropic, *messages)) == words


def test_newer_models_take_no_beginning_of_their_answer(anthropic: Vendor) -> None:
    begun = [USER, {"role": "assistant", "content": "so"}]
    assert speak(anthropic, *begun).status == 200
    words = "This model does not support assistant message prefill. The conversation must end with a user message."
    assert said(speak(anthropic, *begun, model="claude-opus-4-6")) == words


def test_max_tokens_is_needed_but_for_a_count(anthropic: Vendor) -> None:
    headers = {"x-api-key": anthropic.key, "anthropic-version": "2023-06-01"}
    body = {"model": SONNET, "messages": [USER]}
    assert said(ask(anthropic, "/v1/messages", body, headers=headers)) == "max_tokens: Field required"
    assert ask(anthropic, "/v1/messages/count_tokens", body, headers=headers).body == {"input_tokens": 4}
    more = {**body, "max_tokens": 9}
    words = "max_tokens: Extra inputs are not permitted"
    assert said(ask(anthropic, "/v1/messages/count_tokens", more, headers=headers)) == words


def test_a_beta_brings_its_fields(anthropic: Vendor) -> None:
    field: dict[str, Any] = {"context_management": {"edits": []}}
    for beta in ("context-management-2025-06-27", "compact-2026-01-12"):
        assert speak(anthropic, beta=beta, **field).status == 200
    thinking = {"type": "adaptive", "display": "updates"}
    words = "thinking.adaptive.display: Input should be 'summarized' or 'omitted'"
    assert said(speak(anthropic, model="claude-opus-5-5", thinking=thinking)) == words
    updates = "thinking-display-updates-2026-08-18"
    assert speak(anthropic, model="claude-opus-5-5", thinking=thinking, beta=updates).status == 200
    assert said(speak(anthropic, beta="nonsense")).startswith("Unexpected value(s) `nonsense` for the `anthropic-beta`")


def test_a_key_and_a_version_are_needed(anthropic: Vendor) -> None:
    assert said(ask(anthropic, "/v1/messages", {}, headers={}), 401, "authentication_error") == (
        "x-api-key header is required"
    )
    wrong = ask(anthropic, "/v1/messages", {}, headers={"x-api-key": "sk"})
    assert said(wrong, 401, "authentication_error") == "invalid x-api-key"
    assert said(ask(anthropic, "/v1/messages", {}, headers={"x-api-key": anthropic.key})) == (
        "anthropic-version: header is required"
    )
    assert said(speak(anthropic, model="claude-2"), 404, "not_found_error") == "model: claude-2"


def test_a_stream_has_anthropics_events(anthropic: Vendor) -> None:
    came = speak(anthropic, ASK, tools=[TOOL], thinking=THINKING, stream=True)
    assert [event["type"] for event in came.events][:3] == ["message_start", "content_block_start", "ping"]
    assert came.events[-1] == {"type": "message_stop"}
    assert came.events[-2]["delta"]["stop_reason"] == "tool_use"
    deltas = {event["delta"]["type"] for event in came.events if event["type"] == "content_block_delta"}
    assert deltas == {"thinking_delta", "signature_delta", "input_json_delta"}


def test_newer_models_tell_a_signature_and_no_thoughts_unless_asked(anthropic: Vendor) -> None:
    silent = speak(anthropic, model=OPUS, thinking={"type": "adaptive"}).body["content"][0]
    assert (silent["thinking"], bool(silent["signature"])) == ("", True)
    told = speak(anthropic, model=OPUS, thinking={"type": "adaptive", "display": "summarized"}).body["content"][0]
    assert told["thinking"] == "Let me think about it."
    for block in (silent, told):
        assert speak(anthropic, USER, {"role": "assistant", "content": [block]}, USER, model=OPUS).status == 200


# This autumn's models: https://platform.claude.com/docs/en/build-with-claude/preserved-thinking, read on 2026-11-29.

OPUS_5_5, SONNET_5_5, HAIKU_5_5 = "claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5"
ALWAYS = (OPUS_5_5, SONNET_5_5, "claude-fable-5-1", "claude-fable-5-2", "claude-mythos-5-2")
CONTROLS = "thinking-binding-controls-2026-08-01"
DROPS = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}


@pytest.mark.parametrize("model", ALWAYS)
def test_some_models_always_think_and_take_no_forced_tool(anthropic: Vendor, model: str) -> None:
    off = said(speak(anthropic, model=model, thinking={"type": "disabled"}))
    assert off.startswith('"thinking.type.disabled" is not supported for this model.')
    assert ('"between_tools"' in off) is (model == SONNET_5_5)
    budget = said(speak(anthropic, model=model, thinking=THINKING))
    assert budget.startswith('"thinking.type.enabled" is not supported for this model.')
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        assert said(speak(anthropic, model=model, tools=[TOOL], tool_choice=choice)) == (
            'tool_choice: type "tool" and "any" are not supported for this model.'
        )
    assert speak(anthropic, model=model).body["content"][0]["type"] == "thinking"
    assert speak(anthropic, model=model, tools=[TOOL], tool_choice={"type": "none"}).status == 200


def test_sonnet_thinks_between_tools_alone_where_it_is_told_so_and_not_hard(anthropic: Vendor) -> None:
    least: dict[str, Any] = {"model": SONNET_5_5, "tools": [TOOL], "thinking": {"type": "between_tools"}}
    content = speak(anthropic, ASK, **least, output_config={"effort": "high"}).body["content"]
    assert {block["type"] for block in content} == {"tool_use"}
    turn = [ASK, {"role": "assistant", "content": content}, {"role": "user", "content": results(content)}]
    assert [block["type"] for block in speak(anthropic, *turn, **least).body["content"]] == ["thinking", "text"]
    for effort in ("xhigh", "max"):
        assert "between_tools" in said(speak(anthropic, **least, output_config={"effort": effort}))
    assert "between_tools" in said(speak(anthropic, **{**least, "model": OPUS_5_5}))
    assert "between_tools" in said(speak(anthropic, **{**least, "model": "claude-sonnet-5"}))


def test_haiku_may_be_told_not_to_think_and_may_be_forced(anthropic: Vendor) -> None:
    off: dict[str, Any] = {"model": HAIKU_5_5, "tools": [TOOL], "thinking": {"type": "disabled"}}
    content = speak(anthropic, **off, tool_choice={"type": "any"}).body["content"]
    assert [block["type"] for block in content] == ["tool_use"]


@pytest.mark.parametrize("model", [*ALWAYS, HAIKU_5_5])
def test_thoughts_are_bound_to_all_that_came_before_them(anthropic: Vendor, model: str) -> None:
    system = [{"type": "text", "text": "It is noon.", "cache_control": {"type": "ephemeral"}}]
    first = speak(anthropic, ASK, model=model, tools=[TOOL], system=system).body["content"]
    turn = [ASK, {"role": "assistant", "content": first}, {"role": "user", "content": results(first)}]

    def go_on(*messages: Any, beta: str = "", **fields: Any) -> Came:
        said = {"model": model, "tools": [TOOL], "system": "It is noon.", **fields}
        return speak(anthropic, *(messages or turn), beta=beta, **said)

    second = go_on()  # marks of the cache, and whether a text is a block, are no change
    assert second.status == 200, second.body
    longer = [*turn, {"role": "assistant", "content": second.body["content"]}, USER]
    assert go_on(*longer).status == 200
    late = {"system": "It is one o'clock."}
    words = said(go_on(*longer, **late))
    assert words.startswith("messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a")
    assert words.endswith("The `system` prompt differs from the one this block was created with.")
    other = {**TOOL, "description": "Tells the weather."}
    assert "bound to a different conversation" in said(go_on(*longer, tools=[other]))
    edited = [
        *longer[:2],
        {"role": "user", "content": [{**each, "content": "snow"} for each in results(first)]},
        *longer[3:],
    ]
    assert said(go_on(*edited)).startswith("messages.3.content.0: ")
    came = go_on(*edited, beta=CONTROLS, thinking=DROPS)
    assert came.body["input_transformations"] == [
        {"type": "thinking_dropped", "path": "messages.3.content.0", "reason": "prefix_binding_mismatch"}
    ]
    came = go_on(*longer, beta=CONTROLS, thinking=DROPS, stream=True, **late)
    told = came.events[0]["message"]["input_transformations"]
    assert [each["path"] for each in told] == ["messages.1.content.0", "messages.3.content.0"]
    assert go_on(*longer, beta=CONTROLS).body["input_transformations"] == []
    refused = said(go_on(*longer, thinking=DROPS))
    assert refused == "thinking.adaptive.block_binding: Extra inputs are not permitted"
    silent = [ASK, {"role": "assistant", "content": first[1:]}, *longer[2:]]  # thoughts left out of the middle
    assert "bound to a different conversation" in said(go_on(*silent))


@pytest.mark.parametrize("model", [SONNET_5_5, HAIKU_5_5, OPUS_5_5])
def test_some_thoughts_are_read_by_the_account_alone_that_made_them(anthropic: Vendor, model: str) -> None:
    content = speak(anthropic, ASK, model=model, tools=[TOOL]).body["content"]
    turn = [ASK, {"role": "assistant", "content": content}, {"role": "user", "content": results(content)}]
    for other, told in (
        (made("anthropic"), []),
        (made("anthropic", key="sk-ant-another"), ["organization_binding_mismatch"] * (model != OPUS_5_5)),
        (anthropic.second_account, ["organization_binding_mismatch"] * (model != OPUS_5_5)),
    ):
        came = speak(other, *turn, model=model, tools=[TOOL], beta=CONTROLS)
        assert [each["reason"] for each in came.body["input_transformations"]] == told
        came = speak(other, *turn, model=model, tools=[TOOL])
        assert (came.status, "input_transformations" in came.body) == (200, False)
        assert [each.reason for each in other.dropped] == told * 2  # type: ignore[attr-defined] # Anthropic's has it


@pytest.mark.parametrize(
    ("maker", "reader", "is_read"),
    [
        ("claude-opus-5-5", "claude-fable-5-1", True),
        ("claude-fable-5-1", "claude-opus-5-5", False),
        ("claude-haiku-5-5", "claude-opus-5-5", True),
        ("claude-opus-5-5", "claude-haiku-5-5", False),
        ("claude-opus-5-5", "claude-opus-5", False),
    ],
)
def test_a_model_reads_its_own_thoughts_and_those_of_some_others(
    anthropic: Vendor, maker: str, reader: str, is_read: bool
) -> None:
    content = speak(anthropic, ASK, model=maker, tools=[TOOL]).body["content"]
    turn = [ASK, {"role": "assistant", "content": content}, {"role": "user", "content": results(content)}]
    told = speak(anthropic, *turn, model=reader, tools=[TOOL], beta=CONTROLS).body["input_transformations"]
    assert [each["reason"] for each in told] == ([] if is_read else ["model_binding_mismatch"])


def test_an_altered_signature_is_always_refused(anthropic: Vendor) -> None:
    first, *_ = speak(anthropic, ASK, model=OPUS_5_5).body["content"]
    wrong = {**first, "signature": first["signature"][:-4]}
    came = speak(
        anthropic, ASK, {"role": "assistant", "content": [wrong]}, USER, model=OPUS_5_5, beta=CONTROLS, thinking=DROPS
    )
    assert said(came) == "messages.1.content.0: Invalid `signature` in `thinking` block"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"temperature": 1.0}, "temperature: Extra inputs are not permitted"),
        ({"top_k": 5}, "top_k: Extra inputs are not permitted"),
        ({"messages": [USER, {"role": "assistant", "content": [
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}]}, USER]},
         "messages.1.content.0: `document` blocks are not permitted in `assistant` messages"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "citations": [{"type": "char_location"}]}]}]},
         "messages.0.content.0.text.citations: citations are not permitted in `user` messages"),
    ],
)  # fmt: skip
def test_the_newest_version_has_no_sampling_and_less_in_messages(
    anthropic: Vendor, fields: dict[str, Any], words: str
) -> None:
    body = {"model": SONNET, "max_tokens": 4000, "messages": [USER], **fields}

    def asked(version: str) -> Came:
        headers = {"authorization": f"Bearer {anthropic.key}", "anthropic-version": version}
        return ask(anthropic, "/v1/messages", body, headers=headers)

    assert asked("2023-06-01").status == 200
    assert said(asked("2026-10-21")) == words


def test_instructions_stand_within_messages_of_newer_models_or_with_their_beta(anthropic: Vendor) -> None:
    late = [ASK, {"role": "system", "content": "Be brief."}]
    echo = [{"role": "user", "content": "echo: system"}, late[1]]
    assert speak(anthropic, *echo, model=OPUS_5_5).body["content"][-1]["text"] == '"Be brief."'
    assert said(speak(anthropic, *late)) == "messages.1.role: Input should be 'user' or 'assistant'"
    assert speak(anthropic, *late, beta="mid-conversation-system-2026-07-01").status == 200
    harder = [{**ASK, "output_config": {"effort": "high"}}]
    assert said(speak(anthropic, *harder)) == "messages.0.output_config: Extra inputs are not permitted"
    assert speak(anthropic, *harder, beta="per-turn-control-2026-07-01").status == 200


def test_a_failed_result_says_why(anthropic: Vendor) -> None:
    content = speak(anthropic, ASK, tools=[TOOL]).body["content"]
    failed = [{**each, "is_error": True, "content": []} for each in results(content)]
    turn = [ASK, {"role": "assistant", "content": content}, {"role": "user", "content": failed}]
    words = "messages.2.content.0.tool_result: content cannot be empty if `is_error` is true"
    assert said(speak(anthropic, *turn, tools=[TOOL])) == words


@pytest.mark.parametrize(("word", "kind"), [("", "thinking"), ("\nseal: now", "redacted_thinking")])
@pytest.mark.parametrize("model", [OPUS_5_5, "claude-sonnet-5"])
def test_an_answer_may_have_words_beside_calls_and_thoughts_sealed_or_in_several_blocks(
    anthropic: Vendor, model: str, word: str, kind: str
) -> None:
    asked = {"role": "user", "content": f"think: one\nthink: two\nbeside: I look.\ncall: get_weather {{}}{word}"}
    content = speak(anthropic, asked, model=model, tools=[TOOL]).body["content"]
    assert [block["type"] for block in content] == [kind, "text", kind, "tool_use"]
    events = speak(anthropic, asked, model=model, tools=[TOOL], stream=True).events
    told = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
    assert told == [block["type"] for block in content]
    ended = {"role": "user", "content": results(content)}
    turn = [asked, {"role": "assistant", "content": content}, ended]
    assert speak(anthropic, *turn, model=model, tools=[TOOL]).status == 200
    shorter = [asked, {"role": "assistant", "content": content[2:]}, ended]
    came = speak(anthropic, *shorter, model=model, tools=[TOOL])
    assert came.status == (400 if model == OPUS_5_5 else 200)


# Instructions within a conversation: platform.claude.com/docs/build-with-claude/mid-conversation-system-messages and
# …/effort-per-message, read on 2026-11-29.


def test_instructions_within_a_conversation_need_words_or_an_effort(anthropic: Vendor) -> None:
    beta, low = "mid-conversation-output-config-2026-07-01", {"output_config": {"effort": "low"}}
    contents: list[dict[str, Any]] = [{"content": []}, {}]
    for content in contents:
        told: dict[str, Any] = {"role": "system", **content, **low}
        assert speak(anthropic, USER, told, model=OPUS_5_5, beta=beta).status == 200
    empty = {"role": "system", "content": [], "output_config": {}}
    assert said(speak(anthropic, USER, empty, model=OPUS_5_5, beta=beta)).startswith("messages.1: ")
    assert said(speak(anthropic, USER, {"role": "system", **low}, model=OPUS_5_5)).endswith("Field required")


def test_tools_change_in_instructions_alone_and_with_their_beta(anthropic: Vendor) -> None:
    change = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "get_weather"}}
    beta = "mid-conversation-tool-changes-2026-07-01"
    for role, asked, status in (("system", beta, 200), ("system", "", 400), ("user", beta, 400)):
        turn = {"role": role, "content": [change]}
        assert speak(anthropic, USER, turn, model=OPUS_5_5, tools=[TOOL], beta=asked).status == status


def test_a_summary_takes_the_place_of_its_conversation(anthropic: Vendor) -> None:
    beta, asked = "compact-2026-09-04", {"type": "summarize"}
    came = speak(anthropic, USER, beta=beta, compaction=asked).body
    assert (came["stop_reason"], [block["type"] for block in came["content"]]) == ("compaction", ["compaction"])
    first = {"role": "assistant", "content": came["content"]}
    assert speak(anthropic, first, USER).status == 200
    assert said(speak(anthropic, USER, compaction=asked)) == "compaction: Extra inputs are not permitted"


def test_on_aws_its_key_comes_in_either_header_and_names_a_workspace() -> None:
    aws = made("claude_aws")
    body = {"model": "claude-opus-4-6", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    workspace = {"anthropic-version": "2026-10-21", "anthropic-workspace-id": "wrkspc_1"}
    for key in ({"x-api-key": aws.key}, {"authorization": f"Bearer {aws.key}"}):
        assert ask(aws, "/v1/messages", body, {**key, **workspace}).status == 200
        assert ask(aws, "/v1/messages", body, {**key, "anthropic-version": "2026-10-21"}).rule == "workspace"
    assert ask(aws, "/v1/messages", body, {"authorization": "Bearer no", **workspace}).status == 401
