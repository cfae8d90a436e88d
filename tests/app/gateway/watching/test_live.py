"""The live stream over real sockets: what it tells is what the ledger says, and it holds nobody up."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.live import events, live
from providers.simulator import Delta, Gate, Hang, RoleOnly, Status, answer
from tests.app.gateway.connections.test_malformed import said
from tests.app.gateway.key_desk import bearer, sha256
from tests.app.gateway.relayed.samples import plays
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, chat_body, read, single
from tests.app.gateway.watcher import Watcher, watching
from tests.patience import until

CLIENTS: Mapping[str, Any] = {
    "eyes": {"key_sha256": sha256("hs-eyes"), "role": "viewer"},
    "app": {"key_sha256": sha256("hs-app")},
    "batch": {"key_sha256": sha256("hs-batch")},
}


def look(running: RunningGateway, key: str | None = None, **wanted: str) -> Any:
    return watching(running.http, running.url, None if key is None else bearer(key), **wanted)


async def left(running: RunningGateway, viewers: int = 0) -> None:
    """Wait until only so many look."""
    await until(lambda: running.gateway.live.viewers == viewers)


async def agrees_with_the_ledger(running: RunningGateway, watcher: Watcher) -> None:
    """Assert that every row was told of, once, and with the row's own figures."""
    calls = await running.rows("select * from calls")
    attempts = await running.rows("select * from attempts")
    await watcher.seen("end", len(attempts))
    began = {each["id"]: each for each in watcher.of("call")}
    done = {each["id"]: each for each in watcher.of("done")}
    launched = {each["attempt"]: each for each in watcher.of("launch")}
    ended = {each["attempt"]: each for each in watcher.of("end")}
    first = {each["attempt"]: each["ttft_ms"] for each in watcher.of("first")}
    assert len(watcher.of("call")) == len(watcher.of("done")) == len(began) == len(calls)
    assert len(watcher.of("launch")) == len(watcher.of("end")) == len(launched) == len(attempts)
    for row in calls:
        start, end = began[row["id"]], done[row["id"]]
        for name in ("client", "model", "mode", "objective", "replica", "streamed"):
            assert start[name] == row[name], name
        assert (end["status"], end["winner"], end["error"]) == (
            row["status_code"],
            row["winner_attempt_id"],
            row["error_kind"],
        )
        for name in ("ttft_ms", "total_ms", "completion_tokens", "cost_usd"):
            assert end[name] == row[name], name
    for row in attempts:
        start, end = launched[row["id"]], ended[row["id"]]
        assert start["call"] == end["call"] == row["call_id"]
        for name in ("number", "deployment", "provider", "role"):
            assert start[name] == row[name], name
        assert start["offset_ms"] == row["launch_offset_ms"]
        assert (end["outcome"], end["error"], end["tokens"]) == (
            row["outcome"],
            row["error_kind"],
            row["completion_tokens"],
        )
        assert first.get(row["id"]) == (None if row["ttft_ms"] is None else pytest.approx(row["ttft_ms"], abs=0.01))


async def test_a_race_is_told_as_it_happens_and_as_the_ledger_has_it(serve: Serve) -> None:
    async with serve(fast=None, slow=[RoleOnly(), Hang()]) as running, look(running) as watcher:
        running["fast"].script = [Gate(running["slow"].requested), *answer("Hello")]
        async with running.chat(stream=True) as response:
            await response.read()
        await watcher.seen("done")
        assert watcher.of("hello")[0]["running"] == []
        assert watcher.kinds[:4] == ["hello", "call", "launch", "launch"]
        assert watcher.kinds.index("first") < watcher.kinds.index("end") < watcher.kinds.index("done")
        assert {each["outcome"] for each in watcher.of("end")} == {"won", "lost"}
        await agrees_with_the_ledger(running, watcher)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_failures_and_those_that_replace_them_are_told(serve: Serve, stream: bool) -> None:
    async with serve(bad=[Status(500)], good=None, config=single()) as running, look(running) as watcher:
        running.prefer("bad", "good")
        async with running.chat(stream=stream) as response:
            await response.read()
        await watcher.seen("done")
        assert [each["role"] for each in watcher.of("launch")] == ["primary", "failover"]
        assert [each["outcome"] for each in watcher.of("end")] == ["failed", "won"]
        await agrees_with_the_ledger(running, watcher)


