"""Translates a stream of chat chunks into Gemini events as it arrives, and Gemini events into chat chunks."""

import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from mimetypes import guess_type
from typing import Any

import msgspec

from providers.bodies import encoded
from providers.dialects.chat.deltas import (
    THINKS,
    ChunkTranslation,
    ThoughtsSoFar,
    TranslationIntoChunks,
    calls_in,
    complaint,
    delta_of,
    googles_in,
    no_place,
    pictures_in,
    said_in,
    signed_in,
    sound_in,
    split_data,
    written_arguments,
)
from providers.dialects.chat.deltas import (
    usage_in as usage_in_chunk,
)
from providers.dialects.chat.references import BESIDE, GROUNDED, ChunkReferences, of_grounding, to_grounding
from providers.dialects.dialect import Offered, check_none
from providers.dialects.events import (
    CUT_SHORT,
    DONE_EVENT,
    FILTERED,
    blocked,
    chat_reason,
    ended_with,
    few,
    index_of,
    is_unread,
)
from providers.dialects.gemini import logprobs
from providers.dialects.gemini.events import MAY_BE_EMPTY, UNSPECIFIED, event, usage_in
from providers.dialects.gemini.fields import CANDIDATES, IN_CONFIG
from providers.dialects.gemini.request_to_chat import name_of_function
from providers.dialects.partial_calls import PartialCall, PartialCalls
from providers.dialects.wording import UniqueIds, answers_in, extra_content
from providers.models import Usage, completed, written_usage
from providers.refusals import ErrorKind, UpstreamError, error_in

_decoder = msgspec.json.Decoder(dict[str, Any])
_CUT_SHORT = "MAX_TOKENS"
_FINISH_REASONS: Mapping[str, str] = {  # any other reason becomes STOP
    **dict.fromkeys(CUT_SHORT, _CUT_SHORT),
    **dict.fromkeys(FILTERED, "SAFETY"),
}


class _Choice:
    """One of the answers of a stream of chunks."""

    def __init__(self) -> None:
        self.calls = PartialCalls()
        self.reason: str | None = None
        self.sound: str | None = None  # the type of the choice's sound
        self.said = False
        self.signature = ""  # Google's signature of the message
        self.thoughts = ThoughtsSoFar()
        self.hidden: list[str] = []  # thoughts that are not shown, while the answer has nothing else
        self.annotations: list[dict[str, Any]] = []
        self.called: list[dict[str, Any]] = []  # the parts of complete calls

    def last_parts(self) -> list[dict[str, Any]]:
        """Return the parts of the last event: the calls; without calls the thoughts, if nothing else was said."""
        said: dict[str, Any] = {"text": "".join(self.hidden), "thought": True} if self.hidden else {"text": ""}
        said |= self.signed(self.signature)
        return [*self.called, said] if "thoughtSignature" in said or not self.called else self.called

    def seal(self) -> dict[str, Any]:
        """Return the field of a text with Google's signature, if there is one."""
        signature, self.signature = self.signature, ""
        return {"thoughtSignature": signature} if signature else {}

    def signed(self, signature: str) -> dict[str, Any]:
        """Return the signature's field for the next part: Google's ``signature``, otherwise that of the thoughts."""
        if not signature and self.thoughts.blocks:
            signature = self.thoughts.take_signature()
        return {"thoughtSignature": signature} if signature else {}


