"""What Google has signed goes back to it where it stood, whatever API stands between, and to nobody else.

Gemini 3 signs the first call of each step, and refuses a request of a turn that goes on without it (400); without a
call it signs the last part, in a stream often one without a text. Gemini 2.5 signs the first part, whatever it is.
Google's chat has the same in ``extra_content``, of a message or a call.
(ai.google.dev/gemini-api/docs/thought-signatures, docs.cloud.google.com/vertex-ai/generative-ai/docs/
thought-signatures, read on 2026-11-28)
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from providers import load_catalog
from providers.bodies import events
from providers.dialects import (
    CHAT,
    DIALECTS,
    GEMINI,
    MESSAGES,
    RESPONSES,
    Dialect,
    Habits,
    bound_reasoning,
    rendered,
    translations,
)
from providers.models import traits_of
from providers.vendors import shape
from tests.unit.providers.dialects.inside.test_signed_thoughts import BLOCKS, CLAUDE, of_messages, raw_fields

SIGNATURE, SECOND = "c2lnbmVkIGJ5IEdvb2dsZQ==", "c2Vjb25k"
SIGNED = {"thoughtSignature": SIGNATURE}
MODEL = "gemini-3.1-pro-preview"
THOUGHT: dict[str, Any] = {"text": "I should look.", "thought": True}
TEXT: dict[str, Any] = {"text": "Let me look."}
CALL: dict[str, Any] = {"functionCall": {"id": "a1", "name": "f", "args": {"x": 1}}}
OTHER: dict[str, Any] = {"functionCall": {"id": "a2", "name": "f", "args": {"x": 2}}}
PARTS: Mapping[str, list[dict[str, Any]]] = {
    "a call": [{**CALL, **SIGNED}],
    "a thought and a call": [THOUGHT, {**CALL, **SIGNED}],
    "a text and a call": [TEXT, {**CALL, **SIGNED}],
    "two calls": [THOUGHT, {**CALL, **SIGNED}, OTHER],
    "two calls that are signed": [{**CALL, **SIGNED}, {**OTHER, "thoughtSignature": SECOND}],
    "a text": [{**TEXT, **SIGNED}],
    "a thought and a text": [THOUGHT, {**TEXT, **SIGNED}],
    "a text and its end": [TEXT, {"text": "", **SIGNED}],
    "a thought, a text and its end": [THOUGHT, TEXT, {"text": "", **SIGNED}],
    "a text that is signed before a call": [{**TEXT, **SIGNED}, CALL],
    "a thought that is signed, and a text": [{**THOUGHT, **SIGNED}, TEXT],
    "a thought that is signed, and a call": [{**THOUGHT, **SIGNED}, CALL],
    "a text and a call that are signed": [{**TEXT, "thoughtSignature": SECOND}, {**CALL, **SIGNED}],
}
CLIENTS = ("chat", "messages", "responses", "gemini")
PROVIDERS = ("gemini", "chat")
FORMS = ("streamed", "whole")


def of_google(parts: list[dict[str, Any]], form: str) -> bytes:
    """Return the events of an answer of Gemini."""
    pieces = [parts] if form == "whole" else [[part] for part in parts]
    said = []
    for number, piece in enumerate(pieces):
        candidate: dict[str, Any] = {"content": {"parts": piece, "role": "model"}, "index": 0}
        if number == len(pieces) - 1:
            candidate["finishReason"] = "STOP"
        body = {"candidates": [candidate], "modelVersion": MODEL, "responseId": "r1"}
        said.append(b"data: %b\r\n\r\n" % msgspec.json.encode(body))
    return b"".join(said)


def told(
    target: Dialect, provider: str, parts: list[dict[str, Any]], form: str, asked: dict[str, Any] | None = None
) -> Any:
    """Return the whole answer that a client gets, by default one who asks for thoughts."""
    source, stream = DIALECTS[provider], of_google(parts, form)
    if provider == "chat":
        for step in translations(GEMINI, CHAT, {}, ()):
            stream = step.feed(stream) + step.end()
    if asked is None:
        asked = {"thinking": msgspec.Raw(b'{"type":"enabled","budget_tokens":2000}')} if target is MESSAGES else {}
        shown = msgspec.Raw(b'{"includeThoughts":true}')
        asked |= {"generationConfig.thinkingConfig": shown} if target is GEMINI else {}
    for step in translations(source, target, asked, ()):
        stream = step.feed(stream) + step.end()
    gathering = target.answers.gathering()
    for event in events(stream):
        if event.data.strip() not in {b"", b"[DONE]"}:
            gathering.take(target.answers.read_event(event.data, ()))
    return msgspec.json.decode(gathering.body())


def next_turn(client: str, answer: Any) -> dict[str, Any]:
    """Return the request with which a client answers all calls, or asks on."""
    match client:
        case "chat":
            message = answer["choices"][0]["message"]
            results: list[dict[str, Any]] = [
                {"role": "tool", "tool_call_id": call["id"], "content": "x"} for call in message.get("tool_calls") or ()
            ]
            more = results or [{"role": "user", "content": "And?"}]
            return {"messages": [{"role": "user", "content": "Hi"}, message, *more]}
        case "messages":
            content = answer["content"]
            blocks = [
                {"type": "tool_result", "tool_use_id": each["id"], "content": "x"}
                for each in content
                if each["type"] == "tool_use"
            ]
            turns: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": content}]
            return {"max_tokens": 9000, "messages": [*turns, {"role": "user", "content": blocks or "And?"}]}
        case "gemini":
            parts = answer["candidates"][0]["content"]["parts"]
            responses: list[dict[str, Any]] = [
                {"functionResponse": {"id": call["id"], "name": call["name"], "response": {"output": "x"}}}
                for call in (part["functionCall"] for part in parts if "functionCall" in part)
            ]
            turns = [{"role": "user", "parts": [{"text": "Hi"}]}, {"role": "model", "parts": parts}]
            return {"contents": [*turns, {"role": "user", "parts": responses or [{"text": "And?"}]}]}
        case _:
            items = [{name: value for name, value in item.items() if name != "id"} for item in answer["output"]]
            outputs: list[dict[str, Any]] = [
                {"type": "function_call_output", "call_id": each["call_id"], "output": "x"}
                for each in items
                if each["type"] == "function_call"
            ]
            asked: dict[str, Any] = {"role": "user", "content": "Hi"}
            return {"input": [asked, *items, *(outputs or [{"role": "user", "content": "And?"}])]}


def sent(client: str, provider: str, request: dict[str, Any]) -> list[tuple[str, str]]:
    """Return where the model's turn has signatures as a provider gets it, and which."""
    fields, source = raw_fields({"model": MODEL, **request}), DIALECTS[client]
    if provider == "gemini":
        assert GEMINI.pivoting is not None
        assert GEMINI.pivoting.habits_of is not None
        wording = rendered(fields, source, GEMINI, GEMINI.pivoting.habits_of(traits_of(MODEL), None, Habits()))
        turn = msgspec.json.decode(wording.fields["contents"])[1]
        assert [loss for loss in wording.losses if not loss.hint] == []
        return [(_kind(part), part["thoughtSignature"]) for part in turn["parts"] if "thoughtSignature" in part]
    vendor = load_catalog()["gemini"]
    chat = rendered(fields, source, CHAT, Habits(takes_signed=vendor.quirks.signer(MODEL)))
    message = msgspec.json.decode(shape(chat.fields, vendor.quirks, MODEL)["messages"])[1]
    held = [("text", message), *((call["id"], call) for call in message.get("tool_calls") or ())]
    return [
        (place, each["extra_content"]["google"]["thought_signature"]) for place, each in held if "extra_content" in each
    ]


