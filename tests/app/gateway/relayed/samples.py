"""What the tests of relayed calls send and are answered."""

import base64
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp

from tests.app.gateway.fake_upstream import FakeUpstream
from tests.app.gateway.running_gateway import MODEL, RunningGateway

Open = Callable[..., AbstractAsyncContextManager[tuple[RunningGateway, dict[str, FakeUpstream]]]]
PICTURE = base64.b64encode(b"\x89PNG picture").decode()
PICTURE_USAGE = {"input_tokens": 5, "output_tokens": 10, "total_tokens": 15}
PICTURES = {"created": 1, "data": [{"b64_json": PICTURE}], "usage": PICTURE_USAGE}
SOUND = b"RIFF\x00\x01--not-a-boundary\r\n\r\n" + bytes(range(256)) * 40
REFUSED = {"error": {"message": "no such voice", "type": "invalid_request_error", "param": "voice", "code": None}}
MESSAGE = {"model": MODEL, "messages": [{"role": "user", "content": "How many?"}]}


def in_order(*names: str) -> dict[str, Any]:
    return {"provider": {"order": list(names)}}


def form(*, model: str | None = MODEL, **fields: str) -> aiohttp.FormData:
    data = aiohttp.FormData(quote_fields=False)
    for name, value in fields.items():
        data.add_field(name, value)
    data.add_field("file", SOUND, filename='a "quoted"; name=model.wav', content_type="audio/wav")
    if model is not None:
        data.add_field("model", model)
    return data
