"""What both APIs of a pair have a place for goes through, there and back: the rows are in ``pairs.py``."""

import itertools
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from providers import load_catalog
from providers.dialects import CHAT, DIALECTS, Habits, Loss, converse_from_chat, rendered
from providers.models import traits_of
from tests.unit.providers.dialects.pairs import CONFIG, PNG, THINGS, Json, Thing, among, result

SAID: Mapping[str, Json] = {
    "chat": {"messages": [{"role": "user", "content": "Hi"}]},
    "messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4096},
    "responses": {"input": "Hi"},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
}
MODELS: Mapping[str, str] = {
    "chat": "m",
    "messages": "claude-opus-4-8",
    "responses": "m",
    "gemini": "gemini-3.1-pro-preview",
    "converse": "anthropic.claude-opus-4-8",
}
VENDORS: Mapping[str, str] = {"chat": "openai", "responses": "openai"}  # whose API it is; others may take less
PAIRS = [
    pytest.param(thing, client, provider, id=f"{name}: {client} to {provider}")
    for name, thing in THINGS.items()
    for client in thing.asked
    if client != "converse"
    for provider in thing.asked
    if provider != client
]


CHOICE: Mapping[str, str] = {"gemini": "toolConfig.functionCallingConfig"}


def raw(fields: Json) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}


def sent(client: str, provider: str, model: str, fields: Json) -> tuple[Json, tuple[Loss, ...]]:
    """Return a client's request as the provider gets it, and what was lost."""
    source = DIALECTS[client]
    if provider == "converse":
        quirks = load_catalog()["bedrock_converse"].quirks
        habits = Habits(takes_marks=True, takes_signed=quirks.signer(model), beyond=quirks.beyond_chat(model))
        chat = rendered(raw(fields), source, CHAT, habits)
        wording = converse_from_chat(chat.fields, model)
        losses = (*chat.losses, *wording.losses)
    else:
        target = DIALECTS[provider]
        vendor = load_catalog().get(VENDORS.get(provider, ""))
        habits = Habits(takes_marks=True, beyond=vendor.quirks.beyond_chat(model) if vendor else frozenset())
        if target.pivoting is not None and target.pivoting.habits_of is not None:
            habits = target.pivoting.habits_of(traits_of(model), None, habits)
        wording = rendered(raw(fields), source, target, habits)
        losses = wording.losses
    return {name: msgspec.json.decode(value) for name, value in wording.fields.items()}, losses


def differences(expected: Any, said: Any, path: str = "") -> list[str]:
    """Return what of ``expected`` is not in what was ``said``."""
    if isinstance(expected, dict) and isinstance(said, dict):
        return [
            each for name, value in expected.items() for each in differences(value, said.get(name), f"{path}.{name}")
        ]
    if isinstance(expected, list) and isinstance(said, list) and len(expected) == len(said):
        return [
            each
            for number, (one, other) in enumerate(zip(expected, said, strict=True))
            for each in differences(one, other, f"{path}[{number}]")
        ]
    return [] if expected == said else [f"{path}: {said!r} in place of {expected!r}"]


def test_a_budget_that_is_the_whole_limit_leaves_room_for_the_answer() -> None:
    config = {"generationConfig.thinkingConfig": {"thinkingBudget": 24_576}, "generationConfig.maxOutputTokens": 8000}
    said, _ = sent("gemini", "messages", "claude-sonnet-4-5", {"model": "m", **SAID["gemini"], **config})
    assert (said["thinking"]["budget_tokens"], said["max_tokens"]) == (6000, 8000)
    del config["generationConfig.maxOutputTokens"]
    said, _ = sent("gemini", "messages", "claude-sonnet-4-5", {"model": "m", **SAID["gemini"], **config})
    assert said["thinking"]["budget_tokens"] == 24_576
    assert said["max_tokens"] > 24_576


def test_pictures_beside_a_failure_are_shown_and_the_failure_is_told() -> None:
    """Messages refuses the flag beside anything but text."""
    response = {
        "response": {"error": "no such city"},
        "parts": [{"inlineData": {"mimeType": "image/png", "data": PNG}}],
    }
    said, losses = sent("gemini", "messages", "claude-opus-4-8", {"model": "m", **result(gemini=response)["gemini"]})
    [told] = said["messages"][-1]["content"]
    assert [each.get("text", each["type"]) for each in told["content"]] == ["Error", "no such city", "image"]
    assert ("is_error" in told, losses) == (False, ())
    said, _ = sent("gemini", "converse", MODELS["converse"], {"model": "m", **result(gemini=response)["gemini"]})
    [told] = [each["toolResult"] for each in said["messages"][-1]["content"]]
    assert [each.get("text", "image") for each in told["content"]] == ["Error", "no such city", "image"]
    assert "status" not in told


