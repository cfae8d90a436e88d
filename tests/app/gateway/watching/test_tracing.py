"""Traces over real sockets, read by a collector that decodes the official protobufs."""

import asyncio
import gzip
import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web
from requests import Response

from gateway.tracing import tracing
from providers.simulator import Gate, Hang, RoleOnly, Status, answer
from tests.app.gateway.collector import Collector, Span, collecting
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, chat_body, read, single
from tests.patience import PATIENCE_S

SERVER, CLIENT = 2, 3  # kinds of spans in the protobufs
ERROR = 2
TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE_ID}-{PARENT_ID}-01"


def traced(collector: Collector, **settings: Any) -> dict[str, Any]:
    return {"tracing": {"enabled": True, "endpoint": collector.url, **settings}}


def age_ms(span: Span) -> float:
    return (span.end_ns - span.start_ns) / 1e6


async def asked(running: RunningGateway, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    async with running.chat(headers, **fields) as response:
        await response.read()
        return response


async def test_a_collector_in_a_network_that_no_proxy_lists_is_reached_directly(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    async with collecting() as collector:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{unused_tcp_port}")
        monkeypatch.setenv("no_proxy", f"*.example {collector.url.removeprefix('http://')} 127.0.0.0/8")
        async with serve(fast=answer("Hello"), config=traced(collector)) as running:
            await asked(running)
    assert collector.calls


async def test_a_race_is_a_span_of_the_call_and_one_of_each_attempt(serve: Serve) -> None:
    async with collecting() as collector:
        async with serve(fast=None, slow=[RoleOnly(), Hang()], config=traced(collector)) as running:
            running["fast"].script = [Gate(running["slow"].requested), *answer("Hello", " you")]
            response = await asked(running, stream=True)
            call = await running.call()
            rows = {row["deployment"]: row for row in await running.rows("select * from attempts")}
        [span] = collector.calls
        assert (span.name, span.kind, span.parent_id) == (f"chat {MODEL}", SERVER, "")
        assert span.trace_id == call["id"].replace("-", "")
        assert response.headers["traceresponse"] == f"00-{span.trace_id}-{span.id}-03"
        assert span.attributes["gen_ai.operation.name"] == "chat"
        assert span.attributes["gen_ai.request.model"] == MODEL
        assert span.attributes["gen_ai.request.stream"] is True
        assert span.attributes["gen_ai.response.time_to_first_chunk"] == call["ttft_ms"] / 1000
        assert span.attributes["holeshot.call_id"] == call["id"]
        assert span.attributes["http.response.status_code"] == 200
        assert age_ms(span) == pytest.approx(call["total_ms"], abs=0.01)
        assert [event.name for event in span.events] == [
            "holeshot.launch",
            "holeshot.launch",
            "holeshot.claim",
            "holeshot.cut",
        ]
        won, lost = collector.attempts["fast/m"], collector.attempts["slow/m"]
        for attempt, provider in ((won, "fast"), (lost, "slow")):
            assert (attempt.name, attempt.kind, attempt.parent_id) == ("chat m", CLIENT, span.id)
            assert (attempt.trace_id, attempt.status) == (span.trace_id, 0)
            assert attempt.attributes["gen_ai.provider.name"] == provider
            assert attempt.attributes["gen_ai.request.model"] == "m"
            assert attempt.attributes["server.address"] == "127.0.0.1"
            row = rows[f"{provider}/m"]
            assert (attempt.start_ns - span.start_ns) / 1e6 == pytest.approx(row["launch_offset_ms"], abs=0.01)
            assert attempt.attributes["holeshot.outcome"] == row["outcome"]
            assert span.start_ns <= attempt.start_ns <= attempt.end_ns <= span.end_ns + 1_000_000
        assert won.attributes["holeshot.is_censored"] is False
        assert won.attributes["gen_ai.usage.output_tokens"] == rows["fast/m"]["completion_tokens"]
        [first] = won.events
        assert first.name == "holeshot.first_token"
        assert (first.unix_ns - won.start_ns) / 1e6 == pytest.approx(rows["fast/m"]["token_ms"], abs=0.01)
        assert (lost.attributes["holeshot.outcome"], lost.attributes["holeshot.is_censored"]) == ("lost", True)
        assert lost.attributes["holeshot.censored_at_ms"] == rows["slow/m"]["censored_at_ms"]
        assert age_ms(lost) == pytest.approx(rows["slow/m"]["censored_at_ms"], abs=0.01)
        assert span.events[3].attributes["holeshot.age_ms"] == rows["slow/m"]["censored_at_ms"]
        assert "gen_ai.usage.output_tokens" not in lost.attributes
        assert span.resource["service.name"] == "holeshot"
        assert span.resource["service.instance.id"].startswith("here-")


async def test_a_clients_trace_goes_on_and_each_provider_gets_its_attempts_span(serve: Serve) -> None:
    async with collecting() as collector:
        async with serve(fast=None, slow=None, config=traced(collector)) as running:
            running.answer_once_all_are_asked()
            headers = {"traceparent": TRACEPARENT, "tracestate": "vendor=a,other=b"}
            response = await asked(running, headers, stream=True)
            sent = {name: each.received[0].headers for name, each in running.providers.items()}
        [span] = collector.calls
        assert (span.trace_id, span.parent_id, span.state) == (TRACE_ID, PARENT_ID, "vendor=a,other=b")
        assert response.headers["traceresponse"] == f"00-{TRACE_ID}-{span.id}-01"
        for name in ("fast", "slow"):
            attempt = collector.attempts[f"{name}/m"]
            assert sent[name]["traceparent"] == f"00-{TRACE_ID}-{attempt.id}-01"
            assert sent[name]["tracestate"] == "vendor=a,other=b"


async def test_a_client_that_is_not_sampled_is_passed_on_but_not_exported(serve: Serve) -> None:
    async with collecting() as collector:
        async with serve(config=traced(collector)) as running:
            response = await asked(running, {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-00"})
            sent = running["alpha"].received[0].headers["traceparent"]
        assert sent.startswith(f"00-{TRACE_ID}-")
        assert sent.endswith("-00")
        assert response.headers["traceresponse"].endswith("-00")
        assert collector.spans == []


async def test_with_a_ratio_of_zero_only_clients_that_are_sampled_are_exported(serve: Serve) -> None:
    async with collecting() as collector:
        async with serve(config=traced(collector, sample_ratio=0)) as running:
            await asked(running)
            await asked(running, {"traceparent": TRACEPARENT})
        assert [span.trace_id for span in collector.calls] == [TRACE_ID]


async def test_nothing_of_a_trace_goes_to_providers_if_the_operator_does_not_want_it(serve: Serve) -> None:
    async with collecting() as collector:
        async with serve(config=traced(collector, propagate=False)) as running:
            await asked(running, {"traceparent": TRACEPARENT, "tracestate": "a=b"})
            await asked(running)
            for received in running["alpha"].received:
                assert received.headers.keys().isdisjoint({"traceparent", "tracestate"})
        assert collector.calls[0].trace_id == TRACE_ID


async def test_relayed_calls_are_traced_too(serve: Serve) -> None:
    async with collecting() as collector:
        async with serve(config=traced(collector)) as running:
            async with running.post({"model": MODEL, "input": "private"}, path="/v1/embeddings") as response:
                assert response.status == 200
            sent = running["alpha"].received[0].headers["traceparent"]
        [span] = collector.calls
        assert (span.name, span.attributes["gen_ai.operation.name"]) == (f"embeddings {MODEL}", "embeddings")
        assert sent == f"00-{span.trace_id}-{collector.attempts['alpha/m'].id}-03"
        assert "gen_ai.request.stream" not in span.attributes


async def test_failures_have_a_status_and_a_kind(serve: Serve) -> None:
    async with collecting() as collector:
        config = {**single(), **traced(collector)}
        async with serve(alpha=[Status(500)], beta=[Status(503)], config=config) as running:
            assert (await asked(running)).status == 502
            call = await running.call()
        [span] = collector.calls
        assert (span.status, span.attributes["error.type"]) == (ERROR, call["error_kind"])
        for attempt in collector.attempts.values():
            assert (attempt.status, attempt.attributes["holeshot.outcome"]) == (ERROR, "failed")
            assert attempt.attributes["error.type"] == "server_error"


async def test_an_audited_loser_comes_later_in_the_same_trace(serve: Serve) -> None:
    go_on = asyncio.Event()
    config = {"models": {MODEL: {"race": {"audit_share": 1.0}}}}
    async with collecting() as collector:
        config |= traced(collector)
        async with serve(slow=[Gate(go_on), *answer("late")], fast=None, config=config) as running:
            running.prefer("slow", "fast")
            running["fast"].script = [Gate(running["slow"].requested), *answer("from fast")]
            await asked(running, stream=True)
            go_on.set()
            await running["slow"].reach(completions=1)
        [span] = collector.calls
        won, late = collector.attempts["fast/m"], collector.attempts["slow/m"]
        assert (late.trace_id, late.parent_id, late.links) == (span.trace_id, span.id, (won.id,))
        assert late.attributes["holeshot.outcome"] == "superseded"
        assert late.attributes["holeshot.audited"] is True
        assert late.end_ns > span.end_ns
        assert span.attributes["holeshot.launched"] == 2


async def test_no_span_has_a_word_of_prompt_answer_or_error_message(serve: Serve) -> None:
    messages = [{"role": "system", "content": "xylophone"}, {"role": "user", "content": "wombat"}]
    tools = [{"type": "function", "function": {"name": "zeppelin", "parameters": {"type": "object"}}}]
    refusing = [Status(400, body=b'{"error": {"message": "wombat is not allowed"}}')]
    async with collecting() as collector:
        config = traced(collector, headers={"x-key": "collectors-own"})
        async with serve(alpha=answer("quagga", "!"), beta=refusing, config=config) as running:
            for stream in (True, False):
                body = chat_body(messages=messages, tools=tools, user="ferret", stream=stream)
                async with running.post(body, headers={"x-holeshot-tags": "team=gnu"}) as response:
                    await response.read()
        assert len(collector.spans) == 6
        assert collector.headers[0]["x-key"] == "collectors-own"
        for word in (b"xylophone", b"wombat", b"zeppelin", b"quagga", b"ferret", b"upstream-", b"collectors-own"):
            assert not any(word in body for body in collector.bodies), word


async def test_the_environment_is_heeded_where_the_file_says_nothing(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=of-the-environment")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "theirs")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "a=1,b=1")
        config = {"tracing": {"enabled": True, "resource_attributes": {"b": "2"}}}
        async with serve(config=config) as running:
            await asked(running)
        [span] = collector.calls
        assert {name: span.resource[name] for name in ("service.name", "a", "b")} == {
            "service.name": "theirs",
            "a": "1",
            "b": "2",
        }
        assert collector.headers[0]["x-key"] == "of-the-environment"
        assert collector.headers[0]["Content-Encoding"] == "gzip"


async def test_a_variable_that_the_exporter_ignores_is_reported(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, logged: list[Any]
) -> None:
    caplog.set_level(logging.ERROR)  # as where the gateway's own log has errors only
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")
    async with collecting() as collector:
        async with serve(config=traced(collector)) as running:
            await asked(running)
        assert len(collector.calls) == 1
    [line] = [entry for entry in logged if entry["event"] == "tracing.setting_ignored"]
    assert "'soon'" in line["reason"]


async def test_a_call_that_reaches_nobody_is_a_span_in_its_clients_trace(serve: Serve) -> None:
    async with collecting() as collector:
        config = {**single(), **traced(collector)}
        async with serve(alpha=[Status(429, headers={"retry-after": "50"})], config=config) as running:
            await asked(running)  # from now on it is left alone
            status = (await asked(running, {"traceparent": TRACEPARENT})).status
        [_, span] = collector.calls
        assert (span.trace_id, span.parent_id) == (TRACE_ID, PARENT_ID)
        assert span.attributes["holeshot.launched"] == 0
        assert span.attributes["http.response.status_code"] == status


async def test_the_log_has_the_id_of_the_trace(serve: Serve, logged: list[Any]) -> None:
    async with collecting() as collector, serve(config=traced(collector)) as running:
        await asked(running, {"traceparent": TRACEPARENT})
        running.gateway.reload(read({**running.config, "tracing": {}}, running.folder))
        response = await asked(running, {"traceparent": TRACEPARENT})
        assert "traceresponse" not in response.headers
        assert running["alpha"].received[1].headers["traceparent"] == TRACEPARENT  # untouched, as ever
    lines = [entry for entry in logged if entry.get("model") == MODEL and "ttft_ms" in entry]
    assert [entry.get("trace_id") for entry in lines] == [TRACE_ID, None]


async def test_traces_begin_and_end_with_a_reload(serve: Serve) -> None:
    async with collecting() as collector, serve() as running:
        await asked(running)
        running.gateway.reload(read({**running.config, **traced(collector)}, running.folder))
        await asked(running)
        running.gateway.reload(read(running.config, running.folder))
        await asked(running)
        await running.gateway.tracing.close()
        assert len(collector.calls) == 1


async def test_a_collector_that_is_away_costs_spans_and_one_line(serve: Serve, logged: list[Any]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        config = {"tracing": {"enabled": True, "endpoint": f"http://127.0.0.1:{closed.getsockname()[1]}"}}
        async with serve(config=config) as running:
            for _ in range(3):
                assert (await asked(running)).status == 200
            await running.gateway.tracing.close()
            async with running.get("/metrics") as response:
                assert "holeshot_spans_dropped_total 6.0" in await response.text()
    assert [entry["event"] for entry in logged if entry["event"].startswith("tracing.")] == ["tracing.not_exported"]


async def test_a_collector_that_hangs_delays_the_end_by_no_more_than_its_limit(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, logged: list[Any]
) -> None:
    monkeypatch.setattr(tracing, "CLOSE_S", 0.05)
    async with collecting() as collector:
        collector.hangs = True
        async with serve(config=traced(collector, timeout_s=300)) as running:
            await asked(running)
            await collector.asked.wait()
            await asked(running)
        assert running.gateway.tracing.dropped == 2  # those that were queued; nobody knows of those being sent
        assert [entry["event"] for entry in logged if entry["event"].startswith("tracing.")] == [
            "tracing.spans_dropped"
        ]


async def test_a_collector_that_refuses_is_reported_with_its_reason(serve: Serve, logged: list[Any]) -> None:
    async with collecting() as collector:
        collector.status = 401
        async with serve(config=traced(collector)) as running:
            await asked(running)
    [line] = [entry for entry in logged if entry["event"] == "tracing.not_exported"]
    assert "401" in line["reason"]


async def test_spans_that_a_collector_takes_but_does_not_keep_are_counted(serve: Serve, logged: list[Any]) -> None:
    async with collecting() as collector:
        collector.rejected = 1
        async with serve(config=traced(collector)) as running:
            await asked(running)
            await running.gateway.tracing.close()
            async with running.get("/metrics") as response:
                assert "holeshot_spans_dropped_total 1.0" in await response.text()
    assert len(collector.spans) == 2
    [line] = [entry for entry in logged if entry["event"].startswith("tracing.")]
    assert (line["event"], line["spans"], line["reason"]) == ("tracing.spans_rejected", 1, "too old")


async def test_a_collectors_answer_is_not_decompressed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, logged: list[Any]
) -> None:
    read_on: list[str] = []

    def reads(response: Response, *_: Any, **__: Any) -> Iterator[bytes]:
        read_on.append(response.url)
        return iter(())

    monkeypatch.setattr(Response, "iter_content", reads)
    bomb = gzip.compress(bytes(8 * 1024 * 1024))

    async def say(_: web.Request) -> web.Response:
        return web.Response(body=bomb, headers={"content-encoding": "gzip"})

    async with collecting() as collector:
        collector.says = say
        async with serve(config=traced(collector)) as running:
            await asked(running)
            await running.gateway.tracing.close()
            assert running.gateway.tracing.dropped == 0
    assert collector.headers[0]["Accept-Encoding"] == "identity"
    assert (len(collector.spans), read_on) == (2, [])
    assert [entry for entry in logged if entry["event"].startswith("tracing.")] == []


async def test_a_collectors_endless_answer_is_cut(serve: Serve, logged: list[Any]) -> None:
    cut = asyncio.Event()

    async def say(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(bytes(64 * 1024))
        finally:
            cut.set()

    async with collecting() as collector:
        collector.says = say
        async with serve(config=traced(collector)) as running:
            await asked(running)
            async with asyncio.timeout(PATIENCE_S):
                await cut.wait()
            await running.gateway.tracing.close()
            assert running.gateway.tracing.dropped == 0
    assert [entry for entry in logged if entry["event"].startswith("tracing.")] == []


async def test_a_collector_that_redirects_has_not_taken_the_spans(serve: Serve, logged: list[Any]) -> None:
    async def say(_: web.Request) -> web.Response:
        return web.Response(status=307, headers={"location": "http://169.254.169.254/"})

    async with collecting() as collector:
        collector.says = say
        async with serve(config=traced(collector)) as running:
            await asked(running)
            await running.gateway.tracing.close()
    [line] = [entry for entry in logged if entry["event"].startswith("tracing.")]
    assert (line["event"], "307, a redirect, which is not followed" in line["reason"]) == ("tracing.not_exported", True)


async def test_a_tracestate_that_is_invalid_is_not_the_reason_why_a_collector_refuses(
    serve: Serve, logged: list[Any]
) -> None:
    async with collecting() as collector:
        collector.status = 401
        async with serve(config=traced(collector)) as running:
            await asked(running, {"traceparent": TRACEPARENT, "tracestate": "Not A State"})
    [line] = [entry for entry in logged if entry["event"] == "tracing.not_exported"]
    assert "401" in line["reason"]
    assert "Not A State" not in line["reason"]
