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
from providers.dialects.events import CUT_SHORT, DONE, FILTERED, Run, few, joined_arguments, no_json_object
from providers.dialects.partial_calls import PartialCall, PartialCalls
from providers.dialects.reading import RawObject
from providers.dialects.responses.built_in import SHELL, BuiltIn
from providers.dialects.responses.compacting import closed, compacts
from providers.dialects.responses.fields import (
    EventWriter,
    all_tools,
    encrypted_of,
    flat,
    names_of,
    responses_usage,
)
from providers.dialects.wording import OF_CALL, OF_TEXT, REDACTED, UniqueIds, arguments_object, decoded
from providers.models import Usage
from providers.refusals import UNREADABLE, ErrorKind, UpstreamError

# The output items of a response while they are streamed, each with its events in the API's order.

Item = dict[str, Any]


class MessageItem:
    """An item: a message of the assistant, of texts and refusals."""

    def __init__(self, writer: EventWriter, item_id: str, output_index: int) -> None:
        self._writer = writer
        self._place = {"item_id": item_id, "output_index": output_index}
        self._item: Item = {
            "id": item_id,
            "type": "message",
            "status": "in_progress",
            "role": "assistant",
            "content": [],
        }
        self._part: Item | None = None
        self._pieces: list[str] = []
        writer.say("response.output_item.added", output_index=output_index, item=self._item)

    def text(self, delta: str, logprobs: Sequence[Any]) -> None:
        """Add a piece of text, with the log probabilities of its tokens, if any."""
        part = self._in("output_text", text="", annotations=[], logprobs=[])
        self._pieces.append(delta)
        part["logprobs"].extend(logprobs)
        self._say("response.output_text.delta", delta=delta, logprobs=logprobs)

    def spliced(self, text: str) -> None:
        """Note pieces of text that were sent already."""
        self._pieces.append(text)

    def refusal(self, delta: str) -> None:
        """Add a piece of a refusal."""
        self._in("refusal", refusal="")
        self._pieces.append(delta)
        self._say("response.refusal.delta", delta=delta)

    def annotation(self, annotation: Item) -> None:
        """Add an annotation of the text."""
        annotations = self._in("output_text", text="", annotations=[], logprobs=[])["annotations"]
        number = len(annotations)
        annotations.append(annotation)
        self._say("response.output_text.annotation.added", annotation=annotation, annotation_index=number)

    def close(self, status: str) -> Item:
        """End the item and return it."""
        self._close_part()
        self._item["status"] = status
        self._writer.say("response.output_item.done", output_index=self._place["output_index"], item=self._item)
        return self._item

    def _in(self, kind: str, **empty: Any) -> Item:
        """Return the open part of this kind; a new one if none is open."""
        if self._part is None or self._part["type"] != kind:
            self._close_part()
            self._part = {"type": kind, **empty}
            self._say("response.content_part.added", part=self._part)
        return self._part

    def _close_part(self) -> None:
        part = self._part
        if part is None:
            return
        whole = "".join(self._pieces)
        if part["type"] == "output_text":
            part["text"] = whole
            self._say("response.output_text.done", text=whole, logprobs=part["logprobs"])
        else:
            part["refusal"] = whole
            self._say("response.refusal.done", refusal=whole)
        self._say("response.content_part.done", part=part)
        self._item["content"].append(part)
        self._part = None
        self._pieces.clear()

    def _say(self, kind: str, **fields: Any) -> None:
        self._writer.say(kind, **self._place, content_index=len(self._item["content"]), **fields)


