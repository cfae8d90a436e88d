"""Chat completions of vendors that are nearly OpenAI's: what of an answer they write otherwise, as flags."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

from msgspec import structs

from strict_vendors.apis.chat import ChatVendor, Writing
from strict_vendors.models import Model
from strict_vendors.script import Asked, Given
from strict_vendors.vendor import Reply, Request, as_data

Json = dict[str, Any]

# Marks of a model: its thoughts stand in its text. The template of some opens them, so that only their end is written.
TAGS, OPENED = "thoughts in the text", "thoughts in the text, opened by the template"


class ChatLike(ChatVendor):
    """A vendor of chat completions whose answers differ a little from OpenAI's."""

    fingerprint: ClassVar[str | None] = None
    whole_calls: ClassVar[bool] = False  # a call of a tool comes in one piece of a stream, when it is complete
    usage_in: ClassVar[Literal["asked", "last"]] = "asked"  # a chunk of its own if asked for, or always the last one
    lacks: ClassVar[Sequence[str]] = ("refusal", "annotations")  # fields of OpenAI's messages that it does not have
    before: ClassVar[bytes] = b""  # what a stream begins with: a comment, say

    def complete(self, request: Request) -> Reply:
        """Answer a chat completion."""
        asked, model = self.admitted(request)
        given = self.told(self.given(asked), model)
        writing = Writing(self, asked, given, used=self.used(request.body))
        if not asked.stream:
            return Reply(self.finished(_without(writing.whole(), self.lacks), given), breaks=given.cut)
        chunks = [_without(chunk, self.lacks) for chunk in writing.events()]
        chunks = list(self.shaped(chunks, asked, given, writing.usage()))
        blocks = as_data(chunks)
        return Reply(blocks=[self.before, *blocks] if self.before else blocks, breaks=given.cut)

    def admitted(self, request: Request) -> tuple[Asked, Model]:
        """Return what is asked for and of whom, or refuse it."""
        body = request.body
        self.check_fields(body)
        model = self.model_of(body["model"], "chat")
        self.check_model(body, model)
        self.check_messages(body["messages"])
        self.check_tools(body)
        asked = self.read(body, model)
        self.check_length(body, model, asked)
        return asked, model

    def told(self, given: Given, model: Model) -> Given:
        """Return an answer as its server tells it: where thoughts are not told apart, they stand in the text."""
        if not given.thoughts or not model.marks & {TAGS, OPENED}:
            return given
        opening = "" if OPENED in model.marks else "<think>\n"
        return structs.replace(given, thoughts="", text=f"{opening}{given.thoughts}\n</think>\n\n{given.text}")

    def finished(self, answer: Json, given: Given) -> Json:
        """Return the whole answer with what only this vendor has."""
        return answer

    def shaped(self, chunks: Sequence[Json], asked: Asked, given: Given, usage: Json) -> Iterable[Json]:
        """Return the chunks of a stream as this vendor sends them."""
        found = _whole_calls(chunks) if self.whole_calls else list(chunks)
        if self.usage_in == "asked":
            return found
        talking = [chunk for chunk in found if chunk["choices"]]
        return [*talking[:-1], {**talking[-1], "usage": usage}]


def _without(answer: Json, names: Sequence[str]) -> Json:
    choices = [
        {
            **choice,
            **{
                inner: {name: value for name, value in choice[inner].items() if name not in names}
                for inner in ("message", "delta")
                if inner in choice
            },
        }
        for choice in answer["choices"]
    ]
    return {**answer, "choices": choices}


def _whole_calls(chunks: Sequence[Json]) -> list[Json]:
    """Put the pieces of each call together."""
    found: list[Json] = []
    for chunk in chunks:
        calls = chunk["choices"][0]["delta"].get("tool_calls") if chunk["choices"] else None
        if calls and "id" not in calls[0]:
            call = found[-1]["choices"][0]["delta"]["tool_calls"][0]
            call["function"]["arguments"] += calls[0]["function"]["arguments"]
        else:
            found.append(chunk)
    return found
