"""An ``HttpUpstream`` whose requests are signed by botocore with AWS credentials, unless there is a key.

botocore is imported in the thread that finds the credentials (in the environment, files, or at the metadata service);
they are renewed in the background. botocore itself renews those that end, and reads the token file of a container or a
web identity each time it does. What it has found in a profile it keeps: when a file has changed, or its credentials are
refused, all is found again.
"""

import importlib
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from providers.exchange import Request
from providers.http import Body, Head
from providers.keys import LOOK_S, PAUSE_S, FetchedCredentials, FileStates, Renewal, file_states
from providers.refusals import ErrorKind, UpstreamError
from providers.upstreams.http_upstream import HttpUpstream, Server

_REGION = re.compile(r"[.-]([a-z]{2,3}(?:-[a-z]{1,20}){1,4}-\d{1,3})\.")
_LOOKED_AT_EVERY_S = 600.0  # botocore itself renews credentials on a call up to a quarter of an hour before their end


class SignedUpstream(HttpUpstream):
    """An ``HttpUpstream`` at one of AWS's services, in one region."""

    def __init__(
        self,
        server: Server,
        api_key: str | None,
        *,
        service: str,
        pause_s: float = PAUSE_S,
        look_s: float = LOOK_S,
        wall_clock: Callable[[], float] = time.time,
        **options: Any,
    ) -> None:
        """``options`` are those of ``HttpUpstream``; without a key, requests are signed for the ``service``.

        ``pause_s`` is the least between two credentials; every ``look_s`` it is seen whether their files have changed.
        """
        super().__init__(server, api_key, wall_clock=wall_clock, **options)
        self.needs_warming = api_key is None
        found = _REGION.search(server.base_url)
        self.region = found[1] if found is not None else None  # None: the region configured with the AWS credentials
        self._signing: Renewal[_Signer] | None = None
        if not api_key:
            source = _Credentials(service, self.region, wall_clock)
            self._signing = Renewal(source, failed=_message_of, wall_clock=wall_clock, pause_s=pause_s, look_s=look_s)

    async def warm_up(self) -> None:
        """Begin to keep valid credentials, unless there is a key."""
        if self._signing is not None:
            self._signing.begin()

    async def aclose(self) -> None:
        """Stop renewing credentials, and close kept connections."""
        if self._signing is not None:
            await self._signing.aclose()
        await super().aclose()

    async def _ask(self, head: Head, path: str, request: Request, body: bytes) -> Body:
        if self._signing is None:
            return await super()._ask(head, path, request, body)
        signer = await self._signing.current()
        url = str(self._url(path, request.model).origin().with_path("/")).rstrip("/") + head.target
        signed = signer.headers("POST", url, body)
        try:
            return await super()._ask(
                head, path, msgspec.structs.replace(request, headers={**request.headers, **signed}), body
            )
        except UpstreamError as error:
            if error.kind is ErrorKind.PROVIDER_AUTH:
                self._signing.refused()
            raise


class _Signer:
    """Signs requests with one set of credentials."""

    def __init__(self, auth: Any, request: Any) -> None:
        self._auth = auth
        self._request = request

    def headers(self, method: str, url: str, body: bytes) -> dict[str, str]:
        """Return the header fields with the signature of a request."""
        request = self._request(method=method, url=url, data=body, headers={"content-type": "application/json"})
        self._auth.add_auth(request)
        return {name.lower(): value for name, value in request.headers.items() if name.lower() != "content-type"}


class _Credentials:
    """The ``Source`` of signers: AWS's credentials, as botocore finds them."""

    def __init__(self, service: str, region: str | None, wall_clock: Callable[[], float]) -> None:
        self._service = service
        self._region = region
        self._wall_clock = wall_clock
        self._session: Any = None
        self._paths: list[Path] = []
        self._files: FileStates = ()

    def has_changed(self) -> bool:
        """Whether a file with profiles is another one."""
        return file_states(self._paths) != self._files

    def forget(self) -> None:
        """Find them again, with a new session: one keeps what it has found."""
        self._session = None

    def fetch(self) -> FetchedCredentials[_Signer]:
        """Return a signer with credentials that are valid now."""
        if self.has_changed():
            self.forget()
        auth: Any = importlib.import_module("botocore.auth")
        request: Any = importlib.import_module("botocore.awsrequest")
        if self._session is None:
            self._session = importlib.import_module("botocore.session").Session()
            named = (self._session.get_config_variable(name) for name in ("credentials_file", "config_file"))
            self._paths = [Path(name) for name in named if name]
            self._files = file_states(self._paths)  # before they are read
        region = self._region or self._session.get_config_variable("region")
        if region is None:
            raise LookupError("no region: set AWS_REGION")
        found = self._session.get_credentials()
        if found is None:
            raise LookupError("there are none")
        frozen = found.get_frozen_credentials()
        signer = _Signer(auth.SigV4Auth(frozen, self._service, region), request.AWSRequest)
        is_static = not hasattr(found, "refresh_needed")
        return FetchedCredentials(signer, None if is_static else self._wall_clock() + _LOOKED_AT_EVERY_S)


def _message_of(error: Exception) -> str:
    """Return the failure as a message for the operator."""
    if isinstance(error, ImportError):
        return (
            "needs a key of Bedrock's (AWS_BEARER_TOKEN_BEDROCK), or botocore: `holeshot check` says how to install it"
        )
    words = " ".join(str(error).split())[:300]
    return f"could not get AWS credentials ({words}); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"
