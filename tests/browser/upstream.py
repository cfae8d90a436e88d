"""An upstream whose answers are odd: the model's name says how, and its prompt when one hangs."""

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MARKUP = "<script>window.broken = 1</script><img src=x onerror='window.broken = 1'> & \u202e"
ENDLESS = "endless"  # it begins, and then says nothing more until its client hangs up
BEGINNING = "Once upon a time"
APART_S: Mapping[str, float] = {"quick": 0.003, "slow": 0.03}  # between the tokens of models that answer at their speed
TOKENS = 30  # of these
HELD = "held"  # both race for it; a first token may wait for a faster answer
HANG = "hang"  # the prompt on which the quick model says nothing until its client hangs up
_CALLED = {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": ""}}
_ANSWERS: Mapping[str, Sequence[tuple[dict[str, Any], str | None]]] = {
    "markup": [({"content": MARKUP}, None), ({}, "stop")],
    "tools": [
        ({"tool_calls": [_CALLED]}, None),
        ({"tool_calls": [{"index": 0, "function": {"arguments": '{"city": "Oslo"}'}}]}, None),
        ({}, "tool_calls"),
    ],
    "refusal": [({"refusal": "I would rather "}, None), ({"refusal": "not."}, None), ({}, "stop")],
    "short": [({"content": "Once upon a"}, None), ({}, "length")],
    ENDLESS: [({"content": BEGINNING}, None)],
}


@contextmanager
def odd_upstream() -> Iterator[str]:
    """Serve it; yield its base URL. Models besides those above are a 500."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def odd_fleet(url: str) -> dict[str, Any]:
    """Return the settings of a gateway that has all its models, at the provider ``odd`` and two with a speed."""
    models: dict[str, Any] = {name: {"deployments": [f"odd/{name}"]} for name in (*_ANSWERS, "down")}
    race = {"mode": "race", "width": 2, "objective": "completion"}
    models[HELD] = {"deployments": [f"{name}/{name}" for name in APART_S], "race": race}
    return {"providers": {name: {"base_url": url, "api_key": "unused"} for name in ("odd", *APART_S)}, "models": models}


def _paced(model: str) -> Sequence[tuple[dict[str, Any], str | None]] | None:
    """Return the answer of a model with a speed; None for others."""
    return [*[({"content": "again "}, None)] * TOKENS, ({}, "stop")] if model in APART_S else None


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        model, is_to_hang = body["model"], body["messages"][-1]["content"] == HANG
        answer = _ANSWERS.get(model) or _paced(model)
        self.send_response(200 if answer else 500)
        self.send_header("content-type", "text/event-stream" if answer else "application/json")
        self.end_headers()
        if answer is None:
            self.wfile.write(b'{"error": {"message": "out of order"}}')
            return
        if model == "quick" and is_to_hang:
            self._wait()
            return
        for delta, reason in answer:
            time.sleep(APART_S.get(model, 0))
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        if model == ENDLESS:
            self._wait()
            return
        self.wfile.write(b"data: [DONE]\n\n")

    def _wait(self) -> None:
        """Wait until the client hangs up."""
        with suppress(OSError):  # the connection was dropped
            self.connection.recv(1)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