@pytest.mark.parametrize("client", ["messages", "responses", "gemini"])
def test_who_cannot_see_pictures_in_a_result_is_shown_them_behind_it(client: str) -> None:
    asked = THINGS["a picture in a tool's result"].asked[client]
    for provider, model in (("chat", "m"), ("gemini", "gemini-2.5-flash"), ("converse", "meta.llama4")):
        if provider != client:
            said, losses = sent(client, provider, model, {"model": model, **SAID[client], **asked})
            assert "(Shown in the user's next message.)" in str(said)
            assert all(loss.hint for loss in losses)


def test_a_server_of_responses_that_is_not_known_to_take_lists_is_shown_pictures_behind_the_result() -> None:
    asked = THINGS["a picture in a tool's result"].asked["messages"]
    wording = rendered(
        raw({"model": "m", **SAID["messages"], **asked}), DIALECTS["messages"], DIALECTS["responses"], Habits()
    )
    *_, told, user = msgspec.json.decode(wording.fields["input"])
    assert told["output"] == "Here:\n\n(Shown in the user's next message.)"
    assert user["content"][1]["type"] == "input_image"


def test_a_failure_that_shows_a_picture_is_told_in_words_where_no_field_does() -> None:
    content = THINGS["a picture in a tool's result"].asked["messages"]["messages"][-1]["content"][0]["content"]
    for shown, told in ((content, "Error: Here:"), (content[1:], "Error")):
        asked = result(messages={"content": shown, "is_error": True})["messages"]
        said, _ = sent("messages", "responses", "m", {"model": "m", **SAID["messages"], **asked})
        assert [part.get("text") for part in said["input"][-1]["output"]] == [told, None]


def test_texts_in_a_list_are_one_text_for_servers_of_responses() -> None:
    call = {"id": "a1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    told = {
        "role": "tool",
        "tool_call_id": "a1",
        "content": [{"type": "text", "text": each} for each in ("One.", "Two.")],
    }
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": [call]}, told]
    said, _ = sent("chat", "responses", "m", {"model": "m", "messages": turns})
    assert said["input"][-1]["output"] == "One.\n\nTwo."


def test_a_failure_is_told_in_words_where_no_field_does() -> None:
    asked = THINGS["a tool that has failed"].asked["messages"]
    for provider, model in (("chat", "m"), ("responses", "m"), ("converse", "meta.llama4")):
        said, _ = sent("messages", provider, model, {"model": model, **SAID["messages"], **asked})
        assert "Error: no such city" in str(said)
        assert "is_error" not in str(said)


@pytest.mark.parametrize("client", ["chat", "responses", "gemini"])
def test_who_has_no_choice_among_several_tools_is_offered_those_alone(client: str) -> None:
    asked = THINGS["a choice among several tools, one of which must be called"].asked[client]
    for provider in ("messages", "converse"):
        said, losses = sent(client, provider, MODELS[provider], {"model": "m", **SAID[client], **asked})
        config = said.get("toolConfig", said)
        assert [tool.get("toolSpec", tool)["name"] for tool in config["tools"]] == ["look", "find"]
        assert config.get("toolChoice") == {"any": {}} or said["tool_choice"] == {"type": "any"}
        assert [loss.field for loss in losses if loss.hint] == [CHOICE.get(client, "tool_choice")]
        assert all(loss.hint for loss in losses)


@pytest.mark.parametrize("client", ["responses", "gemini"])
def test_a_server_of_chat_is_offered_those_alone_unless_it_is_known_to_have_the_choice(client: str) -> None:
    asked = THINGS["a choice among several tools"].asked[client]
    fields = raw({"model": "m", **SAID[client], **asked})
    wording = rendered(fields, DIALECTS[client], CHAT, Habits())
    tools = msgspec.json.decode(wording.fields["tools"])
    assert [tool["function"]["name"] for tool in tools] == ["look", "find"]
    assert bytes(wording.fields["tool_choice"]) == b'"auto"'
    assert [(loss.field, loss.hint) for loss in wording.losses] == [(CHOICE.get(client, "tool_choice"), True)]


