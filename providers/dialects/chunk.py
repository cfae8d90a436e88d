"""One event of a stream as all dialects read it."""

from collections.abc import Sequence

import msgspec

from providers.errors import ErrorKind, UpstreamError
from providers.usage import Usage

DONE = b"[DONE]"  # the data of the last event of OpenAI's streams


class Chunk(msgspec.Struct, frozen=True):
    """One event. ``data`` are the provider's own bytes; the other fields are what the race needs to know of them."""

    data: bytes
    meaningful: bool = False  # has non-empty content, reasoning, a tool call, a refusal, audio or an image
    answer: bool = False  # has something meaningful besides reasoning
    reasoning: bool = False  # has reasoning text
    finished: bool = False  # a choice has its finish reason
    done: bool = False  # it ends the answer: [DONE], or the dialect's counterpart
    usage: Usage | None = None
    usage_only: bool = False  # has usage and no choices: sent because usage was requested
    error: UpstreamError | None = None
    text_chars: int = 0  # generated characters, of reasoning and tool calls too, for an estimate of tokens
    model: str | None = None  # the model that answers, by the provider's own name
    id: str | None = None  # the answer's id at the provider
    finish_reason: str | None = None
    tools: Sequence[tuple[int, str]] = ()  # pieces of tool calls' arguments, by the call's place in the answer
    names: Sequence[str] = ()  # of tools whose calls begin with this event
    refused: bool = False  # it is a piece of a refusal
    idle: bool = False  # a delta with nothing in it: a provider that sends only these has stalled


def no_json_object() -> UpstreamError:
    """Return the error of an event that is not a JSON object, to be raised."""
    return UpstreamError(ErrorKind.INVALID_RESPONSE, "an event of the stream is not a JSON object")
