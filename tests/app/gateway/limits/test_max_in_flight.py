"""``max_in_flight`` over real sockets, by the provider's own count: never more, whoever asks."""

import asyncio
import copy
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gateway.settings import Settings
from providers.simulator import Gate, Hang, RoleOnly, Status, Step, answer
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, read
from tests.patience import until

CROWD = 50
VECTORS = {"model": MODEL, "input": "hello"}


class Reply(msgspec.Struct, frozen=True):
    """What one client was answered."""

    status: int
    headers: dict[str, str]
    body: Any


def limited(limit: int = 5, *, deployment: str = "alpha/m", queue_timeout_s: float = 600.0, **model: Any) -> Any:
    deployments = [{"deployment": deployment, "max_in_flight": limit}]
    return {
        "queue_timeout_s": queue_timeout_s,
        "models": {MODEL: {"deployments": deployments, "race": {"mode": "single"}, **model}},
    }


def held(go: asyncio.Event) -> Sequence[Step]:
    return [Gate(go), *answer("Hello")]


async def asked(running: RunningGateway, body: Any = None, path: str = "/v1/chat/completions", **fields: Any) -> Reply:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "?"}], **fields} if body is None else body
    async with running.post(body, path=path) as response:
        raw = await response.read()
        found = msgspec.json.decode(raw) if response.content_type == "application/json" else raw
        return Reply(response.status, {name.lower(): value for name, value in response.headers.items()}, found)


async def settled(running: RunningGateway, waiting: int) -> None:
    """Return when so many calls wait."""
    await until(lambda: running.gateway.context.services.seats.waiting == waiting)


@pytest.mark.parametrize("stream", [False, True])
async def test_fifty_calls_at_once_are_answered_five_at_a_time(serve: Serve, stream: bool) -> None:
    go = asyncio.Event()
    async with serve(alpha=held(go), config=limited()) as running:
        calls = [asyncio.create_task(asked(running, stream=stream)) for _ in range(CROWD)]
        await settled(running, CROWD - 5)
        await running["alpha"].reach(requests=5)
        assert running["alpha"].counts.in_flight == 5
        go.set()
        replies = await asyncio.gather(*calls)
        assert [reply.status for reply in replies] == [200] * CROWD
        assert running["alpha"].counts.most_in_flight == 5
        assert running["alpha"].counts.completions == CROWD
        rows = await running.rows("select ttft_ms, overhead_ms from calls")
        waits = await running.rows("select launch_offset_ms from attempts order by launch_offset_ms desc")
        assert len(rows) == CROWD
        assert max(row["ttft_ms"] for row in rows) >= waits[0]["launch_offset_ms"]
        assert running.gateway.context.services.seats.lines["alpha/m"].taken == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_who_finds_no_room_in_time_is_told_when_to_come_back(serve: Serve, stream: bool) -> None:
    go = asyncio.Event()
    async with serve(alpha=held(go), config=limited(queue_timeout_s=0.05)) as running:
        calls = [asyncio.create_task(asked(running, stream=stream)) for _ in range(CROWD)]
        refused: list[Reply] = []
        for each in asyncio.as_completed(calls):
            refused.append(await each)
            if len(refused) == CROWD - 5:
                break
        await running["alpha"].reach(requests=5)
        go.set()
        replies = await asyncio.gather(*calls)
        assert {reply.status for reply in refused} == {429}
        assert [reply.status for reply in replies].count(200) == 5
        one = refused[0]
        assert one.headers["retry-after"] == "1"
        assert one.body["error"]["type"] == "rate_limit_error"
        assert one.body["error"]["code"] == "at_capacity"
        assert "have max_in_flight requests (alpha/m)" in one.body["error"]["message"]
        assert running["alpha"].counts.most_in_flight == 5
        rows = await running.rows("select status_code, error_kind, launched, count(*) as n from calls group by 1, 2, 3")
        assert rows == [
            {"status_code": 200, "error_kind": None, "launched": 1, "n": 5},
            {"status_code": 429, "error_kind": "at_capacity", "launched": 0, "n": CROWD - 5},
        ]
        async with running.get("/metrics") as response:
            page = await response.text()
        assert f'holeshot_queue_seconds_count{{end="timed_out",model="{MODEL}"}} {CROWD - 5}' in page
        assert f'holeshot_calls_total{{mode="single",model="{MODEL}",status="429"}} {CROWD - 5}' in page
        assert "holeshot_waiting_calls 0" in page


async def test_a_server_that_does_not_end_its_stream_after_the_answer_keeps_no_seat(serve: Serve) -> None:
    async with serve(alpha=[*answer("Hello"), Hang()], config=limited(1, queue_timeout_s=30.0)) as running:
        replies = [await asked(running, stream=True) for _ in range(3)]
        assert [reply.status for reply in replies] == [200] * 3


