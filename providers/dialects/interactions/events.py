"""Events and whole answers of interactions: their text, thoughts, function calls, usage, state or error.

An answer is a list of steps. Each step begins, grows by deltas and stops. The end of the interaction has the usage, and
``[DONE]`` follows. ai.google.dev/gemini-api/docs/streaming and the types of google-genai 3.6.1, read on 2026-11-29.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from providers.bodies import encoded
from providers.dialects.chat.deltas import string
from providers.dialects.events import (
    DONE,
    Chunk,
    FieldTable,
    Gathering,
    Join,
    Pattern,
    Run,
    few,
    fit,
    fit_fields,
    is_empty_object,
    join,
    no_answer,
    untyped,
    whole,
)
from providers.dialects.gemini.events import units_of
from providers.dialects.interactions.fields import ENDING, event
from providers.dialects.reading import RawObject
from providers.models import Usage, tier_of
from providers.refusals import SURPRISES, UNREADABLE, ErrorKind, UpstreamError, error_in, read_answer

CREATED, COMPLETED, STATE = "interaction.created", "interaction.completed", "interaction.status_update"
START, DELTA, STOP = "step.start", "step.delta", "step.stop"
# States of an interaction, its ``status``, in which there is no answer yet.
RUNNING = frozenset({"in_progress", "queued"})
FAILED = frozenset({"failed", "cancelled"})
CUT = frozenset({"incomplete", "budget_exceeded", "requires_continuation"})
ACTS = "requires_action"  # the client has to act: to run functions
_CALL = "function_call"
_SHOWN = frozenset({"audio", "document", "image", "video"})  # deltas of content that a reader sees, besides text


class _Thought(msgspec.Struct, gc=False):
    text: str | None = None


class _Delta(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    arguments: Any = None  # a function's arguments come as pieces of text, other arguments as an object
    content: _Thought | None = None
    data: Any = None
    uri: Any = None


class _Step(msgspec.Struct, gc=False):
    type: str | None = None
    name: str | None = None
    arguments: Any = None


class InteractionCounts(msgspec.Struct, gc=False):
    """Google's counts. The answer's tokens do not include its thoughts."""

    total_input_tokens: int | None = None
    total_output_tokens: int | None = None
    total_thought_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_tool_use_tokens: int | None = None
    input_tokens_by_modality: Any = None
    cached_tokens_by_modality: Any = None
    output_tokens_by_modality: Any = None
    grounding_tool_count: Any = None


class _Interaction(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    status: str | None = None
    usage: InteractionCounts | None = None
    service_tier: Any = None
    errors: Any = None


class _Event(msgspec.Struct, gc=False):
    event_type: str | None = None
    index: int | None = None
    delta: _Delta | None = None
    step: _Step | None = None
    interaction: _Interaction | None = None
    status: str | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Event)


def read_event(data: bytes, secrets: Sequence[str] = ()) -> Chunk:
    """Read one event's data. An event without data gives an empty chunk.

    Raises:
        UpstreamError: the data is not a JSON object (invalid_response).

    """
    try:
        said = _decoder.decode(data)
    except UNREADABLE:
        if (end := data.strip()) in {b"", DONE}:
            return Chunk(data, done=end == DONE, idle=end != DONE)
        said = fitted(data)
    if said.error:
        return Chunk(data, error=error_in(data, secrets, otherwise=ErrorKind.STREAM_ERROR))
    if said.delta is not None:
        return _of_delta(data, said.index or 0, said.delta)
    if said.step is not None:
        return _of_step(data, said.index or 0, said.step)
    return Chunk(data, idle=True) if said.interaction is None else _of_whole(data, said, said.interaction, secrets)


def _of_whole(data: bytes, said: _Event, told: _Interaction, secrets: Sequence[str]) -> Chunk:
    """Read an event about the whole interaction: its beginning, or its end."""
    usage = None if told.usage is None else usage_of(told.usage, told.service_tier)
    if told.status in FAILED:
        return Chunk(data, error=failed(data, told.status or "", secrets), usage=usage, model=told.model, id=told.id)
    is_over = said.event_type == COMPLETED
    reason = told.status if is_over else None
    return Chunk(
        data, finished=is_over, usage=usage, model=told.model, id=told.id, finish_reason=reason, idle=not is_over
    )


def read_begun(data: bytes, secrets: Sequence[str] = ()) -> Chunk:
    """Read an event of an interaction in the background: the client waits for the interaction's beginning.

    Raises:
        UpstreamError: as of ``read_event``.

    """
    chunk = read_event(data, secrets)
    if chunk.meaningful or chunk.error is not None or chunk.id is None:
        return chunk
    return msgspec.structs.replace(chunk, meaningful=True, answer=True, idle=False)


def _of_delta(data: bytes, index: int, delta: _Delta) -> Chunk:
    if delta.type == "text":
        chars = len(delta.text or "")
        return Chunk(data, meaningful=chars > 0, answer=chars > 0, text_chars=chars, idle=not chars)
    if delta.type == "thought_summary":
        chars = len((delta.content and delta.content.text) or "")
        return Chunk(data, meaningful=chars > 0, reasoning=chars > 0, text_chars=chars, idle=not chars)
    if delta.type == "arguments_delta":
        piece = string(delta.arguments)
        said = bool(piece)
        return Chunk(data, meaningful=said, answer=said, text_chars=len(piece), tools=((index, piece),), idle=not said)
    is_shown = delta.type in _SHOWN and bool(delta.data or delta.uri)
    return Chunk(data, meaningful=is_shown, answer=is_shown)


def _of_step(data: bytes, index: int, step: _Step) -> Chunk:
    """Read the beginning of a step. A call's beginning has the name, and perhaps all arguments."""
    if step.type != _CALL:
        return Chunk(data, idle=step.type in {"model_output", "thought", None})
    name, arguments = step.name or "", started(step.arguments)
    return Chunk(
        data,
        meaningful=True,
        answer=True,
        text_chars=len(name) + len(arguments),
        tools=((index, arguments),),
        names=(name,),
    )


