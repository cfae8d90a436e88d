"""What Claude has signed goes back to it as it was, whatever API stands between: it thinks on in a loop of tools.

Where each API has a place for it: Messages ``thinking`` with ``signature`` and ``redacted_thinking``; Converse
``reasoningContent``; Responses ``encrypted_content`` of a reasoning item;
chat LiteLLM's ``thinking_blocks`` and OpenRouter's ``reasoning_details``; Gemini ``thoughtSignature``, of bytes.
(platform.claude.com/docs/en/build-with-claude/extended-thinking, docs.aws.amazon.com/bedrock/latest/APIReference,
platform.openai.com/docs/guides/reasoning, docs.litellm.ai/docs/reasoning_content,
openrouter.ai/docs/use-cases/reasoning-tokens)
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from providers.bodies import events
from providers.dialects import (
    CHAT,
    DIALECTS,
    GEMINI,
    MESSAGES,
    RESPONSES,
    ConverseToChat,
    Dialect,
    FrameMessage,
    Habits,
    bound_reasoning,
    converse_from_chat,
    events_of_converse,
    rendered,
    translations,
)
from providers.dialects.chat.deltas import signed_in
from providers.dialects.messages.fields import signed_thoughts
from providers.models import traits_of

SIGNATURE, DATA, TEXT = "c2lnbmVk+/8=", "ZW5jcnlwdGVk", "I should look."
CLAUDE = "claude-sonnet-4-5"
THOUGHT = {"type": "thinking", "thinking": TEXT, "signature": SIGNATURE}
ENCRYPTED = {"type": "redacted_thinking", "data": DATA}
BLOCKS: Mapping[str, list[dict[str, Any]]] = {
    "signed": [THOUGHT],
    "encrypted": [ENCRYPTED],
    "both": [THOUGHT, ENCRYPTED],
    "without its text": [{"type": "thinking", "thinking": "", "signature": SIGNATURE}],
    "two": [THOUGHT, {"type": "thinking", "thinking": "And then", "signature": "c2Vjb25k"}],
}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
PROVIDERS = ("messages", "converse")
CLIENTS = ("chat", "messages", "responses", "gemini")
FORMS = ("streamed", "whole")


def of_messages(blocks: list[dict[str, Any]]) -> bytes:
    """Return the events of an answer, whose whole form becomes the same events."""
    body: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": CLAUDE}
    body |= {"content": [*blocks, CALL], "stop_reason": "tool_use", "stop_sequence": None}
    body["usage"] = {"input_tokens": 3, "output_tokens": 2}
    return MESSAGES.answers.events_of_answer(msgspec.json.encode(body), ())


def of_converse(blocks: list[dict[str, Any]], form: str) -> bytes:
    """Return an answer as chat's chunks, in which the provider is read."""
    content: list[dict[str, Any]] = []
    for block in blocks:
        said = {"text": block.get("thinking"), "signature": block.get("signature")}
        inner = {"redactedContent": block["data"]} if "data" in block else {"reasoningText": said}
        content.append({"reasoningContent": inner})
    tool, to_chat = {"toolUseId": "toolu_1", "name": "f"}, ConverseToChat("m", "c1", ())
    if form == "whole":
        output = {"message": {"role": "assistant", "content": [*content, {"toolUse": {**tool, "input": {}}}]}}
        return events_of_converse(msgspec.json.encode({"output": output, "stopReason": "tool_use"}), to_chat)
    stream: list[tuple[str, dict[str, Any]]] = [("messageStart", {"role": "assistant"})]
    for index, each in enumerate(content):
        thought = each["reasoningContent"]
        for name, value in thought.get("reasoningText", thought).items():
            delta = {"reasoningContent": {name: value}}
            stream.append(("contentBlockDelta", {"contentBlockIndex": index, "delta": delta}))
        stream.append(("contentBlockStop", {"contentBlockIndex": index}))
    at = len(content)
    stream.append(("contentBlockStart", {"contentBlockIndex": at, "start": {"toolUse": tool}}))
    stream += [("contentBlockStop", {"contentBlockIndex": at}), ("messageStop", {"stopReason": "tool_use"})]
    messages = [
        FrameMessage({":message-type": "event", ":event-type": kind}, msgspec.json.encode(each))
        for kind, each in stream
    ]
    return to_chat.feed(messages) + to_chat.end()


def told(target: Dialect, provider: str, blocks: list[dict[str, Any]], form: str) -> Any:
    """Return the whole answer that a client gets."""
    source = MESSAGES if provider == "messages" else CHAT
    stream = of_messages(blocks) if provider == "messages" else of_converse(blocks, form)
    asked = {"thinking": msgspec.Raw(b'{"type":"enabled","budget_tokens":2000}')} if target is MESSAGES else {}
    asked |= {"generationConfig.thinkingConfig": msgspec.Raw(b'{"includeThoughts":true}')} if target is GEMINI else {}
    if form == "whole" and source is CHAT:  # a server of chat that answers with one body
        gathering = CHAT.answers.gathering()
        for event in events(stream):
            if event.data.strip() not in {b"", b"[DONE]"}:
                gathering.take(CHAT.answers.read_event(event.data, ()))
        stream = CHAT.answers.events_of_answer(gathering.body(), ())
    for step in translations(source, target, asked, ()):
        stream = step.feed(stream) + step.end()
    gathering = target.answers.gathering()
    for event in events(stream):
        if event.data.strip() not in {b"", b"[DONE]"}:
            gathering.take(target.answers.read_event(event.data, ()))
    return msgspec.json.decode(gathering.body())


