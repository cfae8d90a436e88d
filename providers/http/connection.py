"""A connection as the pool sees it, over either protocol."""

from typing import Protocol

from providers.http.message import Request
from providers.http.response import Response


class Owner(Protocol):
    """The owner of connections, which is notified of their state."""

    def freed(self, connection: "Connection") -> None:
        """Be notified that ``connection`` has room for a request again."""

    def wearing(self, connection: "Connection") -> None:
        """Be notified, once, that ``connection`` will soon accept no more requests, so that a new one can be opened."""

    def gone(self, connection: "Connection", *, dropped: bool) -> None:
        """Be notified, once, that ``connection`` accepts no more requests; ``dropped``: because of a lost exchange."""


class Connection(Protocol):
    """An established connection. ``room`` is how many more requests it accepts now: 1 or 0 over HTTP/1.1."""

    version: str  # "1.1" or "2"
    connect_ms: float | None  # the time to connect, for the first response; None if no request waited for it
    room: int
    idle_since: float  # the time of the event loop when its last exchange ended

    @property
    def streams(self) -> int:
        """The number of exchanges under way."""

    def send(self, request: Request) -> Response:
        """Send ``request`` and return the response before it arrives. Call it only while there is room."""

    def alive(self) -> bool:
        """Whether it can be used: the other side has not closed it, as far as is known."""

    def takes(self, size: int) -> bool:
        """Whether a body of ``size`` bytes can be sent without waiting for the server to open a window."""

    def close(self) -> None:
        """Drop it at once, with all its exchanges."""
