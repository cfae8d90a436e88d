"""Another model answers where one could not, and the client and the ledger are told."""

import asyncio
import copy
import time
from typing import Any

import pytest

from gateway.limits import Limits, OwnShare
from providers.simulator import Delta, Drop, Gate, Status, answer
from tests.app.gateway.races.test_objectives import KEY, client, keyed
from tests.app.gateway.running_gateway import MODEL, Serve, read
from tests.patience import eventually

OTHER = "other"


def falling_back(*causes: str, **model: Any) -> dict[str, Any]:
    fallback: Any = {"model": OTHER, "causes": list(causes)} if causes else OTHER
    models = {
        MODEL: {"deployments": ["alpha/m"], "fallbacks": [fallback], "race": {"mode": "single"}, **model},
        OTHER: {"deployments": ["beta/n"], "race": {"mode": "single"}},
    }
    return {"models": models}


TOO_LONG = Status(
    400, {"error": {"message": "maximum context length is 8192 tokens", "code": "context_length_exceeded"}}
)
FILTERED = Status(400, {"error": {"message": "flagged", "code": "content_filter", "type": "invalid_request_error"}})
WRONG = Status(400, {"error": {"message": "temperature must be a number", "type": "invalid_request_error"}})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("failure", [Status(500), Status(429), TOO_LONG, FILTERED])
async def test_a_model_that_cannot_answer_is_replaced(serve: Serve, failure: Status, stream: bool) -> None:
    async with serve(alpha=[failure], beta=answer("Hi"), config=falling_back()) as running:
        assert await running.answered_by(stream=stream) == (200, OTHER)
        call = await running.call()
        assert (call["model"], call["answered_model"], call["launched"]) == (MODEL, OTHER, 2)
        assert (call["status_code"], call["error_kind"]) == (200, None)
        rows = await running.rows("select number, deployment, outcome, model from attempts order by number")
        assert [tuple(row.values()) for row in rows] == [
            (1, "alpha/m", "failed", MODEL),
            (2, "beta/n", "won", OTHER),
        ]


@pytest.mark.parametrize(
    ("causes", "failure", "expected"),
    [
        (["context"], TOO_LONG, (200, OTHER)),
        (["context"], FILTERED, (400, None)),
        (["context"], Status(500), (502, None)),
        (["content_filter"], FILTERED, (200, OTHER)),
        (["failed"], Status(503), (200, OTHER)),
        (["failed"], TOO_LONG, (400, None)),
        (["failed", "context", "content_filter"], WRONG, (400, None)),
    ],
)
async def test_only_for_its_causes(
    serve: Serve, causes: list[str], failure: Status, expected: tuple[int, str | None]
) -> None:
    async with serve(alpha=[failure], beta=None, config=falling_back(*causes)) as running:
        assert await running.answered_by() == expected


async def test_a_prompt_over_the_context_is_never_sent_but_to_who_holds_it(serve: Serve) -> None:
    deployments = [{"deployment": "alpha/m", "capabilities": {"context_tokens": 100}}]
    async with serve(alpha=None, beta=None, config=falling_back("context", deployments=deployments)) as running:
        long = [{"role": "user", "content": "word " * 1000}]
        assert await running.answered_by(messages=long) == (200, OTHER)
        assert (len(running["alpha"].received), len(running["beta"].received)) == (0, 1)
        call = await running.call()
        assert (call["model"], call["answered_model"]) == (MODEL, OTHER)


@pytest.mark.parametrize("after", ["failure", "auto"])
async def test_a_fallback_asks_who_has_just_failed_in_the_call_last(serve: Serve, after: str) -> None:
    config = falling_back(fallback_after=after)
    config["models"][OTHER]["deployments"] = ["alpha/m", "beta/m"]
    async with serve(alpha=[Status(500)], beta=answer("Hi"), config=config) as running:
        running.prefer("alpha", "beta", model=OTHER)
        assert await running.answered_by() == (200, OTHER)
        assert await running.attempts() == [("alpha", "primary", "failed"), ("beta", "primary", "won")]


