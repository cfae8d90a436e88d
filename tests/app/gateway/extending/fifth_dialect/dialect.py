"""A dialect made up for the test: one line is asked, and answered in bits. It becomes ``providers/dialects/echo/``."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from providers import ErrorKind, UpstreamError, Usage, error_in, events, read_answer
from providers.dialects import (
    DONE,
    AnswerFormat,
    Chunk,
    Details,
    Dialect,
    Fields,
    Gathering,
    Habits,
    ParameterNames,
    Pattern,
    Pivoting,
    RequestFormat,
    Run,
    Wording,
    decoded,
    learned,
    raw_json,
)


def event(**fields: Any) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def read_event(data: bytes, secrets: Sequence[str] = ()) -> Chunk:
    try:
        said = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError:
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, "an event is not a JSON object") from None
    if "error" in said:
        return Chunk(data, error=error_in(data, secrets, otherwise=ErrorKind.STREAM_ERROR))
    bit, reason = said.get("bit", ""), said.get("over")
    usage = Usage(said["heard"], said["said"]) if "said" in said else None
    return Chunk(
        data,
        meaningful=bool(bit),
        answer=bool(bit),
        text_chars=len(bit),
        finished=reason is not None,
        done=reason is not None,
        finish_reason=reason,
        usage=usage,
    )


def texts(data: bytes) -> Iterator[tuple[int, str]]:
    yield 0, msgspec.json.decode(data).get("bit", "")


def events_of_answer(body: bytes, secrets: Sequence[str] = ()) -> bytes:
    answer = read_answer(body, secrets)
    text = msgspec.json.decode(answer.pop("text"))
    return event(bit=text) + event(**answer)


class EchoGathering(Gathering):
    def __init__(self) -> None:
        self._bits: list[str] = []
        self._end: dict[str, Any] = {}

    def take(self, chunk: Chunk) -> None:
        said = msgspec.json.decode(chunk.data)
        if "bit" in said:
            self._bits.append(said["bit"])
        else:
            self._end = said

    def take_run(self, run: Run, pattern: Pattern) -> bool:
        self._bits += run.texts()
        return True

    def body(self) -> bytes:
        return msgspec.json.encode({"text": "".join(self._bits), **self._end})


def failure(kind: str, message: str, _: Details = (), __: str | None = None) -> bytes:
    return event(error={"code": kind, "message": message})


def error_body(status: int, type_: str, message: str, request_id: str | None, _: Details = ()) -> bytes:
    return msgspec.json.encode({"echo": "wrong", "message": message})


def to_chat(fields: Fields, *, thoughts: bool = False) -> Wording:
    line = decoded(fields.get("line"), str, "line")
    said = {"messages": raw_json([{"role": "user", "content": line}]), "max_tokens": fields.get("bits")}
    rest = {name: value for name, value in fields.items() if name not in {"line", "bits"}}
    return Wording({**rest, **{name: value for name, value in said.items() if value is not None}})


def from_chat(fields: Fields, _: Habits) -> Wording:
    messages = decoded(fields.get("messages"), list[dict[str, Any]], "messages")
    rest = {name: value for name, value in fields.items() if name not in {"messages", "max_tokens", "stream_options"}}
    limit = {"bits": fields["max_tokens"]} if "max_tokens" in fields else {}
    return Wording({**rest, "line": raw_json(messages[-1]["content"]), **limit})


class _EachEvent:
    """A translation of one event at a time."""

    finishing = False
    usage_so_far = None

    def __init__(self, translated: Callable[[dict[str, Any]], bytes]) -> None:
        self._translated = translated

    def feed(self, block: bytes) -> bytes:
        datas = [each.data for each in events(block) if each.data and each.data != DONE]
        return b"".join(self._translated(msgspec.json.decode(data)) for data in datas)

    def end(self) -> bytes:
        return b""


def _as_chunk(said: dict[str, Any]) -> bytes:
    top = {"id": "echo", "object": "chat.completion.chunk", "created": 0, "model": "echo"}
    if "over" not in said:
        return event(**top, choices=[{"index": 0, "delta": {"content": said["bit"]}}])
    end = event(**top, choices=[{"index": 0, "delta": {}, "finish_reason": said["over"]}])
    usage = {"prompt_tokens": said["heard"], "completion_tokens": said["said"]}
    return end + event(**top, choices=[], usage=usage) + b"data: [DONE]\n\n"


class _FromChat(_EachEvent):
    def __init__(self) -> None:
        self._over: str | None = None
        super().__init__(self._said)

    def _said(self, chunk: dict[str, Any]) -> bytes:
        for choice in chunk["choices"]:
            self._over = choice.get("finish_reason") or self._over
            if text := choice["delta"].get("content"):
                return event(bit=text)
        if (usage := chunk.get("usage")) is None:
            return b""
        return event(over=self._over, heard=usage["prompt_tokens"], said=usage["completion_tokens"])


ECHO = Dialect(
    name="echo",
    path="echo/lines",
    endpoint="echo.lines",
    error_body=error_body,
    requests=RequestFormat(
        prompt="line",
        reading_order=("line",),
        parameters=ParameterNames(answer_limits=("bits",), known=frozenset({"temperature"})),
    ),
    answers=AnswerFormat(
        read_event=read_event,
        texts=texts,
        events_of_answer=events_of_answer,
        gathering=EchoGathering,
        ending=event(over="stop", heard=0, said=0),
        failure=failure,
        keep_alive=b": the echo is on its way\n\n",
        cut_short=frozenset({"enough"}),
        learned=partial(learned, opening=re.compile(rb'"bit":"')),
    ),
    pivoting=Pivoting(
        to_chat=to_chat,
        from_chat=from_chat,
        stream_to_chat=lambda secrets, answers: _EachEvent(_as_chunk),
        stream_from_chat=lambda asked, secrets: _FromChat(),
    ),
)
