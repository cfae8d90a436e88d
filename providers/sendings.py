"""Counts how often a request was sent, and with which key, also if it was dropped before any response."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from providers.errors import UpstreamError


class SendCount:
    """How often one request was written to a connection, and with which key; set by the upstream."""

    __slots__ = ("failed", "is_known", "key_name", "left_out", "number")

    def __init__(self) -> None:
        self.number = 0
        self.key_name: str | None = None  # of the last key, by ``key_names``; None if the provider has only one key
        # Paths of fields that its provider was not sent, or not so, as it refuses them.
        self.left_out: tuple[str, ...] = ()
        # Tells the key ring, once the answer has begun: an event with an error is known to whoever reads the events.
        self.failed: Callable[[UpstreamError], object] | None = None
        self.is_known = True  # with litellm, only once the answer's headers have arrived

    @property
    def times(self) -> int | None:
        """How often it was sent; more than once if a kept connection was lost. None: unknown."""
        return self.number if self.is_known else None
