"""Translates a stream of chat chunks into a Responses stream."""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from providers.bodies import events
from providers.dialects.chat.deltas import (
    OF_CALLS,
    THINKS,
    StreamErrors,
    UsageSoFar,
    calls_in,
    delta_of,
    googles_in,
    no_place,
    pictures_in,
    said_in,
    signed_in,
    sound_in,
    split_data,
    string,
    usage_in,
)
from providers.dialects.chat.references import BESIDE, ChunkReferences
from providers.dialects.events import CUT_SHORT, DONE, FILTERED, Run, few, no_json_object
from providers.dialects.responses.compacting import closed, compacts
from providers.dialects.responses.echo import Echo
from providers.dialects.responses.fields import EventWriter, all_tools, encrypted_of, flat, names_of, responses_usage
from providers.dialects.responses.open_items import Item, OpenItems
from providers.dialects.wording import REDACTED, UniqueIds, decoded
from providers.models import Usage
from providers.refusals import UNREADABLE, ErrorKind, UpstreamError

_INCOMPLETE = dict.fromkeys(CUT_SHORT, "max_output_tokens") | dict.fromkeys(FILTERED, "content_filter")
_UNKNOWN = Usage()
_chunks = msgspec.json.Decoder(dict[str, Any])


class FromChat:
    """Translates one answer.

    The last event has the usage. Usage comes after the finish reason; references may follow too, and from some servers
    text. So the last event is sent at [DONE] or at the end of the stream, and so are the events that end a message.
    Without a finish reason none of these events is sent: the answer has broken off.
    """

    def __init__(
        self,
        asked: Mapping[str, msgspec.Raw],
        secrets: Sequence[str] = (),
        *,
        wall_clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._asked, self._wall_clock, self._new_id = asked, wall_clock, new_id
        self._errors, self._writer = StreamErrors(secrets), EventWriter()
        tools = all_tools(asked)
        names, ids = names_of(tools), UniqueIds(conversation=asked.get("input", b""))
        self._references = ChunkReferences()
        self._items = OpenItems(
            self._writer,
            names,
            as_summary=_wants_summary(asked),
            new_id=new_id,
            ids=ids,
            references=self._references,
        )
        self._summary: list[str] | None = [] if compacts(asked) else None  # in place of an answer
        self._is_cut = False  # a call's argument is not whole: everything else waits
        self._waiting: list[tuple[dict[str, Any], Any]] = []  # deltas, each with its log probabilities
        self._echo: Echo | None = None  # None until the first chunk
        self._unplaced: list[dict[str, Any]] = []  # references for which there is no message yet
        self._counted = UsageSoFar()
        self._usage: Mapping[str, Any] | None = None  # the usage, if it has the answer's tokens
        self._finish_reason: str | None = None
        self._over = False

    @property
    def finishing(self) -> bool:
        """Whether there was a finish reason, and the last event is not sent yet."""
        return self._finish_reason is not None and not self._over

    @property
    def usage_so_far(self) -> Usage | None:
        """The usage that the chunks have reported."""
        return self._counted.told

    def feed(self, block: bytes) -> bytes:
        """Translate whole events of a chat completion; return ``b""`` if nothing can be sent yet.

        Raises:
            UpstreamError: an event is no JSON object (invalid_response), or the provider's error.

        """
        for event in events(block):
            data = event.data.strip()
            if self._over or not data:
                continue
            if data == DONE:
                self._end()
            else:
                self._take(_read(data), data)
        return self._writer.take()

    def end(self) -> bytes:
        """Return the last event, unless it was sent. If the answer broke off, raise the error that says why."""
        if self._finish_reason is None:
            self._errors.check()
        self._end()
        return self._writer.take()

    def spliced(self, run: Run) -> None:
        """Note texts: the events that end an item repeat all of its texts."""
        self._writer.skip(len(run.raw_texts))
        self._items.saying().spliced(run.text())

    def _end(self) -> None:
        if self._echo is not None and self._finish_reason is not None and not self._over:
            self._complete(self._echo)

    def _take(self, chunk: dict[str, Any], data: bytes) -> None:
        choices = _objects(chunk.get("choices"))
        self._errors.take(chunk, choices, data)
        # An answer without a count is estimated: no answer has 0 tokens.
        if (
            (usage := usage_in(chunk))
            and self._counted.take(usage, chunk)
            and (self._counted.told or _UNKNOWN).completion_tokens is not None
        ):
            self._usage = self._counted.reported
        if self._echo is None and not choices:
            return  # Azure's first chunk is about the prompt, and has no id and no model yet
        echo = self._echo or self._begin(chunk)
        if tier := chunk.get("service_tier"):
            echo.note(service_tier=tier)
        if not BESIDE.isdisjoint(chunk):
            self._references.take(chunk)
        for choice in choices:  # parts of the one answer, however the server numbers the choices
            delta = delta_of(choice)
            if isinstance(delta, dict):
                if self._summary is not None:
                    self._sum_up(delta, self._summary)
                elif self._is_cut or delta.get("tool_calls"):
                    self._hear_calls(delta, choice.get("logprobs"))
                else:
                    self._hear(delta, choice.get("logprobs"))
            if reason := string(choice.get("finish_reason")):
                self._finish(reason)

    def _sum_up(self, delta: dict[str, Any], summary: list[str]) -> None:
        """Keep a piece of a summary, and send an event that one is under way: the client reads none of the text."""
        text = delta.get("content") or ""
        if text and (not isinstance(text, str) or not THINKS.isdisjoint(delta)):
            _, text = said_in(delta)
        if not text:
            return
        if not summary:
            self._writer.say("response.output_item.added", output_index=0, item=self._compaction(""))
        summary.append(text)
        self._writer.say("response.compaction.compacting", output_index=0, item_id=self._compaction("")["id"])

    def _compaction(self, summary: str) -> Item:
        content = closed(summary) if summary else ""
        return {"id": f"cmp_{self._items.stem}_0", "type": "compaction", "encrypted_content": content}

    def _summed_up(self, summary: Sequence[str]) -> list[Item]:
        """End the item of a summary, which is the only item; return the item.

        Raises:
            UpstreamError: there is no summary (invalid_answer).

        """
        text = "".join(summary).strip()
        if not text:
            raise UpstreamError(ErrorKind.INVALID_ANSWER, "wrote no summary of the conversation")
        item = self._compaction(text)
        self._writer.say("response.output_item.done", output_index=0, item=item)
        return [item]

    def _finish(self, reason: str) -> None:
        if self._finish_reason is not None and reason not in _INCOMPLETE:
            return
        self._finish_reason = reason
        status = "incomplete" if reason in _INCOMPLETE else "completed"
        if self._waiting:
            self._items.end_calls(status)
            self._is_cut = False
            self._say_waiting()
        self._is_cut = False
        if not self._items.is_saying:  # references of a message may follow
            self._items.close_all(status)

    def _hear_calls(self, delta: dict[str, Any], logprobs: Any) -> None:
        """Send pieces of calls. Anything else within a call's arguments waits until the arguments are whole."""
        if not self._is_cut:
            self._hear(delta, logprobs)
        elif any(value for name, value in delta.items() if name not in OF_CALLS):
            self._waiting.append((delta, logprobs))
        for call in calls_in(delta) if delta.get("tool_calls") else ():
            self._items.call(call)
        self._is_cut = self._items.is_within_call
        if not self._is_cut and self._waiting:
            self._say_waiting()

    def _say_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for delta, logprobs in waiting:
            self._hear(delta, logprobs)

    def _hear(self, delta: dict[str, Any], logprobs: Any) -> None:
        """Send all of a delta but the calls."""
        text = delta.get("content") or ""
        thought, text = ("", text) if isinstance(text, str) and THINKS.isdisjoint(delta) else said_in(delta)
        signed = signed_in(delta)
        if thought or signed:
            self._think(thought, signed)
        if signature := googles_in(delta):
            self._items.seal(signature)
        if text:
            tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
            self._items.saying().text(text, tokens if isinstance(tokens, list) else [])
        if refusal := string(delta.get("refusal")):
            self._items.saying().refusal(refusal)
        if any(sound_in(delta)):
            raise no_place("sound", "the Responses API")
        for url in pictures_in(delta):
            if (picture := split_data(url)) is None:
                raise no_place("the address of a picture", "the Responses API")
            self._items.picture(*picture)
        if self._unplaced or delta.get("annotations"):
            self._annotate(self._references.annotations_in(delta))

    def _annotate(self, annotations: Sequence[dict[str, Any]]) -> None:
        """Add references to the open message, or to the next message; other items have no place for references."""
        self._unplaced += annotations
        if self._items.is_saying:
            for annotation in self._unplaced:
                self._items.saying().annotation(flat(annotation))
            self._unplaced.clear()

    def _think(self, thought: str, signed: Sequence[Mapping[str, Any]]) -> None:
        if any(block.get("thinking") for block in signed) and not self._items.is_thinking:
            thought = ""  # blocks have the thought
        if thought:
            self._items.thinking().add(thought)
        for block in signed:
            self._sign(block)

    def _sign(self, block: Mapping[str, Any]) -> None:
        """End a thought with the text that only the maker can read. A thought that was not streamed comes whole."""
        was_open = self._items.is_thinking
        if block["type"] == REDACTED and was_open:
            self._items.saying_nothing()
        item = self._items.thinking()
        if not was_open and (text := string(block.get("thinking"))):
            item.add(text)
        item.sign(encrypted_of(block) or "")

    def _begin(self, chunk: dict[str, Any]) -> Echo:
        created, model = chunk.get("created"), string(chunk.get("model"))
        # Later requests name a response by its id. So the id must be unique, and known only to the response's client.
        # The id of the chat answer is neither: the ledger has it, and Ollama's ids are numbers below 1,000.
        # https://github.com/ollama/ollama/blob/main/middleware/openai.go
        self._items.stem = self._new_id()
        self._echo = Echo(
            self._asked,
            response_id=f"resp_{self._items.stem}",
            created_at=int(created if isinstance(created, int | float) else self._wall_clock()),
            model=model or decoded(self._asked.get("model"), str, "model") or "",
        )
        for state in ("created", "in_progress"):
            self._writer.say(f"response.{state}", response=self._echo.state("in_progress"))
        return self._echo

    def _complete(self, echo: Echo) -> None:
        self._over = True
        why = _INCOMPLETE.get(self._finish_reason or "")
        self._items.close_all("completed" if why is None else "incomplete")
        facts = {
            "output": self._items.output if self._summary is None else self._summed_up(self._summary),
            "usage": None if self._usage is None else responses_usage(self._usage),
        }
        if why is None:
            done = echo.state("completed", **facts, completed_at=int(self._wall_clock()))
            self._writer.say("response.completed", response=done)
        else:
            state = echo.state("incomplete", **facts, incomplete_details={"reason": why})
            self._writer.say("response.incomplete", response=state)


def _read(data: bytes) -> dict[str, Any]:
    try:
        return _chunks.decode(data)
    except UNREADABLE:
        raise no_json_object() from None


def _wants_summary(asked: Mapping[str, msgspec.Raw]) -> bool:
    reasoning = decoded(asked.get("reasoning"), dict[str, Any], "reasoning") or {}
    return bool(reasoning.get("summary") or reasoning.get("generate_summary"))


def _objects(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        return value  # nearly always
    return [item for item in few(value, "parts") if isinstance(item, dict)] if isinstance(value, list) else []
