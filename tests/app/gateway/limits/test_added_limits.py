"""A limit that is set while the gateway runs counts what was used before in its window, once."""

import asyncio
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.core.calls import Level
from gateway.limits import level_of_key
from providers.simulator import Done, UsageChunk, answer
from tests.app.gateway.key_desk import Desk, bearer, in_database
from tests.app.gateway.limits.test_payers import configured, told
from tests.app.gateway.races.test_objectives import KEY
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, read, serving
from tests.patience import until
from tests.support.moved_time import MovedTime

PRICED = {"price_per_mtok": {"input": 1, "output": 2}}
ADDED: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], object], str, str]] = {  # to what, whose, the error
    "client": (lambda config, more: config["clients"]["team"].update(more), "client:team", "this key has"),
    "team": (lambda config, more: config["teams"]["research"].update(more), "team:research", "the team 'research' has"),
    "end user": (lambda config, more: config["end_users"].update(more), "user:team:research:{}", "this end user has"),
    "model": (lambda config, more: config["models"][MODEL].update(more), f"model:{MODEL}", f"the model '{MODEL}' has"),
}


async def used(running: RunningGateway) -> int:
    await running.rows("select 1 from used_totals")  # has the ledger add up: it was set up where no limit counted
    rows = await running.rows("select prompt_tokens + completion_tokens as n from calls where status_code = 200")
    return sum(row["n"] for row in rows)


@pytest.mark.parametrize("limit", ["tokens_per_week", "tokens_total"])
@pytest.mark.parametrize(("add", "owner", "said"), ADDED.values(), ids=ADDED)
async def test_a_limit_that_a_reload_adds_counts_what_was_used_before(
    serve: Serve, add: Callable[..., object], owner: str, said: str, limit: str
) -> None:
    deployment = {"deployment": "alpha/m", "price_per_mtok": {"input": 1, "output": 2}}
    config = configured(end_users={}, models={MODEL: {"deployments": [deployment]}})
    async with serve(alpha=None, config=config, key=KEY) as running:
        assert [await told(running, user="ann") for _ in range(2)] == ["", ""]
        before = await used(running)
        [row] = await running.rows("select tags ->> 'end_user' as end_user from calls limit 1")
        iso = datetime.now(UTC).isocalendar()
        window = {"tokens_per_week": f"{iso.year}-W{iso.week:02}", "tokens_total": "total"}[limit]
        whose = f"{owner.format(row['end_user'])}:{limit}:{window}"
        add(running.config, {limit: before - 1})
        running.gateway.reload(read(running.config, running.folder))
        leases = running.gateway.leases
        await until(lambda: leases.recollected(whose) == before)
        assert (await told(running, user="ann")).startswith(f"429: {said} ")
        add(running.config, {limit: 100 * before})
        running.gateway.reload(read(running.config, running.folder))
        assert [await told(running, user="ann") for _ in range(2)] == ["", ""]
        if owner == "client:team":
            [standing] = running.gateway.context.limits.standings(level_of_key("team", {limit: 100.0 * before}))
            assert standing.used == await used(running)  # once


async def test_a_limit_that_an_admin_adds_to_a_key_counts_what_was_used_before(serve: Serve) -> None:
    async with serve(alpha=None, config=in_database()) as running:
        desk = Desk(running)
        key = await desk.create("app")
        for _ in range(2):
            async with running.chat(bearer(key)) as response:
                assert response.status == 200
                await response.read()
        before = await used(running)
        assert (await desk.ask("PATCH", "/app", {"tokens_total": before - 1})).status == 200
        leases = running.gateway.leases
        await until(lambda: leases.recollected("client:app:tokens_total:total") == before)
        async with running.chat(bearer(key)) as response:
            assert response.status == 429


