"""The output items of a response while they are streamed, each with its events in the API's order."""

from collections.abc import Sequence
from typing import Any

from providers.dialects.responses.telling import Telling

Item = dict[str, Any]


class Said:
    """An item: a message of the assistant, of texts and refusals."""

    def __init__(self, telling: Telling, item_id: str, output_index: int) -> None:
        self._telling = telling
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
        telling.say("response.output_item.added", output_index=output_index, item=self._item)

    def text(self, delta: str, logprobs: Sequence[Any]) -> None:
        """Add a piece of text, with the log probabilities of its tokens if there are any."""
        part = self._in("output_text", text="", annotations=[], logprobs=[])
        self._pieces.append(delta)
        part["logprobs"].extend(logprobs)
        self._say("response.output_text.delta", delta=delta, logprobs=logprobs)

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
        self._telling.say("response.output_item.done", output_index=self._place["output_index"], item=self._item)
        return self._item

    def _in(self, kind: str, **empty: Any) -> Item:
        """Return the open part if it is of this kind, else a new one."""
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
        self._telling.say(kind, **self._place, content_index=len(self._item["content"]), **fields)


class Thought:
    """An item: reasoning, sent as a summary to clients that requested one, since they read nothing else."""

    def __init__(self, telling: Telling, item_id: str, output_index: int, *, as_summary: bool) -> None:
        self._telling = telling
        self._as_summary = as_summary
        self._place = {"item_id": item_id, "output_index": output_index}
        self._item: Item = {"id": item_id, "type": "reasoning", "status": "in_progress", "summary": [], "content": []}
        self._pieces: list[str] = []
        telling.say("response.output_item.added", output_index=output_index, item=self._item)
        self._say_part("added", "")

    def add(self, delta: str) -> None:
        """Add a piece."""
        self._pieces.append(delta)
        self._say_text("delta", delta=delta)

    def close(self, status: str) -> Item:
        """End the item and return it."""
        whole = "".join(self._pieces)
        self._say_text("done", text=whole)
        part = self._say_part("done", whole)
        self._item["summary" if self._as_summary else "content"].append(part)
        self._item["status"] = status
        self._telling.say("response.output_item.done", output_index=self._place["output_index"], item=self._item)
        return self._item

    def _say_text(self, what: str, **fields: Any) -> None:
        if self._as_summary:
            self._telling.say(f"response.reasoning_summary_text.{what}", **self._place, summary_index=0, **fields)
        else:
            self._telling.say(f"response.reasoning_text.{what}", **self._place, content_index=0, **fields)

    def _say_part(self, what: str, text: str) -> Item:
        if self._as_summary:
            part = {"type": "summary_text", "text": text}
            self._telling.say(f"response.reasoning_summary_part.{what}", **self._place, summary_index=0, part=part)
        else:
            part = {"type": "reasoning_text", "text": text}
            self._telling.say(f"response.content_part.{what}", **self._place, content_index=0, part=part)
        return part


class Called:
    """An item: a call of a function, or of a custom tool, whose argument is plain text."""

    def __init__(
        self,
        telling: Telling,
        item_id: str,
        output_index: int,
        *,
        call_id: str,
        name: str | tuple[str, str],  # of the tool; if it is in a namespace, that one's name and the tool's
        is_custom: bool,
    ) -> None:
        namespace, own = ("", name) if isinstance(name, str) else name
        self._telling = telling
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
        telling.say("response.output_item.added", output_index=output_index, item=self._item)

    def add(self, delta: str) -> None:
        """Add a piece of the argument."""
        self._pieces.append(delta)
        self._telling.say(f"response.{self._kind}_{self._argument}.delta", **self._place, delta=delta)

    def close(self, status: str) -> Item:
        """End the item and return it. The missing arguments of a function become an empty JSON object."""
        if self._argument == "arguments" and status == "completed" and not self._pieces:
            self.add("{}")
        whole = self._item[self._argument] = "".join(self._pieces)
        named = {"name": self._item["name"]} if self._argument == "arguments" else {}
        told = {**named, self._argument: whole}
        self._telling.say(f"response.{self._kind}_{self._argument}.done", **self._place, **told)
        self._item["status"] = status
        self._telling.say("response.output_item.done", output_index=self._place["output_index"], item=self._item)
        return self._item
