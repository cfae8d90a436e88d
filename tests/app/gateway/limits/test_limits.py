"""Limits of clients and models, as their callers meet them, without Redis."""

import asyncio
from typing import Any

import pytest

from providers.simulator import Done, Gate, Hang, Headers, RoleOnly, UsageChunk, answer
from tests.app.gateway.races.test_objectives import KEY, client, keyed
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, chat_body, read
from tests.patience import PATIENCE_S, until

PRICED = {
    "models": {MODEL: {"deployments": [{"deployment": "alpha/m", "price_per_mtok": {"input": 1.0, "output": 2.0}}]}}
}


async def statuses(running: RunningGateway, calls: int, **fields: Any) -> list[int]:
    """Return the status of each of ``calls``, one after the other."""
    found = []
    for _ in range(calls):
        async with running.chat(keyed(), **fields) as response:
            await response.read()
            found.append(response.status)
    return found


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_beyond_its_requests_a_minute_gets_a_429_that_says_when_to_return(
    serve: Serve, stream: bool
) -> None:
    async with serve(alpha=None, config=client(rpm=2, max_parallel=50), key=KEY, in_one_minute=True) as running:
        assert await statuses(running, 2, stream=stream) == [200, 200]
        async with running.chat(keyed(), stream=stream) as response:
            error = (await response.json())["error"]
            assert response.status == 429
            assert 1 <= int(response.headers["retry-after"]) <= 60
            assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
            assert "2 requests a minute" in error["message"]
        assert len(await running.rows("select * from calls")) == 2  # a refusal is not a call


async def test_each_api_has_its_own_error_format(serve: Serve) -> None:
    async with serve(alpha=None, config=client(rpm=1), key=KEY, in_one_minute=True) as running:
        await statuses(running, 1)
        body = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        async with running.http.post(f"{running.url}/v1/messages", json=body, headers=keyed()) as response:
            told = await response.json()
            assert (response.status, told["type"], told["error"]["type"]) == (429, "error", "rate_limit_error")
        async with running.http.post(
            f"{running.url}/v1/embeddings", json={"model": MODEL, "input": "x"}, headers=keyed()
        ) as response:
            assert response.status == 429


async def test_answers_say_what_is_left_for_the_client_not_for_the_gateways_own_key(serve: Serve) -> None:
    theirs = {"x-ratelimit-remaining-requests": "77", "x-ratelimit-limit-images": "5", "anthropic-ratelimit-a": "1"}
    async with serve(
        alpha=[Headers(theirs), *answer("Hi")], config=client(rpm=5), key=KEY, in_one_minute=True
    ) as running:
        for stream in (True, False):
            async with running.chat(keyed(), stream=stream) as response:
                await response.read()
                left = {name: value for name, value in response.headers.items() if "ratelimit" in name.lower()}
            left = {name.lower(): value for name, value in left.items()}
            assert left.pop("x-ratelimit-reset-requests").endswith("s")
            assert left == {
                "x-ratelimit-limit-requests": "5",
                "x-ratelimit-remaining-requests": "4" if stream else "3",
            }


@pytest.mark.parametrize("stream", [True, False])
async def test_a_count_that_cannot_be_keeps_nobody_out_once_its_call_is_over(serve: Serve, stream: bool) -> None:
    config = client(tpm=20_000, usd_per_day=0.01) | PRICED
    script = [*answer("Hi")[:-2], UsageChunk(7, 10**12), Done()]
    async with serve(alpha=script, config=config, key=KEY, in_one_minute=True) as running:
        assert await statuses(running, 3, stream=stream, max_tokens=50) == [200, 200, 200]
        [(tokens, usd)] = {
            (row["completion_tokens"], row["cost_usd"]) for row in await running.rows("select * from calls")
        }
    assert (tokens, usd) == (1_000_000, pytest.approx(7e-6 + 50 * 2e-6))


async def test_a_client_without_limits_sees_the_providers_headers(serve: Serve) -> None:
    theirs = {"x-ratelimit-remaining-requests": "77"}
    async with serve(alpha=[Headers(theirs), *answer("Hi")], config=client(), key=KEY) as running:
        async with running.chat(keyed(), stream=True) as response:
            await response.read()
        assert response.headers["x-ratelimit-remaining-requests"] == "77"