async def test_a_call_that_nobody_answers_is_told(serve: Serve) -> None:
    async with serve(bad=[Status(500)], worse=[Status(503)]) as running, look(running) as watcher:
        async with running.chat() as response:
            assert response.status == 502
        [done] = await watcher.seen("done")
        assert (done["status"], done["winner"]) == (502, None)
        await agrees_with_the_ledger(running, watcher)


async def test_a_client_that_leaves_is_told(serve: Serve) -> None:
    async with serve(alpha=[Delta("a"), Hang()], beta=[Hang()]) as running, look(running) as watcher:
        running["alpha"].script = [Gate(running["beta"].requested), Delta("a"), Hang()]
        async with running.chat(stream=True) as response:
            await response.content.readuntil(b'"a"')
            response.close()
        [done] = await watcher.seen("done")
        assert (done["status"], done["error"]) == (499, "client_disconnected")
        assert {each["outcome"] for each in watcher.of("end")} == {"client_gone", "lost"}
        await agrees_with_the_ledger(running, watcher)


async def test_what_is_not_raced_is_told_too(serve: Serve) -> None:
    async with serve(alpha=None) as running, look(running) as watcher:
        async with running.post({"model": MODEL, "input": "x"}, path="/v1/embeddings") as response:
            assert response.status == 200
        await watcher.seen("done")
        assert watcher.of("call")[0]["endpoint"] == "embeddings"
        await agrees_with_the_ledger(running, watcher)


async def test_hello_has_the_calls_that_run_with_all_that_has_happened_to_them(serve: Serve) -> None:
    go_on = asyncio.Event()
    config = {"models": {MODEL: {"race": {"mode": "single"}}}}
    async with serve(bad=[Status(500)], good=None, config=config) as running:
        running.prefer("bad", "good")
        running["good"].script = [Delta("Hello, hello"), Gate(go_on), *answer("b")]
        async with running.chat(stream=True) as response:
            await response.content.readuntil(b"hello")
            async with look(running) as watcher:
                [call] = watcher.of("hello")[0]["running"]
                go_on.set()
                await response.read()
                [done] = await watcher.seen("done")
        [failed, runs] = call["attempts"]
        row = await running.call()
        assert done["id"] == call["id"] == row["id"]
        assert (failed["number"], failed["outcome"], failed["error"]) == (1, "failed", "server_error")
        assert (runs["number"], runs["outcome"], runs["tokens"]) == (2, None, 3)
        assert runs["ttft_ms"] > 0
        assert watcher.of("call") == watcher.of("launch") == []
        [end] = watcher.of("end")
        assert end["attempt"] == runs["attempt"]
        assert end["ms"] > runs["ttft_ms"]


async def test_hello_has_running_calls_that_are_not_raced(serve: Serve) -> None:
    go_on = asyncio.Event()
    body = {"model": MODEL, "input": "x", "voice": "v"}
    async with (
        serve(alpha=plays(b"first", go_on, b"rest")) as running,
        running.post(body, path="/v1/audio/speech") as response,
    ):
        await response.content.readexactly(5)
        async with look(running) as watcher:
            [call] = watcher.of("hello")[0]["running"]
            assert (call["endpoint"], len(call["attempts"])) == ("audio.speech", 1)
            go_on.set()
            await response.read()
            [done] = await watcher.seen("done")
            assert (done["id"], done["status"]) == (call["id"], 200)