def test_of_one_tool_that_must_be_called_the_others_stay_for_the_prompts_cache() -> None:
    asked = among("required", "find")["chat"]
    said, losses = sent("chat", "messages", MODELS["messages"], {"model": "m", **SAID["chat"], **asked})
    assert len(said["tools"]) == 3
    assert said["tool_choice"] == {"type": "tool", "name": "find"}
    assert losses == ()


def test_a_tool_that_must_be_called_is_chosen_though_others_are_named_that_are_not_there() -> None:
    asked = among("required", "find", "missing")["chat"]
    said, losses = sent("chat", "messages", MODELS["messages"], {"model": "m", **SAID["chat"], **asked})
    assert (len(said["tools"]), said["tool_choice"], losses) == (3, {"type": "tool", "name": "find"}, ())


def test_a_choice_among_all_tools_or_tools_that_are_not_there_leaves_them_as_they_are() -> None:
    asked = among("auto", "look", "find", "drop")["chat"]
    said, losses = sent("chat", "messages", MODELS["messages"], {"model": "m", **SAID["chat"], **asked})
    assert (len(said["tools"]), losses) == (3, ())
    said, losses = sent(
        "chat", "messages", MODELS["messages"], {"model": "m", **SAID["chat"], **among("auto", "x")["chat"]}
    )
    assert [(loss.field, loss.hint) for loss in losses] == [("tool_choice", False)]


def test_what_is_lost_of_a_tool_is_named_where_it_stood_though_others_before_it_are_not_sent() -> None:
    asked = among("auto", "find", "drop")["gemini"]
    asked["tools"][0]["functionDeclarations"][2]["parametersJsonSchema"] = {"type": "object", "oneOf": [{}]}
    _, losses = sent("gemini", "messages", MODELS["messages"], {"model": "m", **SAID["gemini"], **asked})
    assert "tools[0].functionDeclarations[2]" in {loss.field for loss in losses}


def test_newer_models_of_google_are_not_asked_for_what_they_refuse() -> None:
    asked = {"logprobs": True, "top_logprobs": 2, "n": 2}
    for model, lost in (
        ("gemini-2.0-flash", []),
        ("gemini-2.5-flash", ["logprobs", "top_logprobs"]),
        ("gemini-3.1-pro-preview", ["logprobs", "n", "top_logprobs"]),
        ("gemini-flash-latest", ["logprobs", "top_logprobs"]),
    ):
        said, losses = sent("chat", "gemini", model, {"model": model, **SAID["chat"], **asked})
        assert sorted(loss.field for loss in losses if not loss.hint) == sorted(lost)
        assert (CONFIG + "responseLogprobs" in said) == ("logprobs" not in lost)
        assert (CONFIG + "candidateCount" in said) == ("n" not in lost)


@pytest.mark.parametrize("model", ["gemini-2.5-flash", "gemini-3.1-pro-preview"])
def test_that_google_has_no_effort_above_high_is_told(model: str) -> None:
    for effort, told in (("xhigh", True), ("max", True), ("high", False)):
        asked = {"input": "Hi", "reasoning": {"effort": effort}}
        said, losses = sent("responses", "gemini", model, {"model": model, **asked})
        assert said[CONFIG + "thinkingConfig"].keys() & {"thinkingLevel", "thinkingBudget"}
        assert [(loss.field, loss.hint) for loss in losses] == [("reasoning.effort", True)] * told


def test_who_asks_google_for_json_need_not_say_the_word_which_others_want_to_hear() -> None:
    """OpenAI, DeepSeek and Groq refuse ``json_object`` without it."""
    asked: Json = {CONFIG + "responseMimeType": "application/json"}
    said, losses = sent("gemini", "chat", "m", {"model": "m", **SAID["gemini"], **asked})
    hello = SAID["gemini"]["contents"][0]["parts"][0]["text"]
    assert said["messages"] == [{"role": "user", "content": f"{hello}\n\nAnswer in JSON."}]
    assert [(loss.field, loss.hint) for loss in losses] == [(CONFIG + "responseMimeType", True)]
    said, _ = sent("gemini", "responses", "m", {"model": "m", **SAID["gemini"], **asked})
    assert [item["content"] for item in said["input"]] == [f"{hello}\n\nAnswer in JSON."]
    for text in ("Be brief.", "Use JsOn."):
        system = {"systemInstruction": {"parts": [{"text": text}]}}
        said, losses = sent("gemini", "chat", "m", {"model": "m", **SAID["gemini"], **asked, **system})
        assert said["messages"][0]["content"] == text
        assert said["messages"][1]["content"] == (hello if "JsOn" in text else f"{hello}\n\nAnswer in JSON.")
        assert len(losses) == ("JsOn" not in text)


