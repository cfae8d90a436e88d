"""Bedrock's Converse without litellm, against a server that speaks its wire format, over real HTTP."""

import asyncio
import hashlib
import hmac
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from aiohttp import web

from providers import (
    BedrockUpstream,
    ErrorKind,
    Exchange,
    LiteLLM,
    Request,
    Server,
    Setup,
    UpstreamError,
    events,
    load_catalog,
    open_upstream,
)
from providers.dialects import CHAT, MESSAGES, Chunk, Malformed, read_event
from providers.simulator import ProviderTally, Visit, serve
from tests.app.providers.families import BEDROCK, COMPLETION_TOKENS, PROMPT_TOKENS
from tests.app.providers.origin import Connection, Origin, chunked, soon
from tests.patience import eventually

KEY = "the-very-secret-key"
ACCESS, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


class Bedrock:
    """The runtime, which answers what the prompt tells it to."""

    def __init__(self) -> None:
        self.tally = ProviderTally()
        self.body = b""
        self.headers: dict[str, str] = {}
        self.path = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.body = await request.read()
        self.headers = {name.lower(): value for name, value in request.headers.items()}
        self.path = request.rel_url.raw_path
        told = json.dumps(json.loads(self.body), ensure_ascii=False).partition("<<")[2].partition(">>")[0]
        return await self.tally.answer(lambda visit: self._perform(request, visit, told))

    async def _perform(self, request: web.Request, visit: Visit, told: str) -> web.StreamResponse:
        if told[:3].isdigit():
            status, _, words = told.partition(" ")
            kind = {"x-amzn-errortype": "SomeException:http://internal.amazon.com/coral/"}
            return web.json_response({"message": words or f"refused, key {KEY}"}, status=int(status), headers=kind)
        if self.path.endswith("/converse"):
            return web.json_response(dict(BEDROCK.whole))
        if told == "page":
            return web.Response(text="<html><title>Login</title></html>", content_type="text/html")
        response = web.StreamResponse(headers={"content-type": BEDROCK.content_type, "x-amzn-requestid": "request-1"})
        await response.prepare(request)
        broken = BEDROCK.texts[1][:-1] + b"\x00"
        last = {"fail": [BEDROCK.failure], "stop short": [], "break": [broken], "drop": []}.get(told, BEDROCK.end)
        for piece in (*BEDROCK.head, *BEDROCK.texts, *last):
            await response.write(piece)
        visit.first_token_sent = True
        if told == "drop":
            assert request.transport is not None
            request.transport.abort()
        return response


@asynccontextmanager
async def asking(
    key: str | None = KEY, *, pause_s: float = 60.0, look_s: float = 60.0
) -> AsyncIterator[tuple[Bedrock, BedrockUpstream]]:
    server = Bedrock()
    async with serve([web.post("/{path:.*}", server.answer)], server.tally) as base_url:
        root = base_url.removesuffix("/v1")
        upstream = BedrockUpstream(Server(provider="bedrock", base_url=root), key, pause_s=pause_s, look_s=look_s)
        try:
            yield server, upstream
        finally:
            await upstream.aclose()


def upstream_to(root: str, key: str | None = KEY) -> BedrockUpstream:
    return BedrockUpstream(Server(provider="bedrock", base_url=root), key, pause_s=60.0)


def tell(what: str, **fields: Any) -> Request:
    body = {"stream": True, "messages": [{"role": "user", "content": f"<<{what}>>"}], **fields}
    raw = msgspec.json.decode(json.dumps(body), type=dict[str, msgspec.Raw])
    return Request(BEDROCK.model, raw, upstream_stream=what != "whole")


async def read_all(exchange: Exchange) -> list[Chunk]:
    blocks = []
    while block := await soon(exchange.read()):
        blocks.append(block)
    return [read_event(event.data) for event in events(b"".join(blocks))]


@pytest.mark.parametrize("what", ["answer", "whole"])
async def test_an_answer_arrives_with_its_tokens_counted(what: str) -> None:
    async with asking() as (server, upstream):
        exchange = await upstream.stream(tell(what, temperature=0.5))
        seen = await read_all(exchange)
    assert [chunk.finish_reason for chunk in seen if chunk.finished] == ["stop"]
    assert seen[-1].done
    usage = next(chunk.usage for chunk in seen if chunk.usage is not None)
    assert (usage.prompt_tokens, usage.completion_tokens) == (PROMPT_TOKENS, COMPLETION_TOKENS)
    assert usage.cached_tokens == 4
    assert server.path == (BEDROCK.path if what == "answer" else BEDROCK.path.removesuffix("-stream"))
    assert server.headers["authorization"] == f"Bearer {KEY}"
    assert json.loads(server.body) == {
        "messages": [{"role": "user", "content": [{"text": f"<<{what}>>"}]}],
        "inferenceConfig": {"temperature": 0.5},
    }
    assert what == "whole" or {chunk.id for chunk in seen if chunk.id} == {"request-1"}


