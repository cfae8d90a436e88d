"""What the pool knows of a connection, whichever protocol it speaks."""

from typing import Protocol

from providers.http.message import Request
from providers.http.response import Response


class Owner(Protocol):
    """Who keeps a connection, and is told what becomes of it."""

    def freed(self, connection: "Connection") -> None:
        """Hear that ``connection`` has room for a request again."""

    def wearing(self, connection: "Connection") -> None:
        """Hear that ``connection`` will soon take no more requests: another may be made ready. Once per connection."""

    def gone(self, connection: "Connection", *, dropped: bool) -> None:
        """Hear that ``connection`` takes no more requests. Once; ``dropped``: it was given up for a lost exchange."""


class Connection(Protocol):
    """An established connection. ``room`` is how many more requests it takes now: 1 or 0 over HTTP/1.1."""

    version: str  # "1.1" or "2"
    connect_ms: float | None  # what it took to be made, for the first response; None when no request waited for it
    room: int
    streams: int  # exchanges under way
    idle_since: float  # the loop's time at which its last exchange ended

    def send(self, request: Request) -> Response:
        """Send ``request``; the response is still to come. Call it only while there is room."""

    def alive(self) -> bool:
        """Whether it may be used: not closed by the other side, as far as is known."""

    def takes(self, size: int) -> bool:
        """Whether a body of ``size`` bytes leaves without waiting for the server to open a window."""

    def close(self) -> None:
        """Drop it at once, and whatever runs on it."""
