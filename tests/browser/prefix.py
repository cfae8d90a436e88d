"""A reverse proxy that puts the gateway under a prefix, as an operator's might: it takes that off, and streams."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

PREFIX = "/holeshot"
_BLOCK_BYTES = 65_536
_HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "keep-alive"})


@contextmanager
def prefixed(url: str) -> Iterator[str]:
    """Serve the gateway at ``url`` under the prefix; yield the address."""
    target = urlsplit(url).netloc

    class Handler(BaseHTTPRequestHandler):
        def _pass_on(self) -> None:
            if not self.path.startswith(f"{PREFIX}/"):
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            upstream = http.client.HTTPConnection(target)
            upstream.request(self.command, self.path.removeprefix(PREFIX), body, dict(self.headers))
            response = upstream.getresponse()
            self.send_response_only(response.status)
            for name, value in response.getheaders():
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("connection", "close")
            self.end_headers()
            with suppress(OSError):  # the browser has left
                while block := response.read1(_BLOCK_BYTES):
                    self.wfile.write(block)
            upstream.close()
            self.close_connection = True

        def __getattr__(self, name: str) -> Callable[[], None]:
            if name.startswith("do_"):  # what the standard library calls for a method
                return self._pass_on
            raise AttributeError(name)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}{PREFIX}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