@pytest.mark.parametrize("limit", ["tokens_per_week", "tokens_total"])
@pytest.mark.parametrize("beside", [{}, {"rpm": 1000}], ids=["alone", "beside another"])
@pytest.mark.parametrize(("add", "owner", "said"), ADDED.values(), ids=ADDED)
async def test_a_limit_that_is_removed_and_set_again_counts_what_was_used_meanwhile_and_nothing_twice(
    serve: Serve,
    limit: str,
    *,
    beside: dict[str, int],
    add: Callable[..., object],
    owner: str,
    said: str,
) -> None:
    if beside and owner.startswith("model:"):
        beside = {"usd_per_day": 1000}
    config = configured(end_users={}, models={MODEL: {"deployments": [{"deployment": "alpha/m", **PRICED}]}})
    high = 1_000_000
    add(config, {limit: high, **beside})
    async with serve(alpha=None, config=config, key=KEY, in_one_minute=True) as running:

        def change(name: str, value: int | None) -> None:
            add(running.config, {name: value})
            running.gateway.reload(read(running.config, running.folder))

        assert [await told(running, user="ann") for _ in range(2)] == ["", ""]
        change(limit, None)
        assert [await told(running, user="ann") for _ in range(3)] == [""] * 3
        before = await used(running)
        [row] = await running.rows("select tags ->> 'end_user' as end_user from calls limit 1")
        iso = datetime.now(UTC).isocalendar()
        window = {"tokens_per_week": f"{iso.year}-W{iso.week:02}", "tokens_total": "total"}[limit]
        whose = f"{owner.format(row['end_user'])}:{limit}:{window}"
        change(limit, high)
        await until(lambda: running.gateway.leases.recollected(whose) == before)
        assert await told(running, user="ann") == ""
        after = await used(running)
        level = Level(owner.format(row["end_user"]), "", {limit: high})
        [standing] = running.gateway.context.limits.standings(level)
        assert standing.used == after  # once
        change(limit, after)
        assert (await told(running, user="ann")).startswith(f"429: {said} reached")


@pytest.mark.parametrize("limit", ["tokens_per_week", "tokens_total"])
@pytest.mark.parametrize("whose", ["client", "model"])
async def test_what_is_used_before_the_ledger_has_told_of_an_added_limit_counts_once(
    serve: Serve, whose: str, limit: str
) -> None:
    config = configured(end_users={}, models={MODEL: {"deployments": [{"deployment": "alpha/m", **PRICED}]}})
    add, owner, _ = ADDED[whose]
    async with serve(alpha=None, config=config, key=KEY) as running:
        assert await told(running) == ""
        each = await used(running)
        database = sqlite3.connect(running.folder / "holeshot.db", isolation_level=None)
        database.execute("begin immediate")  # nothing is stored, so nothing told, until the calls below have ended
        assert await told(running) == ""
        flushing = asyncio.create_task(running.gateway.ledger.flush())  # what a later one waits for
        add(running.config, {limit: 100 * each})
        running.gateway.reload(read(running.config, running.folder))
        assert [await told(running) for _ in range(3)] == [""] * 3
        database.execute("rollback")
        database.close()
        await flushing
        iso = datetime.now(UTC).isocalendar()
        window = {"tokens_per_week": f"{iso.year}-W{iso.week:02}", "tokens_total": "total"}[limit]
        leases = running.gateway.leases
        await until(lambda: leases.recollected(f"{owner}:{limit}:{window}") > 0)
        assert await told(running) == ""
        [standing] = running.gateway.context.limits.standings(Level(owner, "", {limit: 100.0 * each}))
        assert standing.used == await used(running) == 6 * each


@pytest.mark.parametrize(
    "given",
    [
        {"first": "Europe/Berlin", "then": "UTC", "hours": (12.0, 22.5)},
        {"first": "UTC", "then": "Asia/Kathmandu", "hours": (-5.0, 4.0)},
    ],
    ids=["west", "east"],
)
@pytest.mark.parametrize(("add", "owner", "said"), ADDED.values(), ids=ADDED)
async def test_another_zone_of_all_limits_counts_what_was_spent_in_its_day(
    tmp_path: Path, given: dict[str, Any], add: Callable[..., object], owner: str, said: str
) -> None:
    moved, day = MovedTime(), datetime(2027, 6, 14, tzinfo=UTC)
    deployment = {"deployment": "alpha/m", "price_per_mtok": {"input": 0, "output": 1e6}}
    config = configured(end_users={}, models={MODEL: {"deployments": [deployment]}}, limits_zone=given["first"])
    add(config, {"usd_per_day": 3})
    script = [*answer("a")[:-2], UsageChunk(10, 1), Done()]  # for a dollar
    moved.is_now(day + timedelta(hours=given["hours"][0]))
    async with serving(tmp_path, {"alpha": script}, key=KEY, **moved.runtime, **config) as running:
        for hours in given["hours"]:
            moved.is_now(day + timedelta(hours=hours))
            assert await told(running, user="ann", max_tokens=1) == ""
        [row] = await running.rows("select tags ->> 'end_user' as end_user from calls limit 1")
        whose = f"{owner.format(row['end_user'])}:usd_per_day:2027-06-14"
        running.config["limits_zone"] = given["then"]
        running.gateway.reload(read(running.config, running.folder))
        leases = running.gateway.leases
        await until(lambda: leases.recollected(whose) == 2)
        assert await told(running, user="ann", max_tokens=1) == ""
        assert (await told(running, user="ann", max_tokens=1)).startswith(f"429: {said} ")
