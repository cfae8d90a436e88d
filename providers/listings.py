"""Reads providers' lists of models: all known formats of ``GET /models``, into one record.

Lists have OpenAI's basic format (``{"data": [{"id": …}]}``, or the bare array of Together) and differ in all details:
OpenRouter, Novita, DeepInfra, Together and SambaNova have prices, in different units; Groq, Mistral, vLLM, Fireworks
and llama.cpp have the context length, under different names; Anthropic sends pages.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from providers.errors import ErrorKind, UpstreamError
from providers.listed import Listed, read_row

MOST_PAGES = 20  # of one list


class Listing(msgspec.Struct, frozen=True):
    """A provider's whole list, and the headers of its last page (names in lower case)."""

    models: tuple[Listed, ...]
    headers: Mapping[str, str] = {}


ReadPage = Callable[[Mapping[str, str]], Awaitable[tuple[bytes, Mapping[str, str]]]]


async def read_pages(read_page: ReadPage) -> Listing:
    """Return the list from ``read_page``, which takes a query and returns a body and its headers.

    Raises:
        UpstreamError: as of ``read_page``; or a body is not a list of models (invalid_response).

    """
    models: dict[str, Listed] = {}
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    for _ in range(MOST_PAGES):
        body, headers = await read_page(query)
        known = len(models)
        models |= {model.id: model for model in read_listing(body)}
        following = next_page(body)
        if following is None or len(models) == known:  # a page without new models would lead to an endless loop
            break
        query = following
    return Listing(tuple(models.values()), headers)


def read_listing(body: bytes) -> list[Listed]:
    """Return the models of a list, or of one of its pages, in its order; rows without a name are left out.

    Raises:
        UpstreamError: it is not a list of models (invalid_response).

    """
    answer = _decoded(body)
    rows = answer
    if isinstance(answer, dict):
        rows = next((answer[key] for key in ("data", "models") if key in answer), None)
        if isinstance(rows, dict):  # OpenRouter: one model and its endpoints
            rows = [rows]
    if not isinstance(rows, list):
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, "its list of models has an unknown format")
    return [listed for row in rows if isinstance(row, dict) and (listed := read_row(row)) is not None]


def next_page(body: bytes) -> Mapping[str, str] | None:
    """Return the query for the next page, None if this is the last one."""
    answer = _decoded(body)
    if not isinstance(answer, dict):
        return None
    if answer.get("has_more") is True and isinstance(last := answer.get("last_id"), str):  # Anthropic
        return {"after_id": last}
    if isinstance(links := answer.get("links"), dict) and isinstance(following := links.get("next"), str):  # OpenRouter
        return dict(parse_qsl(urlsplit(following).query)) or None
    return None


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, "its list of models is not JSON") from None
