"""/metrics says how deployments are, what limits leave, and what is running."""

import asyncio
import copy
from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway import __version__
from providers.simulator import Gate, Headers, Status, answer
from tests.app.gateway.limits.test_limits import PRICED, statuses
from tests.app.gateway.races.test_objectives import KEY, client
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, read, single
from tests.patience import PATIENCE_S

Page = Mapping[str, Mapping[tuple[str, ...], float]]  # by name, and by the values of labels in the order of their names


async def page_of(running: RunningGateway) -> Page:
    async with running.get("/metrics") as response:
        text = await response.text()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[values] = sample.value
    return found


async def call(running: RunningGateway, **fields: Any) -> None:
    async with running.chat(**fields) as response:
        await response.read()


def state_of(page: Page, deployment: str) -> str:
    """The one state that it is in."""
    states = page["holeshot_deployment_state"]
    (state,) = [state for (name, state), seen in states.items() if name == deployment and seen == 1]
    return state


async def test_each_deployment_is_in_one_state_before_its_first_call(serve: Serve) -> None:
    async with serve(alpha=None, beta=None) as running:
        page = await page_of(running)
    assert [state_of(page, name) for name in ("alpha/m", "beta/m")] == ["ok", "ok"]
    assert page["holeshot_breaker_open"] == {("alpha/m",): 0.0, ("beta/m",): 0.0}
    assert page["holeshot_headroom_ratio"] == {("alpha/m",): 1.0, ("beta/m",): 1.0}


async def test_a_deployment_that_keeps_failing_has_an_open_breaker(serve: Serve) -> None:
    async with serve(good=None, bad=[Status(500)], config=single()) as running:
        running.prefer("bad", "good")
        for _ in range(10):
            await call(running)
        page = await page_of(running)
    assert (state_of(page, "bad/m"), state_of(page, "good/m")) == ("open", "ok")
    assert page["holeshot_breaker_open"] == {("bad/m",): 1.0, ("good/m",): 0.0}


async def test_a_rate_limit_and_a_rejected_key_show(serve: Serve) -> None:
    limited, rejecting = [Status(429, headers={"retry-after": "30"})], [Status(401)]
    async with serve(good=None, limited=limited, rejecting=rejecting, config=single()) as running:
        running.prefer("limited", "rejecting", "good")
        await call(running)  # asks all of them, one after the other
        page = await page_of(running)
    assert state_of(page, "limited/m") == "cooling"
    assert 0 < page["holeshot_cooling_seconds"]["limited/m",] <= 30
    assert page["holeshot_cooling_seconds"]["good/m",] == 0
    assert state_of(page, "rejecting/m") == "out"


async def test_what_a_provider_says_of_its_rate_limit_is_the_headroom(serve: Serve) -> None:
    nearly = {"x-ratelimit-limit-requests": "100", "x-ratelimit-remaining-requests": "2"}
    async with serve(alpha=[Headers(nearly), *answer("Hi")]) as running:
        await call(running)
        assert 0.02 <= (await page_of(running))["holeshot_headroom_ratio"]["alpha/m",] < 0.5


async def test_a_deployment_that_a_reload_takes_away_is_no_longer_on_the_page(serve: Serve) -> None:
    async with serve(alpha=None, beta=None) as running:
        assert len((await page_of(running))["holeshot_headroom_ratio"]) == 2
        config = copy.deepcopy(running.config)
        del config["providers"]["beta"]
        config["models"][MODEL]["deployments"] = ["alpha/m"]
        running.gateway.reload(read(config, running.folder))
        page = await page_of(running)
    assert list(page["holeshot_headroom_ratio"]) == [("alpha/m",)]
    assert {name for name, _ in page["holeshot_deployment_state"]} == {"alpha/m"}


async def test_the_dollars_left_of_a_model_are_known_from_its_first_call_on(serve: Serve) -> None:
    config = copy.deepcopy(PRICED)
    config["models"][MODEL] |= {"usd_per_day": 5.0, "race": {"usd_per_day": 2.0}}  # type: ignore[dict-item]  # of any kind
    async with serve(alpha=None, config=config) as running:
        page = await page_of(running)
        assert page["holeshot_model_limit_usd"] == {(MODEL,): 5.0}
        assert page["holeshot_extra_left_usd"] == {(MODEL,): 2.0}
        assert "holeshot_model_left_usd" not in page
        await call(running)
        [row] = await running.rows("select sum(cost_usd) as usd from calls")
        left = (await page_of(running))["holeshot_model_left_usd"]
    assert row["usd"] > 0
    assert abs(left[MODEL,] - (5.0 - row["usd"])) < 1e-9


