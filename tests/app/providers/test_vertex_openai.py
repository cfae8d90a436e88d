"""Vertex AI's OpenAI-compatible API with tokens from a stand-in of Google's token server."""

import asyncio
import json
import subprocess
import sys
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from providers import (
    Credentials,
    ErrorKind,
    LiteLLM,
    Request,
    Server,
    Setup,
    Upstream,
    UpstreamAnswer,
    UpstreamError,
    VertexUpstream,
    load_catalog,
    open_upstream,
)
from providers.simulator import ProviderTally, serve
from tests.patience import PATIENCE_S, eventually

PATH = "/v1/projects/p1/locations/europe-west4/endpoints/openapi"
ANSWER = (
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
REQUEST = Request("google/gemini-2.5-flash", {"messages": msgspec.Raw(b'[{"role":"user","content":"hi"}]')})


class Google:
    """Google's token server and Vertex AI, on one server. Each token has a number."""

    def __init__(self) -> None:
        self.tally = ProviderTally()
        self.tokens = 0
        self.accounts: list[str] = []  # that asked for them
        self.lasts_s = 3600
        self.refuses = False  # no tokens are given
        self.answers_401 = False
        self.keys: list[str] = []
        self.paths: list[str] = []
        self.changed = asyncio.Condition()

    async def token(self, request: web.Request) -> web.Response:
        claims = str((await request.post())["assertion"]).split(".")[1]
        self.accounts.append(json.loads(urlsafe_b64decode(claims + "=="))["iss"])
        async with self.changed:
            self.tokens += 1
            self.changed.notify_all()
        if self.refuses:
            body = {"error": "invalid_grant", "error_description": "Account has been deleted"}
            return web.json_response(body, status=400)
        return web.json_response(
            {"access_token": f"token-{self.tokens:03}-of-google", "expires_in": self.lasts_s, "token_type": "Bearer"}
        )

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.keys.append(request.headers["authorization"])
        self.paths.append(request.rel_url.raw_path)
        if self.answers_401:
            key = request.headers["authorization"].removeprefix("Bearer ")
            return web.json_response([{"error": {"code": 401, "message": f"bad token {key}"}}], status=401)
        if request.path.endswith("/embeddings"):
            return web.json_response({"object": "list", "data": [{"embedding": [0.5]}], "usage": {"prompt_tokens": 1}})
        return web.Response(body=ANSWER, headers={"content-type": "text/event-stream"})

    async def until(self, reached: Callable[[], bool]) -> None:
        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(reached), PATIENCE_S)


def write_account(path: Path, email: str, root: str) -> None:
    """Write a service account's file with a key of its own."""
    key = rsa.generate_private_key(65537, 2048)
    account = {
        "type": "service_account",
        "project_id": "p1",
        "private_key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        "client_email": email,
        "token_uri": f"{root}/token",
    }
    path.write_text(json.dumps(account))


