"""How a request was sent, known at any time: also of one that was given up before anything came back."""


class Sendings:
    """How often one request was written to a connection, and under which key, as told by whoever does it."""

    __slots__ = ("is_known", "key_name", "number")

    def __init__(self) -> None:
        self.number = 0
        self.key_name: str | None = None  # of the last, by ``key_names``; None where the provider has only one
        self.is_known = True  # litellm does not tell until it has the answer's headers

    @property
    def times(self) -> int | None:
        """How often it was sent; more than once where a kept connection was lost with it. None: nobody knows."""
        return self.number if self.is_known else None
