import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from gateway.cli.main import application

Holeshot = Callable[..., Result]


@pytest.fixture
def holeshot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Holeshot:
    """Runs the command line in an empty folder and an environment without keys."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("HOLESHOT_") or name.endswith(("_KEY", "_TOKEN")):
            monkeypatch.delenv(name)

    def run(*arguments: str, stdin: str | None = None, **environ: str) -> Result:
        return CliRunner().invoke(application(*arguments[:1]), list(arguments), input=stdin, env=environ)

    return run


_ANSWER = b'data: {"choices": [{"index": 0, "delta": {"content": "1"}%b}]}\n\ndata: [DONE]\n\n'


class Site:
    """A web site on loopback that answers each path with one JSON value, to one key if it has one."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        self.posts: dict[str, int] = {}  # the status of answers to POST, 404 elsewhere
        self.unlisted: set[str] = set()  # models that answer any POST, whether they are in a list or not
        self.finish = b', "finish_reason": "length"'  # of those answers
        self.takes: Callable[[list[str]], bool] = lambda _: True  # whether they answer a conversation of these roles
        self.refuses = ""  # a field of requests
        self.asked: list[str] = []
        self.refused: dict[str, int] = {}  # the status of answers to POST with these keys
        self.key: str | None = None  # the only one that is admitted, None: no key is needed
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                admitted = site.key is None or self.headers.get("authorization") == f"Bearer {site.key}"
                known = site.answers.get(self.path)
                status = 401 if not admitted else 404 if known is None else 200
                body = msgspec.json.encode(known if status == 200 else {"error": {"message": "no"}})
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                for name, value in site.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                site.asked.append(f"POST {self.path}")
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                wanted = msgspec.json.decode(body or b"{}")
                roles = [message["role"] for message in wanted.get("messages", ())]
                if wanted.get("model") in site.unlisted and (not site.takes(roles) or site.refuses in wanted):
                    refusal = b'{"error": {"message": "Conversation roles must alternate"}}'
                    if site.refuses in wanted:
                        refusal = b'{"error": {"message": "unknown field %b"}}' % site.refuses.encode()
                    self.send_response(400)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(refusal)))
                    self.end_headers()
                    self.wfile.write(refusal)
                    return
                if wanted.get("model") in site.unlisted:
                    self.send_response(200)
                    self.send_header("content-type", "text/event-stream")
                    answer = _ANSWER % site.finish
                    self.send_header("content-length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)
                    return
                key = self.headers.get("authorization", "").removeprefix("Bearer ")
                status = site.refused.get(key) or site.posts.get(self.path, 404)
                answer = msgspec.json.encode(site.answers[f"POST {self.path}"]) if status == 200 else b""
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Stay quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    running = Site()
    yield running
    running.close()