def started(arguments: Any) -> str:
    """Return the arguments with which a call begins, as text; "" if they are empty, as deltas may bring more."""
    written = arguments if isinstance(arguments, str) else encoded(arguments).decode() if arguments else ""
    return "" if is_empty_object(written) else written


def failed(data: bytes, status: str, secrets: Sequence[str]) -> UpstreamError:
    """Return the error of an interaction without an answer: its own error, or an error that names its state."""
    try:
        told = msgspec.json.decode(data, type=dict[str, Any])
        told = told.get("interaction") or told
        errors = told.get("errors")
        given = errors[0] if isinstance(errors, list) and errors else told.get("error")
        if isinstance(given, dict):
            return error_in(encoded({"error": given}), secrets, otherwise=ErrorKind.STREAM_ERROR)
    except SURPRISES:
        pass
    return UpstreamError(ErrorKind.STREAM_ERROR, f"the provider says that the interaction is {status}")


def texts(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield the text of a delta, with its step's number.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the event has another format.

    """
    said = _decoder.decode(data)
    if said.delta is not None and said.delta.type == "text" and said.delta.text:
        yield said.index or 0, said.delta.text


def usage_of(told: InteractionCounts, tier: object = None) -> Usage:
    """Return Google's counts as a ``Usage``: with the answer's thoughts, and what tools have found for the prompt."""
    prompt = told.total_input_tokens
    if prompt is not None:
        prompt += told.total_tool_use_tokens or 0
    answer, thoughts = told.total_output_tokens, told.total_thought_tokens
    if answer is not None or thoughts is not None:
        answer = (answer or 0) + (thoughts or 0)
    return Usage(prompt, answer or None, thoughts, told.total_cached_tokens, None, tier_of(tier), _units(told))


def _units(told: InteractionCounts) -> dict[str, int] | None:
    """Return the tokens that are not text (of the prompt without tokens from the cache), and the searches."""
    units = units_of(
        told.input_tokens_by_modality, told.cached_tokens_by_modality, told.output_tokens_by_modality, count="tokens"
    )
    tools = told.grounding_tool_count
    for one in tools if isinstance(tools, list) else ():
        if isinstance(one, dict) and one.get("type") == "google_search" and type(one.get("count")) is int:
            units["web_search"] = units.get("web_search", 0) + one["count"]
    return units or None


def fitted(data: bytes) -> _Event:
    """Read an event that does not fit the types; fields that do not fit are left out.

    Raises:
        UpstreamError: the data are not a JSON object (invalid_response).

    """
    value = untyped(data)
    return _Event(
        fit(value.get("event_type"), str),
        fit(value.get("index"), int),
        fit_fields(value.get("delta"), _Delta),
        fit_fields(value.get("step"), _Step),
        fit_fields(value.get("interaction"), _Interaction),
        fit(value.get("status"), str),
        value.get("error"),
    )


# Whole answers: a whole answer as an event stream, and an event stream gathered into a whole answer.

_objects = msgspec.json.Decoder(RawObject)
_lists = msgspec.json.Decoder(list[RawObject] | None)
_raws = msgspec.json.Decoder(msgspec.Raw)
_NOTHING = msgspec.Raw(b"null")
_ERRORS = (msgspec.Raw(b'"failed"'), msgspec.Raw(b'"cancelled"'))


def events_of_answer(body: bytes, secrets: Sequence[str] = ()) -> bytes:
    """Return a whole interaction as an event stream: its steps, with a delta for each content, and its end.

    Raises:
        UpstreamError: as of ``read_answer``; also if the body is no interaction (invalid_response), or a failed one.

    """
    answer = read_answer(body, secrets)
    status = answer.get("status", _NOTHING)
    if status in _ERRORS:
        raise failed(body, msgspec.json.decode(status), secrets)
    if "status" not in answer or not ("steps" in answer or "id" in answer):
        raise no_answer(body, "an interaction", secrets)
    try:
        steps = few(_lists.decode(answer.get("steps", _NOTHING)) or [], "steps")
        rest: dict[str, Any] = {name: value for name, value in answer.items() if name != "steps"}
        said = [event(CREATED, {"interaction": {**rest, "status": "in_progress"}})]
        for index, step in enumerate(steps):
            said += _told(index, step)
    except UNREADABLE:
        raise no_answer(body, "an interaction", secrets) from None
    return b"".join([*said, event(COMPLETED, {"interaction": rest}), ENDING])


def _told(index: int, step: RawObject) -> Iterator[bytes]:
    """Yield the events of a step. The step's beginning does not have the parts that deltas bring."""
    kind = msgspec.json.decode(step.get("type", b'""'))
    deltas: list[Any] = []
    begun: dict[str, Any] = dict(step)
    if kind == "model_output":
        for each in few(_lists.decode(begun.pop("content", _NOTHING)) or [], "contents"):
            told = {name: value for name, value in each.items() if name != "annotations"}
            deltas.append(told)
            if "annotations" in each:
                deltas.append({"type": "text_annotation_delta", "annotations": each["annotations"]})
    elif kind == "thought":
        told_of = few(_lists.decode(begun.pop("summary", _NOTHING)) or [], "summaries")
        deltas += [{"type": "thought_summary", "content": each} for each in told_of]
        if "signature" in begun:
            deltas.append({"type": "thought_signature", "signature": begun.pop("signature")})
    elif kind == _CALL and "arguments" in begun:
        written = bytes(begun["arguments"])
        if not is_empty_object(written.decode(errors="replace")):
            deltas.append({"type": "arguments_delta", "arguments": written.decode(errors="replace")})
            begun["arguments"] = {}
    yield event(START, {"index": index, "step": begun})
    for delta in deltas:
        yield event(DELTA, {"index": index, "delta": delta})
    yield event(STOP, {"index": index})


# How the model's content grows by deltas of its type. A delta of another type begins the next content.
_CONTENT = FieldTable({"text": Join.TEXT, "data": Join.BASE64, "annotations": Join.LIST}, Join.LAST)


class _GatheredStep:
    """One step, from the events about it."""

    def __init__(self, begun: Mapping[str, Any]) -> None:
        self._step: dict[str, Any] = dict(begun)
        self._contents: list[dict[str, Any]] = []
        self._arguments: list[str] = []

    def take(self, delta: Mapping[str, Any]) -> None:
        kind = delta.get("type")
        if kind == "arguments_delta":
            self._arguments.append(string(delta.get("arguments")))
        elif kind == "thought_signature":
            self._step["signature"] = delta.get("signature")
        elif kind == "thought_summary":
            if isinstance(content := delta.get("content"), dict):
                self._add(content)
        elif kind == "text_annotation_delta":
            self._add({"type": "text", "annotations": delta.get("annotations") or []})
        elif kind in {"text", *_SHOWN}:
            self._add(delta)
        else:  # the query and the result of a tool of Google's
            self._step.update({name: value for name, value in delta.items() if name != "type"})

    def spliced(self, text: str) -> None:
        """Add pieces of text."""
        self._add({"type": "text", "text": text})

    def _add(self, piece: Mapping[str, Any]) -> None:
        last = self._contents[-1] if self._contents else {}
        if last.get("type") != piece.get("type"):
            last = {"type": piece.get("type")}
            self._contents.append(last)
        for name, value in piece.items():
            join(last, name, value, _CONTENT)

    def whole(self) -> dict[str, Any]:
        step = self._step
        if self._contents:
            step = {**step, "summary" if step.get("type") == "thought" else "content": self._contents}
        if written := "".join(self._arguments):
            try:
                step = {**step, "arguments": _raws.decode(written)}  # raw: numbers keep their digits
            except UNREADABLE:  # a limit has cut the arguments off
                step = {**step, "arguments": step.get("arguments") or {}}
        return step


_encoder = msgspec.json.Encoder(enc_hook=whole)


def _index_of(said: Mapping[str, Any]) -> int:
    """Return the number of an event's step; 0 if the event has none, as of ``fitted``."""
    return fit(said.get("index"), int) or 0


class InteractionGathering(Gathering):
    """Makes one interaction of the events: its steps, and the facts of the last event about the whole."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._steps: dict[int, _GatheredStep] = {}

    def take(self, chunk: Chunk) -> None:
        """Read one event.

        Raises:
            UpstreamError: the data are valid JSON, but no event of an interaction (invalid_response).

        """
        if not chunk.data.strip():
            return
        try:
            said = msgspec.json.decode(chunk.data, type=dict[str, Any])
            if told := said.get("interaction"):
                self._fields.update({name: value for name, value in told.items() if value is not None})
            elif (step := said.get("step")) is not None:
                few(self._steps, "steps")[_index_of(said)] = _GatheredStep(step)
            elif (delta := said.get("delta")) is not None:
                self._step(_index_of(said)).take(delta)
        except SURPRISES as error:
            message = f"sent an event that interactions do not have: {type(error).__name__}"
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, message) from None

    def take_run(self, run: Run, pattern: Pattern) -> bool:
        """Add plain texts at once."""
        for index, _ in texts(pattern.example.data):
            self._step(index).spliced(run.text())
        return True

    def _step(self, index: int) -> _GatheredStep:
        return self._steps.setdefault(index, _GatheredStep({"type": "model_output"}))

    def body(self) -> bytes:
        """Return the whole interaction as JSON."""
        steps = [self._steps[index].whole() for index in sorted(self._steps)]
        told = {"steps": steps} if steps or "steps" not in self._fields else {}
        return encoded({**self._fields, **told}, _encoder)
