"""Events and whole answers of Gemini: their text, thoughts, function calls, usage, finish reason or error.

Each event is a whole ``GenerateContentResponse`` with the new parts. Nothing follows the last event: the end of the
response ends the answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from providers.dialects.events import (
    DONE,
    SHORT,
    TOKENS,
    WHOLE_CALL,
    Chunk,
    FieldTable,
    Gathering,
    Join,
    few,
    fit,
    join,
    no_answer,
    no_json_object,
    untyped,
    whole,
)
from providers.dialects.meanings import Details
from providers.models import Usage, tier_of
from providers.refusals import UNREADABLE, ErrorKind, UpstreamError, error_in, read_answer

# Google's errors: the words for HTTP's statuses and for the gateway's kinds.

_STATUS_WORDS: Mapping[int, str] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    424: "FAILED_PRECONDITION",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_FIRST_SERVER_STATUS = 500
_STATUS_OF_KIND: Mapping[str, int] = {  # all other kinds are errors of the gateway or the provider
    **{kind: kind.status for kind in ErrorKind if kind.status is not None},
    **{word: status for status, word in _STATUS_WORDS.items() if status != HTTPStatus.BAD_GATEWAY},
}
_REQUEST_INFO = "type.googleapis.com/google.rpc.RequestInfo"


def status_word(status: int) -> str:
    """Return Google's word for this HTTP status."""
    return _STATUS_WORDS.get(status) or ("INTERNAL" if status >= _FIRST_SERVER_STATUS else "INVALID_ARGUMENT")


def error_body(status: int, type_: str, message: str, request_id: str | None, details: Details = ()) -> bytes:
    """Return an error's body in Google's shape."""
    del type_  # a provider's own word; Google's word follows from the status
    about = () if request_id is None else ({"@type": _REQUEST_INFO, "requestId": request_id},)
    return msgspec.json.encode({"error": _error(status, message, (*details, *about))})


def _error(status: int, message: str, details: Details) -> dict[str, Any]:
    error: dict[str, Any] = {"code": status, "message": message, "status": status_word(status)}
    return {**error, "details": details} if details else error


def event(fields: Mapping[str, Any]) -> bytes:
    """Return an event in its wire format; lines end as Google's do."""
    return b"data: " + msgspec.json.encode(fields) + b"\r\n\r\n"


def failure(kind: str, message: str, details: Details = (), _: str | None = None) -> bytes:
    """Return the event of an error, with Google's word for this ``kind`` of ours, or with this word of Google's.

    @ai-sdk/google skips an event with nothing but an error, and takes the end of the stream for the end of the answer:
    opencode goes on with half an answer. A ``promptFeedback`` that is no object makes @ai-sdk/google raise an error
    that quotes the whole event. By the words in this error opencode asks again (1.18.33). Other clients ignore an empty
    text in place of a feedback: Gemini CLI 0.61, pi 1.6.0, google-genai for Python. All were tried on 2026-11-30.
    """
    return event({"error": _error(_STATUS_OF_KIND.get(kind, 500), message, details), "promptFeedback": ""})


class _Call(msgspec.Struct, gc=False):
    name: str | None = None
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Object(msgspec.Struct, gc=False):
    """An object that only has to be there. A union with ``msgspec.Raw`` would not accept an object."""