class Thought:
    """An item: reasoning. Clients that requested a summary get it as a summary, as they read nothing else."""

    def __init__(self, writer: EventWriter, item_id: str, output_index: int, *, as_summary: bool) -> None:
        self._writer = writer
        self._as_summary = as_summary
        self._place = {"item_id": item_id, "output_index": output_index}
        self._item: Item = {"id": item_id, "type": "reasoning", "status": "in_progress", "summary": [], "content": []}
        self._pieces: list[str] = []
        writer.say("response.output_item.added", output_index=output_index, item=self._item)
        self._has_part = False

    @property
    def is_signed(self) -> bool:
        """Whether the item has ended."""
        return "encrypted_content" in self._item

    def sign(self, encrypted: str) -> None:
        """Add the encrypted reasoning, which only the maker can read. Nothing follows it."""
        self._item["encrypted_content"] = encrypted

    def add(self, delta: str) -> None:
        """Add a piece."""
        if not self._has_part:
            self._has_part = True
            self._say_part("added", "")
        self._pieces.append(delta)
        self._say_text("delta", delta=delta)

    def close(self, status: str) -> Item:
        """End the item and return it."""
        if self._has_part:
            whole = "".join(self._pieces)
            self._say_text("done", text=whole)
            self._item["summary" if self._as_summary else "content"].append(self._say_part("done", whole))
        self._item["status"] = status
        self._writer.say("response.output_item.done", output_index=self._place["output_index"], item=self._item)
        return self._item

    def _say_text(self, what: str, **fields: Any) -> None:
        if self._as_summary:
            self._writer.say(f"response.reasoning_summary_text.{what}", **self._place, summary_index=0, **fields)
        else:
            self._writer.say(f"response.reasoning_text.{what}", **self._place, content_index=0, **fields)

    def _say_part(self, what: str, text: str) -> Item:
        if self._as_summary:
            part = {"type": "summary_text", "text": text}
            self._writer.say(f"response.reasoning_summary_part.{what}", **self._place, summary_index=0, part=part)
        else:
            part = {"type": "reasoning_text", "text": text}
            self._writer.say(f"response.content_part.{what}", **self._place, content_index=0, part=part)
        return part


class Called:
    """An item: a call of a function, or of a custom tool, whose argument is plain text."""

    def __init__(
        self,
        writer: EventWriter,
        item_id: str,
        output_index: int,
        *,
        call_id: str,
        name: str | tuple[str, str],  # of the tool; for a tool in a namespace, the namespace's name and the tool's
        is_custom: bool,
    ) -> None:
        namespace, own = ("", name) if isinstance(name, str) else name
        self._writer = writer
        self._place = {"item_id": item_id, "output_index": output_index}
        self._argument = "input" if is_custom else "arguments"
        self._kind = "custom_tool_call" if is_custom else "function_call"
        self._item: Item = {
            "id": item_id,
            "type": self._kind,
            "status": "in_progress",
            "call_id": call_id,
            "name": own,
            self._argument: "",
            **({"namespace": namespace} if namespace else {}),
        }
        self._pieces: list[str] = []
        writer.say("response.output_item.added", output_index=output_index, item=self._item)

    def add(self, delta: str) -> None:
        """Add a piece of the argument."""
        self._pieces.append(delta)
        self._writer.say(f"response.{self._kind}_{self._argument}.delta", **self._place, delta=delta)

    def close(self, status: str) -> Item:
        """End the item and return it. Missing arguments of a function become an empty JSON object."""
        if self._argument == "arguments" and not self._pieces and status == "completed":
            self.add("{}")
        whole = self._item[self._argument] = "".join(self._pieces)
        named = {"name": self._item["name"]} if self._argument == "arguments" else {}
        told = {**named, self._argument: whole}
        self._writer.say(f"response.{self._kind}_{self._argument}.done", **self._place, **told)
        self._item["status"] = status
        self._writer.say("response.output_item.done", output_index=self._place["output_index"], item=self._item)
        return self._item


class BuiltInCall:
    """An item: a call of a built-in tool, which the client runs. Its arguments come at once, as an object."""

    def __init__(self, writer: EventWriter, item_id: str, output_index: int, *, call_id: str, tool: BuiltIn) -> None:
        self._writer, self._number, self._pieces, self._tool = writer, output_index, list[str](), tool
        self._item: Item = {"id": item_id, "type": tool.call, "status": "in_progress", "call_id": call_id}
        self._item |= tool.item({})
        writer.say("response.output_item.added", output_index=output_index, item=self._item)

    def add(self, delta: str) -> None:
        """Add a piece of the arguments."""
        self._pieces.append(delta)

    def close(self, status: str) -> Item:
        """End the item and return it."""
        said = arguments_object(joined_arguments(self._pieces))
        arguments = {} if said is None else msgspec.json.decode(said)
        self._item |= {"status": status if said is not None else "incomplete", **self._tool.item(arguments)}
        if self._tool is SHELL and isinstance(commands := self._item["action"]["commands"], list):
            self._say_commands(commands)
        self._writer.say("response.output_item.done", output_index=self._number, item=self._item)
        return self._item

    def _say_commands(self, commands: Sequence[Any]) -> None:
        for number, command in enumerate(commands):
            place = {"output_index": self._number, "command_index": number}
            self._writer.say("response.shell_call_command.added", **place, command="")
            self._writer.say("response.shell_call_command.delta", **place, delta=command)
            self._writer.say("response.shell_call_command.done", **place, command=command)