async def test_a_fallback_asks_who_has_just_failed_where_nobody_else_is_left(serve: Serve) -> None:
    config = falling_back()
    config["models"][OTHER]["deployments"] = ["alpha/m", "beta/m"]
    async with serve(alpha=[Status(500)], beta=[Status(503)], config=config) as running:
        running.prefer("alpha", "beta", model=OTHER)
        assert (await running.answered_by())[0] == 502
        tried = [provider for provider, _, _ in await running.attempts()]
    assert tried == ["alpha", "beta", "alpha"]


async def test_a_fallback_with_the_same_deployment_alone_asks_it_again(serve: Serve) -> None:
    config = falling_back()
    config["models"][OTHER]["deployments"] = ["alpha/m"]
    async with serve(config=config, alpha=[Status(500)], beta=None) as running:
        assert (await running.answered_by())[0] == 502
        assert [provider for provider, _, _ in await running.attempts()] == ["alpha", "alpha"]


async def test_when_the_fallback_fails_as_well_the_client_hears_of_its_failure(serve: Serve) -> None:
    async with serve(alpha=[Status(500)], beta=[Status(500)], config=falling_back()) as running:
        async with running.chat() as response:
            assert response.status == 502
            assert "beta/n" in (await response.json())["error"]["message"]
        call = await running.call()
        assert (call["model"], call["answered_model"], call["launched"]) == (MODEL, None, 2)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_fallback_that_a_limit_keeps_out_is_not_named_as_used_and_the_limit_is(
    serve: Serve, stream: bool
) -> None:
    dear = {"deployment": "beta/n", "price_per_mtok": {"input": 5.0, "output": 50.0}}
    config = falling_back(deployments=[{"deployment": "alpha/m", "price_per_mtok": {"input": 1.0, "output": 2.0}}])
    config["models"][OTHER]["deployments"] = [dear]
    async with serve(
        alpha=[Status(503)], beta=None, config={**config, **client(usd_per_day=0.004)}, key=KEY
    ) as running:
        async with running.chat(keyed(), stream=stream, max_tokens=100) as response:
            error = (await response.json())["error"]
        assert (response.status, error["code"]) == (502, "all_providers_failed")
        assert "alpha/m: server_error" in error["message"]
        assert "model 'other' was not asked: this key has its limit of 0.004 US dollars a day" in error["message"]
        assert "x-holeshot-fallback" not in response.headers
        assert response.headers["x-holeshot-narrowed"] == (await running.call())["narrowed"] == "limits"
        assert len(running["beta"].received) == 0


async def test_the_row_says_that_a_limit_kept_a_fallback_out_though_the_next_one_answers(serve: Serve) -> None:
    dear = {"deployment": "beta/n", "price_per_mtok": {"input": 5.0, "output": 50.0}}
    cheap = {"deployment": "gamma/m", "price_per_mtok": {"input": 0.0, "output": 0.0}}
    config = falling_back(deployments=[{"deployment": "alpha/m", "price_per_mtok": {"input": 1.0, "output": 2.0}}])
    config["models"][MODEL]["fallbacks"] = [OTHER, "third"]
    config["models"][OTHER]["deployments"] = [dear]
    config["models"]["third"] = {"deployments": [cheap], "race": {"mode": "single"}}
    async with serve(
        alpha=[Status(503)], beta=None, gamma=None, config={**config, **client(usd_per_day=0.004)}, key=KEY
    ) as running:
        async with running.chat(keyed(), max_tokens=100) as response:
            assert response.status == 200
        call = await running.call()
        assert (call["answered_model"], call["narrowed"]) == ("third", "limits")
        assert len(running["beta"].received) == 0


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_fallbacks_are_tried_in_order_until_one_answers_each_once(serve: Serve, path: str) -> None:
    def only_at(provider: str, *fallbacks: Any) -> dict[str, Any]:
        return {"deployments": [f"{provider}/m"], "fallbacks": list(fallbacks), "race": {"mode": "single"}}

    third = {"model": "third", "causes": ["failed"]}
    models = {
        MODEL: only_at("alpha", "second", third),
        "second": only_at("beta", "fourth", MODEL),
        "third": only_at("gamma"),
        "fourth": only_at("delta"),
    }
    broken = [Status(500)]
    async with serve(alpha=broken, beta=broken, gamma=broken, delta=broken, config={"models": models}) as running:
        body = {"model": MODEL, "input": "Hi", "messages": [{"role": "user", "content": "Hi"}]}
        async with running.post(body, path=path) as response:
            assert response.status == 502
        rows = await running.rows("select model from attempts order by number")
    assert [row["model"] for row in rows] == [MODEL, "second", "third", "fourth"]


