"""An ``HttpUpstream`` whose key is a token that a library fetches in a thread, and that is renewed before it ends."""

import time
from collections.abc import Callable
from typing import Any

from providers.exchange import Exchange, Request, UpstreamAnswer
from providers.keys import LOOK_S, PAUSE_S, CredentialSource, Renewal
from providers.models import Listing
from providers.refusals import UpstreamError
from providers.upstreams.http_upstream import HttpUpstream, Server

_UNAUTHORIZED = 401


class TokenUpstream(HttpUpstream):
    """An ``HttpUpstream`` whose key is a token that is renewed in the background."""

    needs_warming = True

    def __init__(
        self,
        server: Server,
        source: CredentialSource[str],
        *,
        failed: Callable[[Exception], str],
        pause_s: float = PAUSE_S,
        look_s: float = LOOK_S,
        wall_clock: Callable[[], float] = time.time,
        **options: Any,
    ) -> None:
        """``options`` are those of ``HttpUpstream``, without a key; ``pause_s`` is the least between two tokens.

        ``failed``: from what a fetch raises to the message for the operator. ``look_s``: how often it is seen whether
        what the tokens are made of has changed.
        """
        super().__init__(server, None, wall_clock=wall_clock, **options)
        self._token: str | None = None
        self._tokens = Renewal(source, failed=failed, wall_clock=wall_clock, pause_s=pause_s, look_s=look_s)

    async def warm_up(self) -> None:
        """Begin to keep a valid token."""
        self._tokens.begin()

    async def stream(self, request: Request) -> Exchange:
        """Request an answer in events, as ``HttpUpstream`` does."""
        await self._authorize()
        try:
            return await super().stream(request)
        except UpstreamError as error:
            raise self._noted(error) from None

    async def send(self, path: str, request: Request) -> UpstreamAnswer:
        """Post ``request`` to ``path``, as ``HttpUpstream`` does."""
        await self._authorize()
        try:
            return await super().send(path, request)
        except UpstreamError as error:
            raise self._noted(error) from None

    async def fetch(self, method: str, path: str, query: list[tuple[str, str]]) -> UpstreamAnswer:
        """Send a request without a body to ``path``, as ``HttpUpstream`` does."""
        await self._authorize()
        return await super().fetch(method, path, query)

    async def list_models(self, connect_timeout_s: float = 5.0) -> Listing:
        """Return the models that the provider offers, as ``HttpUpstream`` does."""
        await self._authorize()
        return await super().list_models(connect_timeout_s)

    async def aclose(self) -> None:
        """Stop renewing, and close kept connections."""
        await self._tokens.aclose()
        await super().aclose()

    async def _authorize(self) -> None:
        token = await self._tokens.current()
        if token is not self._token:
            self._token = token
            self.use_key(token)

    def _noted(self, error: UpstreamError) -> UpstreamError:
        if error.status == _UNAUTHORIZED:
            self._tokens.refused()
        return error