def next_turn(client: str, answer: Any) -> dict[str, Any]:
    """Return the request with which a client sends a tool's result, and all that it was told."""
    match client:
        case "chat":
            result: dict[str, Any] = {"role": "tool", "tool_call_id": "toolu_1", "content": "x"}
            return {"messages": [{"role": "user", "content": "Hi"}, answer["choices"][0]["message"], result]}
        case "messages":
            result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}
            turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": answer["content"]}]
            return {"max_tokens": 9000, "messages": [*turns, {"role": "user", "content": [result]}]}
        case "gemini":  # without thoughts, as Gemini CLI does, and with the letters of Google's SDKs
            parts = [part for part in answer["candidates"][0]["content"]["parts"] if not part.get("thought")]
            letters = str.maketrans("+/", "-_")
            parts = [
                {
                    name: value.translate(letters) if name == "thoughtSignature" else value
                    for name, value in part.items()
                }
                for part in parts
            ]
            response = {"functionResponse": {"id": "toolu_1", "name": "f", "response": {"output": "x"}}}
            turns = [{"role": "user", "parts": [{"text": "Hi"}]}, {"role": "model", "parts": parts}]
            return {"contents": [*turns, {"role": "user", "parts": [response]}]}
        case _:  # without ids, as agents do that have nothing stored
            items = [{name: value for name, value in item.items() if name != "id"} for item in answer["output"]]
            result = {"type": "function_call_output", "call_id": "toolu_1", "output": "x"}
            return {"input": [{"role": "user", "content": "Hi"}, *items, result]}


def raw_fields(fields: dict[str, Any]) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}


