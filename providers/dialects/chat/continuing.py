"""A chat completion that broke off, continued by another provider."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from providers.dialects.chat.answers import ENDING
from providers.dialects.continuing import (
    Begun,
    Continuing,
    Ended,
    Way,
    asks_for_format,
    asks_for_thoughts,
    decoded_in,
    objects_in,
    strings_of,
    with_last,
    with_less,
)
from providers.dialects.wording import Fields

_NOTHING = frozenset({b"", b"null", b"[]", b"false", b"0", b"{}"})
_ONE = frozenset({b"null", b"1"})
# Fields with which an answer is more than text, or a part of its text that cannot be given again.
_OBSTACLES: Mapping[str, str] = {
    "tools": "tools",
    "functions": "tools",
    "logprobs": "logprobs",
    "top_logprobs": "logprobs",
    "audio": "audio",
    "prediction": "prediction",
    "web_search_options": "tools",
    "echo": "echo",
    "continue_final_message": "beginning",  # the client's own, which is continued already
    # Of vLLM, SGLang and llama.cpp.
    "guided_json": "response_format",
    "guided_regex": "response_format",
    "guided_choice": "response_format",
    "guided_grammar": "response_format",
    "structured_outputs": "response_format",
    "json_schema": "response_format",
    "regex": "response_format",
    "ebnf": "response_format",
    "grammar": "response_format",
}
_REASONING = ("reasoning_effort", "reasoning", "thinking")
_KINDS: Mapping[str, str] = {  # of deltas that are more than text
    "tool_calls": "tools",
    "function_call": "tools",
    "refusal": "refusal",
    "audio": "audio",
    "images": "images",
}
_LIMITS = ("max_completion_tokens", "max_tokens")


class Choice(msgspec.Struct):
    """What is read of a choice, of a chunk or of a completion."""

    index: int | None = None
    finish_reason: str | None = None
    delta: dict[str, Any] | None = None
    text: str | None = None


class Event(msgspec.Struct):
    """What is read of a chunk."""

    choices: list[Choice] | None = None
    id: Any = msgspec.UNSET
    created: Any = msgspec.UNSET
    model: Any = msgspec.UNSET
    object: Any = msgspec.UNSET

    def head(self) -> dict[str, Any]:
        """Return what every chunk with a choice repeats; one before them, as Azure sends it, may have no id."""
        told = {"id": self.id, "created": self.created, "model": self.model, "object": self.object}
        return {name: value for name, value in told.items() if value is not msgspec.UNSET}


_events = msgspec.json.Decoder(Event)


class ChatContinuing(Continuing):
    """Chat: the delivered text is the beginning of the assistant's message."""

    ways: frozenset[Way] = frozenset({"prefix", "repeated_prefix", "final_message", "prefill"})
    always_counts = False

    def obstacle(self, fields: Fields) -> str | None:
        """Return the kind of answer that cannot be continued."""
        for name, kind in _OBSTACLES.items():
            if name in fields and bytes(fields[name]).strip() not in _NOTHING:
                return kind
        if "response_format" in fields and asks_for_format(fields["response_format"]):
            return "response_format"
        if any(name in fields and asks_for_thoughts(fields[name]) for name in _REASONING):
            return "reasoning"
        return "choices" if bytes(fields.get("n", b"1")).strip() not in _ONE else None

    def begun(self, events: Iterable[bytes]) -> Begun:
        """Read the chunks that were delivered."""
        head: dict[str, Any] = {}
        pieces: list[str] = []
        for event in decoded_in(events, _events):
            head = head or (event.head() if event.choices else {})
            for choice in event.choices or ():
                delta = choice.delta or {}
                if choice.index or choice.finish_reason:
                    return Begun("", None, "choices" if choice.index else "ended")
                content = delta.get("content")
                for name, kind in _KINDS.items():
                    if delta.get(name):
                        return Begun("", None, kind)
                if delta.get("reasoning") or delta.get("reasoning_content") or isinstance(content, list):
                    return Begun("", None, "reasoning")
                if content:
                    pieces.append(str(content))
        return Begun("".join(pieces), msgspec.json.encode(head) if head else None)

    def stops(self, fields: Fields) -> Sequence[str]:
        """Return the stop strings."""
        return strings_of(fields.get("stop"))

    def request(self, fields: Fields, begun: str, way: Way | None, spent_tokens: int) -> Fields:
        """Return the request with the beginning as the last message."""
        changed = with_less(fields, _LIMITS, spent_tokens)
        if not begun:
            return changed
        message: dict[str, Any] = {"role": "assistant", "content": begun}
        if way in {"prefix", "repeated_prefix"}:
            message["prefix"] = True
        elif way == "final_message":
            changed["continue_final_message"] = msgspec.Raw(b"true")
            changed["add_generation_prompt"] = msgspec.Raw(b"false")
        changed["messages"] = with_last(fields["messages"], message)
        return changed

    def splice(self, begun: Begun) -> "ChatSplice":
        """Return what makes chunks with the first answer's id and model."""
        return ChatSplice(begun.head, "chat.completion.chunk", _delta)


class ChatSplice:
    """Makes chunks. ``choice`` makes their one choice of a text and a finish reason."""

    def __init__(self, head: bytes | None, kind: str, choice: Any) -> None:
        self._head: dict[str, Any] = {"object": kind} | ({} if head is None else msgspec.json.decode(head))
        self._choice = choice

    def text(self, text: str) -> bytes:
        """Return a chunk with text."""
        return self._event(choices=[self._choice(text, None)])

    def end(self, ended: Ended) -> bytes:
        """Return the last chunks."""
        reason = "stop" if ended.stop is not None or ended.event is None else _finish_reason(ended.event)
        last = self._event(choices=[self._choice("", reason)])
        if ended.usage is not None:
            prompt, completion = ended.usage
            counted = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
            last += self._event(choices=[], usage=counted)
        return last + ENDING

    def _event(self, **fields: Any) -> bytes:
        return b"data: " + msgspec.json.encode(self._head | fields) + b"\n\n"


def _finish_reason(event: bytes) -> str:
    reasons = (choice.get("finish_reason") for one in objects_in([event]) for choice in one.get("choices") or ())
    return next((reason for reason in reasons if reason), "stop")


def _delta(text: str, finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish_reason}
