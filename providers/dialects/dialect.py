"""What a dialect is: one of the APIs that clients and providers speak."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from providers.dialects.chunk import Chunk


class Dialect(StrEnum):
    """An API in which an answer is asked for and streamed."""

    CHAT = "chat"  # OpenAI's /chat/completions
    COMPLETIONS = "completions"  # OpenAI's older /completions: a raw prompt is continued
    RESPONSES = "responses"  # OpenAI's /responses
    MESSAGES = "messages"  # Anthropic's /messages


class Translation(Protocol):
    """Turns one answer's event stream into another dialect's. Use one for each answer."""

    def feed(self, block: bytes) -> bytes:
        """Return what whole events of the source say in the target, ``b""`` while there is nothing to be said yet.

        Raises:
            UpstreamError: an event is malformed, or is the provider's error.

        """

    def end(self) -> bytes:
        """Return what is still to be said when the source has ended, whether or not it was whole.

        An answer that broke off before its end is not given one: the reader of the target must see that it did.
        """


class Gathering(Protocol):
    """Makes one whole answer, as the dialect's API returns it to who does not stream, out of its events."""

    def take(self, data: bytes) -> None:
        """Take one event's data (never empty, never [DONE]).

        Raises:
            UpstreamError: it is valid JSON, but not what the dialect says (invalid_response).

        """

    def body(self) -> bytes:
        """Return the whole answer as JSON."""


ReadEvent = Callable[[bytes, Sequence[str]], Chunk]
