"""Whole completions: presented as an event stream, and gathered from one."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from providers.dialects.chat.answers import ENDING
from providers.dialects.chunk import Chunk
from providers.dialects.gathering import Gathering
from providers.errors import ErrorKind, UpstreamError
from providers.json_answer import read_answer

_NULL = msgspec.Raw(b"null")
_EMPTY = msgspec.Raw(b'""')
_STOP = msgspec.Raw(b'"stop"')
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_choices = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_chunks = msgspec.json.Decoder(dict[str, Any])


def events_of_answer(body: bytes, secrets: Sequence[str] = ()) -> bytes:
    """Return a completion as stream events: its texts, their ends, the usage, ``[DONE]``.

    Raises:
        UpstreamError: it is empty (upstream_empty), not a completion (invalid_response), or an error.

    """
    answer = read_answer(body, secrets)
    try:
        choices = _choices.decode(answer.pop("choices", _NULL))
    except msgspec.ValidationError:
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, "answered with JSON that is not a completion") from None
    usage = answer.pop("usage", _NULL)
    texts = [{"index": msgspec.Raw(b"0"), **choice, "finish_reason": _NULL} for choice in choices]
    ends = [
        {"index": text["index"], "text": _EMPTY, "finish_reason": _finish_reason(choice)}
        for choice, text in zip(choices, texts, strict=True)
    ]
    stream = [_event(answer, texts), _event(answer, ends)]
    if usage != _NULL:
        stream.append(_event({**answer, "usage": usage}, []))
    return b"".join([*stream, ENDING])


class CompletionGathering(Gathering):
    """Joins the texts and log probabilities of each choice; of every other field the last value is kept."""

    def __init__(self) -> None:
        self._answer: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._texts: dict[int, list[str]] = {}

    def take(self, chunk: Chunk) -> None:
        """Take one event.

        Raises:
            UpstreamError: it is valid JSON, but not a chunk of a completion (invalid_response).

        """
        try:
            said = _chunks.decode(chunk.data)
            for piece in said.pop("choices", None) or ():
                self._add(piece)
        except (*_NOT_JSON, AttributeError, TypeError) as error:
            message = f"sent an invalid chunk: {type(error).__name__}"
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, message) from None
        self._answer |= {name: value for name, value in said.items() if value is not None or name not in self._answer}

    def body(self) -> bytes:
        """Return the whole completion as JSON."""
        choices = [
            {"index": index, **self._choices[index], "text": "".join(self._texts[index])}
            for index in sorted(self._choices)
        ]
        return msgspec.json.encode({"object": "text_completion", **self._answer, "choices": choices})

    def _add(self, piece: dict[str, Any]) -> None:
        index = piece.get("index") or 0
        if not isinstance(index, int):
            raise TypeError("an index is not a number")
        choice = self._choices.setdefault(index, {"logprobs": None, "finish_reason": None})
        texts = self._texts.setdefault(index, [])
        for name, value in piece.items():
            if name == "text":
                texts.append(_string(value))
            elif name == "logprobs" and isinstance(value, dict):
                choice["logprobs"] = _extended(choice["logprobs"] or {}, value)
            elif value is not None and name != "index":
                choice[name] = value


def _string(value: Any) -> str:
    if not isinstance(value, str | None):
        raise TypeError("a text is not a string")
    return value or ""


def _extended(logprobs: dict[str, Any], piece: Mapping[str, Any]) -> dict[str, Any]:
    """Return log probabilities, which are lists with a value for each token, with those of the next piece."""
    whole = dict(logprobs)
    for name, values in piece.items():
        old = whole.get(name)
        whole[name] = [*old, *values] if isinstance(old, list) and isinstance(values, list) else values or old
    return whole


def _finish_reason(choice: Mapping[str, msgspec.Raw]) -> msgspec.Raw:
    # The answer is complete, so it must not lack a finish reason.
    reason = choice.get("finish_reason", _NULL)
    return _STOP if reason == _NULL else reason


def _event(top: Mapping[str, msgspec.Raw], choices: Sequence[Mapping[str, msgspec.Raw]]) -> bytes:
    data = msgspec.json.encode({**top, "choices": choices})
    if b"\n" in data or b"\r" in data:  # raw JSON may be pretty-printed; an event's data is one line
        data = msgspec.json.format(data, indent=-1)
    return b"data: " + data + b"\n\n"