IN_JSON: Json = {CONFIG + "responseMimeType": "application/json"}
PICTURE = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}


def spoken(*turns: tuple[str, str, bool], loops: bool = False) -> list[str]:
    """Return what a chat vendor is sent in each turn: the user's words, the answer, and whether JSON is asked for."""
    contents: list[Json] = []
    sendings = []

    def ask(in_json: bool) -> None:
        fields = {"model": "m", "systemInstruction": {"parts": [{"text": "Be brief."}]}, "contents": contents}
        said, _ = sent("gemini", "chat", "m", {**fields, **(IN_JSON if in_json else {})})
        sendings.append(json.dumps(said["messages"])[:-1])

    for words, answer, in_json in turns:
        contents = [*contents, {"role": "user", "parts": [{"text": words}, *([PICTURE] if "picture" in words else [])]}]
        ask(in_json)
        if loops:
            call, result = {"name": "look", "args": {}}, {"name": "look", "response": {"output": "rain"}}
            contents = [*contents, {"role": "model", "parts": [{"functionCall": call}]}]
            contents = [*contents, {"role": "user", "parts": [{"functionResponse": result}]}]
            ask(in_json)
        contents = [*contents, {"role": "model", "parts": [{"text": answer}]}]
    return sendings


@pytest.mark.parametrize("loops", [False, True])
def test_who_always_asks_for_json_sends_what_was_sent_before(loops: bool) -> None:
    turns = [(f"Hi {number}, a picture", f' [{{"a": {number}}}]', True) for number in range(4)]
    sendings = spoken(*turns, loops=loops)
    assert all(after.startswith(before) for before, after in itertools.pairwise(sendings))
    assert [each.count("Answer in JSON.") for each in sendings] == [1] * len(sendings)


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("asked", [*itertools.product([False, True], repeat=4)])
def test_nothing_before_what_is_answered_in_json_changes_where_it_is_asked_for_or_not(
    asked: tuple[bool, ...], loops: bool
) -> None:
    turns = [(f"Hi {number}", '{"a": 1}' if in_json else "Fine.", in_json) for number, in_json in enumerate(asked)]
    sendings = spoken(*turns, loops=loops)
    each = 2 if loops else 1
    for number, (before, after) in enumerate(itertools.pairwise(sendings), 1):
        turn = (number - 1) // each
        first = turn
        while first and asked[first - 1] and asked[turn]:
            first -= 1  # the turns that were answered in JSON before this one
        is_off = asked[turn] and not asked[number // each]
        kept = before[: before.index(f"Hi {first}") + 4] if is_off else before
        assert after.startswith(kept)


def test_who_speaks_of_json_or_gets_it_by_a_schema_hears_no_such_words() -> None:
    for said in (
        spoken(("Use json.", '{"a": 1}', True), ("Again", '{"a": 2}', True)),
        spoken(("Hi", '{"a": 1}', False), ("Again", "Fine.", False)),
    ):
        assert not any("Answer in JSON." in each for each in said)


def test_a_prompt_of_which_nothing_is_left_is_told_though_json_is_asked_for() -> None:
    asked: Json = {"contents": [{"role": "user", "parts": [{"executableCode": {}}]}]}
    said, losses = sent("gemini", "chat", "m", {"model": "m", **asked, CONFIG + "responseMimeType": "application/json"})
    assert said["messages"] == []
    assert losses[-1].field == "contents"


def test_a_system_prompt_that_asks_for_json_is_among_the_input_where_openai_looks_for_the_word() -> None:
    """Chat looks in all messages, Responses in those of the input (github.com/BigDawnGhost/wenyi/pull/66)."""
    turns = [{"role": "system", "content": "Use JSON."}, {"role": "user", "content": "Hi"}]
    said, _ = sent("chat", "responses", "m", {"messages": turns, "response_format": {"type": "json_object"}})
    assert [item["content"] for item in said["input"]] == ["Use JSON.", "Hi"]
    said, _ = sent("chat", "responses", "m", {"messages": turns})
    assert said["instructions"] == "Use JSON."


@pytest.mark.parametrize("metadata", [{"a": "b\n€"}, {"": "b"}, {"a": "b" * 257}, {str(n): "" for n in range(17)}])
def test_metadata_that_bedrock_refuses_are_left_out_and_told(metadata: Json) -> None:
    said, losses = sent("chat", "converse", MODELS["converse"], {**SAID["chat"], "metadata": metadata})
    assert "requestMetadata" not in said
    assert [(loss.field, loss.hint) for loss in losses] == [("metadata", True)]


@pytest.mark.parametrize(
    ("client", "asked"),
    [
        ("messages", {"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "low"}}),
        ("messages", {"thinking": {"type": "disabled"}}),
        ("messages", {"output_config": {"effort": "low"}}),
        ("gemini", {CONFIG + "thinkingConfig": {"thinkingLevel": "low"}}),
        ("chat", {"reasoning_effort": "low"}),
    ],
)
def test_thoughts_that_a_client_does_not_ask_to_see_are_not_summed_up(client: str, asked: Json) -> None:
    said, losses = sent(client, "responses", "m", {"model": "m", **SAID[client], **asked})
    assert "summary" not in said.get("reasoning", {})
    assert losses == ()


def test_thoughts_are_asked_for_without_an_effort_too_and_of_nobody_who_does_not_think() -> None:
    fields = {"model": "m", **SAID["messages"], "thinking": {"type": "adaptive"}}
    said, losses = sent("messages", "responses", "m", fields)
    assert (said["reasoning"], losses) == ({"summary": "auto"}, ())
    said, losses = sent("messages", "gemini", MODELS["gemini"], fields)
    assert (said[CONFIG + "thinkingConfig"], losses) == ({"includeThoughts": True}, ())
    said, losses = sent(
        "messages", "gemini", "gemini-2.5-flash-lite", fields
    )  # it refuses that where it does not think
    assert (CONFIG + "thinkingConfig" in said, losses) == (False, ())
    wording = rendered(raw(fields), DIALECTS["messages"], DIALECTS["responses"], Habits(thinks=False))
    assert "reasoning" not in wording.fields
    assert all(loss.hint for loss in wording.losses)


def test_what_messages_lacks_is_named_as_clients_of_google_call_it() -> None:
    asked: Json = {CONFIG + "responseLogprobs": True, CONFIG + "logprobs": 3, "serviceTier": "flex"}
    _, losses = sent("gemini", "messages", MODELS["messages"], {"model": "m", **SAID["gemini"], **asked})
    assert sorted(loss.field for loss in losses) == sorted(asked)


def test_likely_tokens_are_asked_for_with_the_log_probabilities_alone() -> None:
    asked = {CONFIG + "logprobs": 3}
    said, losses = sent("gemini", "chat", "m", {"model": "m", **SAID["gemini"], **asked})
    assert "top_logprobs" not in said
    assert [loss.field for loss in losses] == [CONFIG + "logprobs"]


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("https://example.com/a.JPG?sig=x#y", "image/jpeg"),
        ("https://example.com/a%20b.webp", "image/webp"),
        ("http://example.com/a.png", None),  # Google reads https alone
        ("https://example.com/a.gif", None),
        ("https://example.com/a", None),  # Google asks what it is
        ("https://example.com/?a.png", None),
    ],
)
def test_google_is_told_addresses_of_what_it_says_that_it_reads(address: str, kind: str | None) -> None:
    asked = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": address}}]}]}
    said, losses = sent("chat", "gemini", MODELS["gemini"], {"model": "m", **asked})
    if kind is None:
        assert [(loss.field, loss.hint) for loss in losses][:1] == [("messages[0].content[0].image_url", False)]
    else:
        assert said["contents"][0]["parts"] == [{"fileData": {"mimeType": kind, "fileUri": address}}]
        assert losses == ()
    _, losses = sent("chat", "gemini", "gemini-2.0-flash", {"model": "m", **asked})
    assert not all(loss.hint for loss in losses)


@pytest.mark.parametrize(("thing", "client", "provider"), PAIRS)
def test_what_both_have_a_place_for_goes_through(thing: Thing, client: str, provider: str) -> None:
    model = thing.models.get(provider, MODELS[provider])
    said, losses = sent(client, provider, model, {"model": model, **SAID[client], **thing.asked[client]})
    assert differences(thing.sent.get(provider, thing.asked[provider]), said) == []
    assert [loss for loss in losses if not loss.hint] == []
    assert not losses or provider in thing.hints or provider in thing.sent, losses
