"""A gateway that starts knows what the ledger remembers."""

from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from gateway.core.calls import CallRecord, Objective
from gateway.core.prompt_classes import answer_class
from gateway.ledger import Finished, SchemaOutdatedError, create_engine, downgrade, fold_all, migrate
from gateway.ledger.errors import QueryError
from gateway.ledger.inserts import insert
from gateway.ledger.store import STREAMS, SqlStore, remembered, text_gaps
from gateway.ledger.used import OwnRows, used, used_by_payers
from gateway.limits.windows import day, month
from gateway.settings import RaceSettings
from gateway.steering import MemoryBoard, Steering, Terms
from tests.services.ledger.test_leaderboard import stored, traffic
from tests.support.ledgers import lay, plain
from tests.unit.ledger.records import call, new_id, won

MODEL = "llama"


def fresh(now: datetime) -> Steering:
    return Steering(MemoryBoard(), clock=lambda: 0.0, unix_clock=now.timestamp, random=Random(1))


async def test_a_gateway_that_starts_judges_deployments_by_the_hours_before(ledger_url: str, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    records = traffic(Random(3), now - timedelta(hours=3), 900, raced=0.0)
    await stored(ledger_url, tmp_path, records)
    took_ms: dict[str, list[float]] = {}
    for record in records:
        for attempt in record.attempts:
            if (attempt.model or record.model) == MODEL and attempt.ttft_ms is not None:
                took_ms.setdefault(attempt.deployment, []).append(attempt.ttft_ms)
    often = {name: fmean(taken) / 1000 for name, taken in took_ms.items() if len(taken) > 50}
    steering, names = fresh(now), sorted(often)
    terms = Terms(Objective.FIRST_TOKEN, 500)

    def usual_s() -> dict[str, float]:
        told = steering.explain(MODEL, names, RaceSettings(), terms, answer_class(0)).explanation
        assert told is not None
        return {each.deployment: each.ttft_mean_s for each in told.deployments}

    assert len(set(usual_s().values())) == 1
    sums = await remembered(ledger_url, now)
    assert steering.recollect(sums) >= 1
    assert len(often) > 1
    assert usual_s() == pytest.approx(often, rel=0.35)
    assert sum(each.n for each in sums if each.model == MODEL and each.metric == "ttft") == sum(
        map(len, took_ms.values())
    )


async def test_of_a_ledger_without_rows_nothing_more_is_asked(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    lay(plain(), tmp_path / "ledger.db")  # it has not the view of what is asked
    url = f"sqlite:///{tmp_path}/ledger.db"
    store = SqlStore(url)
    assert (await store.remembered(now), await store.lately(now, now), await store.text_gaps(now)) == ([], {}, {})
    await store.aclose()
    await stored(url, tmp_path, streams("quick/x", now, 8_000.0))
    store = SqlStore(url)  # one that has just been told of no rows does not ask again at once
    with pytest.raises(QueryError, match="samples"):
        await store.lately(now, now)
    await store.aclose()


async def test_a_ledger_whose_rows_are_gone_remembers_by_its_sums(ledger_url: str, tmp_path: Path) -> None:
    now, store, engine = datetime.now(UTC), SqlStore(ledger_url), create_engine(ledger_url)
    await stored(ledger_url, tmp_path, traffic(Random(3), now - timedelta(hours=3), 50, raced=0.0))
    sums = await store.remembered(now)
    assert sums
    async with engine.begin() as connection:
        await connection.execute(text("delete from attempts"))
    assert await store.remembered(now) == sums
    await store.aclose()
    await engine.dispose()


async def test_what_is_older_than_a_day_is_not_remembered(ledger_url: str, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    await stored(ledger_url, tmp_path, traffic(Random(3), now - timedelta(hours=30), 50, raced=0.0))
    assert await remembered(ledger_url, now) == []


async def test_a_ledger_without_sums_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    with pytest.raises(SchemaOutdatedError, match="holeshot migrate"):
        await remembered(f"sqlite:///{tmp_path}/empty.db", datetime.now(UTC))


async def test_the_last_ten_minutes_are_left_to_the_board(ledger_url: str, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    await stored(ledger_url, tmp_path, traffic(Random(3), now, 50, raced=0.0))
    assert await remembered(ledger_url, now) == []
    later = await remembered(ledger_url, now + timedelta(minutes=30))
    assert sum(each.n for each in later if each.metric == "n") > 0


def streams(deployment: str, at: datetime, *gaps_ms: float | None, **facts: Any) -> list[CallRecord]:
    """Return calls a second apart, the last at this instant, whose text paused for so long at most."""
    begun = [at - timedelta(seconds=len(gaps_ms) - number) for number in range(1, len(gaps_ms) + 1)]
    return [
        call(won(new_id(), deployment=deployment, started_at=each, text_gap_max_ms=gap_ms, **facts), started_at=each)
        for each, gap_ms in zip(begun, gaps_ms, strict=True)
    ]


async def test_a_gateway_that_starts_knows_how_long_the_text_of_each_deployments_latest_streams_paused(
    ledger_url: str, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    long_ago = streams("slow/x", now - timedelta(days=2), 9_000.0)
    this_day = streams("rare/x", now - timedelta(hours=20), 4_000.0, None, 500.0)
    latest = streams("quick/x", now, 8_000.0, *(float(number) for number in range(STREAMS)))
    probes = streams("probed/x", now, 1_000.0, number=0)
    await stored(ledger_url, tmp_path, [*long_ago, *latest, *this_day, *probes])
    found = await text_gaps(ledger_url, now)
    assert found == {"quick/x": [float(number) for number in range(STREAMS)], "rare/x": [4_000.0, 500.0]}


async def test_where_an_hour_has_enough_streams_the_day_before_it_is_not_read(
    ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)
    records = [*streams("quick/x", now, 1.0, 2.0, 3.0), *streams("rare/x", now - timedelta(hours=2), 4_000.0)]
    await stored(ledger_url, tmp_path, records)
    assert set(await text_gaps(ledger_url, now)) == {"quick/x", "rare/x"}
    monkeypatch.setattr("gateway.ledger.store.ENOUGH", 3)
    assert await text_gaps(ledger_url, now) == {"quick/x": [1.0, 2.0, 3.0]}


@pytest.mark.parametrize("whole_month", [False, True])
async def test_what_teams_and_end_users_used_before_the_start_is_read_from_rows(
    ledger_url: str, tmp_path: Path, *, whole_month: bool
) -> None:
    now = datetime(2026, 11, 17, 12, tzinfo=UTC)
    of_ann, of_bob = {"team": "research", "end_user": "ann"}, {"end_user": "bob"}
    records = [
        replace(call(started_at=now - ago), tags=tags, cost_usd=usd, prompt_tokens=10, completion_tokens=5)
        for ago, tags, usd in (
            (timedelta(hours=1), of_ann, 0.5),
            (timedelta(hours=2), of_ann, 0.25),
            (timedelta(days=3), of_ann, 2.0),
            (timedelta(days=30), of_ann, 9.0),
            (timedelta(hours=1), of_bob, 0.125),
            (timedelta(hours=1), {}, 7.0),
            (-timedelta(hours=1), of_bob, 7.0),
        )
    ]
    await stored(ledger_url, tmp_path, records)
    of_day, of_month = (window(now.timestamp()).starts_s for window in (day, month))
    asked = [of_day, of_month] if whole_month else [of_day]
    found = await used_by_payers(ledger_url, asked, now)
    told = {(each.end_user, each.since_s): (each.team, each.usd, each.tokens) for each in found}
    assert told == {
        ("ann", of_day): ("research", 0.75, 30.0),
        ("bob", of_day): (None, 0.125, 15.0),
        **(
            {("ann", of_month): ("research", 2.75, 45.0), ("bob", of_month): (None, 0.125, 15.0)} if whole_month else {}
        ),
    }


async def test_teams_and_end_users_go_on_from_tokens_of_prompts_that_cost_nothing(
    ledger_url: str, tmp_path: Path
) -> None:
    now = datetime(2026, 11, 17, 12, tzinfo=UTC)
    who = {"team": "research", "end_user": "ann"}
    vectors = replace(call(started_at=now - timedelta(hours=1)), tags=who, cost_usd=None, prompt_tokens=10)
    await stored(ledger_url, tmp_path, [replace(vectors, completion_tokens=None)])
    (found,) = await used_by_payers(ledger_url, [day(now.timestamp()).starts_s], now)
    assert (found.end_user, found.usd, found.tokens) == ("ann", 0.0, 10.0)


# As many as may have one.
_FULL = {
    "sqlite": "with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000) "
    "insert into used_totals select 'other', '', i, '', 0.5, 0 from n",
    "postgresql": "insert into used_totals "
    "select 'other', '', i::text, '', 0.5, 0 from generate_series(1, 100000) as n(i)",
}


async def test_end_users_beyond_those_that_have_a_total_count_in_their_clients_and_teams(ledger_url: str) -> None:
    now = datetime(2026, 11, 17, 12, tzinfo=UTC)
    engine, store = create_engine(ledger_url), SqlStore(ledger_url)
    for number, name in enumerate(("ann", "bob", "ann")):
        at = now - timedelta(hours=5 - number)
        tags, own = {"team": "research", "end_user": name}, won(new_id(), started_at=at, cost_usd=1.0)
        record = replace(call(own, started_at=at), client="app", tags=tags, cost_usd=1.0)
        await insert(engine, [Finished(record)])
        assert [each.usd for each in await store.used([-inf], now) if each.client == "app"] == [1.0 + number]
        if not number:
            async with engine.begin() as connection:
                await connection.execute(text(_FULL[engine.dialect.name]))
    of_payers = await store.used_by_payers([-inf], now)
    await store.aclose()
    await engine.dispose()
    told = {(each.team, each.end_user): each.usd for each in of_payers if each.client == "app"}
    assert told == {("research", "ann"): 2.0, ("research", None): 1.0}


async def test_a_total_is_that_of_an_instant_whether_later_calls_are_added_up_yet_or_not(ledger_url: str) -> None:
    now = datetime(2026, 11, 17, 12, tzinfo=UTC)
    engine, store = create_engine(ledger_url), SqlStore(ledger_url)
    tags = {"team": "research", "end_user": "ann"}

    async def ends(at: datetime) -> None:
        attempt = won(new_id(), started_at=at, cost_usd=1.0)
        await insert(engine, [Finished(replace(call(attempt, started_at=at), client="app", tags=tags, cost_usd=1.0))])

    await ends(now - timedelta(hours=1))
    await store.fold_all()
    await ends(now + timedelta(minutes=1))  # Postgres has noted its rows, and added up none
    for _ in range(2):
        told = {each.client or each.model: each.usd for each in await used(ledger_url, [-inf], now)}
        assert told == {"app": 1.0, MODEL: 1.0}
        assert [(each.end_user, each.usd) for each in await used_by_payers(ledger_url, [-inf], now)] == [("ann", 1.0)]
        await store.fold_all()
    await store.aclose()
    await engine.dispose()


async def test_totals_begin_with_the_schema_that_has_them_and_windows_before_it_count(ledger_url: str) -> None:
    now = datetime.now(UTC)
    engine, tags = create_engine(ledger_url), {"team": "research", "end_user": "ann"}

    async def spend(times: int) -> None:
        at = now - timedelta(minutes=1)
        for _ in range(times):
            attempt = won(new_id(), started_at=at, cost_usd=1.0)
            made = replace(call(attempt, started_at=at), client="app", tags=tags, cost_usd=1.0)
            await insert(engine, [Finished(made)])
        await fold_all(engine)

    await spend(3)
    await engine.dispose()
    await downgrade(ledger_url, "0059")
    await migrate(ledger_url)
    engine = create_engine(ledger_url)
    await spend(2)
    since_s = (now - timedelta(hours=1)).timestamp()
    told = {
        (each.since_s, each.client or each.model): each.usd for each in await used(ledger_url, [-inf, since_s], now)
    }
    assert told == {(-inf, "app"): 2.0, (-inf, MODEL): 2.0, (since_s, "app"): 5.0, (since_s, MODEL): 5.0}
    of_payers = await used_by_payers(ledger_url, [-inf, since_s], now)
    assert {each.since_s: each.usd for each in of_payers} == {-inf: 2.0, since_s: 5.0}
    await engine.dispose()


async def test_a_window_has_what_others_used_lately_but_nothing_that_its_replica_counts_itself(ledger_url: str) -> None:
    now = (datetime.now(UTC) - timedelta(hours=3)).replace(minute=1)
    engine, store = create_engine(ledger_url), SqlStore(ledger_url)

    async def ends(at: datetime, replica: str, usd: float) -> None:
        attempt = won(new_id(), started_at=at, cost_usd=usd, prompt_tokens=7, completion_tokens=3)
        tokens = {"prompt_tokens": 7, "completion_tokens": 3}
        record = replace(call(attempt, started_at=at), client="app", replica=replica, cost_usd=usd, **tokens)
        await insert(engine, [Finished(record)])

    await ends(now - timedelta(hours=1), "it", 1.0)
    await ends(now - timedelta(seconds=1), "it", 2.0)
    await ends(now + timedelta(seconds=1), "other", 4.0)
    await store.fold_all()
    await ends(now + timedelta(seconds=1), "it", 8.0)  # Postgres has noted its rows, and added up none
    await ends(now + timedelta(hours=1), "it", 16.0)
    for _ in range(2):
        since_s = [(now - timedelta(hours=hours)).timestamp() for hours in (5, 0.5)]
        found = await used(ledger_url, since_s, now, OwnRows("it", now))
        for name in ("app", MODEL):
            mine = {each.since_s: (each.usd, each.tokens) for each in found if name in {each.client, each.model}}
            assert mine == {since_s[0]: (7.0, 30.0), since_s[1]: (6.0, 20.0)}
        await store.fold_all()
    await store.aclose()
    await engine.dispose()
