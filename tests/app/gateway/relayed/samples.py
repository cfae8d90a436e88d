"""What the tests of relayed calls send and are answered."""

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp

from providers.simulator import Gate, Hang, Headers, Raw, ScriptedProvider, Status, Step
from tests.app.gateway.running_gateway import MODEL, RunningGateway

Script = Sequence[Step]
Open = Callable[..., AbstractAsyncContextManager[tuple[RunningGateway, Mapping[str, ScriptedProvider]]]]
VECTOR = {"object": "embedding", "index": 0, "embedding": "AACAPwAAAEA="}
EMBEDDINGS = {"object": "list", "data": [VECTOR], "model": "m", "usage": {"prompt_tokens": 3, "total_tokens": 3}}
NO_SUCH_PATH: Script = (Status(404, {"detail": "Not Found"}),)  # of a server that does not have the API
HANGS: Script = (Hang(),)
PICTURE = base64.b64encode(b"\x89PNG picture").decode()
PICTURE_USAGE = {"input_tokens": 5, "output_tokens": 10, "total_tokens": 15}
PICTURES = {"created": 1, "data": [{"b64_json": PICTURE}], "usage": PICTURE_USAGE}
SOUND = b"RIFF\x00\x01--not-a-boundary\r\n\r\n" + bytes(range(256)) * 40
REFUSED = {"error": {"message": "no such voice", "type": "invalid_request_error", "param": "voice", "code": None}}
MESSAGE = {"model": MODEL, "messages": [{"role": "user", "content": "How many?"}]}


def says(
    body: Any, *, status: int = 200, kind: str = "application/json", headers: Mapping[str, str] | None = None
) -> Script:
    """Answer with JSON, or with these very bytes."""
    return (Status(status, body, {"content-type": kind, **(headers or {})}),)


def plays(*pieces: bytes | asyncio.Event, kind: str = "audio/mpeg", then: Step | None = None) -> Script:
    """Send pieces, waiting at each event; ``then`` hang, or break the connection."""
    steps = [Raw(piece) if isinstance(piece, bytes) else Gate(piece) for piece in pieces]
    return (Headers({"content-type": kind}), *steps, *([then] if then else ()))


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