class FromChat(ChunkTranslation):
    """Translates one answer. Function calls are its last event: Gemini has no pieces of calls.

    Google sends calls last, too. Its SDK for JavaScript (3.3.0) keeps each event as a turn of the model in the history
    of a chat, and Google refuses results that do not follow the turn of their calls.

    Reasoning becomes thoughts if the client has asked for thoughts. Otherwise reasoning is sent at the end, if the
    answer has nothing else. Thoughts that Anthropic's models have signed become, with their text, the signature of the
    first call, or of the last part: programs send no thoughts back. The text of a refusal becomes text.
    """

    def __init__(
        self, asked: Mapping[str, msgspec.Raw], secrets: Sequence[str] = (), *, offered: Offered = lambda _: ()
    ) -> None:
        """``offered`` reads the tools of the request ``asked``."""
        super().__init__(asked, secrets, offered=offered)
        self._shows_thoughts = _shows_thoughts(asked)
        self._names = _renamed(asked)
        self._ids = UniqueIds()
        self._asked = answers_in(asked, CANDIDATES)
        self._choices: dict[int, _Choice] = {}
        self._facts: dict[str, Any] = {}  # fields that every event repeats
        self._references = ChunkReferences()
        self._usage: dict[str, Any] | None = None

    @property
    def finishing(self) -> bool:
        """Whether each choice that was asked for has its finish reason, and the answer has no end yet."""
        reasons = [choice.reason for choice in self._choices.values()]
        return not self._ended and len(reasons) >= self._asked and None not in reasons

    def end(self) -> bytes:
        """Return the last event, with the finish reasons and the usage; nothing, if there was no finish reason.

        Raises:
            UpstreamError: there was no finish reason, but an error by its message alone, or calls (upstream_truncated).
                Calls are sent at the end, and an answer with calls was not empty.


        """
        if self._ended:
            return b""
        if all(choice.reason is None for choice in self._choices.values()):
            self._errors.check()
            if any(len(choice.calls) for choice in self._choices.values()):
                raise UpstreamError(ErrorKind.UPSTREAM_TRUNCATED, "the stream ended without a finish reason")
            return b""
        self._ended = True
        beside = self._references.rest() if self._references.beside else []
        last = [
            {
                "content": {"parts": choice.last_parts(), "role": "model"},
                "finishReason": choice.reason,
                "index": index,
                **(to_grounding([*choice.annotations, *beside]) if choice.annotations or beside else {}),
            }
            for index, choice in sorted(self._choices.items())
            if choice.reason is not None
        ]
        usage = {} if self._usage is None else {"usageMetadata": self._usage}
        return event({"candidates": last, **usage, **self._facts})

    def _done(self, said: list[bytes]) -> None:
        for choice in self._choices.values():  # OpenAI's sound ends without a finish reason
            choice.reason = choice.reason or ("STOP" if choice.sound else None)
        said.append(self.end())

    def _take(self, chunk: Mapping[str, Any], choices: Sequence[Mapping[str, Any]], said: list[bytes]) -> None:
        for name, own in (("model", "modelVersion"), ("id", "responseId")):
            if chunk.get(name):
                self._facts[own] = chunk[name]
        if (usage := usage_in_chunk(chunk)) and self._counted.take(usage, chunk) and self._counted.told is not None:
            self._usage = _gemini_usage(self._counted.told) or self._usage
        if not BESIDE.isdisjoint(chunk):
            self._references.take(chunk)
        for given in choices:
            index = 0 if self._asked == 1 else index_of(given)
            choice = self._choices.setdefault(index, _Choice())
            parts = self._parts(delta_of(given) or {}, choice)
            reason = given.get("finish_reason")
            if reason and isinstance(reason, str):
                if choice.reason is None or reason in _FINISH_REASONS:
                    choice.reason = _FINISH_REASONS.get(reason, "STOP")
                choice.calls.finish()
                choice.calls.check()
            choice.called += self._whole_calls(choice)
            if parts:
                told = given.get("logprobs")
                tokens = logprobs.from_chat(told) if told else {}
                candidate = {"content": {"parts": parts, "role": "model"}, "index": index, **tokens}
                said.append(event({"candidates": [candidate], **self._facts}))

    def _parts(self, delta: Mapping[str, Any], choice: _Choice) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = []
        text = delta.get("content") or ""
        thought, text = ("", text) if isinstance(text, str) and THINKS.isdisjoint(delta) else said_in(delta)
        if thought or not THINKS.isdisjoint(delta):
            thought = choice.thoughts.add(thought, signed_in(delta))
        if thought and self._shows_thoughts:
            parts.append({"text": thought, "thought": True})
        elif thought:
            choice.hidden.append(thought)
        sound, transcript = sound_in(delta)
        if "extra_content" in delta or "reasoning_details" in delta:
            choice.signature = googles_in(delta) or choice.signature
        if text := text + (delta.get("refusal") or "") + transcript:
            parts.append({"text": text, **choice.seal()} if choice.signature else {"text": text})
        parts += map(_picture, pictures_in(delta))
        if delta.get("annotations"):
            choice.annotations += self._references.annotations_in(delta)
        if sound:
            choice.sound = choice.sound or _kind_of(sound)
            parts.append({"inlineData": {"mimeType": choice.sound, "data": sound}})
        for piece in calls_in(delta) if delta.get("tool_calls") else ():
            choice.calls.add(piece, waits=True)
        choice.said = choice.said or bool(parts) or len(choice.calls) > 0
        if choice.said:
            choice.hidden.clear()
        return parts

    def _whole_calls(self, choice: _Choice) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = []
        while (current := choice.calls.current()) is not None and choice.calls.advance(
            finished=choice.reason is not None
        ):
            if choice.reason != _CUT_SHORT or current[1].is_whole():  # the limit may have cut off the call's arguments
                signed = choice.signed(current[1].signature)
                parts.append({"functionCall": self._call(current[1]), **signed})
        return parts

    def _call(self, call: PartialCall) -> dict[str, Any]:
        arguments = call.take_object()
        name = self._names.get(call.name, call.name)
        if call.has_none():
            check_none(name, self._tools, self._offered)
        said = {"name": name, "args": arguments}
        return {"id": self._ids.of_call(call.call_id), **said} if call.call_id else said


