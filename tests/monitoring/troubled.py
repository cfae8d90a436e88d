"""Providers with faults that the demo fleet lacks: one rejects the key, two are at their rate limits."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

_STATUSES = {"rejecting": 401, "limited": 429, "scarce": 200}
_ERROR = b'{"error": {"message": "no", "type": "invalid_request_error"}}'
_ANSWER = (
    b'{"id": "1", "object": "chat.completion", "created": 1, "model": "demo-chat", "choices": [{"index": 0, '
    b'"message": {"role": "assistant", "content": "Because."}, "finish_reason": "stop"}], '
    b'"usage": {"prompt_tokens": 8, "completion_tokens": 2, "total_tokens": 10}}'
)


class _Troubled(BaseHTTPRequestHandler):
    """Below /rejecting it answers 401, below /limited 429; below /scarce an answer that leaves few requests."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        name = self.path.split("/")[1]
        self.send_response(_STATUSES[name])
        if name == "limited":
            self.send_header("retry-after", "20")
        if name == "scarce":
            self.send_header("x-ratelimit-limit-requests", "100")
            self.send_header("x-ratelimit-remaining-requests", "2")
        body = _ANSWER if name == "scarce" else _ERROR
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def troubled_providers() -> Iterator[dict[str, str]]:
    """Run them; yield their base URLs by name."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Troubled)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        origin = f"http://127.0.0.1:{server.server_port}"
        yield {name: f"{origin}/{name}/v1" for name in _STATUSES}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
