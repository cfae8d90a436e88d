"""Translates a stream of chat chunks into a Responses stream."""

import re
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from providers.dialects.chunk import DONE
from providers.dialects.responses.echo import Echo
from providers.dialects.responses.namespaces import names_of
from providers.dialects.responses.output import Called, Item, Said, Thought
from providers.dialects.responses.telling import Telling
from providers.dialects.responses.thoughts import TRANSLATED
from providers.dialects.responses.usage import responses_usage
from providers.dialects.wording import decoded
from providers.errors import ErrorKind, UpstreamError
from providers.sse import events

_INCOMPLETE = {"length": "max_output_tokens", "model_length": "max_output_tokens", "content_filter": "content_filter"}
# A part of item ids. Clients may send them back, and they have 64 characters at most.
_STEM = re.compile(r"[A-Za-z0-9_-]{1,48}")

_chunks = msgspec.json.Decoder(dict[str, Any])


class FromChat:
    """Translates one answer. One item follows the other, as in the API; only calls stay open together until the end.

    The last event needs the usage, which follows the finish reason. So it is sent at [DONE], or at the end of the
    stream if there was a finish reason.
    """

    def __init__(
        self,
        asked: Mapping[str, msgspec.Raw],
        *,
        wall_clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._asked = asked
        self._as_summary = _wants_summary(asked)
        self._names = names_of(asked.get("tools"))
        self._wall_clock = wall_clock
        self._new_id = new_id
        self._telling = Telling()
        self._echo: Echo | None = None  # None until the first chunk
        self._stem = ""  # a part of all ids
        self._count = 0  # items begun so far
        self._items: dict[int, Item] = {}  # complete items by their index in the output
        self._open: tuple[int, Said | Thought] | None = None
        self._calls: dict[Any, tuple[int, Called]] = {}  # open calls, by their index or id in chat
        self._nameless: dict[Any, list[tuple[str, str]]] = {}  # ids and arguments of calls without a name so far
        self._usage: dict[str, Any] | None = None
        self._finish_reason: str | None = None
        self._over = False

    @property
    def finishing(self) -> bool:
        """Whether there was a finish reason, and the last event is not told yet."""
        return self._finish_reason is not None and not self._over

    def feed(self, block: bytes) -> bytes:
        """Translate whole events of a chat completion; return ``b""`` if nothing can be sent yet.

        Raises:
            UpstreamError: an event is not a JSON object (invalid_response). A provider's error becomes an error event.

        """
        for event in events(block):
            data = event.data.strip()
            if self._over or not data:
                continue
            if data == DONE:
                if self._echo is not None:  # otherwise there is no answer: an end alone must not look like one
                    self._complete(self._echo)
            else:
                self._take(_read(data))
        return self._telling.take()

    def end(self) -> bytes:
        """Return the last event, unless it was sent, or the answer broke off before its finish reason."""
        if self._echo is not None and self._finish_reason is not None and not self._over:
            self._complete(self._echo)
        return self._telling.take()

    def _take(self, chunk: dict[str, Any]) -> None:
        choice = next((one for one in _objects(chunk.get("choices")) if not one.get("index")), {})
        error = chunk.get("error") or choice.get("error")
        if error or chunk.get("object") == "error" or choice.get("finish_reason") == "error":
            self._fail(error or chunk)
            return
        echo = self._echo or self._begin(chunk)
        if tier := chunk.get("service_tier"):
            echo.note(service_tier=tier)
        self._usage = _usage(chunk) or self._usage
        delta = choice.get("delta")
        if isinstance(delta, dict):
            self._hear(delta, choice.get("logprobs"))
        reason = _string(choice.get("finish_reason"))
        if reason and self._finish_reason is None:
            self._finish_reason = reason
            self._close_all("incomplete" if reason in _INCOMPLETE else "completed")

    def _hear(self, delta: dict[str, Any], logprobs: Any) -> None:
        thought, text = _texts(delta.get("content"))
        # Some servers send the same text under both names.
        if thought := thought + (_string(delta.get("reasoning")) or _string(delta.get("reasoning_content"))):
            self._thinking().add(thought)
        if text:
            tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
            self._saying().text(text, tokens if isinstance(tokens, list) else [])
        if refusal := _string(delta.get("refusal")):
            self._saying().refusal(refusal)
        for annotation in _objects(delta.get("annotations")):
            self._saying().annotation(_flat(annotation))
        for call in _objects(delta.get("tool_calls")):
            self._call(call)

    def _begin(self, chunk: dict[str, Any]) -> Echo:
        created, model = chunk.get("created"), _string(chunk.get("model"))
        stem = _string(chunk.get("id")).removeprefix("chatcmpl-").removeprefix("resp_")
        self._stem = stem if _STEM.fullmatch(stem) else self._new_id()
        self._echo = Echo(
            self._asked,
            response_id=f"resp_{self._stem}",
            created_at=int(created if isinstance(created, int | float) else self._wall_clock()),
            model=model or decoded(self._asked.get("model"), str, "model") or "",
        )
        for state in ("created", "in_progress"):
            self._telling.say(f"response.{state}", response=self._echo.state("in_progress"))
        return self._echo

    def _thinking(self) -> Thought:
        if self._open is not None and isinstance(self._open[1], Thought):
            return self._open[1]
        self._close_open("completed")
        number, item_id = self._next(TRANSLATED)
        thought = Thought(self._telling, item_id, number, as_summary=self._as_summary)
        self._open = number, thought
        return thought

    def _saying(self) -> Said:
        if self._open is not None and isinstance(self._open[1], Said):
            return self._open[1]
        self._close_open("completed")
        number, item_id = self._next("msg")
        said = Said(self._telling, item_id, number)
        self._open = number, said
        return said

    def _call(self, call: dict[str, Any]) -> None:
        is_custom = isinstance(call.get("custom"), dict)
        inner = call.get("custom" if is_custom else "function")
        inner = inner if isinstance(inner, dict) else {}
        index, call_id, name = call.get("index"), _string(call.get("id")), _string(inner.get("name"))
        piece = _string(inner.get("input" if is_custom else "arguments"))
        key = index if isinstance(index, int) else call_id or next(reversed(self._calls | self._nameless), 0)
        if key not in self._calls:
            self._nameless.setdefault(key, []).append((call_id, piece))
            if not name:
                return
            before = self._nameless.pop(key)
            self._close_open("completed")
            number, item_id = self._next("ctc" if is_custom else "fc")
            call_id = next((one for one, _ in before if one), "") or f"call_{self._new_id()}"
            begun = Called(
                self._telling, item_id, number, call_id=call_id, name=self._names.get(name, name), is_custom=is_custom
            )
            self._calls[key] = number, begun
            piece = "".join(said for _, said in before)
        if piece:
            self._calls[key][1].add(piece)

    def _next(self, prefix: str) -> tuple[int, str]:
        number = self._count
        self._count += 1
        return number, f"{prefix}_{self._stem}_{number}"

    def _close_open(self, status: str) -> None:
        if self._open is not None:
            number, item = self._open
            self._open = None
            self._items[number] = item.close(status)

    def _close_all(self, status: str) -> None:
        """End all open items. The last one ends with ``status``; calls before it are complete."""
        if self._nameless:
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, "called a tool without a name")
        self._close_open(status)
        last = self._count - 1
        for number, call in self._calls.values():
            self._items[number] = call.close(status if number == last else "completed")
        self._calls.clear()

    def _complete(self, echo: Echo) -> None:
        self._over = True
        why = _INCOMPLETE.get(self._finish_reason or "")
        self._close_all("completed")
        facts = {
            "output": [self._items[number] for number in sorted(self._items)],
            "usage": None if self._usage is None else responses_usage(self._usage),
        }
        if why is None:
            done = echo.state("completed", **facts, completed_at=int(self._wall_clock()))
            self._telling.say("response.completed", response=done)
        else:
            state = echo.state("incomplete", **facts, incomplete_details={"reason": why})
            self._telling.say("response.incomplete", response=state)

    def _fail(self, error: Any) -> None:
        self._over = True
        told = error if isinstance(error, dict) else {"message": str(error)}
        self._telling.fail({"type": None, "code": None, "message": "the provider sent an error", "param": None} | told)