_SOUNDS = {"UklGR": "audio/wav", "SUQz": "audio/mpeg", "//": "audio/mpeg", "ZkxhQ": "audio/flac", "T2dnUw": "audio/ogg"}
_RAW_SOUND = "audio/L16;codec=pcm;rate=24000"  # chat's pcm16


def _kind_of(sound: str) -> str:
    """Return the type of sound by its first bytes, in Base64."""
    return next((kind for begin, kind in _SOUNDS.items() if sound.startswith(begin)), _RAW_SOUND)


def _picture(url: str) -> dict[str, Any]:
    if (picture := split_data(url)) is not None:
        return {"inlineData": {"mimeType": picture[0], "data": picture[1]}}
    return {"fileData": {"mimeType": guess_type(url)[0] or "image/png", "fileUri": url}}


def _shows_thoughts(asked: Mapping[str, msgspec.Raw]) -> bool:
    try:
        config = msgspec.json.decode(asked.get(IN_CONFIG + "thinkingConfig", b"null"), type=dict[str, Any] | None) or {}
    except (msgspec.DecodeError, RecursionError):
        return False
    return config.get("includeThoughts", config.get("include_thoughts")) is True


def _renamed(asked: Mapping[str, msgspec.Raw]) -> Mapping[str, str]:
    """Return the original names of functions by their names in chat, where the two differ."""
    try:
        tools = msgspec.json.decode(asked.get("tools", b"null"), type=list[dict[str, Any]] | None) or []
    except (msgspec.DecodeError, RecursionError):
        return {}
    found: dict[str, str] = {}
    for tool in tools:
        declared = tool.get("functionDeclarations", tool.get("function_declarations"))
        for each in declared if isinstance(declared, list) else ():
            name = each.get("name") if isinstance(each, dict) else None
            if isinstance(name, str) and (other := name_of_function(name)) != name:
                found[other] = name
    return found


def _gemini_usage(usage: Usage) -> dict[str, Any] | None:
    """Return chat's counts as Google's, whose answer excludes thoughts; None without completion tokens."""
    if usage.completion_tokens is None:
        return None
    prompt, answer, thoughts = usage.prompt_tokens or 0, usage.completion_tokens, usage.reasoning_tokens or 0
    said: dict[str, Any] = {"promptTokenCount": prompt, "candidatesTokenCount": max(answer - thoughts, 0)}
    if usage.reasoning_tokens is not None:
        said["thoughtsTokenCount"] = thoughts
    if usage.cached_tokens is not None:
        said["cachedContentTokenCount"] = usage.cached_tokens
    return {**said, "totalTokenCount": prompt + answer}


