"""Google's clouds, with access tokens of Google's application default credentials.

The library google-auth finds the credentials (a service account's file, gcloud's, the metadata server) and trades them
for tokens of about an hour. It is imported in the thread that fetches the first one. A file that has changed is read
again, and a new token is fetched.
"""

import importlib
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from providers.keys import FetchedCredentials, FileStates, file_states
from providers.refusals import redact
from providers.upstreams.http_upstream import Server
from providers.upstreams.tokens import TokenUpstream

_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_TIMEOUT_S = 10.0  # of a request for a token
_ADVICE = "set GOOGLE_APPLICATION_CREDENTIALS, or run: gcloud auth application-default login"


class VertexUpstream(TokenUpstream):
    """A ``TokenUpstream`` with tokens of Google's."""

    def __init__(self, server: Server, **options: Any) -> None:
        """``options`` are those of ``TokenUpstream``, without the source."""
        super().__init__(server, _Tokens(), failed=_message_of, **options)


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

    def fetch(self) -> FetchedCredentials[str]:
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
        return FetchedCredentials(credentials.token, None if expiry is None else expiry.replace(tzinfo=UTC).timestamp())


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
