"""What both APIs of a pair have a place for in an answer goes through, streamed and whole, from each to each."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from providers.bodies import events
from providers.dialects import DIALECTS, GEMINI, MESSAGES, translations
from tests.unit.providers.dialects.test_pairs import differences

Json = dict[str, Any]

APIS = ("chat", "messages", "responses", "gemini")


def chat(
    message: Json, reason: str = "stop", usage: Json | None = None, logprobs: Json | None = None, **more: Any
) -> Json:
    """Return an answer of chat."""
    counts = {"prompt_tokens": 13, "completion_tokens": 7, "total_tokens": 20} | (usage or {})
    choice: Json = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    choice |= {"logprobs": logprobs} if logprobs else {}
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": counts,
    } | more


def messages(*blocks: Json, reason: str = "end_turn", usage: Json | None = None, **more: Any) -> Json:
    """Return an answer of Messages."""
    counts = {"input_tokens": 13, "output_tokens": 7} | (usage or {})
    said = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [*blocks]}
    return {**said, "stop_reason": reason, "stop_sequence": None, "usage": counts} | more


def responses(*items: Json, status: str = "completed", usage: Json | None = None, **more: Any) -> Json:
    """Return an answer of Responses."""
    counts = {"input_tokens": 13, "output_tokens": 7, "total_tokens": 20} | (usage or {})
    said = {"id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": "m"}
    return {**said, "output": [*items], "usage": counts} | more


def gemini(*parts: Json, reason: str = "STOP", usage: Json | None = None, **more: Any) -> Json:
    """Return an answer of Gemini."""
    counts = {"promptTokenCount": 13, "candidatesTokenCount": 7, "totalTokenCount": 20} | (usage or {})
    candidate = {"content": {"parts": [*parts], "role": "model"}, "finishReason": reason, "index": 0, **more}
    return {"candidates": [candidate], "usageMetadata": counts, "modelVersion": "m", "responseId": "r1"}


def item(*parts: Json, status: str = "completed") -> Json:
    """Return a message of Responses."""
    return {"type": "message", "role": "assistant", "status": status, "content": [*parts]}


TEXT: Json = {"type": "text", "text": "Hello"}
OUTPUT: Json = {"type": "output_text", "text": "Hello"}
TOKEN: Json = {"token": "Hello", "logprob": -0.5, "bytes": [*b"Hello"]}
LIKELY: Json = {"top_logprobs": [{"token": "Hi", "logprob": -1.5, "bytes": [*b"Hi"]}]}
CUT = {"reason": "max_output_tokens"}
FILTERED = {"reason": "content_filter"}

# By API, the answer. Those that have no place for it are not named.
ANSWERS: Mapping[str, Mapping[str, Json]] = {
    "a text": {
        "chat": chat({"content": "Hello"}),
        "messages": messages(TEXT),
        "responses": responses(item(OUTPUT)),
        "gemini": gemini({"text": "Hello"}),
    },
    "a call": {
        "chat": chat(
            {"tool_calls": [{"id": "a1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}]},
            "tool_calls",
        ),
        "messages": messages({"type": "tool_use", "id": "a1", "name": "f", "input": {"x": 1}}, reason="tool_use"),
        "responses": responses({"type": "function_call", "call_id": "a1", "name": "f", "arguments": '{"x":1}'}),
        "gemini": gemini({"functionCall": {"id": "a1", "name": "f", "args": {"x": 1}}}),
    },
    "thoughts": {
        "chat": chat({"content": "Hello", "reasoning_content": "Hm."}),
        "messages": messages({"type": "thinking", "thinking": "Hm.", "signature": ""}, TEXT),
        "responses": responses(
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}, item(OUTPUT)
        ),
        "gemini": gemini({"text": "Hm.", "thought": True}, {"text": "Hello"}),
    },
    "its limit": {
        "chat": chat({"content": "Hello"}, "length"),
        "messages": messages(TEXT, reason="max_tokens"),
        "responses": responses(item(OUTPUT, status="incomplete"), status="incomplete", incomplete_details=CUT),
        "gemini": gemini({"text": "Hello"}, reason="MAX_TOKENS"),
    },
    "a filter": {
        "chat": chat({"content": "Hello"}, "content_filter"),
        "messages": messages(TEXT, reason="refusal"),
        "responses": responses(item(OUTPUT, status="incomplete"), status="incomplete", incomplete_details=FILTERED),
        "gemini": gemini({"text": "Hello"}, reason="SAFETY"),
    },
    "a refusal in words": {
        "chat": chat({"refusal": "I cannot."}),
        "responses": responses(item({"type": "refusal", "refusal": "I cannot."})),
    },
    "cached tokens": {
        "chat": chat({"content": "Hello"}, usage={"prompt_tokens_details": {"cached_tokens": 5}}),
        "messages": messages(TEXT, usage={"input_tokens": 8, "cache_read_input_tokens": 5}),
        "responses": responses(item(OUTPUT), usage={"input_tokens_details": {"cached_tokens": 5}}),
        "gemini": gemini({"text": "Hello"}, usage={"cachedContentTokenCount": 5}),
    },
    "tokens of thoughts": {
        "chat": chat({"content": "Hello"}, usage={"completion_tokens_details": {"reasoning_tokens": 3}}),
        "messages": messages(TEXT, usage={"output_tokens_details": {"thinking_tokens": 3}}),
        "responses": responses(item(OUTPUT), usage={"output_tokens_details": {"reasoning_tokens": 3}}),
        "gemini": gemini({"text": "Hello"}, usage={"candidatesTokenCount": 4, "thoughtsTokenCount": 3}),
    },
    "tokens that were put into the cache": {
        "chat": chat({"content": "Hello"}, usage={"prompt_tokens_details": {"cache_write_tokens": 5}}),
        "messages": messages(TEXT, usage={"input_tokens": 8, "cache_creation_input_tokens": 5}),
        "responses": responses(item(OUTPUT), usage={"input_tokens_details": {"cache_write_tokens": 5}}),
    },
    "log probabilities": {
        "chat": chat({"content": "Hello"}, logprobs={"content": [TOKEN | LIKELY], "refusal": None}),
        "responses": responses(item({**OUTPUT, "logprobs": [TOKEN | LIKELY]})),
        "gemini": gemini(
            {"text": "Hello"},
            logprobsResult={
                "chosenCandidates": [{"token": "Hello", "logProbability": -0.5}],
                "topCandidates": [{"candidates": [{"token": "Hi", "logProbability": -1.5}]}],
            },
        ),
    },
    "the tier that served it": {
        "chat": chat({"content": "Hello"}, service_tier="flex"),
        "responses": responses(item(OUTPUT), service_tier="flex"),
    },
}
# Words for an end that vendors send in chat beside chat's own.
WORDS: Mapping[str, Sequence[str]] = {
    "its limit": (
        *("model_length", "MAX_TOKENS", "max_tokens"),  # Mistral's, Google's, Anthropic's
        "model_context_window_exceeded",  # Z.ai's
    ),
    "a filter": ("sensitive", "refusal", "SAFETY"),  # Z.ai's, Anthropic's, Google's
}
PAIRS = [
    *(
        pytest.param(answer, provider, client, id=f"{name}: {provider} to {client}")
        for name, answer in ANSWERS.items()
        for provider in answer
        for client in answer
        if client != provider
    ),
    *(
        pytest.param(
            {**ANSWERS[name], "chat": chat({"content": "Hello"}, word)}, "chat", client, id=f"{word}: {client}"
        )
        for name, words in WORDS.items()
        for word in words
        for client in ("messages", "responses", "gemini")
    ),
]
ITS_OWN = ("id", "created", "created_at", "responseId")  # of each answer


def told(answer: Json, provider: str, client: str, *, stepwise: bool = False) -> Any:
    """Return the answer of a provider with one API as a client of another hears it."""
    source, target = DIALECTS[provider], DIALECTS[client]
    stream = source.answers.events_of_answer(msgspec.json.encode(answer), ())
    asked = {"thinking": msgspec.Raw(b'{"type":"enabled","budget_tokens":2000}')} if target is MESSAGES else {}
    asked |= {"generationConfig.thinkingConfig": msgspec.Raw(b'{"includeThoughts":true}')} if target is GEMINI else {}
    pieces = (
        [each + b"\n\n" for each in stream.replace(b"\r\n", b"\n").split(b"\n\n") if each] if stepwise else [stream]
    )
    for step in translations(source, target, asked, ()):
        pieces = [*(step.feed(piece) for piece in pieces), step.end()]
    gathering = target.answers.gathering()
    for event in events(b"".join(pieces)):
        if event.data.strip() not in {b"", b"[DONE]"}:
            gathering.take(target.answers.read_event(event.data, ()))
    return msgspec.json.decode(gathering.body())


@pytest.mark.parametrize("stepwise", [False, True], ids=["at once", "by events"])
@pytest.mark.parametrize(("answer", "provider", "client"), PAIRS)
def test_what_both_have_a_place_for_is_told(
    answer: Mapping[str, Json], provider: str, client: str, stepwise: bool
) -> None:
    target = DIALECTS[client]
    expected = {name: value for name, value in answer[client].items() if name not in ITS_OWN}
    said = told(answer[provider], provider, client, stepwise=stepwise)
    if target is GEMINI:  # its last part is empty, where a stream ends
        parts = said["candidates"][0]["content"]["parts"]
        said["candidates"][0]["content"]["parts"] = [part for part in parts if part != {"text": ""}]
    if target is MESSAGES:
        for block in said["content"]:
            if block.get("signature") == "google-text:":  # in place of one, where nobody has signed
                block["signature"] = ""
    assert differences(expected, said) == []


@pytest.mark.parametrize("client", APIS)
def test_a_thought_in_thousands_of_pieces_is_one(client: str) -> None:
    pieces = [{"type": "reasoning.text", "index": place, "text": "a"} for place in range(5000)]
    said = told(chat({"content": "Hello", "reasoning_details": pieces}), "chat", client)
    assert "Hello" in str(said)
    assert client == "chat" or "a" * 5000 in str(said)
