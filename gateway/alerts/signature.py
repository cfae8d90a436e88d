"""The signature of a message, by the Standard Webhooks specification: HMAC-SHA256 over its id, time and body."""

import base64
import hashlib
import hmac
from collections.abc import Mapping


def signed_headers(key: bytes, message_id: str, unix_s: int, body: bytes) -> Mapping[str, str]:
    """Return the headers that prove who sent ``body`` and when."""
    signed = f"{message_id}.{unix_s}.".encode() + body
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return {**unsigned_headers(message_id, unix_s), "webhook-signature": f"v1,{digest}"}


def unsigned_headers(message_id: str, unix_s: int) -> Mapping[str, str]:
    """Return the headers that name a message: an attempt to deliver it again has the same id."""
    return {"webhook-id": message_id, "webhook-timestamp": str(unix_s)}
