"""A client that hangs up stops every upstream request of its call; the upstreams' own counts say so."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from providers.simulator import Delta, Gate, Hang, RoleOnly, answer
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, chat_body, single

BOTH = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@asynccontextmanager
async def socket_with(
    running: RunningGateway, body: Any, path: str = "/v1/chat/completions"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Post ``body`` over a bare socket; whoever closes the writer has hung up."""
    host, _, port = running.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    raw = msgspec.json.encode(body)
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {len(raw)}\r\n\r\n"
    )
    writer.write(head.encode() + raw)
    try:
        yield reader, writer
    finally:
        writer.close()


@BOTH
async def test_hanging_up_before_the_first_token_stops_all_of_the_race(serve: Serve, stream: bool) -> None:
    async with serve(alpha=[Hang()], beta=[RoleOnly(), Hang()]) as running:
        async with socket_with(running, chat_body(stream=stream)) as (_, writer):
            await running["alpha"].requested.wait()
            await running["beta"].requested.wait()
            writer.close()
            for provider in running.providers.values():
                await provider.reach(disconnects_before_first_token=1)
        call = await running.call()
        attempts = await running.rows("select outcome, censored_at_ms, ttft_ms from attempts")
    assert (call["status_code"], call["error_kind"], call["winner_attempt_id"]) == (499, "client_disconnected", None)
    assert {row["outcome"] for row in attempts} == {"client_gone"}
    assert all(row["censored_at_ms"] > 0 and row["ttft_ms"] is None for row in attempts)


async def test_clients_that_give_up_on_a_silent_provider_are_an_outage_in_sql_and_in_the_report(serve: Serve) -> None:
    async with serve(alpha=[Hang()]) as running:
        running.prefer("alpha")
        url, body = f"{running.url}/v1/chat/completions", chat_body(stream=True)
        waiting = [asyncio.ensure_future(running.http.post(url, json=body)) for _ in range(12)]
        await running["alpha"].reach(requests=12)
        await asyncio.wait(waiting, timeout=1.0)  # so long are they patient, from when the provider was asked
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await running["alpha"].reach(disconnects_before_first_token=12)
        rows = await running.rows("select deployment, reason, ended_at from outages")
        async with running.get("/api/history?window=1h") as response:
            report = await response.json()
    said = "12 clients left before a first token"
    assert rows == [{"deployment": "alpha/m", "reason": said, "ended_at": None}]
    assert [(each["deployment"], each["reason"]) for each in report["outages"]] == [("alpha/m", said)]


async def test_hanging_up_in_the_middle_of_the_stream_stops_the_winner(serve: Serve) -> None:
    async with serve(alpha=None, beta=[Hang()]) as running:
        running["alpha"].script = [RoleOnly(), Gate(running["beta"].requested), Delta("a"), Hang()]
        async with socket_with(running, chat_body(stream=True)) as (reader, writer):
            await reader.readuntil(b'"a"')
            writer.close()
            await running["alpha"].reach(disconnects_mid_stream=1)
            await running["beta"].reach(disconnects_before_first_token=1)
        call = await running.call()
        assert await running.outcomes() == {"alpha": "client_gone", "beta": "lost"}
    assert (call["status_code"], call["error_kind"]) == (499, "client_disconnected")
    assert call["ttft_ms"] > 0


async def test_hanging_up_on_an_answer_that_is_being_gathered_stops_it(serve: Serve) -> None:
    async with serve(alpha=[RoleOnly(), Delta("a"), Hang()]) as running:
        async with socket_with(running, chat_body()) as (_, writer):
            await running["alpha"].requested.wait()
            writer.close()
            await running["alpha"].reach(disconnects=1)
        assert (await running.call())["status_code"] == 499


async def test_hanging_up_on_embeddings_stops_them(serve: Serve) -> None:
    async with serve(alpha=[Hang()]) as running:
        async with socket_with(running, {"model": MODEL, "input": "x"}, "/v1/embeddings") as (_, writer):
            await running["alpha"].requested.wait()
            writer.close()
            await running["alpha"].reach(disconnects=1)
        assert (await running.call())["status_code"] == 499
        assert await running.outcomes() == {"alpha": "client_gone"}


async def test_the_openai_sdk_closing_its_stream_counts_as_hanging_up(serve: Serve) -> None:
    async with serve(alpha=[RoleOnly(), Delta("a"), Hang()]) as running:
        stream = await running.sdk.chat.completions.create(**chat_body(stream=True))
        assert await anext(aiter(stream))
        await stream.close()
        await running["alpha"].reach(disconnects_mid_stream=1)
        assert await running.outcomes() == {"alpha": "client_gone"}


async def test_a_client_that_leaves_while_its_body_is_on_the_way_launches_nothing(serve: Serve) -> None:
    async with serve() as running:
        host, _, port = running.url.removeprefix("http://").partition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        writer.write(f'{head}content-length: 1000\r\n\r\n{{"model":'.encode())
        await writer.drain()
        writer.transport.abort()
        async with running.get("/health/live") as response:  # served after the break was noticed, or crashed
            assert response.status == 200
        assert await running.rows("select * from calls") == []
        assert running.requests == 0


async def test_whoever_hangs_up_leaves_the_others_alone(serve: Serve) -> None:
    async with serve(alpha=answer("still here"), config=single()) as running:
        running["alpha"].once([Hang()])
        async with socket_with(running, chat_body(stream=True)) as (_, writer):
            await running["alpha"].requested.wait()
            async with running.chat() as response:
                writer.close()
                assert b"still here" in await response.read()
            await running["alpha"].reach(disconnects=1, completions=1)
