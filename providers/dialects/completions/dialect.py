"""Completions as one of the dialects. It is not translated: a raw prompt has no counterpart in messages."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from providers.bodies import raw_json
from providers.dialects.chat.answers import CHOICE, CHUNK, ENDING, events_of, failure
from providers.dialects.chat.continuing import ChatSplice, ReadChunk, repairs_of_completions
from providers.dialects.chat.events import choices, read_untyped
from providers.dialects.continuing import Continuing, DeliveredPart, Way, decoded_in, strings_of, with_less
from providers.dialects.dialect import (
    AnswerFormat,
    Dialect,
    OmissibleFields,
    ParameterNames,
    RequestFormat,
    VendorsDiffer,
)
from providers.dialects.events import DONE, Chunk, Gathering, few, index_of, join, no_answer, no_json_object, whole
from providers.dialects.wording import Fields
from providers.models import usage_of
from providers.refusals import FAILED, SURPRISES, UNREADABLE, ErrorKind, UpstreamError, error_in, read_answer

# Reads one event of a completions stream: its text, usage, finish reason or error. Nearly every chunk fits the types
# below. Where a provider sends other types, the event is decoded again without types, and fields that do not fit are
# ignored.


class _Text(msgspec.Struct, gc=False):
    text: str | None = None
    index: int | None = None


class _Texts(msgspec.Struct, gc=False):
    choices: list[_Text] | None = None


class _Choice(msgspec.Struct, gc=False):
    text: str | None = None
    finish_reason: str | None = None
    error: Any = None  # OpenRouter


class _Event(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    object: str | None = None
    model: str | None = None
    id: str | None = None
    system_fingerprint: str | None = None


_events = msgspec.json.Decoder(_Event)
_texts = msgspec.json.Decoder(_Texts)


def texts(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield the text of each choice, with its index.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the event has another format.

    """
    for choice in _texts.decode(data).choices or ():
        if choice.text:
            yield choice.index or 0, choice.text


def read_event(data: bytes, secrets: Sequence[str] = ()) -> Chunk:
    """Read one event's data. An event without data (a comment, a ping) gives an empty chunk.

    Raises:
        UpstreamError: the data is not a JSON object (invalid_response).

    """
    said = data.strip()
    if said == DONE:
        return Chunk(data, done=True)
    if not said:
        return Chunk(data, idle=True)
    try:
        event = _events.decode(data)
    except msgspec.ValidationError:
        event = read_untyped(data, _Event, {"choices": _Choice})
    except UNREADABLE:
        raise no_json_object() from None
    choices = few(event.choices or (), "choices")
    chars = sum(len(choice.text or "") for choice in choices)
    is_error = event.error or event.object == "error"
    if is_error or any(choice.error or choice.finish_reason in FAILED for choice in choices):
        return Chunk(data, error=error_in(data, secrets, otherwise=ErrorKind.STREAM_ERROR))
    finish_reason = next((choice.finish_reason for choice in choices if choice.finish_reason), None)
    return Chunk(
        data,
        meaningful=chars > 0,
        answer=chars > 0,
        finished=finish_reason is not None,
        usage=None if event.usage is None else usage_of(event.usage),
        usage_only=event.usage is not None and not choices,
        text_chars=chars,
        model=event.model,
        id=event.id,
        finish_reason=finish_reason,
        idle=not chars and finish_reason is None and (bool(choices) or event.usage is None),
        fingerprint=event.system_fingerprint,
    )


# Whole completions: a whole completion as an event stream, and an event stream gathered into a whole completion.

_NULL = msgspec.Raw(b"null")
_EMPTY = msgspec.Raw(b'""')

_choices = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_chunks = msgspec.json.Decoder(dict[str, Any])


def events_of_answer(body: bytes, secrets: Sequence[str] = ()) -> bytes:
    """Return a completion as stream events: its texts, their ends, the usage, ``[DONE]``.

    Raises:
        UpstreamError: the body is empty (upstream_empty), no completion (invalid_response), or an error.

    """
    answer = read_answer(body, secrets)
    try:
        choices = few(_choices.decode(answer.pop("choices", _NULL)), "choices")
    except msgspec.ValidationError:
        raise no_answer(body, "a completion", secrets) from None
    texts = [{"index": msgspec.Raw(b"0"), **choice, "finish_reason": _NULL} for choice in choices]
    return events_of(answer, texts, choices, {"text": _EMPTY})