async def test_a_refusal_has_the_shape_of_its_api(serve: Serve) -> None:
    async with serve(alpha=[Hang()], config=limited(1, queue_timeout_s=0.0, race={"mode": "single"})) as running:
        first = asyncio.create_task(asked(running))
        await running["alpha"].requested.wait()
        messages = await asked(
            running, {"model": MODEL, "max_tokens": 5, "messages": [{"role": "user", "content": "?"}]}, "/v1/messages"
        )  # fmt: skip
        vectors = await asked(running, VECTORS, "/v1/embeddings")
        assert (messages.status, messages.body["type"]) == (429, "error")
        assert messages.body["error"]["type"] == "rate_limit_error"
        assert messages.headers["retry-after"] == "1"
        assert (vectors.status, vectors.body["error"]["code"]) == (429, "at_capacity")
        first.cancel()
        await asyncio.wait({first})


async def test_one_server_has_one_limit_however_it_is_reached(serve: Serve) -> None:
    go = asyncio.Event()
    config = limited(2)
    config["models"]["other"] = {"deployments": ["alpha/m"], "race": {"mode": "single"}}
    config["models"]["vectors"] = {"deployments": [{"deployment": "alpha/m", "max_in_flight": 9}]}
    async with serve(alpha=held(go), config=config) as running:
        ways = [
            asked(running),
            asked(running, model="other"),
            asked(running, model=f"{MODEL},other"),
            asked(running, model="alpha/m"),
            asked(running, {"model": "vectors", "input": "hello"}, "/v1/embeddings"),
        ]
        calls = [asyncio.create_task(way) for way in ways]
        await settled(running, 3)
        await running["alpha"].reach(requests=2)
        go.set()
        assert [reply.status for reply in await asyncio.gather(*calls)] == [200] * 5
        assert running["alpha"].counts.most_in_flight == 2


async def test_what_is_relayed_waits_too(serve: Serve) -> None:
    go = asyncio.Event()
    async with serve(alpha=held(go), config=limited(2)) as running:
        calls = [asyncio.create_task(asked(running, VECTORS, "/v1/embeddings")) for _ in range(10)]
        await settled(running, 8)
        await running["alpha"].reach(requests=2)
        go.set()
        assert [reply.status for reply in await asyncio.gather(*calls)] == [200] * 10
        assert running["alpha"].counts.most_in_flight == 2


async def test_other_deployments_take_what_they_can(serve: Serve) -> None:
    go = asyncio.Event()
    config = limited(3)
    config["models"][MODEL]["deployments"].append("beta/m")
    async with serve(alpha=held(go), beta=answer("from beta"), config=config) as running:
        calls = [asyncio.create_task(asked(running)) for _ in range(CROWD)]
        await running["beta"].reach(completions=CROWD - 3)  # while up to three are held at the other
        go.set()
        replies = await asyncio.gather(*calls)
        assert [reply.status for reply in replies] == [200] * CROWD
        assert running["alpha"].counts.most_in_flight <= 3


async def test_racers_never_pass_the_limit_and_losers_give_their_seats_back(serve: Serve) -> None:
    config = limited(3)
    config["models"][MODEL] = {
        "deployments": [
            {"deployment": "alpha/m", "max_in_flight": 3}, {"deployment": "beta/m", "max_in_flight": 4}
        ],
        "race": {"mode": "race", "width": 2},
    }  # fmt: skip
    async with serve(alpha=answer("a"), beta=[RoleOnly(), Hang()], config=config) as running:
        running.prefer("alpha", "beta")
        replies = await asyncio.gather(*(asked(running, stream=True) for _ in range(CROWD)))
        assert [reply.status for reply in replies] == [200] * CROWD
        assert running["alpha"].counts.most_in_flight <= 3
        await running["beta"].reach(disconnects=running["beta"].counts.requests)
        assert [line.taken for line in running.gateway.context.services.seats.lines.values()] == [0, 0]


async def test_a_client_that_hangs_up_while_it_waits_frees_its_place(serve: Serve) -> None:
    go = asyncio.Event()
    async with serve(alpha=held(go), config=limited(1)) as running:
        first = asyncio.create_task(asked(running))
        await running["alpha"].requested.wait()
        leaving = asyncio.create_task(asked(running))
        await settled(running, 1)
        staying = asyncio.create_task(asked(running))
        await settled(running, 2)
        leaving.cancel()
        await settled(running, 1)
        go.set()
        assert [(await first).status, (await staying).status] == [200, 200]
        assert running["alpha"].counts.requests == 2
        rows = await running.rows("select status_code, launched from calls where status_code <> 200")
        assert rows == [{"status_code": 499, "launched": 0}]