async def test_a_restart_does_not_forget_what_races_have_spent_today(serve: Serve) -> None:
    price = {"input": 1000.0, "output": 1000.0}
    deployments = [{"deployment": f"{name}/m", "price_per_mtok": price} for name in ("alpha", "beta")]
    race = {"mode": "race", "width": 2, "usd_per_day": 50.0}
    config: dict[str, Any] = {"models": {MODEL: {"deployments": deployments, "race": race}}}
    async with serve(alpha=None, beta=None, config=config) as running:
        running.answer_once_all_are_asked()
        await call(running)
        [row] = await running.rows("select duplicate_cost_usd as usd from calls")
        assert row["usd"] > 0
        config |= {"database_url": running.config["database_url"], "spool_dir": str(running.folder / "again")}
    async with serve(alpha=None, beta=None, config=config) as running:
        left = (await page_of(running))["holeshot_extra_left_usd"]
    assert left[MODEL,] == pytest.approx(50.0 - row["usd"])


async def test_after_a_restart_a_fallbacks_races_are_paid_by_the_fallback(serve: Serve) -> None:
    price = {"input": 1000.0, "output": 1000.0}
    spare = {"deployments": [{"deployment": f"{name}/n", "price_per_mtok": price} for name in ("beta", "gamma")]}
    race = {"mode": "race", "width": 2, "usd_per_day": 50.0}
    asked = {"deployments": ["alpha/m"], "fallbacks": ["spare"]}
    config: dict[str, Any] = {"models": {MODEL: {**asked, "race": race}, "spare": {**spare, "race": race}}}
    async with serve(alpha=[Status(500)], beta=None, gamma=None, config=config) as running:
        both = [Gate(running[name].requested) for name in ("beta", "gamma")]
        for name in ("beta", "gamma"):
            running[name].script = [*both, *answer("Hello")]
        await call(running)
        [row] = await running.rows("select duplicate_cost_usd as usd from calls")
        assert row["usd"] > 0
        config |= {"database_url": running.config["database_url"], "spool_dir": str(running.folder / "again")}
    async with serve(alpha=None, beta=None, gamma=None, config=config) as running:
        left = (await page_of(running))["holeshot_extra_left_usd"]
    assert left == {(MODEL,): 50.0, ("spare",): pytest.approx(50.0 - row["usd"])}


async def test_clients_are_counted_by_what_is_left_of_their_dollars(serve: Serve) -> None:
    async with serve(alpha=None, config={**PRICED, **client(usd_per_day=0.01, role="admin")}, key=KEY) as running:
        headers = {"authorization": f"Bearer {KEY}"}

        async def clients() -> Mapping[tuple[str, ...], float]:
            async with running.http.get(f"{running.url}/metrics", headers=headers) as response:
                lines = (await response.text()).splitlines()
            told = [line for line in lines if line.startswith("holeshot_client_limits{")]
            return {tuple(line.split('"')[1::2]): float(line.split()[-1]) for line in told}

        assert await clients() == {}
        assert await statuses(running, 1) == [200]
        assert (await clients())["more", "usd_per_day"] == 1
        while (await statuses(running, 1)) == [200]:
            pass
        counted = await clients()
    assert counted["none", "usd_per_day"] == 1
    assert sum(counted.values()) == 1


async def test_the_page_says_what_is_running(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        page = await page_of(running)
        ((_, version),) = page["holeshot_build_info"]
        assert version == __version__
        assert page["holeshot_workers"] == {(): 1.0}
        assert page["process_cpu_seconds_total"][()] > 0
        assert page["process_resident_memory_bytes"][()] > 10_000_000
        assert not {"holeshot_redis_away", "holeshot_redis_round_seconds"} & set(page)  # there is none


async def test_asking_for_the_page_has_the_database_watched(serve: Serve) -> None:
    """So that an idle gateway notices, too, that its database is away."""
    async with serve(alpha=None) as running:
        async with asyncio.timeout(PATIENCE_S):
            last_s = -1.0  # the start has asked for its figures, at most: this grows until the database answers again
            while (
                since_s := (await page_of(running)).get("holeshot_ledger_answered_seconds", {(): 0.0})[()]
            ) >= last_s:
                last_s = since_s


async def test_a_redis_that_cannot_be_reached_shows(serve: Serve) -> None:
    async with serve(alpha=None, config={"redis_url": "redis://127.0.0.1:1/0"}) as running:
        page = await page_of(running)
        assert page["holeshot_redis_away"] == {(): 1.0}
        assert page["holeshot_redis_round_seconds"].keys() == {("limits",), ("standings",)}
        assert 0.45 <= page["holeshot_redis_period_seconds"]["limits",] <= 0.5
        assert page["holeshot_redis_period_seconds"]["standings",] == 1.0