@pytest.fixture
async def google(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[tuple[Google, str]]:
    google = Google()
    routes = [web.post("/token", google.token), web.post("/{path:.*}", google.answer)]
    async with serve(routes, google.tally) as base_url:
        root = base_url.removesuffix("/v1")
        write_account(tmp_path / "account.json", "gateway@p1.example", root)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
        yield google, root + PATH


@asynccontextmanager
async def opened(base_url: str, *, pause_s: float = 60.0, look_s: float = 60.0) -> AsyncIterator[VertexUpstream]:
    upstream = VertexUpstream(Server(provider="vertex", base_url=base_url), pause_s=pause_s, look_s=look_s)
    try:
        yield upstream
    finally:
        await upstream.aclose()


async def whole(upstream: Upstream, request: Request = REQUEST) -> bytes:
    exchange = await upstream.stream(request)
    stream = b""
    while data := await exchange.read():
        stream += data
    return stream


async def test_one_token_serves_many_calls_and_every_path(google: tuple[Google, str]) -> None:
    server, base_url = google
    async with opened(base_url) as upstream:
        assert [await whole(upstream) for _ in range(3)] == [ANSWER] * 3
        assert isinstance(await upstream.send("embeddings", REQUEST), UpstreamAnswer)
    assert server.tokens == 1
    assert server.keys == ["Bearer token-001-of-google"] * 4
    assert server.paths == [f"{PATH}/chat/completions"] * 3 + [f"{PATH}/embeddings"]


async def test_a_token_is_there_before_the_first_call(google: tuple[Google, str]) -> None:
    server, base_url = google
    async with opened(base_url) as upstream:
        assert upstream.needs_warming
        await upstream.warm_up()
        await server.until(lambda: server.tokens == 1)
        assert await whole(upstream) == ANSWER
    assert server.tokens == 1


async def test_tokens_are_renewed_before_they_end_without_a_call(google: tuple[Google, str]) -> None:
    server, base_url = google
    server.lasts_s = 60  # less than they are renewed before
    async with opened(base_url, pause_s=0.01) as upstream:
        await whole(upstream)
        await server.until(lambda: server.tokens >= 4)
        await whole(upstream)
    first, last = server.keys
    assert first < last


async def test_a_failed_renewal_leaves_the_token_that_still_holds(google: tuple[Google, str]) -> None:
    server, base_url = google
    server.lasts_s = 200
    async with opened(base_url, pause_s=0.01) as upstream:
        await whole(upstream)
        server.refuses = True
        asked = server.tokens
        await server.until(lambda: server.tokens >= asked + 2)
        assert await whole(upstream) == ANSWER


async def test_without_a_token_the_operator_is_told_and_the_next_try_may_succeed(google: tuple[Google, str]) -> None:
    server, base_url = google
    server.refuses = True
    server.lasts_s = 60
    async with opened(base_url, pause_s=0.01) as upstream:
        with pytest.raises(UpstreamError, match=r"Account has been deleted.*GOOGLE_APPLICATION_CREDENTIALS") as raised:
            await whole(upstream)
        assert raised.value.kind is ErrorKind.PROVIDER_AUTH
        server.refuses = False
        asked = server.tokens
        await server.until(lambda: server.tokens >= asked + 3)  # the one after the next has come back
        assert await whole(upstream) == ANSWER


async def test_a_refused_token_is_replaced_and_never_shown(google: tuple[Google, str]) -> None:
    server, base_url = google
    server.answers_401 = True
    async with opened(base_url, pause_s=0.01) as upstream:
        with pytest.raises(UpstreamError) as raised:
            await whole(upstream)
        assert (raised.value.kind, raised.value.message) == (ErrorKind.PROVIDER_AUTH, "bad token ***")
        await server.until(lambda: server.tokens >= 2)


async def test_a_service_account_s_file_that_is_replaced_is_read_again(
    google: tuple[Google, str], tmp_path: Path
) -> None:
    server, base_url = google
    async with opened(base_url, pause_s=0.01, look_s=0.01) as upstream:
        await whole(upstream)
        write_account(tmp_path / "account.json", "successor@p1.example", base_url.removesuffix(PATH))
        await server.until(lambda: server.tokens == 2)
        await eventually(lambda: _uses(server, upstream, "002"))
        (tmp_path / "account.json").write_text("{")  # half written: the token that holds stays
        assert await whole(upstream) == ANSWER
    assert server.accounts == ["gateway@p1.example", "successor@p1.example"]


async def _uses(server: Google, upstream: VertexUpstream, number: str) -> bool:
    await whole(upstream)
    return server.keys[-1] == f"Bearer token-{number}-of-google"


async def test_without_google_auth_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.auth", None)
    async with opened("http://127.0.0.1:9/v1") as upstream:
        with pytest.raises(UpstreamError, match="google-auth: `holeshot check` says how"):
            await whole(upstream)


async def test_the_catalog_s_row_opens_it_and_a_key_of_the_operator_s_replaces_the_tokens() -> None:
    row = load_catalog()["vertex_openai"]
    base_url = f"https://europe-west4-aiplatform.googleapis.com{PATH}"
    for keys, expected in (((), True), (("made-up",), False)):
        setup = Setup(name="v", vendor=row, base_url=base_url)
        upstream = open_upstream(setup, Credentials(keys=keys), litellm=LiteLLM())
        assert isinstance(upstream, VertexUpstream) is expected
        await upstream.aclose()


def test_nothing_of_google_s_is_imported_before_a_token_is_needed() -> None:
    program = (
        "import sys\n"
        "from providers import LiteLLM, Setup, load_catalog, open_upstream\n"
        "for name in ('openai', 'vertex_openai'):\n"
        "    setup = Setup(name=name, vendor=load_catalog()[name], base_url='https://a.example/v1')\n"
        "    open_upstream(setup, litellm=LiteLLM())\n"
        "    print('providers.upstreams.vertex' in sys.modules, 'google.auth' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True", "False"]
