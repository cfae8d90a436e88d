"""Vertex AI's OpenAI-compatible API, with access tokens of Google's application default credentials.

The library google-auth finds the credentials (a service account's file, gcloud's, the metadata server) and trades them
for tokens of about an hour. It is imported in the thread that fetches the first one. A file that has changed is read
again, and a new token is fetched.
"""

import importlib
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from providers.exchange import Exchange, Request, UpstreamAnswer
from providers.keys import LOOK_S, PAUSE_S, Fetched, FileStates, Renewal, file_states
from providers.models import Listing
from providers.refusals import UpstreamError, redact
from providers.upstreams.http_upstream import HttpUpstream, Server

_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_TIMEOUT_S = 10.0  # of a request for a token
_UNAUTHORIZED = 401
_ADVICE = "set GOOGLE_APPLICATION_CREDENTIALS, or run: gcloud auth application-default login"


class VertexUpstream(HttpUpstream):
    """An ``HttpUpstream`` whose key is a token that is renewed in the background."""

    needs_warming = True

    def __init__(
        self,
        server: Server,
        *,
        pause_s: float = PAUSE_S,
        look_s: float = LOOK_S,
        wall_clock: Callable[[], float] = time.time,
        **options: Any,
    ) -> None:
        """``options`` are those of ``HttpUpstream``, without a key; ``pause_s`` is the least between two tokens.

        ``look_s``: how often it is seen whether the file of the credentials has changed.
        """
        super().__init__(server, None, wall_clock=wall_clock, **options)
        self._token: str | None = None
        self._tokens = Renewal(_Tokens(), failed=_message_of, wall_clock=wall_clock, pause_s=pause_s, look_s=look_s)

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


class _Tokens:
    """The ``Source`` of tokens: one kind of Google's credentials."""

    def __init__(self) -> None:
        self._credentials: Any = None
        self._files: FileStates = ()

    def has_changed(self) -> bool:
        """Whether the file of the credentials is another one."""
        return file_states(_files()) != self._files

    def forget(self) -> None:
        """Find them again."""
        self._credentials = None

    def fetch(self) -> Fetched[str]:
        """Return a token."""
        if self.has_changed():
            self.forget()
        auth: Any = importlib.import_module("google.auth")
        transport = _transport()
        if self._credentials is None:
            self._files = file_states(_files())  # before it is read
            self._credentials, _ = auth.default(scopes=_SCOPES, request=transport)
        credentials = self._credentials
        credentials.refresh(transport)
        expiry: datetime | None = credentials.expiry  # naive, in UTC
        return Fetched(credentials.token, None if expiry is None else expiry.replace(tzinfo=UTC).timestamp())


def _files() -> list[Path]:
    """Return where google-auth looks for a file: the one that is named, else that of gcloud's."""
    if named := os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
        return [Path(named)]
    return [Path(os.environ.get("CLOUDSDK_CONFIG") or "~/.config/gcloud") / "application_default_credentials.json"]


def _message_of(error: Exception) -> str:
    """Return the failure as a message for the operator."""
    if isinstance(error, ImportError):
        return "needs google-auth: `holeshot check` says how to install it"
    words = " ".join(str(error).split())[:300]
    return redact(f"could not get a token of Google ({words}); {_ADVICE}", ())


class _Response:
    """An answer, as google-auth reads it."""

    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.status = status
        self.headers = headers
        self.data = data


def _transport() -> Any:
    """Return a transport for google-auth with the standard library, as its own ones need another HTTP client."""
    base: Any = importlib.import_module("google.auth.transport")
    exceptions: Any = importlib.import_module("google.auth.exceptions")

    class Transport(base.Request):  # type: ignore[misc]  # imported when it is needed
        def __call__(
            self,
            url: str,
            method: str = "GET",
            body: bytes | str | None = None,
            headers: Mapping[str, str] | None = None,
            timeout: float | None = None,
            **_: Any,
        ) -> _Response:
            data = body.encode() if isinstance(body, str) else body
            request = urllib.request.Request(url, data, dict(headers or {}), method=method)  # noqa: S310 - Google's own
            try:
                with urllib.request.urlopen(request, timeout=timeout or _TIMEOUT_S) as answer:  # noqa: S310 - likewise
                    return _Response(answer.status, dict(answer.headers), answer.read())
            except urllib.error.HTTPError as refusal:
                with refusal:
                    return _Response(refusal.code, dict(refusal.headers), refusal.read())
            except OSError as error:
                raise exceptions.TransportError(error) from error

    return Transport()