async def test_a_call_that_ends_makes_room_for_another_however_it_ends(serve: Serve) -> None:
    go = asyncio.Event()
    async with serve(
        alpha=[*answer("a")[:2], Gate(go), *answer("b")[1:]], config=client(max_parallel=1), key=KEY
    ) as running:
        response = await running.http.post(
            f"{running.url}/v1/chat/completions", json=chat_body(stream=True), headers=keyed()
        )
        await response.content.readany()
        assert await statuses(running, 1) == [429]
        response.close()  # the client hangs up
        go.set()
        while (await statuses(running, 1)) == [429]:
            pass
        assert await statuses(running, 3) == [200, 200, 200]


async def test_a_budget_is_spent_by_what_calls_cost_and_a_restart_does_not_forget_it(serve: Serve) -> None:
    config = {**PRICED, **client(usd_per_day=0.001)}
    async with serve(alpha=None, config=config, key=KEY) as running:
        while (await statuses(running, 1)) == [200]:
            pass
        async with running.chat(keyed()) as response:
            error = (await response.json())["error"]
        assert (response.status, error["code"], response.headers["x-should-retry"]) == (
            429,
            "insufficient_quota",
            "false",
        )
        [row] = await running.rows("select sum(cost_usd) as usd from calls")
        assert 0.0 < row["usd"] <= 0.001
        database, spool = running.config["database_url"], str(running.folder / "again")
    config |= {"database_url": database, "spool_dir": spool}
    async with serve(alpha=None, config=config, key=KEY) as running:
        assert await statuses(running, 1) == [429]


async def test_the_first_limit_in_dollars_that_a_reload_sets_counts_what_was_spent_before_the_start(
    serve: Serve,
) -> None:
    dear = {"deployment": "alpha/m", "price_per_mtok": {"input": 1e6, "output": 1e6}}
    config = {"models": {MODEL: {"deployments": [dear]}}, **client()}
    async with serve(alpha=None, config=config, key=KEY) as running:
        assert await statuses(running, 1) == [200]
        [row] = await running.rows("select cost_usd as usd from calls")
        assert row["usd"] > 1.0
        database, spool = running.config["database_url"], str(running.folder / "again")
    config |= {**PRICED, "database_url": database, "spool_dir": spool}
    async with serve(alpha=None, config=config, key=KEY) as running:
        running.gateway.reload(read({**running.config, **client(usd_per_day=1.0)}, running.folder))
        while (await statuses(running, 1)) == [200]:
            pass


async def test_a_model_without_money_left_is_followed_by_its_fallback(serve: Serve) -> None:
    dear = {
        "deployments": [{"deployment": "alpha/m", "price_per_mtok": {"input": 1.0, "output": 2.0}}],
        "usd_per_day": 0.0,
    }
    config = {"models": {MODEL: {**dear, "fallbacks": ["spare"]}, "spare": {"deployments": ["beta/m"]}, "alone": dear}}
    async with serve(alpha=None, beta=answer("from beta"), config=config) as running:
        async with running.chat() as response:
            assert (await response.json())["choices"][0]["message"]["content"] == "from beta"
        assert response.headers["x-holeshot-fallback"] == "spare"
        async with running.chat(model="alone") as response:
            assert response.status == 429
            assert "the model 'alone'" in (await response.json())["error"]["message"]


@pytest.mark.parametrize("named", ["free,capped", "capped,free"])
async def test_a_list_of_models_is_no_way_round_the_dollars_of_one_of_them(serve: Serve, named: str) -> None:
    price = {"input": 1.0, "output": 2.0}
    models = {
        "free": {"deployments": [{"deployment": "alpha/m", "price_per_mtok": price}]},
        "capped": {"deployments": [{"deployment": "beta/m", "price_per_mtok": price}], "usd_per_day": 0.0005},
    }
    config = {**client(), "models": models}
    async with serve(alpha=None, beta=None, config=config, key=KEY) as running:
        while (await statuses(running, 1, model=named)) == [200]:
            pass
        assert await statuses(running, 1, model="capped") == [429]
        assert await statuses(running, 1, model="free") == [200]
        config |= {"database_url": running.config["database_url"], "spool_dir": str(running.folder / "again")}
    async with serve(alpha=None, beta=None, config=config, key=KEY) as running:  # a restart does not forget it
        assert await statuses(running, 1, model="capped") == [429]
        assert await statuses(running, 1, model=named) == [429]
        assert await statuses(running, 1, model="free") == [200]


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        ({"usd_per_day": 1.0, "unpriced": "refuse"}, 400),
        ({"usd_per_day": 1.0, "unpriced": "count_known"}, 200),
        ({"usd_per_day": 1.0}, 200),
        ({"rpm": 9, "unpriced": "refuse"}, 200),
    ],
)
async def test_a_deployment_without_a_known_price_is_refused_to_whom_dollars_limit_if_its_client_says_so(
    serve: Serve, limits: dict[str, Any], status: int
) -> None:
    async with serve(alpha=None, config=client(**limits), key=KEY) as running:
        async with running.chat(keyed()) as response:
            said = await response.text()
        assert response.status == status
        assert ("no known price of input, output" in said) == (status == 400)


