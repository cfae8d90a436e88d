"""The clients under test: ours over each protocol, and aiohttp's as the reference, behind the same few methods."""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import aiohttp
from yarl import URL

from providers import Sendings
from providers.http import HttpClient, HttpRequest, checked
from providers.refusals import ErrorKind, UpstreamError
from tests.patience import PATIENCE_S, until

CONNECT_TIMEOUT_S = PATIENCE_S


class Answer(Protocol):
    """A response whose head is in."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def read(self) -> bytes: ...

    def abort(self) -> None: ...


class Caller(Protocol):
    """Sends requests to one origin."""

    async def send(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer: ...

    async def aclose(self) -> None: ...


class Own:
    """Our client."""

    def __init__(self, client: HttpClient, connect_timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        self.client = client
        self.sendings = Sendings()  # of the last request
        self._connect_timeout_s = connect_timeout_s

    async def send(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        once: bool = False,
    ) -> Answer:
        head = self.client.head(method, target, {})
        self.sendings = Sendings()
        request = HttpRequest(head, checked(headers or {}), body, once=once, sendings=self.sendings)
        return await self.client.send(request, self._connect_timeout_s)

    async def aclose(self) -> None:
        await self.client.aclose()

    async def ready(self) -> None:
        """Wait until there is a connection with room."""
        (pool,) = self.client._pools.values()
        await until(lambda: pool._free)


class Reference:
    """aiohttp's client, told to do no more than ours does."""

    def __init__(self, origin: str) -> None:
        self._origin = URL(origin)
        self._session = aiohttp.ClientSession(auto_decompress=False)
        self._responses: list[aiohttp.ClientResponse] = []

    async def send(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        url = self._origin.join(URL(target, encoded=True))
        data = None if body is None else io.BytesIO(body)  # it warns of large ones that are bytes
        with _translated():
            response = await self._session.request(method, url, data=data, headers=headers, allow_redirects=False)
        self._responses.append(response)
        return _ReferenceAnswer(response)

    async def aclose(self) -> None:
        for response in self._responses:
            response.close()  # else it complains of each that was not read to its end
        await self._session.close()


class _ReferenceAnswer:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers = {
            name.lower(): ", ".join(response.headers.getall(name)) for name in dict.fromkeys(response.headers)
        }
        self._response = response

    async def read(self) -> bytes:
        with _translated():
            return await self._response.content.readany()

    def abort(self) -> None:
        self._response.close()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ClientConnectionResetError) as error:
        raise UpstreamError(ErrorKind.CONNECT_ERROR, str(error)) from error
    except (aiohttp.ClientResponseError, aiohttp.http.HttpProcessingError) as error:
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, str(error)) from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UpstreamError(ErrorKind.DISCONNECTED, str(error)) from error


async def read_whole(answer: Answer) -> bytes:
    """Read ``answer`` to its end."""
    pieces = []
    while piece := await answer.read():
        pieces.append(piece)
    return b"".join(pieces)
