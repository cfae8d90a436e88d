"""Clients that talk over WebSockets in long conversations, and the provider that answers them: a process of its own."""

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from itertools import count
from typing import Any

import aiohttp

from benchmarks.edge.edge import HOST
from tests.support.measured.serving import LAST_CHUNK, STREAM_HEAD, Serving, framed

_numbers = count()


class _Provider(Serving):
    """Answers each request in Responses, with a word."""

    def answer(self, request: bytes) -> None:
        del request
        name = f"resp_{next(_numbers)}"
        text = {"type": "output_text", "text": "Yes.", "annotations": []}
        item = {"id": f"msg_{name}", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
        usage = {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4}
        response = {"id": name, "object": "response", "status": "in_progress", "model": "m", "output": []}
        over = {**response, "status": "completed", "output": [item], "usage": usage}
        delta = {"item_id": item["id"], "output_index": 0, "content_index": 0, "delta": "Yes."}
        said: Sequence[tuple[str, dict[str, Any]]] = [
            ("created", {"response": response}),
            ("output_text.delta", delta),
            ("completed", {"response": over}),
        ]
        events = b"".join(
            b"event: response.%b\ndata: %b\n\n"
            % (kind.encode(), json.dumps({"type": f"response.{kind}", "sequence_number": at, **more}).encode())
            for at, (kind, more) in enumerate(said)
        )
        self.write(STREAM_HEAD + framed(events) + LAST_CHUNK)


async def _talk(port: int, key: str, model: str, size: int) -> None:
    """Send ``size`` bytes once, and then one turn after the other that goes on from there; print a line for each."""
    headers = {"authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.ws_connect(f"http://{HOST}:{port}/v1/responses", max_msg_size=0, compress=0) as wire,
    ):
        turn = {"type": "response.create", "model": model, "store": False, "input": "word " * (size // 5)}
        while True:
            await wire.send_json(turn)
            while (event := json.loads((await wire.receive()).data))["type"] != "response.completed":
                if event["type"] == "error":
                    raise ConnectionError(event["error"]["message"])
            print("turn", flush=True)
            turn |= {"input": "And?", "previous_response_id": event["response"]["id"]}


async def main(provider_port: int, number: int, talk: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Serve the provider, and have so many clients ``talk``, until the process is ended."""
    loop = asyncio.get_running_loop()
    async with await loop.create_server(_Provider, HOST, provider_port):
        print("listening", flush=True)
        await asyncio.gather(*(talk() for _ in range(number)))


if __name__ == "__main__":
    provider_, port_, key_, model_, size_, number_ = sys.argv[1:]
    asyncio.run(main(int(provider_), int(number_), partial(_talk, int(port_), key_, model_, int(size_))))