def _kind(part: dict[str, Any]) -> str:
    return str(part["functionCall"]["id"]) if "functionCall" in part else "text"


def _is_left_out(client: str, name: str) -> bool:
    """Whether a signature comes when the text has begun: no block may follow that in Messages."""
    return client == "messages" and name.endswith("a text and its end")


def expected(name: str, client: str, back: str) -> list[tuple[str, str]]:
    """Return where signatures are to be: as they were, but that a thought's is its text's, or its call's."""
    match name:
        case "two calls that are signed":
            return [("a1", SIGNATURE), ("a2", SECOND)]
        case "a text and a call that are signed":
            return [("text", SECOND), ("a1", SIGNATURE)]
        case "a text that is signed before a call":  # a step's first call needs one
            word = "skip_thought_signature_validator"
            return (
                [("text", SIGNATURE), ("a1", word)] if (client, back) != ("gemini", "gemini") else [("text", SIGNATURE)]
            )
        case "a thought that is signed, and a call":
            return []
        case _ if _is_left_out(client, name):
            return []
        case _:
            place = "a1" if "call" in name else "text"
            return [(place, SIGNATURE)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("back", PROVIDERS)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", PARTS)
def test_signatures_come_back_where_they_were(name: str, client: str, provider: str, back: str, form: str) -> None:
    if client == "gemini" == back:
        pytest.skip("passes as it is")
    turn = sent(client, back, next_turn(client, told(DIALECTS[client], provider, PARTS[name], form)))
    if name == "a thought that is signed, and a call":  # its own, wherever it may stand
        assert SIGNATURE in dict(turn).values()
        assert "text" not in dict(turn) or back == "chat"
    else:
        assert turn == expected(name, client, back)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", [name for name, parts in PARTS.items() if "functionCall" not in parts[-1]])
def test_an_answer_of_text_ends_with_its_text(name: str, provider: str, form: str) -> None:
    """Claude Code's result is the last block of the answer: a signature behind the text left it empty."""
    content = told(MESSAGES, provider, PARTS[name], form)["content"]
    assert [each["type"] for each in content].index("text") == len(content) - 1


@pytest.mark.parametrize("client", ["messages", "responses"])
@pytest.mark.parametrize("name", PARTS)
def test_who_made_them_is_known_in_every_api(name: str, client: str) -> None:
    made = bound_reasoning(of_google(PARTS[name], "streamed"))
    request = next_turn(client, told(DIALECTS[client], "gemini", PARTS[name], "streamed"))
    assert set(bound_reasoning(msgspec.json.encode(request))) == (set() if _is_left_out(client, name) else set(made))


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("client", ["messages", "responses", "gemini"])
def test_nobody_else_gets_them(client: str, name: str) -> None:
    """Neither Claude, nor a provider of the client's own API, nor another one of chat."""
    request = next_turn(client, told(DIALECTS[client], "gemini", PARTS[name], "whole"))
    fields, source = raw_fields({"model": CLAUDE, **request}), DIALECTS[client]
    assert MESSAGES.pivoting is not None
    assert MESSAGES.pivoting.habits_of is not None
    claude = MESSAGES.pivoting.habits_of(traits_of(CLAUDE), None, Habits())
    wordings = [rendered(fields, source, CHAT, Habits(takes_signed=signer)) for signer in ("", "anthropic")]
    wordings += [rendered(fields, source, MESSAGES, claude)] if source is not MESSAGES else []
    if source is not GEMINI:
        assert source.requests.thoughts.without_foreign is not None
        wordings.append(source.requests.thoughts.without_foreign(fields, claude))
    for wording in wordings:
        assert SIGNATURE not in msgspec.json.encode(wording.fields).decode()
        assert SECOND not in msgspec.json.encode(wording.fields).decode()
        assert wording.losses or _is_left_out(client, name)
        assert all(loss.hint for loss in wording.losses)


@pytest.mark.parametrize("client", ["messages", "responses", "gemini"])
def test_google_gets_none_of_claudes(client: str) -> None:
    stream, asked = of_messages(BLOCKS["both"]), raw_fields({})
    if client == "messages":
        gathering = MESSAGES.answers.gathering()
    else:
        for step in translations(MESSAGES, DIALECTS[client], asked, ()):
            stream = step.feed(stream) + step.end()
        gathering = DIALECTS[client].answers.gathering()
    for event in events(stream):
        if event.data.strip():
            gathering.take(DIALECTS[client].answers.read_event(event.data, ()))
    request = next_turn(client, msgspec.json.decode(gathering.body()))
    assert sent(client, "chat", request) == [("toolu_1", "skip_thought_signature_validator")]
    if client != "gemini":
        assert sent(client, "gemini", request) == [("toolu_1", "skip_thought_signature_validator")]


@pytest.mark.parametrize(
    ("name", "thinking"),
    [
        ("two calls", {"type": "disabled"}),
        ("a thought and a text", None),
        ("a thought and a text", {"type": "disabled"}),
    ],
)
def test_a_client_of_messages_that_wants_no_thinking_gets_no_block_of_it(name: str, thinking: Any) -> None:
    asked = raw_fields({"thinking": thinking})
    stream = of_google(PARTS[name], "streamed")
    for step in translations(GEMINI, MESSAGES, asked, ()):
        stream = step.feed(stream) + step.end()
    assert b"thinking" not in stream


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", ["a call", "a thought and a call", "two calls", "two calls that are signed"])
def test_one_that_says_nothing_of_thinking_gets_what_calls_are_signed_with(name: str, provider: str, form: str) -> None:
    answer = told(MESSAGES, provider, PARTS[name], form, asked={})
    thoughts = [each for each in answer["content"] if each["type"] == "thinking"]
    assert {each["thinking"] for each in thoughts} == {""}
    assert sent("messages", provider, next_turn("messages", answer)) == expected(name, "messages", provider)


def test_one_that_wants_thinking_without_its_text_gets_the_signature_alone() -> None:
    asked = raw_fields({"thinking": {"type": "adaptive", "display": "omitted"}})
    stream = of_google(PARTS["a thought and a call"], "streamed")
    for step in translations(GEMINI, MESSAGES, asked, ()):
        stream = step.feed(stream) + step.end()
    assert (b"I should look." in stream, SIGNATURE.encode() in stream) == (False, True)


@pytest.mark.parametrize("odd", [5, "google-", "google-text:", "google-other:x", ":", ""])
def test_what_is_no_signature_of_googles_is_none(odd: Any) -> None:
    call = {"type": "function_call", "call_id": "a1", "name": "f", "arguments": "{}"}
    item = {"type": "reasoning", "summary": [], "encrypted_content": odd}
    if isinstance(odd, str):
        assert sent("responses", "chat", next_turn("responses", {"output": [item, call]})) == [
            ("a1", "skip_thought_signature_validator")
        ]
    block = {"type": "thinking", "thinking": "x", "signature": odd}
    content = [block, {"type": "tool_use", "id": "a1", "name": "f", "input": {}}]
    assert sent("messages", "chat", next_turn("messages", {"content": content})) == [
        ("a1", "skip_thought_signature_validator")
    ]
    assert RESPONSES.requests.thoughts.without_foreign is not None


# OpenRouter's chat has what the models of both vendors sign in ``reasoning_details``.

OPENROUTER = load_catalog()["openrouter"].quirks
GEMINIS, CLAUDES = "google/gemini-3.1-pro-preview", "anthropic/claude-sonnet-4.5"


def of_openrouter(details: list[dict[str, Any]], *, late: bool) -> bytes:
    """Return chunks of an answer with a call, as OpenRouter streams it: the details before it, or behind it."""
    call = {"index": 0, "id": "a1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    text = {"type": "reasoning.text", "text": "I should look.", "format": details[0]["format"], "index": 0}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas.append({"content": "", "reasoning": "I should look.", "reasoning_details": [text]})
    ends: list[dict[str, Any]] = [{"content": "", "reasoning_details": details}, {"tool_calls": [call]}]
    deltas += reversed(ends) if late else ends
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    head: dict[str, Any] = {"id": "gen-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    said = [b"data: %b\n\n" % msgspec.json.encode(head | {"choices": [choice]}) for choice in choices]
    return b"".join([*said, b"data: [DONE]\n\n"])


def heard(target: Dialect, stream: bytes) -> Any:
    asked = {"thinking": msgspec.Raw(b'{"type":"enabled","budget_tokens":2000}')} if target is MESSAGES else {}
    for step in translations(CHAT, target, asked, ()):
        stream = step.feed(stream) + step.end()
    gathering = target.answers.gathering()
    for event in events(stream):
        if event.data.strip() not in {b"", b"[DONE]"}:
            gathering.take(target.answers.read_event(event.data, ()))
    return msgspec.json.decode(gathering.body())


def sent_to_openrouter(client: str, model: str, request: dict[str, Any]) -> Any:
    fields = raw_fields({"model": model, **request})
    chat = rendered(fields, DIALECTS[client], CHAT, Habits(takes_signed=OPENROUTER.signer(model)))
    return msgspec.json.decode(shape(chat.fields, OPENROUTER, model)["messages"])[1]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("client", CLIENTS)
def test_openrouter_gets_geminis_details_back(client: str, late: bool) -> None:
    sealed = {"type": "reasoning.encrypted", "data": SIGNATURE, "format": "google-gemini-v1", "index": 1}
    request = next_turn(client, heard(DIALECTS[client], of_openrouter([sealed], late=late)))
    message = sent_to_openrouter(client, GEMINIS, request)
    assert [each["data"] for each in message["reasoning_details"] if "data" in each] == [SIGNATURE]
    assert "extra_content" not in msgspec.json.encode(message).decode()
    assert (
        SIGNATURE not in msgspec.json.encode(sent_to_openrouter(client, CLAUDES, request)).decode() or client == "chat"
    )
    assert dict(sent(client, "gemini", request)) == {"a1": SIGNATURE} or client == "gemini"


@pytest.mark.parametrize("client", CLIENTS)
def test_openrouter_gets_claudes_details_back(client: str) -> None:
    signed = {"type": "reasoning.text", "signature": SIGNATURE, "format": "anthropic-claude-v1", "index": 0}
    request = next_turn(client, heard(DIALECTS[client], of_openrouter([signed], late=False)))
    message = sent_to_openrouter(client, CLAUDES, request)
    whole = {**signed, "text": "I should look."}
    assert message["reasoning_details"] == [whole]
    assert "thinking_blocks" not in message
    gemini = sent_to_openrouter(client, GEMINIS, request)
    assert SIGNATURE not in msgspec.json.encode(gemini).decode() or client == "chat"


def test_what_a_call_was_signed_with_names_it_at_openrouter() -> None:
    request = next_turn("messages", told(MESSAGES, "gemini", PARTS["two calls that are signed"], "whole"))
    message = sent_to_openrouter("messages", GEMINIS, request)
    assert [(each["id"], each["data"]) for each in message["reasoning_details"]] == [("a1", SIGNATURE), ("a2", SECOND)]
    encrypted = next_turn("messages", {"content": [BLOCKS["encrypted"][0], {"type": "text", "text": "Hello"}]})
    assert sent_to_openrouter("messages", CLAUDES, encrypted)["reasoning_details"] == [
        {
            "type": "reasoning.encrypted",
            "data": BLOCKS["encrypted"][0]["data"],
            "format": "anthropic-claude-v1",
            "index": 0,
        }
    ]


@pytest.mark.parametrize("odd", ["thinking_blocks", 5, [5], [{"extra_content": 5}], [{"thinking_blocks": 5}]])
def test_what_is_no_list_of_messages_is_openrouters_to_refuse(odd: Any) -> None:
    for model in (CLAUDES, GEMINIS):
        fields = raw_fields({"messages": odd})
        assert shape(fields, OPENROUTER, model)["messages"] == fields["messages"]


@pytest.mark.parametrize("client", CLIENTS)
def test_openrouter_gets_what_other_vendors_have_encrypted_back(client: str) -> None:
    """That goes to models of the same vendor alone."""
    sealed = {
        "type": "reasoning.encrypted",
        "data": "gAAAAAB",
        "format": "openai-responses-v1",
        "id": "rs_1",
        "index": 0,
    }
    request = next_turn(client, heard(DIALECTS[client], of_openrouter([sealed], late=False)))
    message = sent_to_openrouter(client, "openai/gpt-5", request)
    assert [each for each in message["reasoning_details"] if "data" in each] == [sealed]
    assert "thinking_blocks" not in message
    if client != "chat":
        fields = raw_fields({"model": "m", **request})
        source = DIALECTS[client]
        own = source.requests.thoughts.without_foreign
        assert own is not None
        sent_elsewhere = [sent_to_openrouter(client, model, request) for model in (CLAUDES, GEMINIS, "x-ai/grok-4")]
        sent_elsewhere.append({name: bytes(value).decode() for name, value in own(fields, Habits()).fields.items()})
        assert MESSAGES.pivoting is not None
        assert MESSAGES.pivoting.habits_of is not None
        claude = MESSAGES.pivoting.habits_of(traits_of(CLAUDE), None, Habits())
        messages = (
            rendered(fields, source, MESSAGES, claude).fields if source is not MESSAGES else own(fields, claude).fields
        )
        sent_elsewhere.append({name: bytes(value).decode() for name, value in messages.items()})
        assert [each for each in sent_elsewhere if "openai-responses" in str(each) or "gAAAA" in str(each)] == []
