"""A page of another origin, in a real browser: what it may do with a key, and that it may do nothing with a cookie."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browser.upstream import BEGINNING, ENDLESS, odd_fleet, odd_upstream
from tests.browser.visit import Visit
from tests.support.browser.installation import KEYS, Installation, installed, people

# Fetches and reads up to some words, or to the end; an answer that the browser keeps from the page is null.
ASK = """async ([url, options, upTo]) => {
  try {
    const response = await fetch(url, options);
    const headers = Object.fromEntries(response.headers);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (!done) text += value;
      if (done || (upTo && text.includes(upTo))) {
        await reader.cancel();
        return { status: response.status, headers, text };
      }
    }
  } catch {
    return null;
  }
}"""
MESSAGES = [{"role": "user", "content": "Why race?"}]
BODY, WITHOUT_END = (json.dumps({"model": model, "stream": True, "messages": MESSAGES}) for model in ("short", ENDLESS))
JSON = {"content-type": "application/json"}
RPM = 2
OF_OPERATORS = (
    "/",
    "/api/session",
    "/api/configuration",
    "/api/calls",
    "/api/live",
    "/admin/keys",
    "/leaderboard",
    "/metrics",
)


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><link rel=icon href=data:,><title>Another page</title>")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def other_page() -> Iterator[str]:
    """Serve a page; yield its origin."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def listed() -> Iterator[str]:
    with other_page() as origin:
        yield origin


@pytest.fixture(scope="module")
def unlisted() -> Iterator[str]:
    with other_page() as origin:
        yield origin


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path, listed: str) -> Iterator[Installation]:
    config = people()
    config["clients"]["app"]["rpm"] = RPM
    with odd_upstream() as url:
        config |= odd_fleet(url)
        folder = tmp_path_factory.mktemp("shared") / "gateway"
        with installed(folder, migrated_file, cors=[listed], **config) as installation:
            yield installation


def asking(seen: Visit, gateway: Installation) -> Callable[..., Any]:
    """Return what asks the gateway from the page that is open: ``ask(path, key, **options of fetch)``.

    It reads the whole answer, or with ``up_to`` until these words have come.
    """

    def ask(path: str, key: str | None = None, *, up_to: str | None = None, **options: Any) -> Any:
        headers = options.pop("headers", {}) | ({"authorization": f"Bearer {key}"} if key else {})
        return seen.page.evaluate(ASK, [f"{gateway.url}{path}", {**options, "headers": headers}, up_to])

    return ask


def at(visit: Callable[..., Visit], origin: str) -> Visit:
    seen = visit(origin)
    seen.page.goto(origin)
    return seen


def test_a_listed_page_streams_and_reads_headers_and_errors(
    shared: Installation, visit: Callable[..., Visit], listed: str
) -> None:
    ask = asking(at(visit, listed), shared)
    chat = {"method": "POST", "headers": JSON | {"x-stainless-lang": "js", "x-holeshot-race": "hedge"}, "body": BODY}
    answer = ask("/v1/chat/completions", KEYS["root"], **chat)
    assert answer["status"] == 200
    assert answer["text"].rstrip().endswith("data: [DONE]")
    streamed = ask("/v1/chat/completions", KEYS["root"], up_to=BEGINNING, **{**chat, "body": WITHOUT_END})
    assert (streamed["status"], BEGINNING in streamed["text"]) == (200, True)
    assert {"x-request-id", "x-holeshot-call-id", "x-holeshot-deployment"} <= answer["headers"].keys()
    wrong = ask("/v1/chat/completions", "hs-nobody", **chat)
    assert (wrong["status"], "unknown" in wrong["text"]) == (401, True)
    answers = [ask("/v1/chat/completions", KEYS["app"], **chat)]
    while answers[-1]["status"] == 200 and len(answers) <= 2 * RPM:  # a minute of the clock may end in between
        answers.append(ask("/v1/chat/completions", KEYS["app"], **chat))
    assert [each["status"] for each in answers] == [200] * (len(answers) - 1) + [429]
    assert len(answers) > RPM
    assert "x-ratelimit-remaining-requests" in answers[0]["headers"]
    assert int(answers[-1]["headers"]["retry-after"]) > 0
    assert "rpm" in answers[-1]["text"]


def test_a_page_that_is_not_listed_reads_nothing(
    shared: Installation, visit: Callable[..., Visit], unlisted: str
) -> None:
    ask = asking(at(visit, unlisted), shared)
    assert ask("/v1/chat/completions", KEYS["root"], method="POST", headers=JSON, body=BODY) is None
    assert ask("/v1/models", KEYS["root"]) is None
    assert ask("/api/session", KEYS["root"]) is None


def test_no_other_page_uses_a_session_or_the_pages_api(
    shared: Installation, visit: Callable[..., Visit], listed: str, unlisted: str
) -> None:
    seen = visit(shared)
    seen.sign_in(KEYS["root"])
    seen.page.wait_for_selector("#navigation a[href='#/keys']")
    shared.stored(call["id"] for call in shared.ask("/api/calls", key=KEYS["root"])[1]["data"])
    calls = shared.ask("/api/calls", key=KEYS["root"])[1]["data"]  # as they are from now on
    for origin in (listed, unlisted):
        seen.page.goto(origin)
        ask = asking(seen, shared)
        for path in OF_OPERATORS:
            assert ask(path, credentials="include") is None, path
            assert ask(path, KEYS["root"]) is None, path
        assert ask("/v1/models", credentials="include") is None
        for path in ("/api/playground", "/v1/chat/completions"):
            for kind in ("application/json", "text/plain"):
                sent = {"method": "POST", "credentials": "include", "headers": {"content-type": kind}, "body": BODY}
                assert ask(path, **sent) is None
                assert ask(path, **{**sent, "mode": "no-cors", "headers": {"content-type": "text/plain"}}) is None
    assert shared.ask("/api/calls", key=KEYS["root"])[1]["data"] == calls  # nothing was asked in secret either