async def test_tokens_are_told_while_an_answer_streams_and_only_when_they_change(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SAMPLE_S", 0.01)
    gates = [asyncio.Event() for _ in range(2)]
    script = [Delta("12345678"), Gate(gates[0]), Delta("12345678"), Gate(gates[1]), *answer("x")]
    async with serve(alpha=script) as running, look(running) as watcher:
        async with running.chat(stream=True) as response:
            for gate in gates:
                number = len(watcher.of("tokens"))
                await watcher.seen("tokens", number + 1)
                gate.set()
            await response.read()
        await watcher.seen("done")
        [launch] = watcher.of("launch")
        seen = [tuple(pair) for each in watcher.of("tokens") for pair in each["v"]]
        assert seen[:2] == [(launch["attempt"], 2), (launch["attempt"], 4)]
        assert len(set(seen)) == len(seen)


async def test_only_the_calls_that_are_wanted_are_told(serve: Serve) -> None:
    async with (
        serve(alpha=None, beta=[Hang()], config={"clients": CLIENTS}) as running,
        look(running, "hs-eyes", client="app") as by_client,
        look(running, "hs-eyes", model="another") as by_model,
        look(running, "hs-eyes", deployment="beta/m") as by_deployment,
        look(running, "hs-eyes") as everything,
    ):
        running["alpha"].script = [Gate(running["beta"].requested), *answer("a")]
        for key in ("hs-batch", "hs-app"):
            async with running.chat(bearer(key)) as response:
                assert response.status == 200
        await everything.seen("done", 2)
        await by_client.seen("done")
        await by_deployment.seen("done", 2)
        assert [each["client"] for each in by_client.of("call")] == ["app"]
        ids = {each["id"] for each in by_client.of("call")}
        assert {each["call"] for each in by_client.of("launch", "first", "end")} == ids
        assert by_model.kinds == ["hello"]
        # A race is shown whole once the deployment takes part in it.
        assert len(by_deployment.of("launch")) == len(everything.of("launch")) == 4
        await agrees_with_the_ledger(running, by_deployment)


async def test_a_race_in_which_a_deployment_takes_part_late_is_told_from_its_beginning(serve: Serve) -> None:
    async with (
        serve(bad=[Status(500)], good=None, config=single()) as running,
        look(running, deployment="good/m") as watcher,
    ):
        running.prefer("bad", "good")
        async with running.chat() as response:
            await response.read()
        await watcher.seen("done")
        assert watcher.kinds == ["hello", "call", "launch", "end", "launch", "first", "end", "done"]
        await agrees_with_the_ledger(running, watcher)


async def test_an_unknown_filter_is_refused_and_the_one_that_was_meant_is_named(serve: Serve) -> None:
    async with serve() as running, running.get("/api/live?modle=x") as response:
        assert response.status == 400
        assert "did you mean 'model'" in (await response.json())["error"]["message"]


async def test_who_asks_for_the_head_of_the_stream_gets_nothing_else(serve: Serve) -> None:
    async with serve() as running:
        host = running.url.removeprefix("http://")
        asked = f"HEAD /api/live HTTP/1.1\r\nhost: {host}\r\n\r\n"
        asked += f"HEAD /health/live HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
        head, rest = await said(running, asked.encode())
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-type: text/event-stream" in head.lower()
    assert rest.startswith(b"HTTP/1.1 200 OK\r\n")
    assert rest.endswith(b"\r\n\r\n")


async def test_who_may_not_look_is_refused(serve: Serve) -> None:
    async with serve(config={"clients": CLIENTS}) as running:
        for headers, status in (({}, 401), (bearer("hs-nobody"), 401), (bearer("hs-app"), 403)):
            async with running.get("/api/live", headers=headers) as response:
                assert response.status == status
        assert running.gateway.live.viewers == 0


async def test_more_viewers_than_there_may_be_are_refused_with_words(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_VIEWERS", 1)
    async with serve() as running:
        async with look(running), running.get("/api/live") as response:
            assert response.status == 503
            assert "retry-after" in response.headers
            assert (await response.json())["error"]["code"] == "too_many_viewers"
        await left(running)
        async with look(running):
            pass


async def test_one_client_cannot_take_all_the_live_streams_from_others(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_OF_ONE", 1)
    people = {
        "ops": {"key_sha256": sha256("hs-ops"), "role": "viewer"},
        "eve": {"key_sha256": sha256("hs-eve"), "role": "viewer"},
    }
    async with (
        serve(config={"clients": people}) as running,
        running.get("/api/live", headers=bearer("hs-eve")) as first,
    ):
        assert first.status == 200
        async with running.get("/api/live", headers=bearer("hs-eve")) as second:
            assert (second.status, (await second.json())["error"]["code"]) == (503, "too_many_viewers")
        async with running.get("/api/live", headers=bearer("hs-ops")) as other:
            assert other.status == 200


async def test_a_viewer_that_hangs_up_is_forgotten_and_with_the_last_one_everything(serve: Serve) -> None:
    async with serve(alpha=[Delta("a"), Hang()]) as running, running.chat(stream=True) as response:
        await response.content.readuntil(b'"a"')
        gateway = running.gateway
        async with look(running) as first:
            async with look(running) as second:
                assert len(first.of("hello")[0]["running"]) == len(second.of("hello")[0]["running"]) == 1
                assert gateway.live.viewers == 2
            await left(running, 1)
            assert len(gateway.live.hub) == 1
        await left(running)
        assert gateway.live.own is None
        assert len(gateway.live.hub) == 0


async def test_a_viewer_that_reads_nothing_holds_up_no_call_and_is_told_of_the_gap(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "GATHER_S", 0.0)
    async with serve() as running, running.get("/api/live") as response:
        await response.content.readuntil(b"\n\n")
        assert response.connection is not None
        transport = response.connection.transport
        assert transport is not None
        transport.pause_reading()
        [one] = running.gateway.live.hub.viewers
        filler = b": %b\n\n" % (b"x" * 65_536)
        while not one._waiting or one._dropped == 0:  # until nothing more fits into the sockets
            one.offer(filler)
            await asyncio.sleep(0)
        async with running.chat() as answered:
            assert answered.status == 200
        assert len(one._waiting) == events.MOST_WAITING
        transport.resume_reading()
        watcher = Watcher(response)
        reading = asyncio.create_task(watcher.read())
        [gap] = await watcher.seen("gap")
        assert gap["dropped"] > 0
        assert gap["running"] == []
        reading.cancel()


async def test_a_stopping_gateway_ends_its_streams_and_waits_for_none(serve: Serve) -> None:
    async with serve() as running, look(running) as reads, running.get("/api/live") as response:
        await response.content.readuntil(b"\n\n")
        running.gateway.live.end()
        await reads.until(lambda each: each.is_over)
        assert not reads.broke
        assert await response.content.read() == b""
        async with running.get("/api/live") as refused:
            assert refused.status == 503


async def test_a_viewer_that_reads_nothing_is_cut_when_the_gateway_stops(serve: Serve) -> None:
    async with serve() as running, running.get("/api/live") as response:
        await response.content.readuntil(b"\n\n")
        assert response.connection is not None
        transport = response.connection.transport
        assert transport is not None
        transport.pause_reading()
        [one] = running.gateway.live.hub.viewers
        while one._dropped == 0:
            one.offer(b": %b\n\n" % (b"x" * 65_536))
            await asyncio.sleep(0)
        running.gateway.live.end()
        await left(running)


async def test_a_revoked_key_ends_its_stream(serve: Serve) -> None:
    async with serve(config={"clients": CLIENTS}) as running, look(running, "hs-eyes") as watcher:
        clients = {name: each for name, each in CLIENTS.items() if name != "eyes"}
        running.gateway.reload(read({**running.config, "clients": clients}, running.folder))
        await watcher.until(lambda each: each.is_over)
        await left(running)


async def test_a_stream_ends_when_its_key_may_not_look_any_more(serve: Serve) -> None:
    async with serve(config={"clients": CLIENTS}) as running, look(running, "hs-eyes") as watcher:
        clients = {**CLIENTS, "eyes": {**CLIENTS["eyes"], "role": "client"}}
        running.gateway.reload(read({**running.config, "clients": clients}, running.folder))
        async with running.chat(bearer("hs-app")) as response:
            assert response.status == 200
        await watcher.until(lambda each: each.is_over)
        assert watcher.of("call") == []


async def test_a_viewer_takes_no_seat_of_a_call(serve: Serve) -> None:
    async with serve(config={"overload": {"max_in_flight": 1}}) as running, look(running) as watcher:
        assert running.gateway.context.intake.in_flight == 0
        async with running.post(chat_body()) as response:
            assert response.status == 200
        await watcher.seen("done")


async def test_a_burst_of_more_events_than_may_wait_leaves_no_gap_with_a_client_that_reads(serve: Serve) -> None:
    async with serve() as running, look(running) as watcher:
        [one] = running.gateway.live.hub.viewers
        for number in range(4 * events.MOST_WAITING):  # in one turn of the loop
            one.offer(b'event: call\ndata: {"id":%d}\n\n' % number)
        found = await watcher.seen("call", 4 * events.MOST_WAITING)
        assert [each["id"] for each in found] == list(range(4 * events.MOST_WAITING))
        assert watcher.of("gap") == []


async def test_an_attempts_time_counts_from_its_launch_like_its_row(serve: Serve) -> None:
    async with serve(alpha=None) as running, look(running) as watcher:
        async with running.chat() as response:
            assert response.status == 200
        [end] = await watcher.seen("end")
        [row] = await running.rows("select * from attempts")
        assert end["ms"] >= row["last_token_ms"]
        [done] = await watcher.seen("done")
        assert watcher.of("launch")[0]["offset_ms"] + end["ms"] <= done["total_ms"]
