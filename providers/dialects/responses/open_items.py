"""The output items of a response while they are streamed, each with its events in the API's order."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from providers.dialects.chat.references import ChunkReferences
from providers.dialects.events import joined_arguments
from providers.dialects.partial_calls import PartialCall, PartialCalls
from providers.dialects.responses.built_in import SHELL, BuiltIn
from providers.dialects.responses.fields import EventWriter, flat
from providers.dialects.wording import OF_CALL, OF_TEXT, UniqueIds, arguments_object

Item = dict[str, Any]
TRANSLATED = "rs_translated"  # ids of reasoning begin so if no Responses API issued them


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
        self.stem = ""  # clients may send ids back, with 64 characters at most
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
