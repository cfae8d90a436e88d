"""What the upstream refuses as the strict stand-ins of vendors do: types, bounds, ids, and orders of a history.

Not fields that are unknown: cases are about whether those arrive. Nor what only a model of one vendor refuses.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from strict_vendors import Refused as RefusedByVendor
from strict_vendors import Vendor, made
from strict_vendors.apis.kept import Kept, as_items, check_history
from strict_vendors.apis.messages import MessagesVendor, in_pydantics_words
from strict_vendors.known.openai import OpenAI
from strict_vendors.rules.anthropic import MESSAGES
from strict_vendors.rules.openai import CHAT
from strict_vendors.rules.responses import RESPONSES
from strict_vendors.shapes import Record, faults
from strict_vendors.words import in_openais_words
from tests.clients.upstream.errors import Refused

Json = dict[str, Any]
_VENDORS: Mapping[str, str] = {
    "/v1/chat/completions": "openai",
    "/v1/responses": "openai",
    "/v1/messages": "anthropic",
}


def check(path: str, body: Json) -> None:
    """Refuse a request of one of the three APIs that their vendors refuse."""
    name = _VENDORS.get(path)
    if name is None:
        return
    try:
        for refused in _wrong(path, body, made(name)):
            raise refused
    except RefusedByVendor as refused:
        raise Refused(refused.status, refused.message) from refused


def _wrong(path: str, body: Json, vendor: Vendor) -> Iterator[RefusedByVendor]:
    match path:
        case "/v1/chat/completions" if isinstance(vendor, OpenAI):
            yield from _of_fields(CHAT, body)
            vendor.check_messages(body["messages"])
        case "/v1/responses":
            body = {**body, "input": as_items(body.get("input"))}
            yield from _of_fields(RESPONSES, body)
            if body.get("previous_response_id") is None and body.get("conversation") is None:
                check_history(body["input"], Kept())
        case "/v1/messages" if isinstance(vendor, MessagesVendor):
            for fault in faults(MESSAGES, body):
                if fault.kind != "unknown":
                    yield in_pydantics_words(fault)
            vendor._check_texts(body)
            vendor._check_calls(body["messages"])
        case _:
            pass


def _of_fields(shape: Record, body: Json) -> Iterator[RefusedByVendor]:
    for fault in faults(shape, body):
        if fault.kind != "unknown":
            yield in_openais_words(fault)