# Translates Gemini's events into chat chunks as they arrive.


_USUAL = "STOP"
_BLOCKED = "SAFETY"  # of a prompt for whatever reason
_SPOKEN = frozenset({"content", "tool_calls", "images", "audio"})  # fields of a delta that say something


class _Candidate(msgspec.Struct):
    """What one candidate has said so far."""

    calls: int = 0
    spoken: bool = False  # the candidate has said something besides thoughts
    reason: str | None = None  # why the candidate has finished, in Google's word
    cited: set[str] = msgspec.field(default_factory=set)  # addresses


def _reason_in(given: Mapping[str, Any], candidate: _Candidate) -> str | None:
    """Return a candidate's finish reason; None: no reason yet, or the default word before anything was said.

    Raises:
        UpstreamError: by its reason there is no answer, or the answer broke off within a call (stream_error).

    """
    reason: str | None = given.get("finishReason")
    is_empty = not (candidate.spoken or candidate.reason)
    may_break_off = not (candidate.calls or candidate.reason)
    if reason and ((is_empty and reason not in MAY_BE_EMPTY) or (may_break_off and is_unread(reason, after_text=True))):
        raise ended_with(reason)
    return None if is_empty and reason == UNSPECIFIED else reason


class GoogleToChat(TranslationIntoChunks):
    """Translates one answer of either of Google's APIs."""

    def __init__(
        self,
        secrets: Sequence[str] = (),
        unix_s: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._secrets = secrets
        self._unix_s = unix_s
        self._new_id = new_id
        self._head: dict[str, Any] | None = None  # None until the first chunk
        self._usage: Usage | None = None
        self._ended = False

    @property
    @abstractmethod
    def finishing(self) -> bool:
        """Whether the answer has its end, and the chunk with the usage is still to come."""

    @property
    def usage_so_far(self) -> Usage | None:
        """The usage that the events have reported."""
        return self._usage

    def end(self) -> bytes:
        """Return the usage and [DONE], if the answer has its end."""
        return self._last() if self.finishing else b""

    def _last(self) -> bytes:
        self._ended = True
        told = self._usage
        if told is None or (told.completion_tokens is None and told.prompt_tokens is None):
            return DONE_EVENT
        return self._chunk([], usage=written_usage(told)) + DONE_EVENT

    def _begin(self, answer_id: str | None, model: str | None) -> None:
        self._head = {
            "id": answer_id or self._new_id(),
            "object": "chat.completion.chunk",
            "created": int(self._unix_s()),
            "model": model or "",
        }

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        return b"data: " + encoded({**(self._head or {}), "choices": choices, **more}) + b"\n\n"


class ToChat(GoogleToChat):
    """Translates one answer. Thoughts become ``reasoning_content``; signatures go into Google's field of chat.

    Google's own chat API has this field, ``extra_content.google.thought_signature``. A client that sends its tool calls
    back unchanged gives the signatures back with them.
    """

    api = "Gemini"

    def __init__(
        self,
        secrets: Sequence[str] = (),
        unix_s: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        *,
        answers: int = 1,
    ) -> None:
        """``answers``: how many candidates the request asks for."""
        super().__init__(secrets, unix_s, new_id)
        self._asked = answers
        self._ids = UniqueIds()
        self._candidates: dict[int, _Candidate] = {}

    @property
    def finishing(self) -> bool:
        """Whether each candidate that was asked for has its finish reason, and the answer has no end yet."""
        return len(self._candidates) >= self._asked and self._has_ended()

    def _has_ended(self) -> bool:
        """Whether each candidate that has begun has its finish reason, and the answer has no end yet."""
        return not self._ended and all(each.reason for each in self._candidates.values())

    def end(self) -> bytes:
        """Return the finish reasons, the usage and [DONE]: some servers send a finish reason with each text.

        A server may give fewer candidates than were asked for: then these are the answer.
        """
        if not self._candidates or not self._has_ended():
            return b""
        ends = [
            self._of_choice(index, {}, chat_reason(each.reason or "", calls=each.calls))
            for index, each in sorted(self._candidates.items())
        ]
        return b"".join(ends) + self._last()

    def _take(self, data: bytes, said: list[bytes]) -> None:
        fields = _decoder.decode(data)
        if fields.get("error"):
            raise error_in(data, self._secrets, otherwise=ErrorKind.STREAM_ERROR)
        if not (fields.get("candidates") or fields.get("promptFeedback")) and (complained := complaint(data)):
            said.append(complained)
            return
        if self._head is None:
            self._begin(fields.get("responseId"), fields.get("modelVersion"))
            said.append(self._of_choice(0, {"role": "assistant", "content": ""}))
        if fields.get("usageMetadata"):
            self._usage = completed(usage_in(fields), self._usage)
        for given in few(fields.get("candidates") or (), "candidates"):
            index: int = given.get("index") or 0
            candidate = self._candidates.setdefault(index, _Candidate())
            parts = few((given.get("content") or {}).get("parts") or (), "parts")
            told = given.get("logprobsResult")
            tokens = logprobs.to_chat(told) if told else {}
            for delta in filter(None, (self._delta(part, candidate) for part in parts)):
                candidate.spoken = candidate.spoken or not _SPOKEN.isdisjoint(delta)
                more, tokens = (tokens, {}) if "content" in delta else ({}, tokens)
                said.append(self._of_choice(index, delta, **more))
            annotations = [] if GROUNDED.isdisjoint(given) else of_grounding(given, candidate.cited)
            if annotations or tokens:
                said.append(self._of_choice(index, {"annotations": annotations} if annotations else {}, **tokens))
            reason = _reason_in(given, candidate)
            if reason and candidate.reason in {None, _USUAL}:
                candidate.reason = reason
        if reason := (fields.get("promptFeedback") or {}).get("blockReason"):
            self._block(reason)

    def _block(self, reason: str) -> None:
        """End all candidates that have not ended, as a filter does.

        Raises:
            UpstreamError: nothing was said before (bad_request).

        """
        if not any(each.spoken or each.reason for each in self._candidates.values()):
            raise blocked(reason)
        self._asked = len(self._candidates)  # no other begins
        for each in self._candidates.values():
            each.reason = each.reason or _BLOCKED

    def _delta(self, part: Mapping[str, Any], candidate: _Candidate) -> dict[str, Any]:
        signature = part.get("thoughtSignature")
        signed = extra_content(signature) if signature else {}
        if call := part.get("functionCall"):
            number, candidate.calls = candidate.calls, candidate.calls + 1
            arguments = written_arguments(call.get("args")) or "{}"
            call_id = self._ids.of_call(call.get("id") or f"call_{number}_{(self._head or {}).get('id')}")
            function = {"name": call["name"], "arguments": arguments}
            begun = {"index": number, "id": call_id, "type": "function", "function": function, **signed}
            text = {} if part.get("thought") or not part.get("text") else {"content": part["text"]}
            return {**text, "tool_calls": [begun]}
        if part.get("thought"):  # a thought's pictures are not shown either
            return {"reasoning_content": part["text"], **signed} if part.get("text") else signed
        if part.get("text"):
            return {"content": part["text"], **signed}
        return self._file(part) or signed

    def _file(self, part: Mapping[str, Any]) -> dict[str, Any]:
        """Return a picture or sound, if the part is one."""
        if not (file := part.get("inlineData") or part.get("fileData")):
            return {}
        kind = str(file.get("mimeType") or "image/png").lower()
        if kind.startswith("audio/") and "data" in file:
            return {"audio": {"id": f"audio_{(self._head or {}).get('id')}", "data": file["data"]}}
        if not kind.startswith("image/"):
            raise no_place(f"a file ({kind})", "chat completions")
        url = f"data:{kind};base64,{file['data']}" if "data" in file else file["fileUri"]
        return {"images": [{"type": "image_url", "image_url": {"url": url}}]}

    def _of_choice(self, index: int, delta: Mapping[str, Any], reason: str | None = None, **more: Any) -> bytes:
        return self._chunk([{"index": index, "delta": delta, **more, "finish_reason": reason}])
