"""Another model is asked beside one whose answer is late, over real sockets. The first token of either wins."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from holeshot import Racer
from providers.simulator import (
    Delta,
    Done,
    Drop,
    Finish,
    Gate,
    Hang,
    RoleOnly,
    ScriptedProvider,
    Status,
    Step,
    answer,
)
from tests.app.gateway.key_desk import Desk, bearer, in_database
from tests.app.gateway.races.test_explain import holeshot
from tests.app.gateway.running_gateway import MODEL, Serve
from tests.patience import eventually

OTHER, THIRD = "other", "third"
SOON = 0.05
HI: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]
CONTENTS = [{"role": "user", "parts": [{"text": "Hi"}]}]
streamed_or_whole = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def falling_back(*, other: dict[str, Any] | None = None, **model: Any) -> dict[str, Any]:
    """Return a configuration in which OTHER, at ``beta``, is asked soon beside MODEL, at ``alpha``."""
    single = {"race": {"mode": "single"}}
    models = {
        MODEL: {"deployments": ["alpha/m"], "fallbacks": [OTHER], "fallback_after": SOON, **single, **model},
        OTHER: {"deployments": ["beta/n"], **single, **(other or {})},
    }
    return {"models": models}


def price(usd: float) -> dict[str, Any]:
    return {"price_per_mtok": {"input": usd, "output": usd}}


@streamed_or_whole
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": HI}),
        ("/v1/completions", {"prompt": "Hi"}),
        ("/v1/responses", {"input": "Hi", "store": False}),
        ("/v1/messages", {"messages": HI, "max_tokens": 100}),
        ("gemini", {"contents": CONTENTS}),
    ],
)
async def test_a_silent_model_is_answered_for_in_every_api(
    serve: Serve, path: str, body: dict[str, Any], stream: bool
) -> None:
    if path == "gemini":
        path = f"/v1beta/models/{MODEL}:" + ("streamGenerateContent?alt=sse" if stream else "generateContent")
    else:
        body = {"model": MODEL, "stream": stream, **body}
    async with serve(alpha=[Hang()], beta=answer("Good day"), config=falling_back()) as running:
        running.prefer("alpha")  # whose time is known, so it is cut
        async with running.post(body, path=path) as response:
            assert (response.status, response.headers["x-holeshot-fallback"]) == (200, OTHER)
            assert b'"error":{' not in await response.read()
        assert await running.attempts() == [("alpha", "primary", "lost"), ("beta", "fallback", "won")]
        call = await running.call()
        assert (call["model"], call["answered_model"], call["launched"]) == (MODEL, OTHER, 2)
        assert (call["status_code"], call["error_kind"]) == (200, None)
        await running["alpha"].disconnected.wait()


@streamed_or_whole
async def test_a_late_model_that_is_first_answers_and_the_other_one_is_cut(serve: Serve, stream: bool) -> None:
    async with serve(alpha=None, beta=[Hang()], config=falling_back()) as running:
        running["alpha"].script = [Gate(running["beta"].requested), *answer("Hi")]
        assert await running.answered_by(stream=stream) == (200, None)
        assert await running.attempts() == [("alpha", "primary", "won"), ("beta", "fallback", "lost")]
        assert (await running.call())["answered_model"] is None
        await running["beta"].disconnected.wait()


async def test_after_a_whole_answer_that_broke_off_the_model_that_gave_way_to_it_is_asked_again(serve: Serve) -> None:
    broken: list[Step] = [Delta("Good"), Drop()]
    async with serve(alpha=None, beta=None, config=falling_back()) as running:
        alpha, beta = running["alpha"], running["beta"]
        alpha.script = [Gate(beta.requested), *broken]
        scripts = iter(([Hang()], answer("Good day")))
        beta.answers = lambda _: next(scripts)
        assert await running.answered_by(stream=False) == (200, OTHER)
        assert await running.attempts() == [
            ("alpha", "primary", "failed"),
            ("beta", "fallback", "lost"),
            ("beta", "primary", "won"),
        ]


async def test_the_late_model_is_asked_again_when_the_whole_answer_beside_it_has_broken_off(serve: Serve) -> None:
    broken: list[Step] = [Delta("Good"), Drop()]
    async with serve(alpha=None, beta=broken, config=falling_back()) as running:
        running.prefer("alpha")  # whose time is known, so it is cut
        scripts = iter(([Hang()], answer("Good day")))
        running["alpha"].answers = lambda _: next(scripts)
        assert await running.answered_by(stream=False) == (200, None)
        assert await running.attempts() == [
            ("alpha", "primary", "lost"),
            ("beta", "fallback", "failed"),
            ("alpha", "primary", "won"),
        ]
        assert (await running.call())["answered_model"] is None


async def test_a_client_that_leaves_stops_the_late_model_and_the_one_beside_it(serve: Serve) -> None:
    async with serve(alpha=[Hang()], beta=[Hang()], config=falling_back()) as running:
        asked = asyncio.create_task(running.answered_by(stream=True))
        await running["beta"].requested.wait()
        asked.cancel()
        await asyncio.wait({asked})
        await running["alpha"].disconnected.wait()
        await running["beta"].disconnected.wait()
        assert (await running.call())["status_code"] == 499
        assert await running.outcomes() == {"alpha": "client_gone", "beta": "client_gone"}


@streamed_or_whole
async def test_when_both_fail_the_client_hears_of_both_by_their_names(serve: Serve, stream: bool) -> None:
    async with serve(alpha=None, beta=[Status(500)], config=falling_back()) as running:
        running["alpha"].script = [Gate(running["beta"].requested), Status(503)]
        async with running.chat(stream=stream) as response:
            assert response.status == 502
            message = (await response.json())["error"]["message"]
        assert all(name in message for name in (f"model '{MODEL}'", "alpha/m", f"model '{OTHER}'", "beta/n"))
        assert (await running.call())["launched"] == 2


@streamed_or_whole
async def test_a_model_that_runs_on_is_an_audited_attempt_that_costs_what_it_costs(serve: Serve, stream: bool) -> None:
    go = asyncio.Event()
    late = [Gate(go), RoleOnly(), Delta("late"), Hang()]
    config = falling_back(deployments=[{"deployment": "alpha/m", **price(2.0)}])
    async with serve(alpha=late, beta=answer("Hi"), config=config) as running:
        assert await running.answered_by(stream=stream) == (200, OTHER)  # whose times are not known yet
        assert await running.attempts() == [("beta", "fallback", "won")]
        go.set()
        await running["alpha"].disconnected.wait()
        columns = "outcome, audited, is_overtaken, token_ms, cost_low_usd, cost_high_usd"
        [row] = await eventually(lambda: running.rows(f"select {columns} from attempts where number = 1"))
        assert (row["outcome"], row["audited"], row["is_overtaken"]) == ("superseded", 1, 1)
        assert row["token_ms"] is not None
        assert 0 < row["cost_low_usd"] <= row["cost_high_usd"]
        assert (await running.call())["launched"] == 2


async def test_a_model_that_runs_on_is_cut_with_the_key_of_its_call(serve: Serve) -> None:
    config = {**falling_back(), **in_database()}
    async with serve(alpha=[Hang()], beta=[RoleOnly(), Delta("Hi"), Hang()], config=config) as running:
        desk = Desk(running)
        key = await desk.create("app")
        async with running.chat(bearer(key), stream=True) as response:
            await response.content.readuntil(b'"Hi"')
            assert not running["alpha"].disconnected.is_set()
            assert (await desk.ask("DELETE", "/app")).status == 200
            await running["alpha"].disconnected.wait()
        assert await running.outcomes() == {"alpha": "client_gone", "beta": "client_gone"}


async def test_a_fallback_for_failures_only_is_not_asked_beside_a_late_model(serve: Serve) -> None:
    config = falling_back(fallback_after="failure", timeouts={"ttft_timeout_s": 0.1})
    async with serve(alpha=[Hang()], beta=answer("Hi"), config=config) as running:
        assert await running.answered_by() == (200, OTHER)
        assert await running.outcomes() == {"alpha": "timeout", "beta": "won"}


async def test_a_call_that_is_stored_is_never_sent_to_two_models(serve: Serve) -> None:
    config = falling_back(timeouts={"ttft_timeout_s": 0.2})
    async with serve(alpha=[Hang()], beta=answer("Hi"), config=config) as running:
        assert (await running.answered_by(store=True))[0] == 200
        assert await running.outcomes() == {"alpha": "timeout", "beta": "won"}


async def test_the_models_that_a_request_names_are_asked_beside_each_other(serve: Serve) -> None:
    config = falling_back(fallbacks=[])
    async with serve(alpha=[Hang()], beta=None, config=config) as running:
        running.prefer("alpha")
        assert await running.answered_by(models=[MODEL, OTHER]) == (200, OTHER)
        assert await running.attempts() == [("alpha", "primary", "lost"), ("beta", "fallback", "won")]


async def test_one_that_cannot_take_the_request_is_passed_over(serve: Serve) -> None:
    config = falling_back(
        fallbacks=[OTHER, THIRD],
        other={"deployments": [{"deployment": "beta/n", "capabilities": {"context_tokens": 10}}]},
    )
    config["models"][THIRD] = {"deployments": ["gamma/o"]}
    async with serve(alpha=[Hang()], beta=None, gamma=None, config=config) as running:
        running.prefer("alpha")
        long = [{"role": "user", "content": "word " * 1000}]
        assert await running.answered_by(messages=long) == (200, THIRD)
        assert await running.attempts() == [("alpha", "primary", "lost"), ("gamma", "fallback", "won")]


async def test_a_fallback_whose_own_money_is_spent_is_not_asked_and_the_late_model_goes_on(serve: Serve) -> None:
    dear = {"deployments": [{"deployment": "beta/n", **price(1e6)}], "usd_per_day": 1e-9}
    config = falling_back(fallbacks=[OTHER, THIRD], other=dear)
    config["models"][THIRD] = {"deployments": ["gamma/o"]}
    async with serve(alpha=None, beta=None, gamma=[Hang()], config=config) as running:
        running["alpha"].script = [Gate(running["gamma"].requested), *answer("Hi")]
        assert await running.answered_by() == (200, None)
        assert await running.attempts() == [("alpha", "primary", "won"), ("gamma", "fallback", "lost")]


async def test_what_is_held_of_a_clients_and_a_models_money_is_given_back_when_the_fallback_loses(serve: Serve) -> None:
    other = {"deployments": [{"deployment": "beta/n", **price(1.0)}], "usd_per_day": 1.0}
    async with serve(alpha=None, beta=[Hang()], config=falling_back(other=other)) as running:
        running["alpha"].script = [Gate(running["beta"].requested), *answer("Hi")]
        assert await running.answered_by() == (200, None)
        limits = running.gateway.context.limits
        assert limits._holds == {}
        [row] = await running.rows("select cost_usd from attempts where outcome = 'lost'")
        assert limits.model_dollars()[OTHER] == pytest.approx(1.0 - row["cost_usd"])


@pytest.mark.parametrize(
    ("usd", "roles"),
    [
        (9.0, ["primary", "fallback"]),
        (11.0, ["primary", "primary"]),  # the second one after the first one's timeout
    ],
)
async def test_a_fallback_is_refused_for_money_only_at_over_ten_times_the_price(
    serve: Serve, usd: float, roles: list[str]
) -> None:
    config = falling_back(
        deployments=[{"deployment": "alpha/m", **price(1.0)}],
        race={"mode": "single", "usd_per_day": 0},
        other={"deployments": [{"deployment": "beta/n", **price(usd)}]},
        timeouts={"ttft_timeout_s": 0.3},
    )
    async with serve(alpha=[Hang()], beta=None, config=config) as running:
        running.prefer("alpha")
        async with running.chat() as response:
            assert (response.status, response.headers["x-holeshot-fallback"]) == (200, OTHER)
        assert [role for _, role, _ in await running.attempts()] == roles


async def test_a_second_rescue_of_a_call_is_refused_where_the_money_is_spent(serve: Serve) -> None:
    config = falling_back(
        fallbacks=[OTHER, THIRD],
        deployments=[{"deployment": "alpha/m", **price(1.0)}],
        race={"mode": "single", "extra_usd_per_call": 0},
        other={
            "deployments": [{"deployment": "beta/n", **price(1.0)}],
            "timeouts": {"ttft_timeout_s": 0.5},
            "fallback_after": SOON,
        },
        timeouts={"ttft_timeout_s": 0.5},
    )
    config["models"][THIRD] = {"deployments": [{"deployment": "gamma/o", **price(1.0)}]}
    async with serve(alpha=[Hang()], beta=[Hang()], gamma=None, config=config) as running:
        await running.answered_by()
        assert [(provider, outcome) for provider, role, outcome in await running.attempts() if role == "fallback"] == [
            ("beta", "timeout")
        ]


async def test_a_broken_answer_of_the_fallback_is_finished_by_another_of_its_deployments(serve: Serve) -> None:
    continues = [{"deployment": f"{name}/n", "continues": "prefix"} for name in ("beta", "gamma")]
    config = falling_back(other={"deployments": continues, "takeover": True})
    seen = asyncio.Event()
    half: list[Step] = [RoleOnly(), Delta("The quick"), Gate(seen), Drop()]
    rest: list[Step] = [RoleOnly(), Delta(" quick"), Delta(" brown fox"), Finish(), Done()]
    async with serve(alpha=[Hang()], beta=half, gamma=rest, config=config) as running:
        running.prefer("alpha")
        running.prefer("beta", "gamma", model=OTHER, name_there="n")
        async with running.chat(stream=True) as response:
            assert (response.status, response.headers["x-holeshot-fallback"]) == (200, OTHER)
            said = b""
            while b"The quick" not in said and (block := await response.content.readany()):
                said += block
            seen.set()
            said += await response.read()
        assert said.endswith(b"data: [DONE]\n\n")
        call = await running.call()
        assert (call["answered_model"], call["takeover"], call["error_kind"]) == (OTHER, "finished", None)
        assert [role for _, role, _ in await running.attempts()] == ["primary", "fallback", "takeover"]


@asynccontextmanager
async def racing(late: list[Step], other: list[Step]) -> AsyncIterator[Racer]:
    async with AsyncExitStack() as stack:
        alpha = await stack.enter_async_context(ScriptedProvider(late))
        beta = await stack.enter_async_context(ScriptedProvider(other))
        providers = {
            name: {"kind": "openai_compatible", "base_url": each.base_url}
            for name, each in (("alpha", alpha), ("beta", beta))
        }
        yield await stack.enter_async_context(Racer(providers=providers, **falling_back()))


async def test_racer_asks_the_next_model_beside_a_late_one() -> None:
    async with racing([Hang()], answer("Hel", "lo")) as racer:
        told = await racer.complete(MODEL, "Why?")
        assert (told.text, told.winner) == ("Hello", "beta/n")
        stream = racer.stream(MODEL, "Why?")
        assert "".join([chunk.text async for chunk in stream]) == "Hello"
        assert stream.winner == "beta/n"


async def test_a_deadline_asks_the_next_model_so_early_that_it_can_meet_it(serve: Serve) -> None:
    config = falling_back(fallback_after="auto", race={"mode": "single", "ttft_ms": 1000})
    async with serve(alpha=[Hang()], beta=None, config=config) as running:
        async with running.chat() as response:  # else it would be asked after 10 s
            assert "x-holeshot-deadline-met" in response.headers
            assert (response.status, response.headers["x-holeshot-fallback"]) == (200, OTHER)
        assert (await running.call())["deadline_ms"] == 1000


async def test_the_plan_says_when_which_model_is_asked_beside_a_late_one(serve: Serve) -> None:
    want = {"x-holeshot-plan": "1"}
    async with serve(alpha=None, beta=None, config=falling_back(fallback_after="auto")) as running:
        async with running.chat(want) as response:
            plan = json.loads(response.headers["x-holeshot-plan"])
            assert (plan["late_s"], plan["fallback"]) == (10.0, OTHER)
        explained = await holeshot(running, "explain", MODEL)
        assert "late after 10.0 s: then model other beside" in explained.stdout
        assert "late after" not in (await holeshot(running, "explain", OTHER)).stdout
    async with serve(alpha=[Hang()], beta=None, config=falling_back()) as running, running.chat(want) as response:
        plan = json.loads(response.headers["x-holeshot-plan"])
        [start] = plan["launches"]
        assert (start["deployment"], start["role"], start["why"]) == ("beta/n", "fallback", "fallback")
        assert plan["notes"][-1] == f"asked beside model '{MODEL}', as its answer was late"
