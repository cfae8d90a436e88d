"""The query of a request to /api, validated against a struct whose fields are the allowed parameters."""

import asyncio
import base64
import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, TypeVar, get_args
from uuid import UUID

import msgspec
from aiohttp import web

from gateway.admin.operations import COMPRESSED_FROM, send
from gateway.core.errors import InvalidRequest
from gateway.core.reports import Position, Window
from gateway.settings import nearest
from providers import encoded

MOST = 500  # in a page of a list
LONGEST = 512  # characters of a value
_QUOTED_CHARS = 100  # characters of an unknown name, quoted in an error
FIRST_YEAR, LAST_YEAR = 2000, 9000  # of times that can be asked for: far from where the calendar ends
_NO = frozenset({"0", "false", ""})
S = TypeVar("S", bound=msgspec.Struct)


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A query without parameters."""


class WindowQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The time that a report covers."""

    window: Window = Window.DAY


def parse_query(request: web.Request, kind: type[S]) -> S:
    """Return the query as a ``kind``.

    Raises:
        InvalidRequest: a name is unknown or there twice, or a value is not what it must be.

    """
    known, query = kind.__struct_encode_fields__, request.query
    for name in query:
        if name not in known:
            said = name[:_QUOTED_CHARS]
            raise InvalidRequest(f"{said!r} is not asked for here; {nearest(name, known)}", param=said)
        [value, *more] = query.getall(name)
        if more:
            raise InvalidRequest(f"{name} is there more than once", param=name)
        if len(value) > LONGEST or not _is_text(value):
            raise InvalidRequest(f"{name} must be text of at most {LONGEST} characters", param=name)
    try:
        return msgspec.convert(dict(query), kind, strict=False)
    except msgspec.ValidationError as error:
        words, _, place = str(error).partition(" - at `$.")
        name = place.rstrip("`")
        raise InvalidRequest(f"{name or 'the query'}: {_choices(kind, name) or words}", param=name or None) from None


def is_asked(request: web.Request, name: str) -> bool:
    """Whether the parameter ``name`` is set: to any value other than 0, false or an empty one."""
    return request.query.get(name, "0") not in _NO


def _choices(kind: type[msgspec.Struct], name: str) -> str | None:
    """Return the values allowed for a field with a fixed set of words; none for any other field."""
    field = next((each for each in msgspec.structs.fields(kind) if each.encode_name == name), None)
    types = () if field is None else (field.type, *get_args(field.type))
    words = [str(word) for each in types if isinstance(each, type) and issubclass(each, Enum) for word in each]
    return f"must be one of {', '.join(words)}" if words else None


def position(after: str | None) -> Position | None:
    """Return the start of a page from the text that ``written`` returned.

    Raises:
        InvalidRequest: it did not.

    """
    if after is None:
        return None
    try:
        instant, _, call_id = base64.urlsafe_b64decode(after.encode() + b"==").decode().partition("|")
        place = Position(datetime.fromisoformat(instant), str(UUID(call_id)))
        if (
            written(place) == after
            and place.started_at.utcoffset() == timedelta(0)
            and place.started_at.year >= FIRST_YEAR
        ):
            return place
    except ValueError:
        pass
    raise InvalidRequest("after: give what an answer has as 'next', as it is", param="after")


def written(place: Position) -> str:
    """Return a position as the text of ``next``."""
    return base64.urlsafe_b64encode(f"{place.started_at.isoformat()}|{place.id}".encode()).decode().rstrip("=")


def _is_text(value: str) -> bool:
    """Whether every character can be stored, and thus searched for."""
    return not any(each == "\x00" or "\ud800" <= each <= "\udfff" for each in value)


# Answers of /api: JSON with an ETag, compressed where it is long: a history of all deployments is megabytes.


def answer(request: web.Request, value: Any) -> web.Response:
    """Return ``value`` as JSON, or 304 if the caller has it."""
    body = encoded(value)
    headers = _headers(hashlib.sha256(body).hexdigest())
    if headers["etag"] in request.headers.get("if-none-match", ""):
        return web.Response(status=304, headers=headers)
    response = web.Response(
        body=body, content_type="application/json", headers=headers, zlib_executor_size=COMPRESSED_FROM
    )
    if len(body) >= COMPRESSED_FROM and "gzip" in request.headers.get("accept-encoding", ""):
        response.enable_compression(web.ContentCoding.gzip)  # in a thread, which leaves the event loop alone
    return response


def _headers(digest: str) -> dict[str, str]:
    """Return the header fields of an answer in JSON."""
    return {
        "etag": f'W/"{digest[:20]}"',
        "cache-control": "private, no-cache",
        "vary": "authorization, cookie, accept-encoding",
        "x-content-type-options": "nosniff",
        "cross-origin-resource-policy": "same-origin",  # other sites' pages in an old browser must not embed it
    }


PART_BYTES = 64 * 1024  # hashed and written in one turn of the event loop


async def answer_with_items(
    request: web.Request, value: Any, name: str, items: Iterable[msgspec.Raw]
) -> web.StreamResponse:
    """Return ``value`` as JSON with ``items`` in its empty list ``name``: they may be many megabytes."""
    before, after = encoded(value).split(f'"{name}":[]'.encode())
    parts, digest = [before + f'"{name}":['.encode()], hashlib.sha256()
    for number, item in enumerate(items):
        piece = b"".join((b"," if number else b"", item))
        if len(parts[-1]) + len(piece) > PART_BYTES:
            digest.update(parts[-1])
            parts.append(piece)
            await asyncio.sleep(0)
        else:
            parts[-1] += piece
    digest.update(parts[-1])
    parts.append(b"]" + after)
    digest.update(parts[-1])
    headers = _headers(digest.hexdigest())
    if headers["etag"] in request.headers.get("if-none-match", ""):
        return web.Response(status=304, headers=headers)
    return await send(request, parts, headers | {"content-type": "application/json; charset=utf-8"}, packs=True)
