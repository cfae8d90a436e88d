"""A chat completion that broke off, continued by another provider."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from providers.bodies import events, raw_json
from providers.dialects.chat.answers import ENDING
from providers.dialects.chat.deltas import delta_of
from providers.dialects.continuing import (
    ASKS_NOTHING,
    ContinuationEnd,
    Continuing,
    DeliveredPart,
    Way,
    asks_for_format,
    asks_for_thoughts,
    decoded_in,
    objects_in,
    strings_of,
    with_last,
    with_less,
)
from providers.dialects.dialect import Translation
from providers.dialects.events import DONE
from providers.dialects.wording import Fields
from providers.refusals import UNREADABLE

_ONE = frozenset({b"null", b"1"})
# Fields with which an answer is more than text, or a part of a text that cannot be requested again.
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
EFFORTS = ("reasoning_effort", "reasoning", "thinking")  # fields that say how hard to think
_KINDS: Mapping[str, str] = {  # of deltas that are more than text
    "tool_calls": "tools",
    "function_call": "tools",
    "refusal": "refusal",
    "audio": "audio",
    "images": "images",
}
_LIMITS = ("max_completion_tokens", "max_tokens")


class Choice(msgspec.Struct):
    """The fields that are read of a choice, of a chunk or of a completion."""

    index: int | None = None
    finish_reason: str | None = None
    delta: dict[str, Any] | None = None
    text: str | None = None


class ReadChunk(msgspec.Struct):
    """The fields that are read of a chunk."""

    choices: list[Choice] | None = None
    id: Any = msgspec.UNSET
    created: Any = msgspec.UNSET
    model: Any = msgspec.UNSET
    object: Any = msgspec.UNSET

    def head(self) -> dict[str, Any]:
        """Return what every chunk with a choice repeats; Azure's chunk before the first choice may have no id."""
        told = {"id": self.id, "created": self.created, "model": self.model, "object": self.object}
        return {name: value for name, value in told.items() if value is not msgspec.UNSET}


class _Prefix(msgspec.Struct):
    role: str = ""
    content: str = ""
    prefix: bool | None = None


_events = msgspec.json.Decoder(ReadChunk)


