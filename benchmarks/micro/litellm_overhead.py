"""What litellm adds: the same upstream asked by our own HTTP client and through litellm, by turns; and who is cut.

    python -m benchmarks.micro.litellm_overhead [calls]

The upstream is a process of its own on loopback: it sends the first token after 20 ms and a hundred in all, one each
2 ms, in OpenAI's chat completions, in Anthropic's messages and in Bedrock's Converse. Both ways take turns, call by
call. The first token is timed from the call to the first bytes that hold one; CPU is this process's over whole answers,
per chunk. Then, per family, calls are cut before their headers and in the middle, and counted where they arrive. The
last two tables go into benchmarks/speed/RESULTS.md.
"""

import asyncio
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import msgspec
import uvloop
from aiohttp import web

from benchmarks.harness.report import markdown, quantile
from providers import BedrockUpstream, Exchange, HttpUpstream, LiteLLM, LiteLLMUpstream, Request, Upstream
from providers.dialects import CHAT, MESSAGES, RESPONSES, Dialect
from providers.http import TlsContexts
from tests.app.providers.families import BEDROCK, FAMILIES, Family, aws_event
from tests.app.providers.origin import Connection, Origin, chunked, tls_pair

TOKENS, FIRST_S, EACH_S = 100, 0.02, 0.002
CALLS, WARM_UP = 200, 10
CUTS = 20
GONE_S = 1.0  # by when a cut call must be seen at the upstream
MARK = b'" tok'  # in each token, and nowhere else
KEY = "not-a-key"

PROMPT = msgspec.Raw(b'[{"role":"user","content":"Count to a hundred."}]')
FIELDS: Mapping[str, msgspec.Raw] = {"messages": PROMPT, "max_tokens": msgspec.Raw(b"400")}


class Timing(msgspec.Struct, frozen=True):
    """One call: when its first token was there, and what the whole of it cost this process."""

    ttft_ms: float
    cpu_us_per_chunk: float


def _data(value: object, event: str | None = None) -> bytes:
    head = f"event: {event}\n".encode() if event else b""
    return head + b"data: " + json.dumps(value).encode() + b"\n\n"


def _chat_events() -> tuple[bytes, list[bytes], bytes]:
    """Return what comes before the tokens, the tokens, and what comes after, in chat completions."""

    def chunk(delta: object, finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return _data({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})

    usage = {"prompt_tokens": 9, "completion_tokens": TOKENS, "total_tokens": 9 + TOKENS}
    last = _data(
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage}
    )
    tokens = [chunk({"content": f" tok{number}"}) for number in range(TOKENS)]
    return chunk({"role": "assistant", "content": ""}), tokens, chunk({}, "stop") + last + b"data: [DONE]\n\n"