def _read(data: bytes) -> dict[str, Any]:
    try:
        return _chunks.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, "an event of the stream is not a JSON object") from None


def _wants_summary(asked: Mapping[str, msgspec.Raw]) -> bool:
    reasoning = decoded(asked.get("reasoning"), dict[str, Any], "reasoning") or {}
    return bool(reasoning.get("summary") or reasoning.get("generate_summary"))


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _usage(chunk: dict[str, Any]) -> dict[str, Any] | None:
    usage = chunk.get("usage")
    if usage is None and isinstance(groq := chunk.get("x_groq"), dict):
        usage = groq.get("usage")
    return usage if isinstance(usage, dict) else None


def _texts(content: Any) -> tuple[str, str]:
    """Return the reasoning and the text of a delta's content; Mistral sends a list of parts, some of them thinking."""
    if isinstance(content, str):
        return "", content
    thoughts, texts = [], []
    for part in _objects(content):
        thinking, text = part.get("thinking"), part.get("text")
        thoughts.append(thinking if isinstance(thinking, str) else _texts(thinking)[1])
        texts.append(_string(text))
    return "".join(thoughts), "".join(texts)


def _flat(annotation: dict[str, Any]) -> dict[str, Any]:
    """Return an annotation in flat form; chat nests its fields in an object named by its type."""
    inner = annotation.get(str(annotation.get("type")))
    return {"type": annotation.get("type"), **inner} if isinstance(inner, dict) else annotation
