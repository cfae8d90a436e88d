"""The connections litellm's clients make: aiohttp's, but dropped where aiohttp would close them.

Over TLS a closed connection says goodbye and waits for the answer, which an origin gives when it next writes: until
then a cancelled call would run on, unseen and paid for. Importing this needs aiohttp's client.
"""

import asyncio
import functools
from typing import Any

from aiohttp import TCPConnector
from aiohttp.client_proto import ResponseHandler


class _DroppedHandler(ResponseHandler):
    """One connection; whoever closes it, before its headers or in the middle, aborts it."""

    def close(self) -> None:
        self.abort()


class DroppingConnector(TCPConnector):
    """A connector whose connections end in a TCP reset."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        dropped = functools.partial(_DroppedHandler, loop=asyncio.get_running_loop())
        self._factory = dropped  # type: ignore[assignment]  # a handler all the same: partials are invariant