class ChatContinuing(Continuing):
    """Chat: the delivered text is the beginning of the assistant's message."""

    ways: frozenset[Way] = frozenset({"prefix", "repeated_prefix", "final_message", "prefill"})
    always_counts = False

    def obstacle(self, fields: Fields) -> str | None:
        """Return the kind of answer that cannot be continued."""
        for name, kind in _OBSTACLES.items():
            if name in fields and bytes(fields[name]).strip() not in ASKS_NOTHING:
                return kind
        if "response_format" in fields and asks_for_format(fields["response_format"]):
            return "response_format"
        if any(name in fields and asks_for_thoughts(fields[name]) for name in EFFORTS):
            return "reasoning"
        return "choices" if bytes(fields.get("n", b"1")).strip() not in _ONE else None

    def begun(self, events: Iterable[bytes]) -> DeliveredPart:
        """Read the chunks that were delivered."""
        head: dict[str, Any] = {}
        pieces: list[str] = []
        for event in decoded_in(events, _events):
            head = head or (event.head() if event.choices else {})
            for choice in event.choices or ():
                delta = choice.delta or {}
                if choice.index or choice.finish_reason:
                    return DeliveredPart("", None, "choices" if choice.index else "ended")
                content = delta.get("content")
                for name, kind in _KINDS.items():
                    if delta.get(name):
                        return DeliveredPart("", None, kind)
                if delta.get("reasoning") or delta.get("reasoning_content") or isinstance(content, list):
                    return DeliveredPart("", None, "reasoning")
                if content:
                    pieces.append(str(content))
        return DeliveredPart("".join(pieces), msgspec.json.encode(head) if head else None)

    def stops(self, fields: Fields) -> Sequence[str]:
        """Return the stop strings."""
        return strings_of(fields.get("stop"))

    def own_prefix(self, fields: Fields) -> str:
        """Return the text of a last message that says ``prefix: true``."""
        if b'"prefix"' not in bytes(fields.get("messages", b"")):
            return ""
        with suppress(*UNREADABLE):
            *_, last = msgspec.json.decode(fields["messages"], type=list[msgspec.Raw])
            message = msgspec.json.decode(last, type=_Prefix)
            return message.content if message.prefix and message.role == "assistant" else ""
        return ""

    def request(self, fields: Fields, begun: str, way: Way | None, spent_tokens: int) -> Fields:
        """Return the request with the beginning as the last message."""
        changed = with_less(fields, _LIMITS, spent_tokens)
        own = self.own_prefix(fields)
        if not (own or begun):
            return changed
        message: dict[str, Any] = {"role": "assistant", "content": begun}
        before = fields["messages"]
        if own:  # a prefix must be the last message (api-docs.deepseek.com/guides/chat_prefix_completion)
            *others, last = msgspec.json.decode(before, type=list[msgspec.Raw])
            content = (own.rstrip() if begun[:1].isspace() else own) + begun
            message = {**msgspec.json.decode(last, type=dict[str, msgspec.Raw]), "content": content}
            before = raw_json(others)
            del message["prefix"]
        if way in {"prefix", "repeated_prefix"}:
            message["prefix"] = True
        elif way == "final_message":
            changed["continue_final_message"] = msgspec.Raw(b"true")
            changed["add_generation_prompt"] = msgspec.Raw(b"false")
        changed["messages"] = with_last(before, message)
        return changed

    def splice(self, begun: DeliveredPart) -> "ChatSplice":
        """Return a writer of chunks with the first answer's id and model."""
        return ChatSplice(begun.head, "chat.completion.chunk", _delta)


class ChatSplice:
    """Makes chunks. ``choice`` makes a chunk's only choice from a text and a finish reason."""

    def __init__(self, head: bytes | None, kind: str, choice: Any) -> None:
        self._head: dict[str, Any] = {"object": kind} | ({} if head is None else msgspec.json.decode(head))
        self._choice = choice

    def text(self, text: str) -> bytes:
        """Return a chunk with text."""
        return self._event(choices=[self._choice(text, None)])

    def end(self, ended: ContinuationEnd) -> bytes:
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


# Repairs of chunks that some vendors stream in a wrong form; applied only where a vendor's catalog row names them.

_decoder = msgspec.json.Decoder(dict[str, Any])
# Raised for data that are no chunk: such data are passed on unchanged, as the reader of the stream reports them.
_NO_CHUNK = (*UNREADABLE, AttributeError, TypeError)


