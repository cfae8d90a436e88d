"""The steps of a script, which a scripted provider executes in their order for each request."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec


class Status(msgspec.Struct, frozen=True):
    """Answer with this status and body instead of a stream.

    ``body`` is JSON, raw bytes, or None for an error in OpenAI's shape.
    """

    status: int
    body: Mapping[str, Any] | list[Any] | bytes | None = None
    headers: Mapping[str, str] = {}


class Headers(msgspec.Struct, frozen=True):
    """Send the head of the response now; without this step the first bytes do."""

    headers: Mapping[str, str] = {}


class RoleOnly(msgspec.Struct, frozen=True):
    """A first chunk with the role and no token."""

    @property
    def delta(self) -> dict[str, Any]:
        """The chunk's ``delta``."""
        return {"role": "assistant", "content": ""}


class Delta(msgspec.Struct, frozen=True):
    """A chunk with content: one token."""

    text: str

    @property
    def delta(self) -> dict[str, Any]:
        """The chunk's ``delta``."""
        return {"content": self.text}


class Reasoning(msgspec.Struct, frozen=True):
    """A chunk with reasoning: one token, in the field that the vendor uses for it."""

    text: str
    field: str = "reasoning_content"

    @property
    def delta(self) -> dict[str, Any]:
        """The chunk's ``delta``."""
        return {self.field: self.text}


class ToolCall(msgspec.Struct, frozen=True):
    """A chunk with a piece of a tool call: the first one has a name and an id, the others arguments only."""

    arguments: str = ""
    name: str | None = None
    id: str | None = None
    index: int | None = 0  # None: left out, as by some compatibility layers

    @property
    def delta(self) -> dict[str, Any]:
        """The chunk's ``delta``."""
        call: dict[str, Any] = {} if self.index is None else {"index": self.index}
        if self.name is None:
            call["function"] = {"arguments": self.arguments}
        else:
            function = {"name": self.name, "arguments": self.arguments}
            call |= {"id": self.id or "call_1", "type": "function", "function": function}
        return {"tool_calls": [call]}


class Chunk(msgspec.Struct, frozen=True):
    """An event with any JSON. ``token``: it counts as the first token."""

    data: Any
    token: bool = False


class Comment(msgspec.Struct, frozen=True):
    """A comment line, used as a keep-alive."""

    text: str = "keep-alive"


class Raw(msgspec.Struct, frozen=True):
    """Exactly these bytes in the body of the response. ``token``: they count as the first token."""

    data: bytes
    token: bool = False


class Finish(msgspec.Struct, frozen=True):
    """The chunk with the finish reason."""

    reason: str = "stop"


class Usage(msgspec.Struct, frozen=True):
    """The usage chunk, sent only if ``stream_options.include_usage`` is set. None: the number of tokens sent."""

    prompt_tokens: int = 10
    completion_tokens: int | None = None


class Done(msgspec.Struct, frozen=True):
    """The final ``[DONE]``."""


class ErrorEvent(msgspec.Struct, frozen=True):
    """An event with an error object."""

    message: str = "The model is overloaded."
    code: str | int | None = 503


class Gate(msgspec.Struct, frozen=True):
    """Wait until the test sets the event."""

    event: asyncio.Event


class Hang(msgspec.Struct, frozen=True):
    """Wait until the client hangs up."""


class Drop(msgspec.Struct, frozen=True):
    """Abort the connection."""


Step = (
    Status
    | Headers
    | RoleOnly
    | Delta
    | Reasoning
    | ToolCall
    | Chunk
    | Comment
    | Raw
    | Finish
    | Usage
    | Done
    | ErrorEvent
    | Gate
    | Hang
    | Drop
)


def answer(*tokens: str) -> list[Step]:
    """Return the script of an ordinary answer: role, one chunk for each token, finish, usage, ``[DONE]``."""
    return [RoleOnly(), *(Delta(token) for token in tokens), Finish(), Usage(), Done()]
