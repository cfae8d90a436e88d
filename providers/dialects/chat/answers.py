"""Whole chat completions as event streams, and the last event of a stream that ends or breaks off.

Some servers answer a request for a stream with one JSON body, and some deployments cannot stream. Gathering the events
made here gives the same answer: every field of it, of its choices and of their messages is kept byte for byte.
"""

from collections.abc import Mapping, Sequence

import msgspec

from providers.errors import ErrorKind, UpstreamError
from providers.json_answer import read_answer

ENDING = b"data: [DONE]\n\n"

_Object = dict[str, msgspec.Raw]

_objects = msgspec.json.Decoder(_Object)
_lists = msgspec.json.Decoder(list[_Object])

_NULL = msgspec.Raw(b"null")
_EMPTY_OBJECT = msgspec.Raw(b"{}")
_STOP = msgspec.Raw(b'"stop"')
_CHUNK = msgspec.Raw(b'"chat.completion.chunk"')


def failure(kind: str, message: str) -> bytes:
    """Return the event of an error; no [DONE] follows, so that SDKs raise instead of returning half an answer."""
    body = {"message": message, "type": "upstream_error", "param": None, "code": kind}
    return b"data: " + msgspec.json.encode({"error": body}) + b"\n\n"


def events_of_answer(body: bytes, secrets: Sequence[str] = ()) -> bytes:
    """Return a chat completion as stream events: its messages, their ends, the usage, ``[DONE]``.

    Raises:
        UpstreamError: as ``read_answer``; also when the answer has no choices (invalid_response).

    """
    answer = read_answer(body, secrets)
    try:
        choices = _lists.decode(answer.pop("choices", _EMPTY_OBJECT))
        deltas = [_with_delta(choice) for choice in choices]
    except msgspec.ValidationError:
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, "answered with JSON that is not a chat completion") from None
    ends = [
        {"index": delta["index"], "delta": _EMPTY_OBJECT, "finish_reason": _finish_reason(choice)}
        for choice, delta in zip(choices, deltas, strict=True)
    ]
    usage = answer.pop("usage", _NULL)
    answer["object"] = _CHUNK
    stream = [_event(answer, deltas), _event(answer, ends)]
    if usage != _NULL:
        stream.append(_event({**answer, "usage": usage}, []))
    stream.append(ENDING)
    return b"".join(stream)


def _with_delta(choice: Mapping[str, msgspec.Raw]) -> _Object:
    """Return a choice as in its first chunk: its message as a delta, its tool calls numbered, no finish reason."""
    rest = {name: value for name, value in choice.items() if name not in ("message", "delta", "finish_reason")}
    message = _objects.decode(choice.get("message", choice.get("delta", _EMPTY_OBJECT)))
    if (calls := message.get("tool_calls", _NULL)) != _NULL:
        numbered = [{"index": msgspec.Raw(b"%d" % i), **call} for i, call in enumerate(_lists.decode(calls))]
        message["tool_calls"] = msgspec.Raw(msgspec.json.encode(numbered))
    delta = msgspec.Raw(msgspec.json.encode(message))
    return {"index": msgspec.Raw(b"0"), **rest, "delta": delta, "finish_reason": _NULL}


def _finish_reason(choice: Mapping[str, msgspec.Raw]) -> msgspec.Raw:
    # The answer is complete, so it must not lack a finish reason.
    reason = choice.get("finish_reason", _NULL)
    return _STOP if reason == _NULL else reason


def _event(top: Mapping[str, msgspec.Raw], choices: Sequence[Mapping[str, msgspec.Raw]]) -> bytes:
    data = msgspec.json.encode({**top, "choices": choices})
    if b"\n" in data or b"\r" in data:  # raw JSON may be pretty-printed; an event's data is one line
        data = msgspec.json.format(data, indent=-1)
    return b"data: " + data + b"\n\n"