async def test_a_client_that_leaves_while_the_fallback_waits_for_money_is_in_the_ledger(serve: Serve) -> None:
    class Silent(OwnShare):
        """As where Redis is slow."""

        async def enlarge(self, *_: Any) -> None:
            asks.set()
            await asyncio.Event().wait()

    asks, config = asyncio.Event(), falling_back()
    config["models"][OTHER]["usd_per_day"] = 1
    async with serve(alpha=[Status(500)], beta=None, config=config) as running:
        leases = Silent(1, clock=time.monotonic, unix_clock=time.time)
        running.gateway.context.limits = Limits(leases, clock=time.monotonic, unix_clock=time.time)
        asked = asyncio.create_task(running.answered_by())
        await asks.wait()
        asked.cancel()
        await asyncio.wait({asked})
        calls = await eventually(lambda: running.rows("select * from calls"))
        assert await running.outcomes() == {"alpha": "failed"}
    assert [(call["status_code"], call["error_kind"], call["launched"]) for call in calls] == [
        (499, "client_disconnected", 1)
    ]


async def test_after_the_first_byte_nobody_else_answers(serve: Serve) -> None:
    async with serve(alpha=[Delta("Hel"), Drop()], beta=None, config=falling_back()) as running:
        async with running.chat(stream=True) as response:
            said = await response.read()
        assert b'"error"' in said
        assert len(running["beta"].received) == 0


async def test_models_named_by_the_request_are_tried_in_order(serve: Serve) -> None:
    config = {"models": {MODEL: {"deployments": ["alpha/m"]}, OTHER: {"deployments": ["beta/n"]}}}
    async with serve(alpha=[Status(500)], beta=None, config=config) as running:
        assert await running.answered_by(models=[MODEL, OTHER]) == (200, OTHER)
        assert "models" not in running["beta"].received[0].body


async def test_a_fallback_must_be_a_model(serve: Serve, tmp_path: Any) -> None:
    from gateway.settings import ConfigurationError  # noqa: PLC0415

    with pytest.raises(ConfigurationError, match="there is no model 'nobody'"):
        async with serve(alpha=None, config={"models": {MODEL: {"fallbacks": ["nobody"]}}}):
            pass


@pytest.mark.parametrize("name", ["alpha/m\r\nx-evil: 1", "alpha/\x00", "alpha/" + "m" * 600])
@pytest.mark.parametrize("place", [0, 1])
async def test_a_name_that_no_header_can_hold_is_refused(serve: Serve, name: str, place: int) -> None:
    models = [name, MODEL] if place == 0 else [MODEL, name]
    async with serve(alpha=[Status(500)]) as running:
        async with running.post({"models": models, "messages": [{"role": "user", "content": "Hi"}]}) as response:
            assert (response.status, (await response.json())["error"]["param"]) == (400, "models")
        assert running.requests == 0


async def test_after_a_reload_a_call_falls_back_within_the_configuration_it_began_with(serve: Serve) -> None:
    go = asyncio.Event()
    async with serve(alpha=[Gate(go), Status(500)], beta=answer("of the old"), config=falling_back()) as running:
        call = asyncio.create_task(running.answered_by())
        await running["alpha"].requested.wait()
        config = copy.deepcopy(running.config)
        del config["models"][OTHER], config["models"][MODEL]["fallbacks"], config["providers"]["beta"]
        running.gateway.reload(read(config, running.folder))
        go.set()
        assert await call == (200, OTHER)
