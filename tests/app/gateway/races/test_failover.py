"""A failure before the first byte of the answer is invisible; after it nobody else answers."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.steering import RESCUE_MIN_S
from providers.simulator import (
    Comment,
    Delta,
    Done,
    Drop,
    ErrorEvent,
    Finish,
    Gate,
    Hang,
    Headers,
    Raw,
    RoleOnly,
    Status,
    Step,
    answer,
)
from tests.app.gateway.running_gateway import Serve, single


def impatient(kind: str) -> dict[str, Any]:
    """Return the settings under which the first provider runs into this time-out soon, if it is one."""
    timeouts = {f"{kind}_s": 0.05} if kind.endswith("_timeout") else {}
    return single() | {"providers": {"first": {"timeouts": timeouts}}}


HTML = Status(200, b"<html><title>Gateway</title></html>", {"content-type": "text/html"})

BEFORE_COMMIT: dict[str, tuple[Sequence[Step], str]] = {
    "refuses with a 503": ([Status(503)], "server_error"),
    "refuses the operator's key": ([Status(401)], "provider_auth"),
    "does not know the model": ([Status(404)], "not_found"),
    "is rate-limited": ([Status(429)], "rate_limited"),
    "sends an error as its first event": ([ErrorEvent("overloaded")], "server_error"),
    "sends a role and then an error": ([RoleOnly(), ErrorEvent("overloaded", None)], "server_error"),
    "hangs before headers": ([Hang()], "ttft_timeout"),
    "hangs after its role": ([RoleOnly(), Hang()], "ttft_timeout"),
    "sends nothing but comments": ([Comment(), Comment(), Hang()], "ttft_timeout"),
    "drops the connection": ([Drop()], "disconnected"),
    "drops the connection after its headers": ([Headers(), Drop()], "disconnected"),
    "sends text and [DONE] at once, and no finish reason": (
        [Raw(b'data: {"choices": [{"index": 0, "delta": {"content": "half"}}]}\n\ndata: [DONE]\n\n')],
        "upstream_truncated",
    ),
    "sends an error that is not called one": ([Raw(b'data: {"code":"1234","msg":"network"}\n\n')], "server_error"),
    "says so that its account is spent": ([Raw(b'data: {"code":"1113","msg":"spent"}\n\n')], "provider_auth"),
    "sends one with a status": ([Raw(b'data: {"code":429,"msg":"slowly"}\n\n'), Done()], "rate_limited"),
    "sends [DONE] alone": ([Done()], "upstream_empty"),
    "ends without a word": ([Headers()], "upstream_empty"),
    "sends a web page": ([HTML], "invalid_response"),
    "sends broken JSON": ([Raw(b"data: {broken\n\n")], "invalid_response"),
}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("script", "kind"), BEFORE_COMMIT.values(), ids=BEFORE_COMMIT)
async def test_the_next_one_answers_when_the_first(
    serve: Serve, script: Sequence[Step], kind: str, stream: bool
) -> None:
    async with serve(first=script, second=answer("from second"), config=impatient(kind)) as running:
        running.prefer("first", "second")
        async with running.chat(stream=stream) as response:
            body = await response.read()
        rows = await running.rows("select provider, role, outcome, error_kind from attempts order by number")
    assert response.status == 200
    assert b"from second" in body
    assert b"error" not in body
    assert [(row["provider"], row["role"]) for row in rows] == [("first", "primary"), ("second", "failover")]
    assert (rows[0]["error_kind"], rows[1]["outcome"]) == (kind, "won")


AFTER_COMMIT: dict[str, tuple[Sequence[Step], str]] = {
    "an error event": ([ErrorEvent("overloaded")], "server_error"),
    "a dropped connection": ([Drop()], "disconnected"),
    "silence": ([Hang()], "stall_timeout"),
    "an end without a finish reason": ([], "upstream_truncated"),
    "[DONE] without a finish reason": ([Done()], "upstream_truncated"),
    "an event that is no JSON": ([Raw(b"data: {oops\n\n")], "invalid_response"),
}


@pytest.mark.parametrize(("ending", "kind"), AFTER_COMMIT.values(), ids=AFTER_COMMIT)
async def test_a_stream_that_breaks_after_its_first_byte_ends_with_an_error_event_and_no_done(
    serve: Serve, ending: Sequence[Step], kind: str
) -> None:
    seen = asyncio.Event()
    script = [RoleOnly(), Delta("half"), Gate(seen), *ending]
    async with serve(first=script, second=answer("never"), config=impatient(kind)) as running:
        running.prefer("first", "second")
        async with running.chat(stream=True) as response:
            body = await response.content.readuntil(b"half")
            seen.set()
            body += await response.read()
        assert running["second"].counts.requests == 0
        call = await running.call()
    events = body.strip().split(b"\n\n")
    assert response.status == 200
    assert b"half" in events[-2]
    assert events[-1].startswith(b'data: {"error":{"message":')
    assert b"data: [DONE]" not in body
    assert (call["status_code"], call["error_kind"]) == (200, kind)


@pytest.mark.parametrize(("ending", "kind"), AFTER_COMMIT.values(), ids=AFTER_COMMIT)
async def test_an_answer_that_is_being_gathered_still_fails_over(
    serve: Serve, ending: Sequence[Step], kind: str
) -> None:
    script = [RoleOnly(), Delta("half"), *ending]
    async with serve(first=script, second=answer("whole"), config=impatient(kind)) as running:
        running.prefer("first", "second")
        async with running.chat() as response:
            answered = await response.json()
        rows = await running.rows("select error_kind, outcome from attempts order by number")
    assert answered["choices"][0]["message"]["content"] == "whole"
    assert (rows[0]["error_kind"], rows[1]["outcome"]) == (kind, "won")


async def test_a_bad_request_is_tried_once_more_elsewhere_and_then_returned(serve: Serve) -> None:
    async with serve(a=[Status(400)], b=[Status(400)], c=answer("never"), config=single()) as running:
        running.prefer("a", "b", "c")
        async with running.chat() as response:
            assert response.status == 400
        assert [running[name].counts.requests for name in "abc"] == [1, 1, 0]
        board = running.gateway.steering.leaderboard("llama")
    assert {row.error_rate for row in board.deployments} <= {None, 0.0}  # the client's own fault counts against nobody


OUTSIZED = b'{"error":{"message":"Request too large for m: Limit 8000","type":"tokens","code":"rate_limit_exceeded"}}'


@pytest.mark.parametrize("status", [413, 429])
async def test_what_is_too_large_for_a_minute_of_two_providers_is_answered_by_the_third(
    serve: Serve, status: int
) -> None:
    too_large = [Status(status, OUTSIZED, {"content-type": "application/json"})]
    async with serve(a=too_large, b=too_large, c=answer("from c"), config=single()) as running:
        running.prefer("a", "b", "c")
        async with running.chat() as response:
            assert response.status == 200
            assert b"from c" in await response.read()
        board = running.gateway.steering.leaderboard("llama")
        assert {row.state for row in board.deployments} == {"ok"}  # smaller requests have room there
        running["c"].script = too_large
        async with running.chat() as response:
            assert response.status == status
            assert (await response.json())["error"]["code"] == "rate_limit_exceeded"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_a_fault_of_another_tells_more_than_what_is_too_large_for_a_minute(serve: Serve, path: str) -> None:
    too_large = [Status(429, OUTSIZED, {"content-type": "application/json"})]
    async with serve(a=too_large, b=[Status(503)], config=single()) as running:
        running.prefer("a", "b")
        body = {"model": "llama", "input": "x", "messages": [{"role": "user", "content": "x"}]}
        async with running.post(body, path=path) as response:
            assert response.status == 502
            assert (await response.json())["error"]["code"] == "all_providers_failed"


async def test_a_missing_done_is_added(serve: Serve) -> None:
    async with serve(alpha=[RoleOnly(), Delta("all"), Finish()]) as running:
        async with running.chat(stream=True) as response:
            body = await response.read()
        assert (await running.call())["error_kind"] is None
    assert body.endswith(b"data: [DONE]\n\n")
    assert body.count(b"[DONE]") == 1


async def test_embeddings_fail_over_one_after_the_other(serve: Serve) -> None:
    async with serve(first=[Status(503)], second=None) as running:
        body = {"model": "llama", "input": "x", "provider": {"order": ["first", "second"]}}
        async with running.post(body, path="/v1/embeddings") as response:
            assert response.status == 200
        assert response.headers["x-holeshot-provider"] == "second"
        assert await running.outcomes() == {"first": "failed", "second": "won"}


async def test_one_that_hangs_alone_is_rescued_where_the_budget_allows_it(serve: Serve) -> None:
    async with serve(first=[Hang()], second=answer("from second"), config=single()) as running:
        running.prefer("first", "second")
        async with running.chat(stream=True) as response:
            assert b"from second" in await response.read()
        rows = await running.rows("select provider, role, outcome from attempts order by number")
    assert [tuple(row.values()) for row in rows] == [("first", "primary", "lost"), ("second", "failover", "won")]


@pytest.mark.parametrize(
    "fields", [{"store": True}, {"provider": {"order": ["first", "second"]}}], ids=["stored", "ordered"]
)
async def test_what_must_not_be_sent_twice_at_a_time_is_not_rescued(serve: Serve, fields: dict[str, Any]) -> None:
    config = single() | {"timeouts": {"ttft_timeout_s": 2 * RESCUE_MIN_S}}  # a rescue would be due by then
    async with serve(first=[Hang()], second=[Hang()], config=config) as running:
        running.prefer("first", "second")
        async with running.chat(stream=True, **fields) as response:
            await response.read()
        rows = await running.rows("select role, outcome from attempts order by number")
    assert [tuple(row.values()) for row in rows] == [("primary", "timeout"), ("failover", "timeout")]
