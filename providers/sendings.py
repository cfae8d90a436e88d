"""Counts how often a request was sent, and with which key, also if it was dropped before any response."""


class SendCount:
    """How often one request was written to a connection, and with which key; set by the upstream."""

    __slots__ = ("is_known", "key_name", "number")

    def __init__(self) -> None:
        self.number = 0
        self.key_name: str | None = None  # of the last key, by ``key_names``; None if the provider has only one key
        self.is_known = True  # with litellm, only once the answer's headers have arrived

    @property
    def times(self) -> int | None:
        """How often it was sent; more than once if a kept connection was lost. None: unknown."""
        return self.number if self.is_known else None