async def test_a_fallback_is_asked_after_the_wait_and_its_own_limit_counts(serve: Serve) -> None:
    go = asyncio.Event()
    config = limited(1, queue_timeout_s=0.05, fallbacks=["other"])
    config["models"]["other"] = {"deployments": ["beta/n"], "race": {"mode": "single"}}
    async with serve(alpha=held(go), beta=answer("from beta"), config=config) as running:
        first = asyncio.create_task(asked(running))
        await running["alpha"].requested.wait()
        reply = await asked(running)
        assert (reply.status, reply.headers["x-holeshot-fallback"]) == (200, "other")
        go.set()
        await first
        [row] = await running.rows("select answered_model, launched from calls where answered_model is not null")
        assert row == {"answered_model": "other", "launched": 1}


async def test_a_failure_gives_the_seat_to_who_waits(serve: Serve) -> None:
    go = asyncio.Event()
    async with serve(alpha=[Gate(go), Status(500)], config=limited(1)) as running:
        calls = [asyncio.create_task(asked(running)) for _ in range(4)]
        await settled(running, 3)
        go.set()
        assert [reply.status for reply in await asyncio.gather(*calls)] == [502] * 4
        assert running["alpha"].counts.most_in_flight == 1


async def test_a_reload_counts_what_is_under_way_and_lets_go_who_waits(serve: Serve) -> None:
    go = asyncio.Event()

    def reloaded(running: RunningGateway, limit: int | None) -> Settings:
        config = copy.deepcopy(running.config)
        config["models"][MODEL]["deployments"] = [{"deployment": "alpha/m", "max_in_flight": limit}]
        return read(config, running.folder)

    unlimited = {"queue_timeout_s": 600.0, "models": {MODEL: {"deployments": ["alpha/m"], "race": {"mode": "single"}}}}
    async with serve(alpha=held(go), config=unlimited) as running:
        calls = [asyncio.create_task(asked(running)) for _ in range(3)]
        await running["alpha"].reach(requests=3)
        running.gateway.reload(reloaded(running, 3))
        calls += [asyncio.create_task(asked(running)) for _ in range(4)]
        await settled(running, 4)  # the three of the old configuration count
        running.gateway.reload(reloaded(running, 4))
        await settled(running, 3)
        await running["alpha"].reach(requests=4)
        running.gateway.reload(reloaded(running, 2))
        go.set()
        assert [reply.status for reply in await asyncio.gather(*calls)] == [200] * 7
        assert running["alpha"].counts.most_in_flight == 4
        line = running.gateway.context.services.seats.lines["alpha/m"]
        assert (line.taken, len(line.waiting), running.gateway.context.services.seats.preexisting) == (0, 0, {})


async def test_a_plan_tells_who_is_full(serve: Serve) -> None:
    go = asyncio.Event()
    async with serve(alpha=held(go), config=limited(1)) as running:
        first = asyncio.create_task(asked(running))
        await running["alpha"].requested.wait()
        second = asyncio.create_task(answered_plan(running))
        await settled(running, 1)
        async with running.get("/leaderboard", params={"explain": "1", "model": MODEL}) as response:
            [told] = (await response.json())["models"]
        go.set()
        full = "full: alpha/m has 1 of max_in_flight 1 in flight"
        assert full in told["explanation"]["notes"]
        assert told["explanation"]["deployments"][0]["passed_over"] == "max_in_flight requests are in flight"
        assert full in (await second)["notes"]
        await first


async def test_an_extra_attempt_without_room_is_told_in_a_header_and_counted(serve: Serve) -> None:
    go = asyncio.Event()
    deployments = ["alpha/m", {"deployment": "beta/m", "max_in_flight": 1}]
    config = {
        "models": {
            MODEL: {"deployments": deployments, "race": {"mode": "race", "width": 2}},
            "other": {"deployments": ["beta/m"], "race": {"mode": "single"}},
        }
    }
    async with serve(alpha=answer("a"), beta=held(go), config=config) as running:
        running.prefer("alpha", "beta")
        holder = asyncio.create_task(asked(running, model="other"))
        await running["beta"].requested.wait()
        reply = await asked(running)
        go.set()
        await holder
        assert (reply.status, reply.headers["x-holeshot-launched"]) == (200, "1")
        async with running.get("/metrics") as response:
            page = await response.text()
        refused = f'holeshot_refused_launches_total{{limit="max_in_flight",model="{MODEL}"}} 1'
        assert ("x-holeshot-narrowed" in reply.headers) == (refused in page)


async def answered_plan(running: RunningGateway) -> Any:
    async with running.chat(headers={"x-holeshot-plan": "1"}) as response:
        await response.read()
        return msgspec.json.decode(response.headers["x-holeshot-plan"])