async def test_a_deployment_s_own_fields_are_sent_as_they_are() -> None:
    own = {"performanceConfig": msgspec.Raw(b'{"latency":"optimized"}')}
    async with asking() as (server, upstream):
        await read_all(await upstream.stream(msgspec.structs.replace(tell("answer"), extra_body=own)))
    assert json.loads(server.body)["performanceConfig"] == {"latency": "optimized"}


async def test_the_first_token_is_told_before_the_second_is_sent() -> None:
    async with Origin().serving() as origin:
        upstream = upstream_to(origin.base_url.removesuffix("/v1"))
        exchange, connection = await begun(origin, upstream)
        assert b"Hel" in await soon(exchange.read())
        connection.send(chunked(BEDROCK.texts[1]))
        assert b"lo" in await soon(exchange.read())
        connection.send(chunked(b"".join(BEDROCK.end)) + b"0\r\n\r\n")
        assert (await read_all(exchange))[-1].done
        await upstream.aclose()


async def test_a_cut_call_is_aborted_at_once() -> None:
    async with Origin().serving() as origin:
        upstream = upstream_to(origin.base_url.removesuffix("/v1"))
        exchange, connection = await begun(origin, upstream)
        await soon(exchange.read())
        exchange.abort()
        await soon(connection.lost.wait())
        await upstream.aclose()


async def begun(origin: Origin, upstream: BedrockUpstream) -> tuple[Exchange, Connection]:
    """Ask; return the exchange and its connection, over which the answer has come up to its first token."""
    attempt = asyncio.create_task(upstream.stream(tell("answer")))
    connection, _ = await origin.request()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {BEDROCK.content_type}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    connection.send(head + chunked(b"".join((*BEDROCK.head, BEDROCK.texts[0]))))
    return await soon(attempt), connection


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ("400", ErrorKind.BAD_REQUEST),
        ("403", ErrorKind.PROVIDER_AUTH),
        ("404", ErrorKind.NOT_FOUND),
        ("424", ErrorKind.SERVER_ERROR),
        ("429", ErrorKind.RATE_LIMITED),
        ("503", ErrorKind.SERVER_ERROR),
    ],
)
async def test_a_refusal_keeps_its_kind_and_the_provider_s_words_without_the_key(told: str, kind: ErrorKind) -> None:
    async with asking() as (server, upstream):
        with pytest.raises(UpstreamError, match=r"refused, key \*\*\*") as raised:
            await upstream.stream(tell(told))
    assert (raised.value.kind, raised.value.status) == (kind, int(told))
    assert server.tally.counts.requests == 1


@pytest.mark.parametrize(
    "words",
    [
        "The provided model identifier is invalid.",
        "Invocation of model ID m with on-demand throughput isn\u2019t supported. Retry",
    ],
)
async def test_a_wrong_model_is_the_operator_s_fault_and_not_the_client_s(words: str) -> None:
    async with asking() as (_, upstream):
        with pytest.raises(UpstreamError) as raised:
            await upstream.stream(tell(f"400 {words}"))
    assert (raised.value.kind, raised.value.body, raised.value.message) == (ErrorKind.NOT_FOUND, None, words)


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("fail", ErrorKind.STREAM_ERROR),
        ("break", ErrorKind.INVALID_RESPONSE),
        ("drop", ErrorKind.DISCONNECTED),
    ],
)
async def test_what_fails_in_the_middle_is_told(what: str, kind: ErrorKind) -> None:
    async with asking() as (_, upstream):
        with pytest.raises(UpstreamError) as raised:
            await read_all(await upstream.stream(tell(what)))
    assert raised.value.kind is kind


async def test_an_answer_without_its_end_is_given_none_and_a_web_page_is_no_answer() -> None:
    async with asking() as (_, upstream):
        assert not any(chunk.done for chunk in await read_all(await upstream.stream(tell("stop short"))))
        with pytest.raises(UpstreamError, match="invalid AWS event stream"):
            await read_all(await upstream.stream(tell("page")))


async def test_what_converse_cannot_be_told_is_a_loss_and_never_left_out_in_silence() -> None:
    async with asking() as (server, upstream):
        request = tell("answer", n=2, user="u")
        assert [(loss.field, loss.hint) for loss in upstream.losses(CHAT, BEDROCK.model, request.fields)] == [
            ("n", False),
            ("user", True),
        ]
        with pytest.raises(UpstreamError, match="n \\(Converse gives one answer\\)") as raised:
            await upstream.stream(request)
        assert raised.value.kind is ErrorKind.BAD_REQUEST
        await read_all(await upstream.stream(msgspec.structs.replace(request, drop_params=True)))
        assert "n" not in json.loads(server.body)
        with pytest.raises(Malformed):
            upstream.losses(CHAT, "m", {})
        assert upstream.losses(MESSAGES, "m", {}) != ()


async def test_it_has_chat_only() -> None:
    async with asking() as (server, upstream):
        for refused in (
            upstream.send("embeddings", tell("answer")),
            upstream.fetch("GET", "responses/1", []),
            upstream.list_models(),
            upstream.stream(Request("m", {}, dialect=MESSAGES)),
        ):
            with pytest.raises(UpstreamError):
                await refused
    assert server.tally.counts.requests == 0


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


