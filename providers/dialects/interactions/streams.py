"""Translates a stream of chat chunks into an interaction's events as it arrives, and an interaction's into chat's."""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from providers.dialects.chat.deltas import (
    THINKS,
    ChunkTranslation,
    ThoughtsSoFar,
    calls_in,
    complaint,
    delta_of,
    googles_in,
    pictures_in,
    said_in,
    signed_in,
    sound_in,
    split_data,
    string,
)
from providers.dialects.chat.deltas import usage_in as usage_in_chunk
from providers.dialects.chat.references import BESIDE, ChunkReferences, annotation, cited
from providers.dialects.dialect import Offered, check_none
from providers.dialects.events import CUT_SHORT, FILTERED, SHORT, chat_reason, few
from providers.dialects.gemini.streams import GoogleToChat
from providers.dialects.interactions.events import (
    ACTS,
    COMPLETED,
    CREATED,
    CUT,
    DELTA,
    FAILED,
    RUNNING,
    START,
    STATE,
    STOP,
    InteractionCounts,
    failed,
    started,
    usage_of,
)
from providers.dialects.interactions.fields import ENDING, IN_CONFIG, event
from providers.dialects.partial_calls import PartialCall, PartialCalls
from providers.dialects.wording import UniqueIds, extra_content, short_name
from providers.models import Usage, completed
from providers.refusals import ErrorKind, error_in

_decoder = msgspec.json.Decoder(dict[str, Any])
_STATES: Mapping[str, str] = {**dict.fromkeys((*CUT_SHORT, *FILTERED), "incomplete")}  # any other becomes completed
MADE = "v1_"  # how ids of interactions begin, Google's too


