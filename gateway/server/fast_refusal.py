"""Refuses calls for which there is no room, directly from their connection.

Under overload most requests are refused, and each takes time from those that are answered. Through aiohttp's handler a
refusal costs several times as much as here (docs/overload.md). Special cases (forms, incomplete bodies, wrong keys) are
passed to the handler all the same, which refuses them in the same words. Connections and their room share it.
"""

from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec
from aiohttp.http_parser import RawRequestMessage
from multidict import CIMultiDictProxy

from gateway.access import FORWARDED_FOR, Client, Trust, counted_address
from gateway.api import CALLS, Context, GatewayPhase, RefusedRequest, dialect_of_call, error_body
from gateway.http import JSON, headers
from gateway.overload import ShedReason

if TYPE_CHECKING:
    from collections.abc import Hashable

AWAITED_BYTES = 8_192  # of a body: a shorter one is awaited together with its head, within the limits for heads


class _Head(msgspec.Struct, frozen=True):
    """The parts of a request that admission reads."""

    message: RawRequestMessage

    @property
    def headers(self) -> CIMultiDictProxy[str]:
        return self.message.headers

    @property
    def host(self) -> str:
        return self.message.headers.get("host", "")

    @property
    def raw_path(self) -> str:
        return self.message.path


class FastRefusal:
    """Decides whether a request is refused directly from its connection, and makes the response."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.intake = context.intake

    def awaits_body(self, message: RawRequestMessage) -> bool:
        """Whether the rest of the body should be awaited before the request is refused or handled."""
        length = message.headers.get("content-length", "")
        return (
            self.intake.is_full
            and message.path in CALLS
            and length.isdecimal()
            and int(length) <= AWAITED_BYTES
            and "expect" not in message.headers
        )

    def client_of(self, message: RawRequestMessage, peer: str | None) -> Client | None:
        """Return the client of a call from ``peer`` that would be refused now; None if it is to be handled."""
        if (
            message.method != "POST"
            or message.path not in CALLS
            or message.should_close
            or "origin" in message.headers  # a web page needs more headers to read the refusal
            or message.upgrade
            or message.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON
            or self._context.phase is not GatewayPhase.SERVING
        ):
            return None
        client = self._context.admission.recognised(_Head(message))
        if client is None:
            return None
        owner: Hashable = client.name
        if owner is None:
            trusted = self._context.settings.trusted_proxies
            owner = counted_address(peer, message.headers.getall(FORWARDED_FOR, ()), trusted)
        return client if self.intake.refuses(client.priority, owner) else None

    def refusal(self, message: RawRequestMessage, client: Client, peer: str | None) -> bytes:
        """Count a refused call, and return the response to it."""
        fields, context = message.headers, self._context
        error = self.intake.refusal(ShedReason.QUEUE_FULL)
        request_id = headers.request_id(fields)
        if request_id is not None:
            error.headers.update(headers.identifying(request_id))
        trust = Trust(context.settings.trusted_proxies)
        named = trust.named(peer, fields.getall(FORWARDED_FOR, ()))
        context.refusals.add_error(error, lambda: RefusedRequest(named, message.method, message.path, client.name))
        body = error_body(error, dialect_of_call(message.path, fields), request_id)
        more = "".join(f"{name}: {value}\r\n" for name, value in error.headers.items())
        head = (
            f"HTTP/1.1 {error.status_code} {HTTPStatus(error.status_code).phrase}\r\n{more}"
            f"content-type: {JSON}\r\ncontent-length: {len(body)}\r\nserver: {headers.SERVER}\r\n"
            "x-content-type-options: nosniff\r\n\r\n"
        )
        return head.encode() + body