class _Part(msgspec.Struct, gc=False, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: _Call | None = None
    inline_data: _Object | None = None
    file_data: _Object | None = None
    executable_code: _Object | None = None
    code_execution_result: _Object | None = None


class _Content(msgspec.Struct, gc=False):
    parts: list[_Part] | None = None


class _Grounding(msgspec.Struct, gc=False, rename="camel"):
    web_search_queries: Any = None


class _Candidate(msgspec.Struct, gc=False, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    index: int | None = None
    grounding_metadata: _Grounding | None = None


class UsageMetadata(msgspec.Struct, gc=False, rename="camel"):
    """Google's counts. The answer's tokens do not include thoughts."""

    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    prompt_tokens_details: Any = None
    cache_tokens_details: Any = None
    candidates_tokens_details: Any = None
    service_tier: Any = None  # the tier that served the call
    traffic_type: Any = None  # the same, at Vertex AI


class _Feedback(msgspec.Struct, gc=False, rename="camel"):
    block_reason: str | None = None


class _Event(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: UsageMetadata | None = None
    prompt_feedback: _Feedback | None = None
    model_version: str | None = None
    response_id: str | None = None
    error: Any = None


UNSPECIFIED = "FINISH_REASON_UNSPECIFIED"  # Google's default; some servers have it in each event
# An answer that says nothing and ends for any other reason has failed, for example by a call that could not be read
# (MALFORMED_FUNCTION_CALL). Text before such an end is an answer.
MAY_BE_EMPTY = SHORT | {"STOP", UNSPECIFIED}
_decoder = msgspec.json.Decoder(_Event)


def read_event(data: bytes, secrets: Sequence[str] = ()) -> Chunk:
    """Read one event's data. An event without data gives an empty chunk; some proxies end streams with ``[DONE]``.

    A blocked prompt has no candidates: the block's reason is then the answer's finish reason, and a refusal. After a
    text the reason only ends the answer. A call comes whole, in one event.

    Raises:
        UpstreamError: the data is not a JSON object (invalid_response).

    """
    if (end := data.strip()) in {b"", DONE}:
        return Chunk(data, done=end == DONE, idle=True)
    try:
        said = _decoder.decode(data)
    except msgspec.ValidationError:
        said = _fitted(data)
    except UNREADABLE:
        raise no_json_object() from None
    if said.error:
        return Chunk(data, error=error_in(data, secrets, otherwise=ErrorKind.STREAM_ERROR))
    return _chunk(data, said)


def texts(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield the texts of an event except thoughts, with the numbers of their candidates.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the event has another format.

    """
    for candidate in _decoder.decode(data).candidates or ():
        for part in _parts(candidate):
            if part.text and not part.thought:
                yield candidate.index or 0, part.text


def choices(data: bytes) -> Iterator[tuple[int, bool]]:
    """Yield the number of each candidate in an event, and whether the candidate has its finish reason.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the event has another format.

    """
    for place, candidate in enumerate(_decoder.decode(data).candidates or ()):
        yield place if candidate.index is None else candidate.index, candidate.finish_reason is not None


def usage_of(told: UsageMetadata, searches: int = 0) -> Usage:
    """Return Google's counts as a ``Usage``: with the answer's thoughts, and what tools have found for the prompt."""
    prompt = told.prompt_token_count
    if prompt is not None:
        prompt += told.tool_use_prompt_token_count or 0
    answer, thoughts = told.candidates_token_count, told.thoughts_token_count
    if answer is not None or thoughts is not None:
        answer = (answer or 0) + (thoughts or 0)
    tier = tier_of(told.service_tier or told.traffic_type)
    units = units_of(
        told.prompt_tokens_details, told.cache_tokens_details, told.candidates_tokens_details, count="tokenCount"
    )
    if searches:
        units["web_search"] = searches
    return Usage(prompt, answer or None, thoughts, told.cached_content_token_count, None, tier, units or None)


def usage_in(said: Mapping[str, Any]) -> Usage:
    """Return the usage in a decoded event."""
    given = said.get("candidates")
    told = [one.get("groundingMetadata") for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    groundings = [found for one in told if one and (found := fit(one, _Grounding)) is not None]
    return usage_of(fit(said.get("usageMetadata"), UsageMetadata) or UsageMetadata(), sum(map(_searches, groundings)))


def _searches(grounding: _Grounding) -> int:
    """Return how many searches were made for a candidate; empty and repeated searches are not billed."""
    queries = grounding.web_search_queries
    said = [each.strip() for each in queries if isinstance(each, str)] if isinstance(queries, list) else []
    return len({each for each in said if each})


def units_of(prompt: Any, cached: Any, answer: Any, *, count: str) -> dict[str, int]:
    """Return the tokens that are not text, by Google's lists of modalities; the prompt's without the cache's tokens.

    ``count``: the name of an entry's number, ``tokenCount`` or ``tokens``.
    """
    units = _by_kind(answer, "{}_output", count)
    of_cache = _by_kind(cached, "cached_{}_input", count)
    for unit, number in _by_kind(prompt, "{}_input", count).items():
        if (fresh := number - of_cache.get(f"cached_{unit}", 0)) > 0:
            units[unit] = fresh
    return units | of_cache


_KINDS = {"audio": "audio", "image": "image", "video": "video", "document": "image"}


def _by_kind(details: Any, unit: str, field: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in details if isinstance(details, list) else ():
        if isinstance(one, dict) and (kind := _KINDS.get(str(one.get("modality")).lower())) is not None:
            name, count = unit.format(kind), one.get(field)
            found[name] = found.get(name, 0) + (count if type(count) is int and count > 0 else 0)
    return {name: count for name, count in found.items() if count}


def _chunk(data: bytes, said: _Event) -> Chunk:
    answer_chars = reasoning_chars = searches = 0
    answer = failed = False
    finish_reason: str | None = None
    tools: list[tuple[int, str]] = []
    names: list[str] = []
    for candidate in few(said.candidates or (), "candidates"):
        finish_reason = candidate.finish_reason or finish_reason
        failed = failed or (bool(finish_reason) and finish_reason not in MAY_BE_EMPTY)
        if candidate.grounding_metadata is not None:
            searches += _searches(candidate.grounding_metadata)
        for part in _parts(candidate):
            if part.text and part.thought:
                reasoning_chars += len(part.text)
            elif part.text:
                answer_chars += len(part.text)
            if part.function_call is not None:
                arguments = bytes(part.function_call.args).decode(errors="replace")  # raw: not checked to be UTF-8
                name = part.function_call.name or ""
                tools.append((WHOLE_CALL, arguments))
                names.append(name)
                answer_chars += len(name) + len(arguments)
            # Readers see code as they see text, but code's characters do not count as an answer's.
            answer = answer or part.inline_data is not None or part.file_data is not None
            answer = answer or part.executable_code is not None or part.code_execution_result is not None
    blocked = said.prompt_feedback.block_reason if said.prompt_feedback is not None else None
    finish_reason = finish_reason or blocked
    answer = answer or answer_chars > 0 or bool(names)
    return Chunk(
        data,
        meaningful=answer or reasoning_chars > 0,
        answer=answer,
        reasoning=reasoning_chars > 0,
        finished=finish_reason is not None,
        usage=None if said.usage_metadata is None else usage_of(said.usage_metadata, searches),
        text_chars=answer_chars + reasoning_chars,
        model=said.model_version,
        id=said.response_id,
        finish_reason=finish_reason,
        tools=tools,
        names=names,
        refused=blocked is not None,
        idle=not (answer or reasoning_chars or finish_reason)
        and (bool(said.candidates) or said.usage_metadata is None),
        failed=(failed or blocked is not None) and not answer,
    )


def _parts(candidate: _Candidate) -> Sequence[_Part]:
    return few((candidate.content and candidate.content.parts) or (), "parts")


def _fitted(data: bytes) -> _Event:
    """Read an event that does not fit the types; fields that do not fit are left out, candidate by candidate."""
    value = untyped(data)
    given = value.get("candidates")
    candidates = [one for one in map(_candidate, given) if one is not None] if isinstance(given, list) else None
    return _Event(
        candidates,
        fit(value.get("usageMetadata"), UsageMetadata),
        fit(value.get("promptFeedback"), _Feedback),
        fit(value.get("modelVersion"), str),
        fit(value.get("responseId"), str),
        value.get("error"),
    )


def _candidate(value: Any) -> _Candidate | None:
    if not isinstance(value, dict):
        return None
    content = value.get("content")
    given = content.get("parts") if isinstance(content, dict) else None
    parts = [part for each in given if (part := fit(each, _Part)) is not None] if isinstance(given, list) else None
    grounding = fit(value.get("groundingMetadata"), _Grounding)
    return _Candidate(_Content(parts), fit(value.get("finishReason"), str), fit(value.get("index"), int), grounding)


# Whole answers: a whole answer as an event stream, and an event stream gathered into a whole answer.

_RawObject = dict[str, msgspec.Raw]

_objects = msgspec.json.Decoder(_RawObject)
_lists = msgspec.json.Decoder(list[_RawObject])
_objects_or_null = msgspec.json.Decoder(_RawObject | None)
_lists_or_null = msgspec.json.Decoder(list[_RawObject] | None)
_ints = msgspec.json.Decoder(int, strict=False)
_strings = msgspec.json.Decoder(str)

_NULL = msgspec.Raw(b"null")
_PLAIN = frozenset({"text", "thought"})  # parts with nothing else can be joined: a signature belongs to one part
# How a candidate's fields join. Of all other fields, such as grounding, the last value has all. Google's own SDK joins
# citations.
CANDIDATE = FieldTable({"logprobsResult": TOKENS, "citationMetadata": FieldTable({}, Join.SET)}, Join.LAST)
PART = FieldTable({"text": Join.TEXT, "inlineData": FieldTable({"data": Join.BASE64}, Join.LAST)}, Join.LAST)
_RAW_SOUND = ("audio/l16", "audio/pcm")  # types of sound that can be cut anywhere begin so, as in Google's streams
_SURPRISES = (*UNREADABLE, KeyError)


def events_of_answer(body: bytes, secrets: Sequence[str] = ()) -> bytes:
    """Return a whole answer as an event stream with one event, the answer unchanged.

    An array has the events of a stream: some proxies do not pass on ``?alt=sse``.

    Raises:
        UpstreamError: as of ``read_answer``; also if the answer has neither candidates nor feedback on the prompt
            (invalid_response).

    """
    answer = read_answer(body, secrets)
    if "candidates" not in answer and "promptFeedback" not in answer:
        raise no_answer(body, "a GenerateContentResponse", secrets)
    try:
        return b"".join(map(event, _lists.decode(body)))
    except UNREADABLE:
        return event(answer)


class _Inline(msgspec.Struct):
    mimeType: str = ""  # noqa: N815 - Google's name


class _Gathered:
    """One candidate that is being gathered."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._content: _RawObject = {}
        self._parts: list[Any] = []
        self._kind: Any = None  # the kind of the last part, if that part can grow

    def take(self, given: _RawObject) -> None:
        for name, value in given.items():
            if name == "content":
                content = _objects_or_null.decode(value) or {}
                for part in _lists_or_null.decode(content.pop("parts", _NULL)) or ():
                    self._add(part)
                self._content.update(content)
            elif name in CANDIDATE.fields:
                join(self._fields, name, msgspec.json.decode(value), CANDIDATE)
            elif value != _NULL or name not in self._fields:
                self._fields[name] = value

    def whole(self) -> dict[str, Any]:
        if not self._parts and not self._content:
            return {**self._fields}
        content: dict[str, Any] = {"parts": self._parts, **self._content}
        return {"content": content if self._parts else self._content, **self._fields}

    def _add(self, part: _RawObject) -> None:
        """Add a part, or join it to the last part if both are text, both thought, or both raw sound of one type."""
        kind: tuple[str, object] | None = None
        if "text" in part and part.keys() <= _PLAIN:
            kind = "text", bytes(part.get("thought", b"false")) == b"true"
        elif part.keys() == {"inlineData"}:
            sound = msgspec.json.decode(part["inlineData"], type=_Inline)
            kind = ("sound", sound.mimeType) if sound.mimeType.lower().startswith(_RAW_SOUND) else None
        if kind is None:
            self._parts.append(part)
        else:
            if kind != self._kind:
                self._parts.append({})
            for name, value in part.items():
                if name != "thought" or kind[1]:
                    join(self._parts[-1], name, msgspec.json.decode(value), PART)
        self._kind = kind


class GeminiGathering(Gathering):
    """Makes one answer of the events: joins consecutive texts, and keeps everything else unchanged."""

    def __init__(self) -> None:
        self._fields: _RawObject = {}
        self._candidates: dict[int, _Gathered] = {}

    def take(self, chunk: Chunk) -> None:
        """Read one event.

        Raises:
            UpstreamError: the data are valid JSON, but no event of Gemini (invalid_response).

        """
        if not chunk.data.strip():
            return
        try:
            said = _objects.decode(chunk.data)
            for place, candidate in enumerate(_lists_or_null.decode(said.pop("candidates", _NULL)) or ()):
                given = candidate.get("index", _NULL)
                index = 0 if self.single else place if given == _NULL else _ints.decode(given)
                self._candidates.setdefault(index, _Gathered()).take(candidate)
            for name, value in said.items():
                if value != _NULL or name not in self._fields:
                    self._fields[name] = value
        except _SURPRISES as error:
            message = f"sent an event that Gemini does not have: {type(error).__name__}"
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, message) from None

    def body(self) -> bytes:
        """Return the whole answer as JSON."""
        candidates = [self._candidates[index].whole() for index in sorted(self._candidates)]
        answer: Mapping[str, Any] = {"candidates": candidates, **self._fields} if candidates else self._fields
        return msgspec.json.encode(answer, enc_hook=whole)