# The response object that events repeat: the request's parameters, and the state of the answer.

_NULL = msgspec.Raw(b"null")
_FUNCTION = msgspec.Raw(b'"function"')
# By field, the value that stands for a missing field; None also if only a server knows the value.
_ECHOED: Mapping[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": None,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}


# Longer fields are not repeated: three events would copy them, and readers would read them three times.
LONGEST_ECHO_BYTES = 256 * 1024


class Echo:
    """One response, as its events repeat it."""

    def __init__(self, asked: Mapping[str, msgspec.Raw], *, response_id: str, created_at: int, model: str) -> None:
        self._head = {"id": response_id, "object": "response", "created_at": created_at}
        self._said = {**_ECHOED}
        for name in asked.keys() & _ECHOED.keys():
            self._said[name] = _or(asked[name], _ECHOED[name])
        # A translated response is not stored, and does not run in the background.
        self._said |= {"model": model, "tools": _tools(asked.get("tools")), "store": False, "background": False}

    def note(self, **facts: Any) -> None:
        """Set fields that the provider reports."""
        self._said |= facts

    def state(self, status: str, **facts: Any) -> dict[str, Any]:
        """Return the response in a state; ``facts`` are the fields known so far (output, usage, …)."""
        empty: dict[str, Any] = {"error": None, "incomplete_details": None, "output": [], "usage": None}
        return {**self._head, "status": status, **empty, **self._said, **facts}


def _or(raw: msgspec.Raw, otherwise: Any) -> Any:
    return otherwise if len(memoryview(raw)) > LONGEST_ECHO_BYTES or raw == _NULL else raw


def _tools(raw: msgspec.Raw | None) -> list[dict[str, Any]]:
    """Return the tools with all fields that the API repeats."""
    if raw is None or len(memoryview(raw)) > LONGEST_ECHO_BYTES:
        return []
    tools: list[RawObject] = decoded(raw, list[RawObject], "tools") or []
    return [{"parameters": None, "strict": None, **tool} if tool.get("type") == _FUNCTION else tool for tool in tools]


TRANSLATED = "rs_translated"  # ids of reasoning begin so if no Responses API issued them


# The items of an output, one after the other. Each item ends before the next begins: some programs keep only one (pi).


class OpenItems:
    """Begins and ends items, and writes their events. ``stem``: a part of all ids, set before the first item.

    References are sent when their message ends. A call waits until the call before it is whole: servers of chat may
    send several at a time.
    """

    def __init__(
        self,
        writer: EventWriter,
        names: Mapping[str, tuple[str, str] | BuiltIn],
        *,
        as_summary: bool,
        new_id: Callable[[], str],
        ids: UniqueIds,
        references: ChunkReferences,
    ) -> None:
        self.stem = ""
        self._references = references
        self._writer = writer
        self._names = names
        self._ids = ids
        self._as_summary = as_summary
        self._new_id = new_id
        self._count = 0  # items begun so far
        self._items: dict[int, Item] = {}  # complete items by index in the output
        self._open: tuple[int, MessageItem | Thought | Called | BuiltInCall] | None = None
        self._sealed = ""  # Google's signature of the message, which waits until the message's texts have ended
        self._calls = PartialCalls()
        self._calling: tuple[int, Called | BuiltInCall] | None = None  # number and item of the open call

    @property
    def output(self) -> list[Item]:
        """The complete items, in the order in which they began."""
        return [self._items[number] for number in sorted(self._items)]

    def thinking(self) -> Thought:
        """Return the open thought; begin one if there is none."""
        self.end_calls("completed")
        return self._thought()

    def _thought(self) -> Thought:
        if self._open is not None and isinstance(self._open[1], Thought) and not self._open[1].is_signed:
            return self._open[1]
        self._close_open("completed")
        number, item_id = self._next(TRANSLATED)
        thought = Thought(self._writer, item_id, number, as_summary=self._as_summary)
        self._open = number, thought
        return thought

    @property
    def is_thinking(self) -> bool:
        """Whether a thought is open that may still be signed."""
        return self._open is not None and isinstance(self._open[1], Thought) and not self._open[1].is_signed

    def seal(self, signature: str) -> None:
        """Add Google's signature of the message: at the end of the thought before it, or of the message's texts."""
        self._sealed = signature
        if self.is_thinking:
            self._seal(OF_TEXT, signature)

    def _seal(self, kind: str, signature: str) -> None:
        if kind == OF_TEXT:
            self._sealed = ""
        if signature:
            self._thought().sign(f"{kind}:{signature}")

    @property
    def is_saying(self) -> bool:
        """Whether a message is open."""
        return self._open is not None and isinstance(self._open[1], MessageItem)

    def saying(self) -> MessageItem:
        """Return the open message; begin one if there is none."""
        if self._open is not None and isinstance(self._open[1], MessageItem):
            return self._open[1]
        self.end_calls("completed")
        self._close_open("completed")
        number, item_id = self._next("msg")
        said = MessageItem(self._writer, item_id, number)
        self._open = number, said
        return said

    def saying_nothing(self) -> None:
        """End the open message or thought."""
        self._close_open("completed")

    def picture(self, kind: str, data: str) -> None:
        """Add a whole picture of this type, in Base64, as an item of the API's own tool for pictures."""
        self.end_calls("completed")
        self._close_open("completed")
        number, item_id = self._next("ig")
        item: Item = {"id": item_id, "type": "image_generation_call", "status": "in_progress", "result": None}
        self._writer.say("response.output_item.added", output_index=number, item=item)
        self._writer.say("response.image_generation_call.completed", output_index=number, item_id=item_id)
        item |= {"status": "completed", "result": data, "output_format": kind.removeprefix("image/")}
        self._writer.say("response.output_item.done", output_index=number, item=item)
        self._items[number] = item

    @property
    def is_within_call(self) -> bool:
        """Whether a call has begun whose argument is not whole: everything else waits for this call."""
        return self._calls.are_cut()

    def call(self, call: dict[str, Any]) -> None:
        """Add a piece of a tool call, as a delta of chat has it.

        Raises:
            UpstreamError: the call's item has ended (invalid_response).

        """
        self._calls.add(call, waits=True)
        self._say_calls()

    def _say_calls(self, status: str | None = None) -> None:
        """Send the pieces of the first unfinished call; once that call is whole, of the next calls.

        ``status``: all calls have ended, the last call with this status, the calls before it complete.
        """
        while (current := self._calls.current()) is not None:
            number, call = current
            item = self._item_of(number, call)
            if piece := call.take(finished=status is not None):
                item.add(piece)
            if not self._calls.advance(finished=status is not None):
                break
            is_last = number == len(self._calls) - 1
            self._close_open("completed" if status is None or not is_last else status)

    def _item_of(self, number: int, call: PartialCall) -> Called | BuiltInCall:
        """Return the open item of a call; begin one if there is none."""
        if self._calling is not None and self._calling[0] == number:
            return self._calling[1]
        self._seal(OF_TEXT, self._sealed)
        self._seal(OF_CALL, call.signature)
        self._close_open("completed")
        named = self._names.get(call.name, call.name)
        place, item_id = self._next(named.prefix if isinstance(named, BuiltIn) else "ctc" if call.is_custom else "fc")
        call_id = self._ids.of_call(call.call_id or f"call_{self._new_id()}")
        item = (
            BuiltInCall(self._writer, item_id, place, call_id=call_id, tool=named)
            if isinstance(named, BuiltIn)
            else Called(self._writer, item_id, place, call_id=call_id, name=named, is_custom=call.is_custom)
        )
        self._open, self._calling = (place, item), (number, item)
        return item

    def end_calls(self, status: str) -> None:
        """End all calls: the last call with ``status``, the calls before it complete."""
        if self._calls.has_rest():
            self._calls.finish()
            self._say_calls(status)

    def close_all(self, status: str) -> None:
        """End all items: the last item with ``status``, the items before it complete.

        Raises:
            UpstreamError: a call never had a name (invalid_response).

        """
        self.end_calls(status)
        self._calls.check()
        self._close_open(status)
        if self._sealed:
            self._seal(OF_TEXT, self._sealed)
            self._close_open("completed")

    def _next(self, prefix: str) -> tuple[int, str]:
        number = self._count
        self._count += 1
        return number, f"{prefix}_{self.stem}_{number}"

    def _close_open(self, status: str) -> None:
        if self._open is not None:
            number, item = self._open
            self._open = None
            if isinstance(item, MessageItem) and self._references.beside:
                for annotation in self._references.rest():
                    item.annotation(flat(annotation))
            self._items[number] = item.close(status)


_INCOMPLETE = dict.fromkeys(CUT_SHORT, "max_output_tokens") | dict.fromkeys(FILTERED, "content_filter")
_UNKNOWN = Usage()
# A part of item ids. Clients may send ids back, with 64 characters at most.
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