async def test_the_other_deployments_answer_where_one_without_a_known_price_is_refused(serve: Serve) -> None:
    priced = {"deployment": "beta/m", "price_per_mtok": {"input": 1.0, "output": 2.0}}
    config = {"models": {MODEL: {"deployments": ["alpha/m", priced]}}}
    config |= client(usd_per_day=1.0, unpriced="refuse")
    async with serve(alpha=None, beta=answer("from beta"), config=config, key=KEY) as running:
        async with running.chat(keyed()) as response:
            assert (await response.json())["choices"][0]["message"]["content"] == "from beta"
        assert response.headers["x-holeshot-deployment"] == "beta/m"


async def test_a_model_that_is_newer_than_the_table_counts_at_its_vendors_dearest(serve: Serve) -> None:
    """Its cost is not known, but a limit in dollars holds."""
    config = {"models": {MODEL: {"deployments": ["alpha/newer-than-the-table"]}}, **client(usd_per_day=0.05)}
    config["providers"] = {"alpha": {"preset": "openai"}}
    async with serve(alpha=None, config=config, key=KEY) as running:
        for _ in range(200):
            if (await statuses(running, 1)) == [429]:
                break
        rows = await running.rows("select cost_usd, cost_low_usd, cost_high_usd from calls")
    assert 0 < len(rows) < 200
    assert {tuple(row.values()) for row in rows} == {(None, 0.0, None)}


async def test_limits_count_a_newer_model_as_its_own_line_and_not_as_the_dearest_of_its_vendor(serve: Serve) -> None:
    names = {"line": "gpt-6.99-sol", "vendor": "newer-than-the-table"}
    models = {name: {"deployments": [f"alpha/{model}"], "usd_per_day": 0.01} for name, model in names.items()}
    config = {"models": models, "providers": {"alpha": {"preset": "openai", "apis": ["chat"]}}}
    used = dict.fromkeys(names, 0)
    async with serve(alpha=None, config=config) as running:
        for name in names:
            while (await statuses(running, 1, model=name)) == [200]:
                used[name] += 1
    assert used["line"] > 10 * used["vendor"] > 0


async def test_programs_of_this_machine_can_be_limited_too(serve: Serve) -> None:
    async with serve(alpha=None, config={"anonymous": {"rpm": 1}}, in_one_minute=True) as running:
        assert await statuses(running, 2) == [200, 429]


async def test_a_prompt_larger_than_a_minute_is_a_bad_request(serve: Serve) -> None:
    async with serve(alpha=None, config=client(tpm=100), key=KEY) as running:
        async with running.chat(keyed(), messages=[{"role": "user", "content": "word " * 400}]) as response:
            error = (await response.json())["error"]
        assert (response.status, error["code"]) == (400, "tokens_exceed_limit")


async def test_a_reload_changes_limits_of_those_who_are_calling(serve: Serve) -> None:
    async with serve(alpha=None, config=client(rpm=2), key=KEY, in_one_minute=True) as running:
        assert await statuses(running, 3) == [200, 200, 429]
        running.gateway.reload(read({**running.config, **client(rpm=3)}, running.folder))
        assert await statuses(running, 2) == [200, 429]


DEAR = {
    "models": {MODEL: {"deployments": [{"deployment": "alpha/m", "price_per_mtok": {"input": 1.0, "output": 10.0}}]}}
}


