"""Provider families behind litellm, each against a server that speaks its wire format: answers, errors and cuts."""

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from providers import ErrorKind, Exchange, LiteLLM, LiteLLMUpstream, Request, UpstreamError, demanded, events
from providers.dialects import CHAT, MESSAGES, Chunk, read_event
from providers.simulator import ProviderTally, Visit, serve
from tests.app.providers.families import (
    BEDROCK,
    COMPLETION_TOKENS,
    FAMILIES,
    GEMINI,
    MISTRAL,
    PROMPT_TOKENS,
    RETRY_AFTER_S,
    Family,
)
from tests.app.providers.origin import Connection, Origin, chunked, soon, tls_pair

# Litellm looks at each attribute of a chunk without a text, deprecated ones too.
pytestmark = pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning")

KEY = "the-very-secret-key"
CUTS = 20

families = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


@pytest.fixture(autouse=True)
def _region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION_NAME", "us-east-1")


@pytest.fixture
async def litellm() -> AsyncIterator[LiteLLM]:
    library = LiteLLM()
    yield library
    await library.aclose()


class Server:
    """A server of one family that answers what the prompt tells it to."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.tally = ProviderTally()
        self.body: dict[str, Any] = {}
        self.key: str | None = None
        self.path = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.text()
        self.body = json.loads(body)
        self.key = request.headers.get(self.family.key_header)
        self.path = request.rel_url.raw_path
        told = body.partition("<<")[2].partition(">>")[0]
        return await self.tally.answer(lambda visit: self._perform(request, visit, told))

    async def _perform(self, request: web.Request, visit: Visit, told: str) -> web.StreamResponse:
        family = self.family
        if told.isdigit():
            refusal = family.refusal(int(told), f"refused {told}, key {KEY}")
            return web.json_response(refusal, status=int(told), headers={"retry-after": str(RETRY_AFTER_S)})
        if told == "whole":
            return web.json_response(dict(family.whole))
        response = web.StreamResponse(headers={"content-type": family.content_type})
        await response.prepare(request)
        for piece in (*family.head, *family.texts):
            await response.write(piece)
        visit.first_token_sent = True
        match told:
            case "fail":
                await response.write(family.failure)
            case "stop short":
                pass
            case "drop":
                assert request.transport is not None
                request.transport.abort()
            case _:
                for piece in family.end:
                    await response.write(piece)
        return response


@asynccontextmanager
async def asking(litellm: LiteLLM, family: Family) -> AsyncIterator[tuple[Server, LiteLLMUpstream]]:
    server = Server(family)
    async with serve([web.post("/{path:.*}", server.answer)], server.tally) as base_url:
        upstream = upstream_to(litellm, family, base_url.removesuffix("/v1"))
        yield server, upstream
        await upstream.aclose()


def upstream_to(litellm: LiteLLM, family: Family, root: str) -> LiteLLMUpstream:
    return LiteLLMUpstream(
        litellm,
        provider=family.name,
        litellm_prefix=family.prefix,
        api_key=KEY,
        base_url=root + family.base_path,
    )


def tell(family: Family, what: str, *, drop_params: bool = False, **fields: Any) -> Request:
    body = {"stream": True, "messages": [{"role": "user", "content": f"<<{what}>>"}], **fields}
    raw = msgspec.json.decode(json.dumps(body), type=dict[str, msgspec.Raw])
    return Request(family.model, raw, drop_params=drop_params, upstream_stream=what != "whole")


async def read_all(exchange: Exchange) -> list[Chunk]:
    blocks = []
    while block := await exchange.read():
        blocks.append(block)
    return [read_event(event.data) for event in events(b"".join(blocks))]


@families
async def test_an_answer_arrives_with_its_tokens_counted(litellm: LiteLLM, family: Family) -> None:
    async with asking(litellm, family) as (server, upstream):
        seen = await read_all(await upstream.stream(tell(family, "answer", temperature=0.5)))
    assert sum(chunk.meaningful for chunk in seen) == 2
    assert [chunk.finished for chunk in seen].count(True) == 1
    assert seen[-1].done
    usage = next(chunk.usage for chunk in seen if chunk.usage is not None)
    assert (usage.prompt_tokens, usage.completion_tokens) == (PROMPT_TOKENS, COMPLETION_TOKENS)
    assert (usage.cached_tokens or None) == family.cached
    assert (usage.reasoning_tokens or None) == family.reasoning
    assert server.path == family.path
    assert server.key == family.key_value.format(key=KEY)
    assert "0.5" in json.dumps(server.body)


@families
async def test_the_first_token_is_told_before_the_second_is_sent(litellm: LiteLLM, family: Family) -> None:
    async with Origin().serving() as origin:
        upstream = upstream_to(litellm, family, origin.base_url.removesuffix("/v1"))
        exchange, connection = await begun(origin, upstream, family)
        assert b"Hel" in await first_token(exchange)
        connection.send(chunked(family.texts[1]))
        assert b"lo" in await soon(exchange.read())
        connection.send(chunked(b"".join(family.end)) + b"0\r\n\r\n")
        assert (await soon(read_all(exchange)))[-1].done
        await upstream.aclose()


@families
async def test_an_answer_that_is_not_streamed_upstream_is_presented_as_a_stream(
    litellm: LiteLLM, family: Family
) -> None:
    async with asking(litellm, family) as (_, upstream):
        seen = await read_all(await upstream.stream(tell(family, "whole")))
    assert [chunk.meaningful for chunk in seen].count(True) == 1
    usage = next(chunk.usage for chunk in seen if chunk.usage is not None)
    assert (usage.prompt_tokens, usage.completion_tokens) == (PROMPT_TOKENS, COMPLETION_TOKENS)


@families
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ErrorKind.BAD_REQUEST),
        (401, ErrorKind.PROVIDER_AUTH),
        (403, ErrorKind.PROVIDER_AUTH),
        (404, ErrorKind.NOT_FOUND),
        (429, ErrorKind.RATE_LIMITED),
        (500, ErrorKind.SERVER_ERROR),
        (503, ErrorKind.SERVER_ERROR),
    ],
)
async def test_a_refusal_keeps_its_kind_and_the_provider_s_words_without_the_key(
    litellm: LiteLLM, family: Family, status: int, kind: ErrorKind
) -> None:
    async with asking(litellm, family) as (server, upstream):
        with pytest.raises(UpstreamError) as raised:
            await upstream.stream(tell(family, str(status)))
    assert raised.value.kind is kind
    assert raised.value.message == f"refused {status}, key ***"
    assert raised.value.retry_after_s == RETRY_AFTER_S or status != 429
    assert server.tally.counts.requests == 1  # not tried again behind our back


@families
async def test_an_error_in_the_middle_comes_after_what_was_said_before(litellm: LiteLLM, family: Family) -> None:
    async with asking(litellm, family) as (_, upstream):
        exchange = await upstream.stream(tell(family, "fail"))
        assert b"Hel" in await first_token(exchange)
        with pytest.raises(UpstreamError, match="Overloaded") as raised:
            await read_all(exchange)
    assert raised.value.kind is ErrorKind.STREAM_ERROR


@families
async def test_a_broken_connection_in_the_middle_is_a_disconnect(litellm: LiteLLM, family: Family) -> None:
    async with asking(litellm, family) as (_, upstream):
        exchange = await upstream.stream(tell(family, "drop"))
        with pytest.raises(UpstreamError) as raised:
            await read_all(exchange)
    assert raised.value.kind is ErrorKind.DISCONNECTED


@pytest.mark.parametrize("family", [each for each in FAMILIES if each.tells_its_end], ids=lambda family: family.name)
async def test_an_answer_without_its_end_is_given_none(litellm: LiteLLM, family: Family) -> None:
    async with asking(litellm, family) as (_, upstream):
        exchange = await upstream.stream(tell(family, "stop short"))
        with pytest.raises(UpstreamError) as raised:
            await read_all(exchange)
    assert raised.value.kind is ErrorKind.UPSTREAM_TRUNCATED


async def test_tokens_the_provider_did_not_count_are_not_made_up(litellm: LiteLLM) -> None:
    end = (MISTRAL.end[0].replace(b'"usage"', b'"unused"'), *MISTRAL.end[1:])
    async with asking(litellm, msgspec.structs.replace(MISTRAL, end=end)) as (_, upstream):
        seen = await read_all(await upstream.stream(tell(MISTRAL, "answer")))
    assert seen[-1].done
    assert all(chunk.usage is None for chunk in seen)


async def begun(origin: Origin, upstream: LiteLLMUpstream, family: Family) -> tuple[Exchange, Connection]:
    """Ask; return the exchange and its connection, over which the answer has come up to its first token."""
    attempt = asyncio.create_task(upstream.stream(tell(family, "answer")))
    connection, _ = await origin.request()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {family.content_type}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    connection.send(head + chunked(b"".join((*family.head, family.texts[0]))))
    return await soon(attempt), connection


async def first_token(exchange: Exchange) -> bytes:
    seen = b""
    while b"Hel" not in seen:
        seen += await soon(exchange.read())
    return seen


async def cancelled_before_headers(origin: Origin, upstream: LiteLLMUpstream, family: Family) -> Connection:
    attempt = asyncio.create_task(upstream.stream(tell(family, "answer")))
    connection, _ = await origin.request()
    attempt.cancel()
    await asyncio.wait([attempt])
    return connection


async def aborted_mid_stream(origin: Origin, upstream: LiteLLMUpstream, family: Family) -> Connection:
    exchange, connection = await begun(origin, upstream, family)
    await first_token(exchange)
    exchange.abort()
    return connection


async def cancelled_while_reading(origin: Origin, upstream: LiteLLMUpstream, family: Family) -> Connection:
    exchange, connection = await begun(origin, upstream, family)
    await first_token(exchange)
    reading = asyncio.create_task(exchange.read())
    await asyncio.sleep(0)  # let it begin
    reading.cancel()
    await asyncio.wait([reading])
    return connection


@pytest.fixture(params=["http", "https"])
def server_context(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> ssl.SSLContext | None:
    """The TLS of the origin, which litellm trusts; None over HTTP."""
    if request.param == "http":
        return None
    context, authority = tls_pair()
    (tmp_path / "authority.pem").write_bytes(authority)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    return context


@families
@pytest.mark.parametrize("cut", [cancelled_before_headers, aborted_mid_stream, cancelled_while_reading])
async def test_the_provider_sees_every_cut_loser_go(
    litellm: LiteLLM,
    server_context: ssl.SSLContext | None,
    family: Family,
    cut: Callable[[Origin, LiteLLMUpstream, Family], Awaitable[Connection]],
) -> None:
    """The origin takes no notice of close_notify, as nginx does not: it knows of the end of the TCP connection only."""
    async with Origin(server_context).serving() as origin:
        upstream = upstream_to(litellm, family, origin.base_url.removesuffix("/v1"))
        connections = [await cut(origin, upstream, family) for _ in range(CUTS)]
        for connection in connections:
            await soon(connection.lost.wait())
        await upstream.aclose()
    assert len(origin.accepted) == CUTS


async def test_before_litellm_is_there_nothing_is_known_to_be_lost_but_what_it_is_never_handed() -> None:
    upstream = upstream_to(LiteLLM(), BEDROCK, "http://127.0.0.1:1")
    request = tell(BEDROCK, "answer", seed=1, api_base="elsewhere", metadata={"a": "b"}, store=False)
    lost = upstream.losses(CHAT, BEDROCK.model, request.fields)
    assert [loss.field for loss in lost] == ["api_base", "metadata"]
    assert [loss.field for loss in demanded(lost, request.fields)] == ["api_base"]


async def test_what_a_model_does_not_know_is_a_loss_unless_it_says_nothing(litellm: LiteLLM) -> None:
    upstream = upstream_to(litellm, BEDROCK, "http://127.0.0.1:1")
    await upstream.warm_up()
    silent: dict[str, Any] = {"n": 1, "frequency_penalty": 0.0, "logprobs": False, "seed": None, "top_k": 3}
    heard: dict[str, Any] = {"temperature": 0.1, "max_completion_tokens": 5, "stop": ["x"], "response_format": {"a": 1}}
    unheard: dict[str, Any] = {"seed": 7, "logit_bias": {"1": 2}, "n": 2, "user": "u"}
    fields = tell(BEDROCK, "answer", **silent, **heard).fields
    assert upstream.losses(CHAT, BEDROCK.model, fields) == ()
    fields = tell(BEDROCK, "answer", **heard, **unheard).fields
    lost = upstream.losses(CHAT, BEDROCK.model, fields)
    assert [loss.field for loss in lost] == ["seed", "logit_bias", "n", "user"]
    assert [loss.field for loss in demanded(lost, fields)] == ["seed", "logit_bias", "n"]
    assert upstream.losses(MESSAGES, BEDROCK.model, fields)


async def test_cache_markers_are_a_hint_where_the_provider_has_none(litellm: LiteLLM) -> None:
    part = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    fields = {"messages": msgspec.Raw(msgspec.json.encode([{"content": [part]}]))}
    lost = upstream_to(litellm, MISTRAL, "").losses(CHAT, MISTRAL.model, fields)
    assert [loss.hint for loss in lost] == [True]
    assert upstream_to(litellm, GEMINI, "").losses(CHAT, GEMINI.model, fields) == ()


@families
async def test_what_would_not_be_heard_is_refused_or_left_out_as_the_deployment_wants(
    litellm: LiteLLM, family: Family
) -> None:
    async with asking(litellm, family) as (server, upstream):
        with pytest.raises(UpstreamError, match=r"does not support colour .*drop_params") as raised:
            await upstream.stream(tell(family, "answer", colour="red", n=1))
        assert raised.value.kind is ErrorKind.BAD_REQUEST
        assert raised.value.body is not None
        assert server.tally.counts.requests == 0
        request = tell(family, "answer", drop_params=True, colour="red", function_call="none", logit_bias={"1": 2})
        assert (await read_all(await upstream.stream(request)))[-1].done
        assert "colour" not in server.body


async def test_a_default_that_a_model_does_not_know_is_left_out(litellm: LiteLLM) -> None:
    async with asking(litellm, MISTRAL) as (server, upstream):
        request = tell(MISTRAL, "answer", n=1, logit_bias={}, frequency_penalty=0, user="u")
        assert (await read_all(await upstream.stream(request)))[-1].done
        assert not {"n", "logit_bias", "frequency_penalty", "user"} & set(server.body)


async def test_what_litellm_itself_does_not_take_is_a_bad_request_that_says_what_helps(litellm: LiteLLM) -> None:
    fields = {"input": msgspec.Raw(b'["a"]'), "dimensions": msgspec.Raw(b"8")}
    async with asking(litellm, MISTRAL) as (server, upstream):
        with pytest.raises(UpstreamError, match="dimensions") as raised:
            await upstream.send("embeddings", Request("mistral-embed", fields))
    assert raised.value.kind is ErrorKind.BAD_REQUEST
    assert raised.value.message.endswith("drop_params: true at the deployment leaves it out.")
    assert "litellm" not in raised.value.message
    assert server.tally.counts.requests == 0


async def test_bedrock_takes_aws_credentials_where_there_is_no_key(
    litellm: LiteLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "example")
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)
    server = Server(BEDROCK)
    async with serve([web.post("/{path:.*}", server.answer)], server.tally) as base_url:
        root = base_url.removesuffix("/v1")
        upstream = LiteLLMUpstream(litellm, provider="bedrock", litellm_prefix="bedrock", base_url=root)
        assert (await read_all(await upstream.stream(tell(BEDROCK, "answer"))))[-1].done
        await upstream.aclose()
    assert server.key is not None
    assert server.key.startswith("AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/")


async def test_bedrock_without_any_credentials_is_the_operator_s_to_mend(
    litellm: LiteLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    upstream = LiteLLMUpstream(litellm, provider="bedrock", litellm_prefix="bedrock")
    with pytest.raises(UpstreamError, match="credentials") as raised:
        await upstream.stream(tell(BEDROCK, "answer"))
    assert raised.value.kind is ErrorKind.PROVIDER_AUTH


async def test_a_missing_package_names_itself(litellm: LiteLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google", None)
    upstream = LiteLLMUpstream(litellm, provider="vertex", litellm_prefix="vertex_ai")
    with pytest.raises(UpstreamError, match="package google-auth") as raised:
        await upstream.stream(tell(GEMINI, "answer"))
    assert raised.value.kind is ErrorKind.PROVIDER_AUTH
