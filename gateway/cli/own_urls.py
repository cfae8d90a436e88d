"""Checks the base_url of an operator's own provider if there is no list of models."""

from collections.abc import Callable, Mapping

from gateway.settings.base_urls import others, without_secrets
from providers.catalog import Api
from providers.dialects.index import DIALECTS
from providers.errors import ErrorKind, UpstreamError
from providers.exchange import Upstream
from providers.listings import Listing

# Answers that mean there is no API: unknown path, unknown method, or a web page for every path.
_DOUBTS = frozenset({ErrorKind.NOT_FOUND, ErrorKind.NO_SUCH_API, ErrorKind.INVALID_RESPONSE, ErrorKind.SERVER_ERROR})
_LACKING = frozenset({404, 405})
_ASKED: Mapping[Api, str] = {**{name: dialect.path for name, dialect in DIALECTS.items()}, "embeddings": "embeddings"}

Open = Callable[[str], Upstream]


class AtOwnUrl:
    """Lists the models of a provider, and looks for the right base URL if there is no list.

    Some servers have no list. They are sent a request for an answer with an empty body, which they refuse without
    computing anything; if even that path is unknown, the base URL is wrong.
    """

    def __init__(self, base_url: str, apis: tuple[Api, ...], upstream: Upstream, opened: Open) -> None:
        self._base_url = base_url
        self._api = next((api for api in apis if api in _ASKED), None)
        self._upstream = upstream
        self._open = opened

    async def list_models(self) -> Listing:
        """Return the models.

        Raises:
            UpstreamError: there is no list; with the kind no_such_api, and the right URL if found, if there is no API.

        """
        try:
            return await self._upstream.list_models()
        except UpstreamError as error:
            if error.kind not in _DOUBTS or (error.kind is ErrorKind.SERVER_ERROR and error.status not in _LACKING):
                raise
            is_there = await self._answers(self._upstream)
            if is_there and error.kind is not ErrorKind.INVALID_RESPONSE:
                raise
            if (right := await self._found()) is not None:
                raise UpstreamError(ErrorKind.NO_SUCH_API, f"{self._wrong(error)}; set base_url: {right}") from None
            if not is_there:
                raise UpstreamError(
                    ErrorKind.NO_SUCH_API, f"{self._wrong(error)}; correct its base_url (it usually ends in /v1)"
                ) from None
            raise

    async def aclose(self) -> None:
        """Close open connections."""
        await self._upstream.aclose()

    def _wrong(self, error: UpstreamError) -> str:
        asked = f"{without_secrets(self._base_url).rstrip('/')}/models"
        said = error.status if error.kind is not ErrorKind.INVALID_RESPONSE else "something other than a list of models"
        also = "" if self._api is None else f" and there is no {_ASKED[self._api]} beside it"
        return f"{asked} answers {said}{also}"

    async def _found(self) -> str | None:
        """Return the first of the usual base URLs of this server that has an API."""
        for base_url in others(self._base_url):
            upstream = self._open(base_url)
            try:
                await upstream.list_models()
            except UpstreamError as error:
                if error.kind is not ErrorKind.PROVIDER_AUTH and not await self._answers(upstream, surely=True):
                    continue
            finally:
                await upstream.aclose()
            return without_secrets(base_url)
        return None

    async def _answers(self, upstream: Upstream, *, surely: bool = False) -> bool:
        """Whether the API that a call would use exists; ``surely``: a web page does not count."""
        if self._api is None:
            return not surely
        try:
            await upstream.fetch("POST", self._api, [])
        except UpstreamError as error:
            if error.kind is ErrorKind.BAD_REQUEST:
                return True
            is_lacking = error.status in _LACKING and "model" not in error.message.lower()  # a 404 may be a model's
            return not is_lacking and not surely
        return True