class FromChat(ChunkTranslation):
    """Translates one answer: every choice is a part of the answer, however the server numbers the choices.

    A call is sent when the call is complete: only then is it known that the arguments are an object, which clients
    need. Reasoning becomes the summary of a thought, unless the client has asked for none. Then reasoning is sent at
    the end, if the answer has nothing else. What only the reasoning's maker can read is the signature of that thought.
    The text of a refusal becomes text.
    """

    def __init__(
        self,
        asked: Mapping[str, msgspec.Raw],
        secrets: Sequence[str] = (),
        *,
        offered: Offered = lambda _: (),
        utc_now: Callable[[], datetime] = lambda: datetime.now(UTC),
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        """``offered`` reads the tools of the request ``asked``; ``new_id`` makes ids where a server sends none."""
        super().__init__(asked, secrets, offered=offered)
        self._shows_thoughts = _shows_thoughts(asked)
        self._names = _renamed(asked)
        self._utc_now, self._new_id = utc_now, new_id
        self._top: dict[str, Any] = {}
        self._steps = 0
        self._open: str | None = None  # the type of the open step
        self._calls = PartialCalls()
        self._ids = UniqueIds(conversation=asked.get("input", b""))
        self._references = ChunkReferences()
        self._signature = ""  # Google's signature, for the thought before the next step
        self._thoughts = ThoughtsSoFar()
        self._hidden: list[str] = []  # thoughts that are not shown, while the answer has nothing else
        self._reason: str | None = None

    @property
    def finishing(self) -> bool:
        """Whether there was a finish reason, and the interaction has no end yet."""
        return self._reason is not None and not self._ended

    def end(self) -> bytes:
        """Return the end of the interaction if the source sent a finish reason, but no [DONE].

        Raises:
            UpstreamError: the source sent no finish reason, but an error by its message alone.

        """
        if self._reason is None:
            self._errors.check()
        said: list[bytes] = []
        self._done(said)
        return b"".join(said)

    def _take(self, chunk: Mapping[str, Any], choices: Sequence[Mapping[str, Any]], said: list[bytes]) -> None:
        if choices and not self._top:
            self._begin(chunk, said)
        if usage := usage_in_chunk(chunk):
            self._counted.take(usage, chunk)
        if not BESIDE.isdisjoint(chunk):
            self._references.take(chunk)
        for choice in choices:
            if delta := delta_of(choice):
                self._add(delta, said)
            reason = choice.get("finish_reason")
            if reason and isinstance(reason, str) and (self._reason is None or reason in SHORT):
                self._reason = reason
                self._calls.finish()
                self._calls.check()
            self._say_calls(said)

    def _begin(self, chunk: Mapping[str, Any], said: list[bytes]) -> None:
        named = string(chunk.get("id")) or self._new_id()
        self._top = {
            "id": named if named.startswith(MADE) else f"{MADE}{named}",
            "object": "interaction",
            "model": chunk.get("model") or "",
        }
        said.append(event(CREATED, {"interaction": {**self._top, "status": "in_progress", "created": self._now()}}))
        said.append(event(STATE, {"interaction_id": self._top["id"], "status": "in_progress"}))

    def _now(self) -> str:
        return self._utc_now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def _add(self, delta: Mapping[str, Any], said: list[bytes]) -> None:
        text = delta.get("content") or ""
        thought, text = ("", text) if isinstance(text, str) and THINKS.isdisjoint(delta) else said_in(delta)
        if thought or not THINKS.isdisjoint(delta):
            self._think(thought, signed_in(delta), said)
        if "extra_content" in delta or "reasoning_details" in delta:
            self._signature = googles_in(delta) or self._signature
        sound, transcript = sound_in(delta)
        if text := text + (delta.get("refusal") or "") + transcript:
            self._say({"type": "text", "text": text}, said)
        for url in pictures_in(delta):
            self._say(_picture(url), said)
        if sound:
            self._say({"type": "audio", "data": sound}, said)
        if delta.get("annotations"):
            self._cite(self._references.annotations_in(delta), said)
        for piece in calls_in(delta) if delta.get("tool_calls") else ():
            self._calls.add(piece, waits=True)
        if len(self._calls):
            self._hidden.clear()

    def _think(self, thought: str, blocks: Sequence[Mapping[str, Any]], said: list[bytes]) -> None:
        """Add a piece of thoughts, and Anthropic's blocks, whose text may have been streamed."""
        thought = self._thoughts.add(thought, blocks)
        if thought and self._shows_thoughts:
            self._in("thought", said)
            self._delta({"type": "thought_summary", "content": {"type": "text", "text": thought}}, said)
        elif thought and not self._steps and self._open is None:
            self._hidden.append(thought)

    def _seal(self, signature: str, said: list[bytes]) -> None:
        """Send the signature of the thought before: Google's ``signature``, or the blocks of another maker."""
        if self._thoughts.blocks:
            of_blocks = self._thoughts.take_signature()
            signature = signature or of_blocks
        if signature:
            self._in("thought", said)
            self._delta({"type": "thought_signature", "signature": signature}, said)
            self._close(said)

    def _say(self, delta: Mapping[str, Any], said: list[bytes]) -> None:
        if self._open != "model_output":
            signature, self._signature = self._signature, ""
            self._seal(signature, said)
        self._in("model_output", said)
        self._hidden.clear()
        self._delta(delta, said)

    def _cite(self, annotations: Sequence[Mapping[str, Any]], said: list[bytes]) -> None:
        """Add references to the open text; other steps have no place for references."""
        pages = [each for each in map(cited, annotations) if each[0]]
        if pages and self._open == "model_output":
            given = [{"type": "url_citation", "url": url, "title": title or url} for url, title in pages]
            self._delta({"type": "text_annotation_delta", "annotations": given}, said)

    def _say_calls(self, said: list[bytes]) -> None:
        is_over = self._reason is not None
        while (current := self._calls.current()) is not None and self._calls.advance(finished=is_over):
            if self._reason not in CUT_SHORT or current[1].is_whole():  # the limit may have cut off its arguments
                self._say_call(current[1], said)

    def _say_call(self, call: PartialCall, said: list[bytes]) -> None:
        arguments = call.take_object()
        name = self._names.get(call.name, call.name)
        if call.has_none():
            check_none(name, self._tools, self._offered)
        signature, self._signature = call.signature or self._signature, ""
        self._seal(signature, said)
        self._close(said)
        call_id = self._ids.of_call(call.call_id or f"call_{self._new_id()}")
        step = {"type": "function_call", "id": call_id, "name": name, "arguments": {}}
        self._begin_step(step, said)
        if (written := bytes(arguments).decode()) != "{}":
            self._delta({"type": "arguments_delta", "arguments": written}, said)
        self._close(said)

    def _in(self, kind: str, said: list[bytes]) -> None:
        """Go on with the open step if it is of this kind, else begin a new step."""
        if self._open != kind:
            self._close(said)
            self._begin_step({"type": kind}, said)

    def _begin_step(self, step: Mapping[str, Any], said: list[bytes]) -> None:
        self._open = step["type"]
        said.append(event(START, {"index": self._steps, "step": step}))

    def _delta(self, delta: Mapping[str, Any], said: list[bytes]) -> None:
        said.append(event(DELTA, {"index": self._steps, "delta": delta}))

    def _close(self, said: list[bytes]) -> None:
        if self._open is not None:
            said.append(event(STOP, {"index": self._steps}))
            self._open = None
            self._steps += 1

    def _done(self, said: list[bytes]) -> None:
        if self._reason is None or self._ended:
            return
        self._ended = True
        if self._references.beside:
            self._cite(self._references.rest(), said)
        if self._hidden and not self._steps and self._open is None:  # without thoughts the answer would be empty
            self._in("thought", said)
            text = "".join(self._hidden)
            self._delta({"type": "thought_summary", "content": {"type": "text", "text": text}}, said)
        signature, self._signature = self._signature, ""
        self._seal(signature, said)
        self._close(said)
        status = _STATES.get(self._reason) or (ACTS if len(self._calls) else "completed")
        told = self._counted.told
        usage = {} if told is None else {"usage": _usage(told)}
        now = self._now()
        over = {**self._top, "status": status, "created": now, "updated": now, **usage}
        said.append(event(COMPLETED, {"interaction": over}))
        said.append(ENDING)


def _picture(url: str) -> dict[str, Any]:
    if (picture := split_data(url)) is not None:
        return {"type": "image", "mime_type": picture[0], "data": picture[1]}
    return {"type": "image", "uri": url}


def _shows_thoughts(asked: Mapping[str, msgspec.Raw]) -> bool:
    return bytes(asked.get(IN_CONFIG + "thinking_summaries", b"")) == b'"auto"'


def _renamed(asked: Mapping[str, msgspec.Raw]) -> Mapping[str, str]:
    """Return the original names of functions by their names in chat, where the two differ."""
    try:
        tools = msgspec.json.decode(asked.get("tools", b"null"), type=list[dict[str, Any]] | None) or []
    except (msgspec.DecodeError, RecursionError):
        return {}
    names = [name for tool in tools if isinstance(name := tool.get("name"), str)]
    return {other: name for name in names if (other := short_name(name)) != name}


def _usage(usage: Usage) -> dict[str, Any]:
    """Return chat's counts as Google's, whose answer excludes thoughts."""
    prompt, answer, thoughts = usage.prompt_tokens or 0, usage.completion_tokens or 0, usage.reasoning_tokens or 0
    return {
        "total_input_tokens": prompt,
        "total_cached_tokens": usage.cached_tokens or 0,
        "total_output_tokens": max(answer - thoughts, 0),
        "total_thought_tokens": thoughts,
        "total_tokens": prompt + answer,
    }


# Translates an interaction's events into chat chunks as they arrive.


class ToChat(GoogleToChat):
    """Translates one answer. Thoughts become ``reasoning_content``, and their signature Google's field in chat.

    A signature belongs to the part behind the thought: the text of the message, or the call.
    """

    api = "the Interactions API"

    def __init__(
        self,
        secrets: Sequence[str] = (),
        unix_s: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        super().__init__(secrets, unix_s, new_id)
        self._kinds: dict[int, str] = {}  # kinds of steps, by their index
        self._calls: dict[int, tuple[int, list[str]]] = {}  # likewise: the call's number in chat, and its arguments
        self._signature = ""
        self._reason: str | None = None

    @property
    def finishing(self) -> bool:
        """Whether the interaction has its end, and [DONE] is still to come."""
        return self._reason is not None and not self._ended

    def _take(self, data: bytes, said: list[bytes]) -> None:
        fields = _decoder.decode(data)
        if fields.get("error"):
            raise error_in(data, self._secrets, otherwise=ErrorKind.STREAM_ERROR)
        index = fields.get("index") or 0
        if (told := fields.get("interaction")) is not None:
            self._state(told, fields, data, said)
        elif (step := fields.get("step")) is not None:
            self._start_answer({}, said)
            self._start(index, step, said)
        elif (delta := fields.get("delta")) is not None:
            self._start_answer({}, said)
            self._delta(index, delta, said)
        elif fields.get("event_type") == STOP:
            self._stop(index, said)
        elif fields.get("event_type") != STATE and (complained := complaint(data)):
            said.append(complained)

    def _start_answer(self, told: Mapping[str, Any], said: list[bytes]) -> None:
        if self._head is None:
            self._begin(told.get("id"), told.get("model"))
            said.append(self._of_choice({"role": "assistant", "content": ""}))

    def _state(self, told: Mapping[str, Any], fields: Mapping[str, Any], data: bytes, said: list[bytes]) -> None:
        status = string(told.get("status"))
        if told.get("usage"):
            usage = usage_of(msgspec.convert(told["usage"], InteractionCounts), told.get("service_tier"))
            self._usage = completed(usage, self._usage)
        if status in FAILED:
            raise failed(data, status, self._secrets)
        self._start_answer(told, said)
        if fields.get("event_type") != COMPLETED or self._reason is not None or status in RUNNING:
            return
        if self._signature:
            said.append(self._of_choice(self._signed()))
        reason = chat_reason("length" if status in CUT else "stop", calls=self._calls)
        self._reason = reason
        said.append(self._of_choice({}, reason))

    def _start(self, index: int, step: Mapping[str, Any], said: list[bytes]) -> None:
        kind = self._kinds[index] = string(step.get("type"))
        if kind == "function_call":
            number = len(few(self._calls, "calls"))
            call_id = step.get("id") or f"call_{number}_{(self._head or {}).get('id')}"
            arguments = started(step.get("arguments"))
            self._calls[index] = number, [arguments] if arguments else []
            function = {"name": string(step.get("name")), "arguments": arguments}
            call = {"index": number, "id": call_id, "type": "function", "function": function, **self._signed()}
            said.append(self._of_choice({"tool_calls": [call]}))
        for content in step.get("content") or () if kind == "model_output" else ():
            self._delta(index, content, said)
        for content in step.get("summary") or () if kind == "thought" else ():
            self._delta(index, {"type": "thought_summary", "content": content}, said)
        if kind == "thought" and step.get("signature"):
            self._signature = step["signature"]

    def _stop(self, index: int, said: list[bytes]) -> None:
        number, arguments = self._calls.get(index, (0, [""]))
        if not arguments:
            arguments.append("{}")
            said.append(self._of_choice({"tool_calls": [{"index": number, "function": {"arguments": "{}"}}]}))

    def _delta(self, index: int, delta: Mapping[str, Any], said: list[bytes]) -> None:
        match delta.get("type"):
            case "text" if text := delta.get("text"):
                said.append(self._of_choice({"content": text, **self._signed()}))
                if given := delta.get("annotations"):
                    self._annotate(given, said)
            case "thought_summary":
                content = delta.get("content") or {}
                if text := string(content.get("text")):
                    said.append(self._of_choice({"reasoning_content": text}))
            case "thought_signature":
                self._signature = string(delta.get("signature"))
            case "arguments_delta" if (piece := string(delta.get("arguments"))) and index in self._calls:
                number, arguments = self._calls[index]
                arguments.append(piece)
                said.append(self._of_choice({"tool_calls": [{"index": number, "function": {"arguments": piece}}]}))
            case "text_annotation_delta":
                self._annotate(delta.get("annotations") or (), said)
            case "image" | "audio":
                said += [self._of_choice(each) for each in (self._file(delta),) if each]

    def _file(self, delta: Mapping[str, Any]) -> dict[str, Any]:
        """Return a picture or a sound; nothing, if the delta has neither data nor an address."""
        data = delta.get("data")
        if delta.get("type") == "audio":
            return {"audio": {"id": f"audio_{(self._head or {}).get('id')}", "data": data}} if data else {}
        url = f"data:{delta.get('mime_type') or 'image/png'};base64,{data}" if data else string(delta.get("uri"))
        return {"images": [{"type": "image_url", "image_url": {"url": url}}]} if url else {}

    def _annotate(self, given: Sequence[Any], said: list[bytes]) -> None:
        """Pass on the citations of pages: other citations have no place in chat."""
        pages = [each for each in few(given, "references") if isinstance(each, dict) and each.get("url")]
        if pages:
            annotations = [annotation(string(each["url"]), each.get("title")) for each in pages]
            said.append(self._of_choice({"annotations": annotations}))

    def _signed(self) -> dict[str, Any]:
        """Return the field with the signature of the thought before, once."""
        signature, self._signature = self._signature, ""
        return extra_content(signature) if signature else {}

    def _of_choice(self, delta: Mapping[str, Any], reason: str | None = None) -> bytes:
        return self._chunk([{"index": 0, "delta": delta, "finish_reason": reason}])