class CompletionGathering(Gathering):
    """Joins the choices by their index, and their fields by chat's tables."""

    def __init__(self) -> None:
        self._answer: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}

    def take(self, chunk: Chunk) -> None:
        """Translate one event.

        Raises:
            UpstreamError: the data are valid JSON, but no chunk of a completion (invalid_response).

        """
        try:
            said = _chunks.decode(chunk.data)
            for piece in few(said.pop("choices", None) or (), "choices"):
                self._add(piece)
        except SURPRISES as error:
            message = f"sent an invalid chunk: {type(error).__name__}"
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, message) from None
        for name, value in said.items():
            join(self._answer, name, value, CHUNK)

    def body(self) -> bytes:
        """Return the whole completion as JSON."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        return msgspec.json.encode({"object": "text_completion", **self._answer, "choices": choices}, enc_hook=whole)

    def _add(self, piece: dict[str, Any]) -> None:
        index = 0 if self.single else index_of(piece)
        choice = self._choices.setdefault(index, {"index": index, "text": "", "logprobs": None, "finish_reason": None})
        few(self._choices, "choices")
        if not isinstance(piece.get("text", ""), str | None):
            raise TypeError("a text is not a string")
        for name, value in piece.items():
            if name != "index":
                join(choice, name, value, CHOICE)


# A completion that broke off: prompt and text are continued like any other prompt.

_OFF = frozenset({b"null", b"false", b"0", b'""'})
_ONE = frozenset({b"null", b"1"})
_continuing_events = msgspec.json.Decoder(ReadChunk)


class CompletionContinuing(Continuing):
    """Completions. Any server that has them continues; a server that repeats the prompt (``echo``) is not asked."""

    ways: frozenset[Way] = frozenset()
    always_counts = False

    def obstacle(self, fields: Fields) -> str | None:
        """Return the kind of answer that cannot be continued."""
        for name in ("logprobs", "echo", "suffix"):
            if name in fields and bytes(fields[name]).strip() not in _OFF:
                return name
        for name in ("n", "best_of"):
            if name in fields and bytes(fields[name]).strip() not in _ONE:
                return "choices"
        return None if bytes(fields.get("prompt", b"")).lstrip().startswith(b'"') else "prompt"

    def begun(self, events: Iterable[bytes]) -> DeliveredPart:
        """Read the chunks that were delivered."""
        head: dict[str, Any] = {}
        pieces: list[str] = []
        for event in decoded_in(events, _continuing_events):
            head = head or (event.head() if event.choices else {})
            for choice in event.choices or ():
                if choice.index or choice.finish_reason:
                    return DeliveredPart("", None, "choices" if choice.index else "ended")
                pieces.append(choice.text or "")
        return DeliveredPart("".join(pieces), msgspec.json.encode(head) if head else None)

    def stops(self, fields: Fields) -> Sequence[str]:
        """Return the stop strings."""
        return strings_of(fields.get("stop"))

    def own_prefix(self, fields: Fields) -> str:  # noqa: ARG002 - the client's prefix is the end of the prompt
        """Return ""."""
        return ""

    def request(self, fields: Fields, begun: str, way: Way | None, spent_tokens: int) -> Fields:  # noqa: ARG002 - all do
        """Return the request with the beginning after the prompt."""
        changed = with_less(fields, ("max_tokens",), spent_tokens)
        prompt = msgspec.json.decode(fields["prompt"], type=str)
        changed["prompt"] = raw_json(prompt + begun)
        return changed

    def splice(self, begun: DeliveredPart) -> ChatSplice:
        """Return a writer of chunks with the first answer's id and model."""
        return ChatSplice(begun.head, "text_completion", _continuing_choice)


def _continuing_choice(text: str, finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}


_CHATS_ALONE = frozenset(  # all other fields, also those of vendors, are known in both
    {"metadata", "modalities", "parallel_tool_calls", "reasoning_effort", "response_format", "service_tier", "store"}
    | {"tool_choice", "tools", "top_logprobs", "verbosity", "web_search_options"}
)

COMPLETIONS = Dialect(
    name="completions",
    path="completions",
    endpoint="completions",
    untranslated="a raw prompt has no faithful translation",
    requests=RequestFormat(
        prompt="prompt",
        reading_order=("prompt",),
        choices="n",
        batched=True,
        parameters=ParameterNames(
            answer_limits=("max_tokens",),
            has_default_limit=True,  # the default is 16 tokens
            unknown=_CHATS_ALONE,
        ),
        decoded=frozenset({"logit_bias", "stop", "stream_options"}),
        omissible=OmissibleFields(
            fields=frozenset({"user"}),
        ),
        vendors=VendorsDiffer(
            takes_quirks=True,
        ),
    ),
    answers=AnswerFormat(
        read_event=read_event,
        texts=texts,
        choices=choices,
        events_of_answer=events_of_answer,
        gathering=CompletionGathering,
        ending=ENDING,
        failure=failure,
        refusals=frozenset({"content_filter"}),
        repairs=repairs_of_completions,
    ),
    continuing=CompletionContinuing(),
    continues_by_itself=True,
)