async def test_calls_that_ask_for_long_answers_hold_what_these_may_cost_whatever_was_usual(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.api.call_runner.LINE_S", 0.5)  # which the refused ones wait in line
    go = asyncio.Event()
    async with serve(alpha=None, config={**DEAR, **client(usd_per_day=4.5)}, key=KEY) as running:
        assert await statuses(running, 60, max_tokens=100_000) == [200] * 60  # short ones, one after the other

        running["alpha"].script = [*answer("a")[:2], Gate(go), *answer("b")[1:]]

        async def call() -> None:
            async with running.chat(keyed(), stream=True, max_tokens=100_000) as response:
                if response.status == 429:
                    refused.append((await response.json())["error"])
                    if len(refused) == 35:
                        go.set()
                await response.read()
            statuses_found.append(response.status)

        refused, statuses_found = list[dict[str, Any]](), list[int]()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(call() for _ in range(40)))
        assert sorted(statuses_found) == [200] * 5 + [429] * 35  # each may cost a dollar, and one goes beyond
        assert {each["code"] for each in refused} == {"rate_limit_exceeded"}
        assert await statuses(running, 5, max_tokens=100_000) == [200] * 5  # they were short again


async def test_calls_whose_clients_left_count_at_what_they_may_cost(serve: Serve) -> None:
    async with serve(alpha=[RoleOnly(), Hang()], config={**DEAR, **client(usd_per_day=2.5)}, key=KEY) as running:
        for number in range(3):
            body = chat_body(stream=True, max_tokens=100_000)
            response = asyncio.ensure_future(
                running.http.post(f"{running.url}/v1/chat/completions", json=body, headers=keyed())
            )
            await running["alpha"].reach(requests=number + 1)
            response.cancel()
            await running["alpha"].reach(disconnects=number + 1)
        running["alpha"].script = answer("a")
        while (await statuses(running, 1)) == [200]:  # until the last one is recorded
            pass
        async with running.chat(keyed()) as refused:
            assert (await refused.json())["error"]["code"] == "insufficient_quota"


COSTLY = {"deployment": "alpha/m", "price_per_mtok": {"input": 1.0, "output": 20.0}}
LONGEST = 16_384  # tokens, which cost 33 cents


@pytest.mark.parametrize("thinks", [None, True, False])
async def test_a_call_that_its_client_left_may_have_cost_what_was_thought_unseen_and_limits_do_not_count_that(
    serve: Serve, thinks: bool | None
) -> None:
    capabilities = {"max_output_tokens": LONGEST} | ({} if thinks is None else {"reasoning": thinks})
    deployment = {**COSTLY, "bills_after_disconnect": False, "capabilities": capabilities}
    config = {"models": {MODEL: {"deployments": [deployment]}}, **client(usd_per_day=0.5)}
    async with serve(alpha=[RoleOnly(), Hang()], config=config, key=KEY) as running:
        for number in range(3):
            left = asyncio.ensure_future(
                running.http.post(f"{running.url}/v1/chat/completions", json=chat_body(stream=True), headers=keyed())
            )
            await running["alpha"].reach(requests=number + 1)
            left.cancel()
            await running["alpha"].reach(disconnects=number + 1)
        running["alpha"].script = answer("a")
        assert await statuses(running, 1) == [200]
        columns = "cost_high_usd, abandoned_cost_high_usd"
        rows = await running.rows(f"select {columns} from calls where error_kind = 'client_disconnected'")
    assert len(rows) == 3
    for row in rows:
        assert row["cost_high_usd"] == row["abandoned_cost_high_usd"]
        assert (row["cost_high_usd"] >= LONGEST * 20e-6) is (thinks is not False)
        assert thinks is not False or row["cost_high_usd"] < 0.01


async def forty_at_once(running: RunningGateway, **fields: Any) -> tuple[list[int], float]:
    """Return the statuses of forty calls at once, and the dollars that they cost."""
    found = await asyncio.gather(*(statuses(running, 1, **fields) for _ in range(40)))
    [row] = await running.rows("select sum(cost_usd) as usd from calls")
    return [status for [status] in found], row["usd"]


