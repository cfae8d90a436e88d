"""What one event of a stream says, in whichever dialect it was read."""

from collections.abc import Sequence

import msgspec

from providers.errors import UpstreamError
from providers.usage import Usage

DONE = b"[DONE]"  # the data of the event with which OpenAI ends a stream


class Chunk(msgspec.Struct, frozen=True):
    """One event, read. Only ``data`` is bytes of the provider; the rest is what the race needs to know of them."""

    data: bytes
    meaningful: bool = False  # non-empty content, reasoning, tool call, refusal, audio or image
    answer: bool = False  # meaningful by something other than reasoning
    reasoning: bool = False  # has reasoning text
    finished: bool = False  # a choice has its finish reason
    done: bool = False  # [DONE]
    usage: Usage | None = None
    usage_only: bool = False  # no choices, and a usage object: sent because somebody asked for usage
    error: UpstreamError | None = None
    text_chars: int = 0  # characters generated, reasoning and tool calls included, to estimate tokens from
    model: str | None = None  # that answers, as the provider says
    id: str | None = None  # the answer's, at the provider
    finish_reason: str | None = None
    tools: Sequence[tuple[int, str]] = ()  # pieces of tool calls' arguments, by the call's place in the answer
    names: Sequence[str] = ()  # of the tools that calls begin with it
    refused: bool = False  # it is a piece of a refusal