def signature(server: Bedrock) -> str:
    """Return the signature that a request must have, by AWS's description of version 4."""
    given = server.headers["authorization"]
    names = given.partition("SignedHeaders=")[2].partition(",")[0]
    scope = given.partition(f"Credential={ACCESS}/")[2].partition(",")[0]
    fields = "".join(f"{name}:{server.headers[name]}\n" for name in names.split(";"))
    path = quote(server.path, safe="/~")  # encoded once more
    canonical = "\n".join(["POST", path, "", fields, names, hashlib.sha256(server.body).hexdigest()])
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    told = "\n".join(["AWS4-HMAC-SHA256", server.headers["x-amz-date"], scope, hashed])
    key = b"AWS4" + SECRET.encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, told.encode(), "sha256").hex()


@pytest.mark.usefixtures("credentials")
async def test_without_a_key_a_request_is_signed_with_aws_credentials() -> None:
    async with asking(None) as (server, upstream):
        assert upstream.needs_warming
        await upstream.warm_up()
        assert (await read_all(await upstream.stream(tell("answer"))))[-1].done
    given = server.headers["authorization"]
    assert f"Credential={ACCESS}/" in given
    assert "/eu-west-1/bedrock/aws4_request" in given
    assert "host" in given
    assert given.partition("Signature=")[2] == signature(server)


def write_profile(path: Path, access: str) -> None:
    path.write_text(f"[default]\naws_access_key_id = {access}\naws_secret_access_key = {SECRET}\n")


@pytest.fixture
def profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, credentials: None) -> Path:
    """A file with a profile, and no credentials elsewhere."""
    del credentials
    path = tmp_path / "credentials"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    write_profile(path, "AKIDFORMER")
    return path


async def _signs_as(server: Bedrock, upstream: BedrockUpstream, access: str) -> bool:
    await read_all(await upstream.stream(tell("answer")))
    return f"Credential={access}/" in server.headers["authorization"]


async def test_a_profile_that_is_replaced_is_read_again(profile: Path) -> None:
    async with asking(None, pause_s=0.01, look_s=0.01) as (server, upstream):
        assert await _signs_as(server, upstream, "AKIDFORMER")
        write_profile(profile, "AKIDSUCCESSOR")
        await eventually(lambda: _signs_as(server, upstream, "AKIDSUCCESSOR"))


async def test_what_a_program_prints_is_asked_again_when_it_is_refused(
    profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = tmp_path / "printed.json"

    def print_key(access: str) -> None:
        printed.write_text(json.dumps({"Version": 1, "AccessKeyId": access, "SecretAccessKey": SECRET}))

    print_key("AKIDFORMER")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profile.with_name("none")))
    config = tmp_path / "config"
    config.write_text(f"[default]\ncredential_process = cat {printed}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    async with asking(None, pause_s=0.01) as (server, upstream):
        assert await _signs_as(server, upstream, "AKIDFORMER")
        print_key("AKIDSUCCESSOR")
        with pytest.raises(UpstreamError) as raised:
            await upstream.stream(tell("403 the security token included in the request is invalid"))
        assert raised.value.kind is ErrorKind.PROVIDER_AUTH
        await eventually(lambda: _signs_as(server, upstream, "AKIDSUCCESSOR"))


@pytest.mark.usefixtures("credentials")
async def test_without_credentials_the_operator_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    async with asking(None) as (server, upstream):
        with pytest.raises(UpstreamError, match="AWS_ACCESS_KEY_ID") as raised:
            await upstream.stream(tell("answer"))
    assert raised.value.kind is ErrorKind.PROVIDER_AUTH
    assert server.tally.counts.requests == 0


async def test_without_botocore_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    async with asking(None) as (_, upstream):
        with pytest.raises(UpstreamError, match="botocore: `holeshot check` says how"):
            await upstream.stream(tell("answer"))


def test_only_bedrock_loads_what_bedrock_needs_and_a_key_needs_no_botocore() -> None:
    program = (
        "import sys\n"
        "from providers import Credentials, LiteLLM, Setup, load_catalog, open_upstream\n"
        "for name in ('openai', 'bedrock_openai', 'bedrock_converse'):\n"
        "    row = load_catalog()[name]\n"
        "    setup = Setup(name=name, vendor=row, base_url='https://a.example')\n"
        "    open_upstream(setup, Credentials(keys=['k']), litellm=LiteLLM())\n"
        "    print(any('converse' in name or 'bedrock' in name for name in sys.modules), 'botocore' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "False", "False", "True", "False"]


async def test_the_region_is_read_from_the_address() -> None:
    row = load_catalog()["bedrock_converse"]
    for host, region in (
        ("bedrock-runtime.eu-west-1.amazonaws.com", "eu-west-1"),
        ("bedrock-runtime-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("vpce-0a1b-2c3d.bedrock-runtime.ap-southeast-3.vpce.amazonaws.com", "ap-southeast-3"),
        ("127.0.0.1:8080", None),
    ):
        upstream = open_upstream(Setup(name="b", vendor=row, base_url=f"https://{host}"), litellm=LiteLLM())
        assert isinstance(upstream, BedrockUpstream)
        assert upstream.region == region
        await upstream.aclose()