@pytest.mark.parametrize("stream", [False, True])
async def test_forty_calls_at_once_that_set_no_limit_exceed_a_limit_in_dollars_by_one_of_the_longest_answers(
    serve: Serve, stream: bool
) -> None:
    deployments = [{**COSTLY, "capabilities": {"max_output_tokens": LONGEST}}]
    config = {"models": {MODEL: {"deployments": deployments}}, **client(usd_per_day=1.0)}
    script = [*answer("Hi")[:-2], UsageChunk(completion_tokens=LONGEST), Done()]
    async with serve(alpha=script, config=config, key=KEY) as running:
        found, usd = await forty_at_once(running, stream=stream)
        assert set(found) == {200, 429}
        assert 0.9 <= usd <= 1.0 + LONGEST * 20e-6 + 0.001


@pytest.mark.parametrize("limits", [{"usd_per_day": 0.5}, {"usd_per_day": 1.0, "usd_per_month": 0.5}])
async def test_forty_usual_calls_at_once_go_one_after_another_where_a_limit_has_room_for_one(
    serve: Serve, limits: dict[str, float]
) -> None:
    deployments = [{**COSTLY, "capabilities": {"max_output_tokens": 4 * LONGEST}}]
    config = {"models": {MODEL: {"deployments": deployments}}, **client(**limits)}
    async with serve(alpha=answer("Hi"), config=config, key=KEY) as running:
        found, _ = await forty_at_once(running)
        assert found == [200] * 40


async def test_calls_of_a_model_whose_dollars_are_held_wait_in_line_unless_it_has_a_fallback(serve: Serve) -> None:
    deployments = [{**COSTLY, "capabilities": {"max_output_tokens": 4 * LONGEST}}]
    alone = {"deployments": deployments, "usd_per_day": 1.0}
    models = {MODEL: alone, "other": {**alone, "fallbacks": ["spare"]}, "spare": {"deployments": ["beta/m"]}}
    go = asyncio.Event()
    async with serve(alpha=[Gate(go), *answer("Hi")], beta=answer("spare"), config={"models": models}) as running:
        calls = [asyncio.ensure_future(statuses(running, 1, model=model)) for model in (MODEL, MODEL, "other")]
        await running["alpha"].reach(requests=2)
        assert await running.answered_by(model="other") == (200, "spare")
        go.set()
        assert await asyncio.gather(*calls) == [[200]] * 3


@pytest.mark.parametrize("fields", [{"n": 20}, {"best_of": 20}, {"max_tokens": 20 * 3000}, {"n": 4, "best_of": 20}, {}])
async def test_whatever_makes_an_answer_dear_is_held_for(serve: Serve, fields: dict[str, Any]) -> None:
    go = asyncio.Event()
    config = {"models": {MODEL: {"deployments": [COSTLY]}}, **client(usd_per_day=1.0)}
    async with serve(alpha=[Gate(go), *answer("Hi")], config=config, key=KEY) as running:
        body = {"model": MODEL, "prompt": "Hi", "max_tokens": 3000, **fields}
        if not fields:
            del body["max_tokens"]

        async def ask() -> int:
            async with running.post(body, path="/v1/completions", headers=keyed()) as response:
                await response.read()
                return int(response.status)

        first = asyncio.ensure_future(ask())
        await until(lambda: len(running["alpha"].received) == 1)
        second = asyncio.ensure_future(ask())
        await until(lambda: bool(running.gateway.engine.limits._admission.lines))
        go.set()
        assert (await first, await second, len(running["alpha"].received)) == (200, 200, 2)


@pytest.mark.parametrize("model", ["free", "alpha/meta/llama:free", "alpha/openrouter/free", "beta/free"])
async def test_models_that_cost_nothing_answer_clients_whose_dollars_are_spent(serve: Serve, model: str) -> None:
    price = {"price_per_mtok": {"input": 0, "output": 0}}
    config = {
        "providers": {"alpha": {"preset": "openrouter", "apis": ["chat"]}},
        "models": {
            MODEL: {"deployments": [{**COSTLY, "price_per_mtok": {"input": 1e4, "output": 1e4}}]},
            "free": {"deployments": ["alpha/meta/llama:free"]},
            "mixed": {"deployments": [{"deployment": "beta/free", **price}, "beta/other"]},
        },
        **client(usd_per_day=0.1, adhoc=True),
    }
    async with serve(alpha=answer("Hi"), beta=answer("Hi"), config=config, key=KEY) as running:
        while (await statuses(running, 1)) == [200]:
            pass
        assert await statuses(running, 2) == [429, 429]
        assert await statuses(running, 2, model=model) == [200, 200]
        assert await statuses(running, 1) == [429]
