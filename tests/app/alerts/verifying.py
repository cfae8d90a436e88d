"""The receiver's side of the signature, as docs/monitoring.md shows it: a test compares."""

# begin
import base64
import hashlib
import hmac


def verified(headers: dict[str, str], body: bytes, secret: str, now_s: int) -> bool:
    """Whether a message is from the gateway, and not older than five minutes. Header names are in lower case."""
    sent_s = headers["webhook-timestamp"]
    if abs(now_s - int(sent_s)) > 300:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{sent_s}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return any(
        hmac.compare_digest(expected, each.removeprefix("v1,"))
        for each in headers["webhook-signature"].split()
        if each.startswith("v1,")
    )
