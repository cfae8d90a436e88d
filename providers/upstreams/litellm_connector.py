"""The connections of litellm's clients: aiohttp's, but aborted where aiohttp would close them.

Over TLS, closing waits for the origin's close_notify, which it sends when it next writes: until then a cancelled call
would continue, and be billed. Importing this module requires aiohttp's client.
"""

import asyncio
import functools
from typing import Any

from aiohttp import TCPConnector
from aiohttp.client_proto import ResponseHandler


class _DroppedHandler(ResponseHandler):
    """One connection. Closing it, before the headers or later, aborts it."""

    def close(self) -> None:
        self.abort()


class DroppingConnector(TCPConnector):
    """A connector whose connections end with a TCP reset."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        dropped = functools.partial(_DroppedHandler, loop=asyncio.get_running_loop())
        self._factory = dropped  # type: ignore[assignment]  # it is a handler; partials are invariant