def sent(client: str, provider: str, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the assistant's turn as a provider gets it."""
    fields, source = raw_fields({"model": CLAUDE, **request}), DIALECTS[client]
    if provider == "messages":
        assert MESSAGES.pivoting is not None
        assert MESSAGES.pivoting.habits_of is not None
        wording = rendered(fields, source, MESSAGES, MESSAGES.pivoting.habits_of(traits_of(CLAUDE), None, Habits()))
    else:
        chat = rendered(fields, source, CHAT, Habits(takes_signed="anthropic"))
        wording = converse_from_chat(chat.fields, f"anthropic.{CLAUDE}")
    turns = msgspec.json.decode(wording.fields["messages"])
    return list(turns[1]["content"])


def blocks_in(turn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return thoughts in the form of Messages."""
    found = []
    for block in turn:
        match block:
            case {"type": "thinking" | "redacted_thinking"}:
                found.append(block)
            case {"reasoningContent": {"redactedContent": data}}:
                found.append({"type": "redacted_thinking", "data": data})
            case {"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}}:
                found.append({"type": "thinking", "thinking": text, "signature": signature})
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("back", PROVIDERS)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS)
def test_signed_thoughts_come_back_as_they_were(
    blocks: list[dict[str, Any]], client: str, provider: str, back: str, form: str
) -> None:
    turn = sent(client, back, next_turn(client, told(DIALECTS[client], provider, blocks, form)))
    assert blocks_in(turn) == blocks
    assert blocks_in(turn[: len(blocks)]) == blocks  # first of all
    assert len(turn) == len(blocks) + 1


@pytest.mark.parametrize("client", CLIENTS)
def test_who_made_them_is_known_in_every_api(client: str) -> None:
    made = bound_reasoning(of_messages(BLOCKS["both"]))
    request = next_turn(client, told(DIALECTS[client], "messages", BLOCKS["both"], "whole"))
    assert set(bound_reasoning(msgspec.json.encode(request))) == set(made)


def test_thoughts_that_nobody_signed_have_no_maker() -> None:
    assert bound_reasoning(of_messages([{**THOUGHT, "signature": "google-text:"}])) == []
    assert len(bound_reasoning(of_messages([{**THOUGHT, "signature": "google-text:x"}]))) == 1


def test_openrouters_details_are_the_same_blocks() -> None:
    details = [
        {"type": "reasoning.text", "text": TEXT, "signature": SIGNATURE, "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": DATA, "format": "anthropic-claude-v1", "index": 1},
        {"type": "reasoning.encrypted", "data": "other", "format": "openai-responses-v1", "index": 2},
        {"type": "reasoning.summary", "summary": "hm"},
    ]
    assert signed_in({"reasoning_details": details}) == BLOCKS["both"]
    blocks = signed_thoughts(raw_fields({"reasoning_details": details}))
    assert msgspec.json.decode(msgspec.json.encode(blocks)) == BLOCKS["both"]


@pytest.mark.parametrize("odd", [5, [1], [{"type": 5}], {"a": 1}, [{"type": "thinking", "thinking": "a"}], None])
def test_what_is_no_such_block_is_none(odd: Any) -> None:
    for name in ("thinking_blocks", "reasoning_details"):
        assert signed_in({name: odd}) == []
        assert signed_thoughts(raw_fields({name: odd})) == []


@pytest.mark.parametrize("client", CLIENTS)
def test_who_signs_nothing_gets_none_of_them(client: str) -> None:
    """Nor does a provider of chat, or of Responses, that cannot read them."""
    request = next_turn(client, told(DIALECTS[client], "messages", BLOCKS["both"], "whole"))
    fields, source = raw_fields({"model": "m", **request}), DIALECTS[client]
    wordings = [rendered(fields, source, target, Habits()) for target in (CHAT, MESSAGES) if target is not source]
    if source in {RESPONSES, GEMINI}:
        assert source.requests.thoughts.without_foreign is not None
        wordings.append(source.requests.thoughts.without_foreign(fields, Habits()))
    for wording in wordings:
        assert SIGNATURE not in (sent := msgspec.json.encode(wording.fields).decode())
        assert "dGhpbmtpbmc6" not in sent
        assert wording.losses
        assert all(loss.hint for loss in wording.losses)


def test_what_others_have_encrypted_is_not_sent_to_claude() -> None:
    item = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAABencrypted"}
    call = {"type": "function_call", "call_id": "toolu_1", "name": "f", "arguments": "{}"}
    assert blocks_in(sent("responses", "messages", next_turn("responses", {"output": [item, call]}))) == []


@pytest.mark.parametrize("pieces", [["{}"], ['{"a":', "1}"], ['{"a":1}', ""]], ids=["empty", "in pieces", "whole"])
def test_what_is_signed_while_a_call_goes_on_follows_it_in_messages(pieces: list[str]) -> None:
    begun = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": pieces[0]}}
    rest = [{"index": 0, "function": {"arguments": each}} for each in pieces[1:]]
    deltas = [{"tool_calls": [begun]}, {"thinking_blocks": [THOUGHT, ENCRYPTED]}, {"tool_calls": rest}]
    chunks = [{"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    stream = b"".join(b"data: " + msgspec.json.encode(each) + b"\n\n" for each in chunks) + b"data: [DONE]\n\n"
    asked = {"thinking": msgspec.Raw(b'{"type":"enabled","budget_tokens":2000}')}
    (step,) = translations(CHAT, MESSAGES, asked, ())
    gathering = MESSAGES.answers.gathering()
    for event in events(step.feed(stream) + step.end()):
        gathering.take(MESSAGES.answers.read_event(event.data, ()))
    call, *signed = msgspec.json.decode(gathering.body())["content"]
    assert call == {"type": "tool_use", "id": "c1", "name": "f", "input": msgspec.json.decode("".join(pieces))}
    assert signed == [THOUGHT, ENCRYPTED]


@pytest.mark.parametrize("beside", [{}, {"reasoning": TEXT}], ids=["in its block", "and beside it"])
@pytest.mark.parametrize("target", [MESSAGES, GEMINI])
@pytest.mark.parametrize("is_asked", [True, False], ids=["asked for", "not asked for"])
def test_an_answer_of_signed_thoughts_alone_tells_them_once(
    target: Dialect, beside: dict[str, str], *, is_asked: bool
) -> None:
    choice = {"index": 0, "delta": {"thinking_blocks": [THOUGHT], **beside}, "finish_reason": "stop"}
    chunk = b"data: " + msgspec.json.encode({"id": "c", "model": "m", "choices": [choice]}) + b"\n\ndata: [DONE]\n\n"
    asked = {"thinking": msgspec.Raw(b'{"type":"enabled","budget_tokens":2000}')} if is_asked else {}
    asked |= {"generationConfig.thinkingConfig": msgspec.Raw(b'{"includeThoughts":true}')} if is_asked else {}
    (step,) = translations(CHAT, target, asked, ())
    gathering = target.answers.gathering()
    for event in events(step.feed(chunk) + step.end()):
        gathering.take(target.answers.read_event(event.data, ()))
    body = msgspec.json.decode(gathering.body())
    if target is MESSAGES:
        assert [block["thinking"] for block in body["content"]] == [TEXT]
    else:
        parts = body["candidates"][0]["content"]["parts"]
        assert [part["text"] for part in parts if part.get("thought")] == [TEXT]


def test_reasoning_is_the_same_one_however_its_text_is_escaped() -> None:
    # Ollama's encrypted content is the thought itself: github.com/ollama/ollama/blob/main/openai/responses.go
    for thought in ("Hmm é, 天", 'He said "no" é', "a\nb/c=", "c2lnbmVk+/=="):
        item = {"type": "reasoning", "summary": [], "encrypted_content": thought}
        made = bound_reasoning(msgspec.json.encode(item))
        assert len(made) == 1
        assert bound_reasoning(json.dumps(item).encode()) == made  # as aiohttp and older clients of Python write it
        assert bound_reasoning(json.dumps(item).replace("/", "\\/").encode()) == made
