"""OpenAI's chat completions as a dialect: how a stream of chunks ends, and how it says that it broke off."""

import msgspec

ENDING = b"data: [DONE]\n\n"


def failure(kind: str, message: str) -> bytes:
    """Return the event of an error; it ends without [DONE], so that SDKs raise and take no half for a whole."""
    body = {"message": message, "type": "upstream_error", "param": None, "code": kind}
    return b"data: " + msgspec.json.encode({"error": body}) + b"\n\n"