class ToolIndex:
    """Numbers tool calls that come without ``index``, or all with 0, as from Gemini's OpenAI surface.

    A call with a new id, or with a name and no id, is the next call. Any other piece continues the last call that had
    the same index. Where such a stream ends with ``stop``, the same answer as one body ends with ``tool_calls``, as
    OpenAI's.
    """

    finishing = False  # an end is passed on as soon as the end comes
    usage_so_far = None  # usage is passed on with the event that has it

    def __init__(self) -> None:
        self._ids: dict[tuple[int, str], int] = {}  # the index, by choice and call id
        self._counts: dict[int, int] = {}  # the calls so far, by choice
        self._latest: dict[tuple[int, object], int] = {}  # the index of the last such call, by choice and given index

    def feed(self, block: bytes) -> bytes:
        """Return whole events with every tool call numbered, and the finish reason corrected; others unchanged."""
        if b'"tool_calls"' not in block and not self._counts:
            return block
        return b"".join(self._event(event.raw, event.data) for event in events(block))

    def end(self) -> bytes:
        """Return ``b""``: every event has been passed on."""
        return b""

    def _event(self, raw: bytes, data: bytes) -> bytes:
        changed = False
        try:
            chunk = _decoder.decode(data)
            for choice in chunk.get("choices") or ():
                index = choice.get("index") or 0
                match choice:
                    case {"delta": {"tool_calls": [*calls]}}:
                        changed |= self._number(index, calls)
                if choice.get("finish_reason") == "stop" and self._counts.get(index):
                    choice["finish_reason"], changed = "tool_calls", True
        except _NO_CHUNK:
            return raw
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n" if changed else raw

    def _number(self, choice: int, calls: list[Any]) -> bool:
        changed = False
        for call in calls:
            if isinstance(call, dict) and call.get("index") != (index := self._index(choice, call)):
                call["index"] = index
                changed = True
        return changed

    def _index(self, choice: int, call: dict[str, Any]) -> int:
        count = self._counts.get(choice, 0)
        call_id, given = call.get("id"), call.get("index")
        if not call_id and not (call.get("function") or {}).get("name"):
            last = max(count - 1, 0)
            return self._latest.get((choice, given), given) if isinstance(given, int) else last
        if call_id and (choice, call_id) in self._ids:
            return self._ids[choice, call_id]
        if call_id:
            self._ids[choice, call_id] = count
        self._counts[choice] = count + 1
        self._latest[choice, given] = count
        return count


class FinishReason:
    """Adds the finish reason of each choice before [DONE], for a server that is known to leave it out.

    Such a server does not say why it stopped. The reason is ``tool_calls`` after a tool call, otherwise ``stop``. A
    stream without [DONE] has broken off, and gets no reason.
    """

    finishing = False  # an end is passed on as soon as the end comes
    usage_so_far = None  # usage is passed on with the event that has it

    def __init__(self, empty: Mapping[str, Any]) -> None:
        """``empty``: a choice that adds nothing, with an empty delta or an empty text."""
        self._empty = empty
        self._top: dict[str, Any] = {}  # fields of the last chunk
        self._reasons: dict[int, str | None] = {}  # the reason of each choice; None: the reason was sent

    def feed(self, block: bytes) -> bytes:
        """Return whole events, with the missing finish reasons before [DONE]."""
        return b"".join(self._missing(event.data) + event.raw for event in events(block))

    def end(self) -> bytes:
        """Return ``b""``: every event has been passed on."""
        return b""

    def _missing(self, data: bytes) -> bytes:
        if data.strip() == DONE:
            ends = [
                {"index": index, **self._empty, "finish_reason": reason}
                for index, reason in self._reasons.items()
                if reason is not None
            ]
            return b"data: " + msgspec.json.encode({**self._top, "choices": ends}) + b"\n\n" if ends else b""
        with suppress(*_NO_CHUNK):
            chunk = _decoder.decode(data)
            choices = chunk.pop("choices", None)
            self._top = {name: value for name, value in chunk.items() if name != "usage"}
            for choice in choices if isinstance(choices, list) else ():
                if isinstance(choice, dict):
                    self._note(choice)
        return b""

    def _note(self, choice: Mapping[str, Any]) -> None:
        index, delta = choice.get("index") or 0, delta_of(choice)
        if choice.get("finish_reason"):
            self._reasons[index] = None
        elif isinstance(delta, dict) and delta.get("tool_calls"):
            self._reasons[index] = "tool_calls"
        else:
            self._reasons.setdefault(index, "stop")


def repairs_of(names: frozenset[str]) -> list[Translation]:
    """Return new repairs for one stream, by their names in the catalog."""
    found: list[Translation] = [ToolIndex()] if "tool_index" in names else []
    return [*found, FinishReason({"delta": {}})] if "finish_reason" in names else found


def repairs_of_completions(names: frozenset[str]) -> list[Translation]:
    """Return new repairs for one stream of completions."""
    return [FinishReason({"text": ""})] if "finish_reason" in names else []
