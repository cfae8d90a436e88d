"""Translates a stream of chat chunks into a Responses stream."""

import re
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from providers.dialects.chunk import DONE, no_json_object
from providers.dialects.responses.echo import Echo
from providers.dialects.responses.namespaces import names_of
from providers.dialects.responses.open_items import OpenItems, string
from providers.dialects.responses.telling import Telling
from providers.dialects.responses.usage import responses_usage
from providers.dialects.wording import decoded
from providers.sse import events

_INCOMPLETE = {"length": "max_output_tokens", "model_length": "max_output_tokens", "content_filter": "content_filter"}
# A part of item ids. Clients may send them back, and they have 64 characters at most.
_STEM = re.compile(r"[A-Za-z0-9_-]{1,48}")

_chunks = msgspec.json.Decoder(dict[str, Any])


class FromChat:
    """Translates one answer.

    The last event needs the usage, which follows the finish reason. So it is sent at [DONE], or at the end of the
    stream. Without a finish reason there is none: the answer has broken off.
    """

    def __init__(
        self,
        asked: Mapping[str, msgspec.Raw],
        *,
        wall_clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._asked = asked
        self._wall_clock = wall_clock
        self._new_id = new_id
        self._telling = Telling()
        self._items = OpenItems(
            self._telling, names_of(asked.get("tools")), as_summary=_wants_summary(asked), new_id=new_id
        )
        self._echo: Echo | None = None  # None until the first chunk
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
                self._end()
            else:
                self._take(_read(data))
        return self._telling.take()

    def end(self) -> bytes:
        """Return the last event, unless it was sent, or the answer broke off before its finish reason."""
        self._end()
        return self._telling.take()

    def _end(self) -> None:
        if self._echo is not None and self._finish_reason is not None and not self._over:
            self._complete(self._echo)

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
        reason = string(choice.get("finish_reason"))
        if reason and self._finish_reason is None:
            self._finish_reason = reason
            self._items.close_all("incomplete" if reason in _INCOMPLETE else "completed")

    def _hear(self, delta: dict[str, Any], logprobs: Any) -> None:
        thought, text = _texts(delta.get("content"))
        # Some servers send the same text under both names.
        if thought := thought + (string(delta.get("reasoning")) or string(delta.get("reasoning_content"))):
            self._items.thinking().add(thought)
        if text:
            tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
            self._items.saying().text(text, tokens if isinstance(tokens, list) else [])
        if refusal := string(delta.get("refusal")):
            self._items.saying().refusal(refusal)
        for annotation in _objects(delta.get("annotations")):
            self._items.saying().annotation(_flat(annotation))
        for call in _objects(delta.get("tool_calls")):
            self._items.call(call)

    def _begin(self, chunk: dict[str, Any]) -> Echo:
        created, model = chunk.get("created"), string(chunk.get("model"))
        stem = string(chunk.get("id")).removeprefix("chatcmpl-").removeprefix("resp_")
        self._items.stem = stem if _STEM.fullmatch(stem) else self._new_id()
        self._echo = Echo(
            self._asked,
            response_id=f"resp_{self._items.stem}",
            created_at=int(created if isinstance(created, int | float) else self._wall_clock()),
            model=model or decoded(self._asked.get("model"), str, "model") or "",
        )
        for state in ("created", "in_progress"):
            self._telling.say(f"response.{state}", response=self._echo.state("in_progress"))
        return self._echo

    def _complete(self, echo: Echo) -> None:
        self._over = True
        why = _INCOMPLETE.get(self._finish_reason or "")
        self._items.close_all("completed")
        facts = {
            "output": self._items.output,
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
        raise no_json_object() from None


def _wants_summary(asked: Mapping[str, msgspec.Raw]) -> bool:
    reasoning = decoded(asked.get("reasoning"), dict[str, Any], "reasoning") or {}
    return bool(reasoning.get("summary") or reasoning.get("generate_summary"))


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
        texts.append(string(text))
    return "".join(thoughts), "".join(texts)


def _flat(annotation: dict[str, Any]) -> dict[str, Any]:
    """Return an annotation in flat form; chat nests its fields in an object named by its type."""
    inner = annotation.get(str(annotation.get("type")))
    return {"type": annotation.get("type"), **inner} if isinstance(inner, dict) else annotation