def _message_events() -> tuple[bytes, list[bytes], bytes]:
    """Return the same in Anthropic's messages."""

    def event(kind: str, **fields: object) -> bytes:
        return _data({"type": kind, **fields}, kind)

    usage = {"input_tokens": 9, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m", "usage": usage}
    head = event("message_start", message=message | {"stop_reason": None, "stop_sequence": None})
    head += event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    tokens = [
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": f" tok{number}"})
        for number in range(TOKENS)
    ]
    end = event("content_block_stop", index=0)
    end += event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": TOKENS})
    return head, tokens, end + event("message_stop")


def _converse_events() -> tuple[bytes, list[bytes], bytes]:
    """Return the same in Bedrock's Converse."""
    tokens = [
        aws_event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": f" tok{number}"}, "p": "abcdefgh"})
        for number in range(TOKENS)
    ]
    usage = {"inputTokens": 9, "outputTokens": TOKENS, "totalTokens": 9 + TOKENS}
    end = aws_event("contentBlockStop", {"contentBlockIndex": 0}) + aws_event("messageStop", {"stopReason": "end_turn"})
    end += aws_event("metadata", {"usage": usage, "metrics": {"latencyMs": 1}})
    return aws_event("messageStart", {"role": "assistant"}), tokens, end


async def serve_upstream() -> None:
    """Answer until the standard input ends; say the port first."""

    def answering(
        events: tuple[bytes, list[bytes], bytes], content_type: str = "text/event-stream"
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        head, tokens, end = events

        async def answer(request: web.Request) -> web.StreamResponse:
            await request.read()
            response = web.StreamResponse(headers={"content-type": content_type})
            await response.prepare(request)
            await asyncio.sleep(FIRST_S)
            await response.write(head + tokens[0])
            for token in tokens[1:]:
                await asyncio.sleep(EACH_S)
                await response.write(token)
            await response.write(end)
            return response

        return answer

    app = web.Application()
    app.add_routes(
        [
            web.post("/v1/chat/completions", answering(_chat_events())),
            web.post("/v1/messages", answering(_message_events())),
            web.post("/model/{model}/converse-stream", answering(_converse_events(), BEDROCK.content_type)),
        ]
    )
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


async def timed(upstream: Upstream, request: Request) -> Timing:
    """Make one call and read it to its end."""
    cpu_s, began = time.process_time(), time.perf_counter()
    exchange = await upstream.stream(request)
    seen, first_s = 0, 0.0
    while block := await exchange.read():
        if not seen and MARK in block:
            first_s = time.perf_counter() - began
        seen += block.count(MARK)
    exchange.abort()
    if seen != TOKENS:
        raise RuntimeError(f"{upstream!r}: {seen} tokens of {TOKENS}")
    return Timing(first_s * 1000, (time.process_time() - cpu_s) / TOKENS * 1e6)


async def compare(name: str, native: Upstream, through: Upstream, asked: Request, calls: int) -> list[str]:
    """Return the row of one API."""
    ours = asked
    theirs = msgspec.structs.replace(ours, dialect=CHAT)
    direct, litellm = [], []
    for number in range(calls + WARM_UP):
        own, other = await timed(native, ours), await timed(through, theirs)
        if number >= WARM_UP:
            direct.append(own)
            litellm.append(other)
    cells = [name]
    for share in (0.5, 0.99):
        own_ms, other_ms = (quantile([each.ttft_ms for each in timings], share) for timings in (direct, litellm))
        cells.append(f"{own_ms - FIRST_S * 1000:.1f} / {other_ms - FIRST_S * 1000:.1f} (+{other_ms - own_ms:.1f})")
    own_us, other_us = (median(each.cpu_us_per_chunk for each in timings) for timings in (direct, litellm))
    cells += [f"{own_us:.0f} / {other_us:.0f}", f"{other_us / own_us:.0f}x"]
    return cells


async def overhead(library: LiteLLM, calls: int) -> list[list[str]]:
    """Measure both APIs, both ways."""
    # One core for the upstream, one for what is measured, where there are two.
    server = subprocess.Popen(  # noqa: ASYNC220  # before anything is timed
        [sys.executable, __file__, "--upstream"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ
    )
    assert server.stdout is not None
    root = f"http://127.0.0.1:{int(await asyncio.to_thread(server.stdout.readline))}"
    rows = []
    try:
        direct = HttpUpstream(provider="native", base_url=f"{root}/v1", api_key=KEY)
        converse = BedrockUpstream(provider="native", base_url=root, api_key=KEY)
        for name, prefix, native, asked, base in (
            ("chat completions", "openai", direct, Request("gpt-4o", FIELDS), f"{root}/v1"),
            ("messages", "anthropic", direct, Request("claude-sonnet-4-5", FIELDS, dialect=MESSAGES), root),
            ("Converse", "bedrock", converse, Request(BEDROCK.model, FIELDS), root),
        ):
            through = LiteLLMUpstream(library, provider=name, litellm_prefix=prefix, api_key=KEY, base_url=base)
            rows.append(await compare(name, native, through, asked, calls))
            await through.aclose()
        await direct.aclose()
        await converse.aclose()
    finally:
        server.communicate()
    return rows


class Subject(msgspec.Struct, frozen=True):
    """Whose calls are cut: how it is asked, and how its answers begin."""

    name: str
    request: Request
    content_type: str
    head: bytes
    text: bytes  # the first token
    open: Callable[[Origin, LiteLLM], Upstream]


def through_litellm(family: Family) -> Subject:
    """Return a family that is reached through litellm."""

    def opened(origin: Origin, library: LiteLLM) -> Upstream:
        return LiteLLMUpstream(
            library,
            provider=family.name,
            litellm_prefix=family.prefix,
            api_key=KEY,
            base_url=origin.base_url.removesuffix("/v1") + family.base_path,
        )

    request = Request(family.model, FIELDS)
    return Subject(family.name, request, family.content_type, b"".join(family.head), family.texts[0], opened)


def natively(dialect: Dialect, head: bytes, text: bytes) -> Subject:
    """Return the providers that are asked in ``dialect`` by our own client."""

    def opened(origin: Origin, _: LiteLLM) -> Upstream:
        return HttpUpstream(provider="native", base_url=origin.base_url, api_key=KEY, tls=TlsContexts(ssl_context))

    return Subject(f"{dialect}, ours", Request("m", FIELDS, dialect), "text/event-stream", head, text, opened)


def ssl_context() -> ssl.SSLContext:
    """Return a context that trusts what litellm is told to trust."""
    return ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE"))


def subjects() -> list[Subject]:
    """Return everybody."""
    delta = {"type": "text_delta", "text": "Hel"}
    item = {"item_id": "m", "output_index": 0, "content_index": 0, "delta": "Hel", "sequence_number": 1}
    started = {"type": "message_start", "message": {"id": "m", "role": "assistant", "usage": {"input_tokens": 1}}}
    return [
        natively(CHAT, b"", _data({"choices": [{"index": 0, "delta": {"content": "Hel"}}]})),
        natively(
            MESSAGES,
            _data(started, "message_start"),
            _data({"type": "content_block_delta", "index": 0, "delta": delta}, "content_block_delta"),
        ),
        natively(
            RESPONSES,
            _data({"type": "response.created", "sequence_number": 0, "response": {}}, "response.created"),
            _data({"type": "response.output_text.delta", **item}, "response.output_text.delta"),
        ),
        *map(through_litellm, FAMILIES),
    ]


async def cut_early(origin: Origin, upstream: Upstream, subject: Subject) -> Connection:
    """Cancel a call whose headers have not come."""
    attempt = asyncio.create_task(upstream.stream(subject.request))
    connection, _ = await origin.request()
    attempt.cancel()
    await asyncio.wait([attempt])
    return connection


async def begin(origin: Origin, upstream: Upstream, subject: Subject) -> tuple[Exchange, Connection, float]:
    """Make a call and return it at its first token, with the milliseconds from that token's sending to its reading."""
    attempt = asyncio.create_task(upstream.stream(subject.request))
    connection, _ = await origin.request()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {subject.content_type}\r\ntransfer-encoding: chunked\r\n\r\n"
    connection.send(head.encode() + (chunked(subject.head) if subject.head else b""))
    exchange = await attempt
    sent = time.perf_counter()
    connection.send(chunked(subject.text))
    while b"Hel" not in await exchange.read():
        pass
    return exchange, connection, (time.perf_counter() - sent) * 1000


async def cut_late(origin: Origin, upstream: Upstream, subject: Subject) -> Connection:
    """Abort a call after its first token."""
    exchange, connection, _ = await begin(origin, upstream, subject)
    exchange.abort()
    return connection


async def gone(connections: Sequence[Connection]) -> int:
    """Return how many of the connections have ended a second from now at the latest."""
    waits = [asyncio.create_task(connection.lost.wait()) for connection in connections]
    done, late = await asyncio.wait(waits, timeout=GONE_S)
    for wait in late:
        wait.cancel()
    return len(done)


@asynccontextmanager
async def trusted(*, over_tls: bool) -> AsyncIterator[ssl.SSLContext | None]:
    """Yield the TLS of an origin that litellm trusts, None for none."""
    if not over_tls:
        yield None
        return
    context, authority = tls_pair()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "authority.pem"
        path.write_bytes(authority)
        os.environ["SSL_CERT_FILE"] = str(path)
        try:
            yield context
        finally:
            del os.environ["SSL_CERT_FILE"]


async def cuts(subject: Subject, *, over_tls: bool) -> list[str]:
    """Return, of twenty calls each, how many were seen to end at the upstream: cut early, and cut late."""
    library = LiteLLM()  # its own: its clients keep the certificates they began with
    cells: list[str] = []
    async with trusted(over_tls=over_tls) as context, Origin(context).serving() as origin:
        upstream = subject.open(origin, library)
        for cut in (cut_early, cut_late):
            connections = [await cut(origin, upstream, subject) for _ in range(CUTS)]
            cells += [f"{await gone(connections)} of {CUTS}"]
        await upstream.aclose()
    await library.aclose()
    return cells


async def first_token_ms(subject: Subject) -> float:
    """Return the median of what passes between an upstream's sending its first token and our having it."""
    library = LiteLLM()
    took = []
    async with Origin().serving() as origin:
        upstream = subject.open(origin, library)
        for _ in range(CUTS):
            exchange, _, took_ms = await begin(origin, upstream, subject)
            exchange.abort()
            took.append(took_ms)
        await upstream.aclose()
    await library.aclose()
    return median(took)


async def measure(calls: int) -> None:
    """Print the tables."""
    os.environ.setdefault("AWS_REGION_NAME", "us-east-1")
    library = LiteLLM()
    await library.warm_up()
    columns = ["API", "first token added, p50, ours / litellm, ms", "p99", "CPU per chunk, ours / litellm, µs", "ratio"]
    print(*markdown(columns, await overhead(library, calls), words=5), sep="\n", end="\n\n", flush=True)
    await library.aclose()
    columns = ["family", "from sent to read, ms", "cut before headers: HTTP, TLS", "after the first token: HTTP, TLS"]
    rows = []
    for subject in subjects():
        plain, tls = await cuts(subject, over_tls=False), await cuts(subject, over_tls=True)
        took_ms = await first_token_ms(subject)
        rows.append([subject.name, f"{took_ms:.2f}", f"{plain[0]}, {tls[0]}", f"{plain[1]}, {tls[1]}"])
    print(*markdown(columns, rows, words=4), sep="\n")


if __name__ == "__main__":
    if "--upstream" in sys.argv:
        asyncio.run(serve_upstream())
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as the gateway runs
            runner.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else CALLS))
