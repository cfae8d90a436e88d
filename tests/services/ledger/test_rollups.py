"""The sums that the database keeps, held against the rows they are of, on both databases."""

import asyncio
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from gateway.core.attempts import AttemptStart, Outcome, Role, WinOn
from gateway.core.calls import Mode, Objective
from gateway.core.prompt_classes import answer_class
from gateway.core.reports import Window
from gateway.core.rules import has_failed
from gateway.ledger import Finished, Reader, Retention, Words, create_engine, downgrade, fold_all, migrate, prune
from gateway.ledger.entries import Audited, Entry
from gateway.ledger.inserts import insert
from gateway.ledger.migration_files import first_revision
from gateway.ledger.reports import history
from gateway.ledger.reports.reader import FAILED, RACED
from gateway.ledger.schema import rendered, view_sql
from gateway.racing import LEAST_BUCKET, Ending, Measurement, attempt_record
from gateway.steering import BUCKETS, edge_s
from providers.dialects import DIALECTS, read_event
from tests.services.ledger.asking import asked
from tests.support.calls import made_call
from tests.unit.ledger.records import attempt, call, failed, lost, new_id, won
from tests.unit.racing.track import delta

WITHIN = pytest.approx  # what is summed in another order differs in the last digits
BY_ROWS = Path(__file__).with_name("by_rows")
BY_ROWS_UNTIL = {"tag_values": "0048"}  # the last revision with a view that reads them
BUCKET = 0.05  # a quantile out of buckets 9 % wide


def entries(number: int, seed: int = 1, days: float = 25.0) -> list[Entry]:
    """Return calls of the last ``days``, each with its attempts, and the audited losers that ended later."""
    draw = random.Random(seed)
    made: list[Entry] = []
    for _ in range(number):
        at = datetime.now(UTC) - timedelta(days=days * draw.random(), seconds=5)
        facts: dict[str, Any] = {
            "model": draw.choice(["llama", "qwen"]),
            "client": draw.choice(["anna", "bert", None]),
            "api": "chat.completions",
            "size_class": draw.randrange(3),
            "started_at": at,
        }
        call_id, kind = new_id(), draw.random()
        whole: dict[str, Any] = {"model": facts["model"], "client": facts["client"], "started_at": at}
        if kind < 0.1:
            made.append(Finished(call(failed(call_id, **_said(draw, facts)), **whole)))
        elif kind < 0.2:
            gone = attempt(call_id, outcome=Outcome.CLIENT_GONE, censored_at_ms=700.0, **facts)
            waited = draw.choice([300.0, 900.0])
            made.append(
                Finished(call(gone, status_code=499, error_kind="client_disconnected", total_ms=waited, **whole))
            )
        else:
            made.extend(_raced(draw, call_id, facts, whole, is_overtaken=kind > 0.5))
    return made


def _said(draw: random.Random, facts: dict[str, Any]) -> dict[str, Any]:
    return facts | {
        "error_message": draw.choice(["busy", "no such thing", None]),
        "status_code": draw.choice([503, None]),
    }


def _raced(
    draw: random.Random, call_id: str, facts: dict[str, Any], whole: dict[str, Any], *, is_overtaken: bool
) -> list[Entry]:
    ttft_ms, alone_ms = draw.uniform(5, 900), draw.uniform(1000, 3000)
    spent: dict[str, Any] = {"cost_usd": draw.random(), "cost_low_usd": 0.1, "cost_high_usd": 1.2}
    speed: dict[str, Any] = {
        "decode_tps": draw.uniform(5, 400), "chars": 400, "completion_tokens": 100, "itl": {"-8": 3, "0": 40, "12": 9},
        "token_ms": ttft_ms, "ttft_ms": ttft_ms,
    }  # fmt: skip
    other: dict[str, Any] = {"deployment": "cerebras/llama", "provider": "cerebras"}
    known: dict[str, Any] = whole | {
        "launched": 2, "prompt_tokens": 20, "completion_tokens": 100, "ttft_ms": ttft_ms,
        "deadline_met": draw.choice([None, True, False]),
    }  # fmt: skip
    if not is_overtaken:
        beaten = lost(call_id, role=draw.choice([Role.RACE, Role.FAILOVER]), **facts, **spent, **other)
        costs = paid(2, spent, duplicated=beaten.role is Role.RACE)
        return [Finished(call(won(call_id, **facts, **speed, **spent), beaten, alone_ms=ttft_ms, **known, **costs))]
    audited = draw.random() < 0.4
    primary = attempt(
        call_id, outcome=Outcome.LOST, censored_at_ms=ttft_ms, is_overtaken=True, overtaken_at_ms=ttft_ms,
        predicted_ms=alone_ms * 0.8, audited=audited, **facts, **spent,
    )  # fmt: skip
    winner = won(call_id, 2, **facts, **speed, **spent, **other)
    known |= {"alone_predicted_ms": alone_ms * 0.8, "alone_age_ms": ttft_ms}
    if not audited:
        return [Finished(call(primary, winner, **known, **paid(2, spent, duplicated=True)))]
    seen = {"outcome": Outcome.SUPERSEDED, "censored_at_ms": None, "ttft_ms": alone_ms, "token_ms": alone_ms}
    return [
        Finished(call(winner, **known, **paid(1, spent, duplicated=False))),
        Audited(call_id, (msgspec.structs.replace(primary, **seen),)),
    ]


def paid(number: int, spent: dict[str, Any], *, duplicated: bool) -> dict[str, Any]:
    """Return the costs of a call of as many attempts, each of which costs what was ``spent``."""
    costs = {name: number * value for name, value in spent.items()}
    return costs | {"duplicate_cost_usd": spent["cost_usd"] if duplicated else None}


async def store(url: str, *batches: list[Entry]) -> None:
    engine = create_engine(url)
    for batch in batches:
        await insert(engine, batch)
    await fold_all(engine)
    await engine.dispose()


USAGE = """
select
  client, model, count(*) as n, count(*) filter (where error_kind is not null and {failed}) as n_failed,
  count(*) filter (where status_code = 499) as n_left, count(*) filter (where launched > 1) as n_raced,
  avg(ttft_ms) as ttft_mean_ms, avg(total_ms) filter (where error_kind is null) as total_mean_ms,
  sum(prompt_tokens) as prompt_tokens, sum(completion_tokens) as completion_tokens,
  sum(a.usd) as cost_usd, sum(a.low_usd) as cost_low_usd, sum(a.high_usd) as cost_high_usd,
  sum(case when alone_age_ms is not null then a.first_usd else duplicate_cost_usd end) as duplicate_cost_usd,
  count(deadline_met) as n_deadlines
from calls
left join (
  select
    call_id, sum(cost_usd) as usd, sum(cost_low_usd) as low_usd, sum(cost_high_usd) as high_usd,
    sum(case when number = 1 then cost_usd end) as first_usd
  from attempts group by call_id
) as a on a.call_id = calls.id
group by client, model"""


def of_rows(url: str, view: str) -> str:
    """Return what a view says, as a statement over rows: that of a day, or one of the tests' own."""
    if view == "client_usage":  # with the costs of all attempts, also of those that ended after their call
        return USAGE.replace("{failed}", "status_code <> 499")
    words = Words(is_postgres=not url.startswith("sqlite"))
    by_hand = BY_ROWS / f"{view}.sql"
    if by_hand.exists():
        ago = "now() - interval '{}'" if words.is_postgres else "datetime('now', '-{}')"
        day = "cast(calls.started_at at time zone 'UTC' as date)" if words.is_postgres else "date(calls.started_at)"
        parts = {"day": day} | {f"ago {span}": ago.format(span) for span in ("24 hours", "7 days")}
        return rendered(by_hand.read_text(encoding="utf-8"), parts, is_postgres=words.is_postgres)
    return view_sql(f"{view}_24h", words, BY_ROWS_UNTIL.get(view, ""), since="'1970-01-01 00:00:00'")


def is_estimated_otherwise(name: str, has_same_basis: bool) -> bool:
    """Intervals have another method, and fewer audits are enough for more than the bare prediction."""
    if name.startswith("saved_") and ("_low" in name or "_high" in name):
        return True
    return not has_same_basis and (name == "basis" or name.startswith(("saved_", "alone_")))


async def same(url: str, view: str, by_rows: str, *key: str, quantiles: float = 0.0) -> None:
    """Hold the view against the statement over rows of ``by_rows``; columns that only the view has are not compared."""
    order = ", ".join(key)
    truth = await asked(url, f"select * from ({of_rows(url, by_rows)}) as by_rows order by {order}")
    sums = await asked(url, f"select * from {view} order by {order}")
    assert sums, view
    assert len(sums) == len(truth), view
    for each, true in zip(sums, truth, strict=True):
        assert each.keys() >= true.keys()
        for name, value in true.items():
            if each[name] == value:
                continue  # as most are: to ask whether they are near takes longer than the views
            if by_rows == "race_value" and is_estimated_otherwise(name, each["basis"] == true["basis"]):
                continue  # another method: tests/services/ledger/test_savings.py holds it
            if name == "first_seen_at":
                assert instant(value) - timedelta(days=1) < instant(each[name]) < instant(value), view  # its window
                continue
            about = quantiles and any(p in name for p in ("_p01", "_p05", "_p50", "_p95", "_p99"))
            expected = WITHIN(value, rel=quantiles if about else 1e-6) if isinstance(value, float) else value
            if name.startswith("saved_p") and isinstance(value, float):  # a difference of two, out to a bucket's edge
                racing = true[name.removeprefix("saved_")[:3].join(("ttft_", "_ms"))]
                expected = WITHIN(value, abs=2 * quantiles * (abs(value + racing) + racing))
            assert each[name] == expected, (view, name)


PAIRS = [
    ("client_usage", ("model", "client")),
    ("provider_errors", ("deployment", "error_kind", "status_code", "n")),
    ("throughput", ("deployment",)),
    ("race_value", ("model",)),
]


async def test_the_views_of_a_month_and_of_all_time_say_what_the_rows_say(ledger_url: str) -> None:
    made = entries(1200)
    await store(ledger_url, made[:700], made[700:])
    for view, key in PAIRS:
        await same(ledger_url, f"{view}_30d", view, *key, quantiles=2 * BUCKET)
    await store(ledger_url, entries(300, seed=2, days=400.0))
    for view, key in PAIRS:  # a whole bucket, and few values at the slow end
        await same(ledger_url, view, view, *key, quantiles=3 * BUCKET)


async def test_what_an_audited_loser_costs_after_its_call_is_in_what_clients_used(ledger_url: str) -> None:
    at = datetime.now(UTC) - timedelta(minutes=20)
    call_id = new_id()
    facts: dict[str, Any] = {"started_at": at, "model": "llama", "client": "anna"}
    winner = won(call_id, 2, cost_usd=1.0, cost_low_usd=1.0, cost_high_usd=1.0, **facts)
    costs = {"cost_usd": 1.0, "cost_low_usd": 1.0, "cost_high_usd": 1.0, "duplicate_cost_usd": 0.0}
    record = call(winner, launched=2, **costs, **facts)
    late = attempt(
        call_id, outcome=Outcome.SUPERSEDED, ttft_ms=900.0, audited=True, is_overtaken=True, overtaken_at_ms=200.0,
        cost_usd=0.5, cost_low_usd=0.25, cost_high_usd=2.0, **(facts | {"started_at": at + timedelta(seconds=1)}),
    )  # fmt: skip
    await store(ledger_url, [Finished(record)], [Audited(call_id, (late,))])
    names = ("cost_usd", "cost_low_usd", "cost_high_usd", "duplicate_cost_usd")
    for view in ("client_usage", "client_usage_24h", "client_usage_30d"):
        (row,) = await asked(ledger_url, f"select * from {view}")
        assert [row[name] for name in names] == WITHIN([1.5, 1.25, 3.0, 0.5]), view
        assert (row["n"], row["n_raced"]) == (1, 1), view
    (month,) = await asked(ledger_url, "select * from client_usage_by_month")
    assert (month["month"], month["client"], month["model"], month["n"]) == (f"{at:%Y-%m}", "anna", "llama", 1)
    assert [month[name] for name in names] == WITHIN([1.5, 1.25, 3.0, 0.5])
    (kept,) = await asked(ledger_url, "select cost_usd, duplicate_cost_usd from calls")
    assert (kept["cost_usd"], kept["duplicate_cost_usd"]) == (1.0, 0.0)


@pytest.mark.parametrize("is_wide", [False, True])
async def test_what_a_team_or_an_end_user_has_paid_is_one_figure_wherever_it_is_told(
    ledger_url: str, *, is_wide: bool
) -> None:
    """Of all attempts, also of those that ended after their call, and of calls whose clients left."""
    now = datetime.now(UTC)
    at = min(now, now.replace(hour=0, minute=1, second=0))  # of this month, and not yet to come
    made: list[Entry] = []
    late: list[Entry] = []
    for number in range(4):
        facts: dict[str, Any] = {"started_at": at, "model": "llama", "client": "anna"}
        call_id = new_id()
        tags = {"team": "search", "end_user": "abc", "variant": "x" * 300 if is_wide else "a"}
        winner = won(call_id, 2, cost_usd=1.0, **facts)
        has_left = {"status_code": 499, "error_kind": "client_disconnected"} if number == 3 else {}
        made.append(Finished(call(winner, cost_usd=1.0, tags=tags, **facts, **has_left)))
        loser = attempt(call_id, outcome=Outcome.SUPERSEDED, ttft_ms=900.0, audited=True, cost_usd=0.5, **facts)
        late.append(Audited(call_id, (loser,)))
    await store(ledger_url, made, late)
    assert bool(await wide(ledger_url)) == is_wide
    for who, name in (("team", "search"), ("end_user", "abc")):
        (month,) = await asked(ledger_url, f"select * from {who}_usage_by_month")
        assert (month["month"], month[who], month["n"], month["n_failed"]) == (f"{at:%Y-%m}", name, 4, 0)
        assert month["cost_usd"] == WITHIN(6.0)
    reader = Reader(ledger_url)
    assert (await history.spent_by_teams(reader, datetime.now(UTC)))["search"] == WITHIN((6.0, 6.0))
    team, end_user = (await history.payers(reader, Window.DAY, datetime.now(UTC))).rows
    assert [each["cost_usd"] for each in (team, end_user)] == WITHIN([6.0, 6.0])
    assert (team["team"], end_user["end_user"]) == ("search", "abc")
    await reader.aclose()
    if not is_wide:
        sql = "select n_cost * cost_mean_usd as usd from tag_values_30d where tag = 'team'"
        assert [row["usd"] for row in await asked(ledger_url, sql)] == WITHIN([6.0])


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CLIENT_GONE])
async def test_losers_of_a_winner_that_did_not_end_well_are_duplicated_too(ledger_url: str, outcome: Outcome) -> None:
    call_id, at = new_id(), datetime.now(UTC)
    winner = won(call_id, 2, started_at=at, outcome=outcome, cost_usd=1.0)
    beaten = lost(call_id, 1, started_at=at, cost_usd=0.5)
    record = call(beaten, winner, started_at=at, winner_attempt_id=winner.id, status_code=200, cost_usd=1.5)
    await store(ledger_url, [Finished(msgspec.structs.replace(record, duplicate_cost_usd=0.5))])
    (row,) = await asked(ledger_url, "select cost_usd, duplicate_cost_usd from race_value")
    assert (row["cost_usd"], row["duplicate_cost_usd"]) == (1.5, 0.5)


@pytest.mark.parametrize(
    ("role", "first", "saved_usd", "added"),
    [  # what racing added: likeliest, at least and at most
        (Role.RACE, {"cache_saved_usd": 0.3}, None, (0.8, 0.25, 1.5)),
        (Role.RACE, {"cache_saved_usd": 0.3, "cached_tokens": 9}, None, (0.8, 0.55, 1.8)),
        (Role.FALLBACK, {"cache_saved_usd": 0.3}, 0.1, (0.7, 0.25, 1.5)),
        (Role.RACE, {"cache_saved_usd": 0.3}, 0.4, (0.5, 0.25, 1.5)),
        (Role.RACE, {"cache_saved_usd": 5.0}, None, (1.5, 0.25, 1.5)),  # all that the winner cost
        (Role.RACE, {}, 0.4, (0.5, 0.25, 1.5)),
        (Role.FAILOVER, {"cache_saved_usd": 0.3}, None, (None, None, None)),
    ],
)
async def test_racing_added_what_an_overtaken_primary_s_cache_would_have_saved(
    ledger_url: str, role: Role, first: dict[str, Any], saved_usd: float | None, added: tuple[float | None, ...]
) -> None:
    call_id, at = new_id(), datetime.now(UTC)
    costs = {"cost_usd": 0.5, "cost_low_usd": 0.25, "cost_high_usd": 1.5}
    winner = won(call_id, 2, started_at=at, role=role, cost_usd=1.0, cache_saved_usd=saved_usd)
    beaten = lost(call_id, 1, started_at=at, role=Role.PRIMARY, **costs, **first)
    record = call(beaten, winner, started_at=at, winner_attempt_id=winner.id, status_code=200, cost_usd=1.5)
    await store(ledger_url, [Finished(record)])
    (row,) = await asked(ledger_url, "select * from race_value")
    names = ("duplicate_cost_usd", "duplicate_cost_low_usd", "duplicate_cost_high_usd")
    assert [row[name] for name in names] == [None if each is None else WITHIN(each) for each in added]
    assert row["cost_usd"] == WITHIN(1.5)  # each attempt once


async def test_a_cache_that_a_client_s_own_key_had_not_costs_the_operator_nothing(ledger_url: str) -> None:
    call_id, at = new_id(), datetime.now(UTC)
    winner = won(call_id, 2, started_at=at, role=Role.RACE, cost_usd=1.0, key_name="tenant")
    beaten = lost(call_id, 1, started_at=at, role=Role.PRIMARY, cost_usd=0.5, cache_saved_usd=0.3)
    record = call(beaten, winner, started_at=at, winner_attempt_id=winner.id, status_code=200, cost_usd=0.5)
    await store(ledger_url, [Finished(record)])
    (row,) = await asked(ledger_url, "select cost_usd, duplicate_cost_usd from race_value")
    assert (row["cost_usd"], row["duplicate_cost_usd"]) == (0.5, 0.5)


def ended(status_code: int, error_kind: str | None) -> Entry:
    at = datetime.now(UTC) - timedelta(minutes=5)
    answered = won(new_id(), started_at=at)
    return Finished(call(answered, started_at=at, client="anna", status_code=status_code, error_kind=error_kind))


ENDINGS = [(200, None), (200, "disconnected"), (206, "stall_timeout"), (400, "bad_request"), (404, "no_such_model"),
           (424, "provider_misconfigured"), (429, "all_rate_limited"), (499, "client_disconnected"),
           (502, "all_failed"), (504, "all_timed_out")]  # fmt: skip


async def test_failed_is_one_thing_wherever_it_is_counted(ledger_url: str) -> None:
    await store(ledger_url, [ended(*each) for each in ENDINGS])
    expected = sum(has_failed(*each) for each in ENDINGS)
    assert expected == 6
    views = [f"{view}{span}" for view in ("client_usage", "tag_values", "slo") for span in ("", "_30d")]
    views.append("client_usage_24h")
    for view in views:
        (row,) = await asked(ledger_url, f"select n, n_failed from {view}")
        assert (row["n"], row["n_failed"]) == (len(ENDINGS), expected), view
    (row,) = await asked(ledger_url, f"select count(*) as n from calls as c where {FAILED}")
    assert row["n"] == expected


async def test_calls_of_every_raced_api_are_in_the_sums_of_promises_also_after_a_way_back(ledger_url: str) -> None:
    def of_each() -> list[Entry]:
        return [Finished(call(won(new_id()), endpoint=dialect.endpoint)) for dialect in DIALECTS.values()]

    await store(ledger_url, of_each())
    await downgrade(ledger_url, first_revision())
    await migrate(ledger_url)
    await store(ledger_url, of_each())
    (row,) = await asked(ledger_url, "select n, n_tps from slo")
    assert (row["n"], row["n_tps"]) == (2 * len(DIALECTS), 2 * len(DIALECTS))
    assert all(f"'{dialect.endpoint}'" in RACED for dialect in DIALECTS.values())


async def test_the_value_of_racing_of_all_time_outlives_the_rows_of_attempts(ledger_url: str) -> None:
    await store(ledger_url, entries(400, days=20.0))
    before = await asked(ledger_url, "select * from race_value order by model")
    engine = create_engine(ledger_url)
    await prune(engine, Retention(calls_days=15, attempts_days=5), datetime.now(UTC))
    await engine.dispose()
    after = await asked(ledger_url, "select * from race_value order by model")
    assert after == [pytest.approx(row) for row in before]  # the order in which sums of floats are made may change


async def test_an_attempt_that_had_a_first_token_and_broke_is_tried_once(ledger_url: str) -> None:
    broken = attempt(new_id(), outcome=Outcome.STALLED, ttft_ms=100.0, error_kind="stall_timeout")
    fine = [Finished(call(won(new_id()))) for _ in range(3)]
    await store(ledger_url, [Finished(call(broken)), *fine])
    await same(ledger_url, "throughput", "throughput", "deployment", quantiles=2 * BUCKET)  # a whole bucket
    assert [row["error_rate"] for row in await asked(ledger_url, "select error_rate from throughput")] == [0.25]


async def test_the_value_of_racing_of_the_last_hour_says_what_its_rows_say(ledger_url: str) -> None:
    await store(ledger_url, entries(1200, days=0.03))
    await same(ledger_url, "race_value_1h", "race_value", "model", quantiles=BUCKET)


async def test_the_objective_of_all_time_and_what_caches_saved_say_what_the_rows_say(ledger_url: str) -> None:
    known: dict[str, Any] = {"model": "llama", "prompt_tokens": 1000, "cached_tokens": 800, "cache_saved_usd": 0.5}
    ages = [timedelta(days=days, minutes=30) for days in (0, 0.5, 2, 6, 9, 200)]
    made: list[Entry] = []
    for age in ages:
        at = datetime.now(UTC) - age
        made.append(Finished(call(won(new_id(), started_at=at, **known), started_at=at)))
    await store(ledger_url, made)
    await same(ledger_url, "slo", "slo", "day", "model")
    await same(ledger_url, "cache_value", "cache_value", "model", "deployment")


async def test_tokens_of_attempts_that_lost_are_added_up_with_their_bounds(ledger_url: str) -> None:
    at = datetime.now(UTC)
    made: list[Entry] = []
    for number in range(10):
        call_id = new_id()
        spent: dict[str, Any] = {
            "model": "llama", "started_at": at, "prompt_tokens": 50, "cost_usd": 0.1, "cost_high_usd": 0.3,
        }  # fmt: skip
        bounds = {"wasted_low_tokens": 5, "wasted_high_tokens": 90} if number else {}
        thrown_away = attempt(call_id, 2, outcome=Outcome.SUPERSEDED, completion_tokens=20, **spent, **bounds)
        winner = won(call_id, model="llama", started_at=at, prompt_tokens=50, cost_usd=9.0)
        made.append(Finished(call(winner, thrown_away, started_at=at)))
        made.append(Finished(call(failed(new_id(), model="llama", started_at=at, prompt_tokens=50), started_at=at)))
    await store(ledger_url, made)
    (row,) = await asked(ledger_url, "select * from waste_30d")
    assert (row["n_attempts"], row["n"], row["n_bounded"], row["prompt_tokens"]) == (30, 10, 9, 500)
    assert (row["answer_low_tokens"], row["answer_tokens"], row["answer_high_tokens"]) == (45, 200, 810)
    assert (row["cost_usd"], row["cost_high_usd"]) == (WITHIN(1.0), WITHIN(3.0))


async def test_what_holding_cost_is_told_apart_and_is_in_what_racing_saved(ledger_url: str) -> None:
    at = datetime.now(UTC) - timedelta(minutes=20)
    made: list[Entry] = []
    for held_ms in (None, 40.0, 60.0, None) * 10:
        ttft_ms = 200.0 + (held_ms or 0.0)
        winner = won(new_id(), started_at=at, ttft_ms=200.0, model="llama")
        made.append(Finished(call(winner, started_at=at, ttft_ms=ttft_ms, held_ms=held_ms, alone_ms=200.0)))
    await store(ledger_url, made)
    for view in ("race_value", "race_value_1h", "race_value_24h", "race_value_30d"):
        (row,) = await asked(ledger_url, f"select * from {view}")
        assert (row["n_held"], row["held_ms"], row["held_ms_per_call"]) == (20, WITHIN(1000.0), WITHIN(25.0)), view
        assert (row["ttft_mean_ms"], row["saved_ms_per_call"]) == (WITHIN(225.0), WITHIN(-25.0)), view


async def test_race_value_of_a_day_and_the_objective_say_what_the_rows_say(ledger_url: str) -> None:
    await store(ledger_url, entries(1200, days=0.9))
    await same(ledger_url, "race_value_24h", "race_value", "model", quantiles=BUCKET)
    await same(ledger_url, "slo_30d", "slo", "day", "model")


async def test_what_is_shipped_twice_counts_once(ledger_url: str) -> None:
    made = entries(100)
    await store(ledger_url, made, made[:50], made)
    await same(ledger_url, "client_usage_30d", "client_usage", "model", "client")
    await same(ledger_url, "race_value_30d", "race_value", "model", quantiles=BUCKET)


async def test_sums_of_several_gateways_at_once_are_whole(ledger_url: str) -> None:
    parts = [entries(60, seed) for seed in range(6)]
    await asyncio.gather(*(store(ledger_url, part[:40], part[40:]) for part in parts))
    await same(ledger_url, "client_usage_30d", "client_usage", "model", "client")
    await same(ledger_url, "race_value_30d", "race_value", "model", quantiles=BUCKET)


async def test_gaps_below_ten_milliseconds_are_told_apart(ledger_url: str) -> None:
    fast: Entry = Finished(
        call(
            won(new_id(), started_at=datetime.now(UTC), model="llama", itl={"-16": 99, "8": 1}),
            started_at=datetime.now(UTC),
        )
    )
    await store(ledger_url, [fast])
    (row,) = await asked(ledger_url, "select * from gaps_24h")
    assert (row["model"], row["deployment"], row["n"]) == ("llama", "groq/llama", 100)
    assert 2.5 <= row["itl_p50_ms"] <= row["itl_p95_ms"] <= 2.5 * 2 ** (1 / 8)


def measured(at: datetime, *gaps_ms: float) -> Entry:
    """Return a call as it is recorded when its answer's chunks come so far apart."""
    now = 1000.0
    measurement = Measurement(now)
    for number, gap_ms in enumerate((200.0, *gaps_ms)):
        now += gap_ms / 1000
        if number % 2:
            measurement.plain(1, 4, now)
        else:
            measurement.event(read_event(delta("four").removeprefix(b"data: ").strip()), now)
    asked = made_call(
        id=new_id(), received_at=1000.0, started_at=at, client="anna", model="llama", endpoint="chat.completions",
        stream=True, mode=Mode.SINGLE, objective=Objective.FIRST_TOKEN, win_on=WinOn.ANY,
        prompt_class=answer_class(0), prompt_tokens=10, wants_usage=False, fields={}, headers={}, tags={}, replica="r1",
        region=None,
    )  # fmt: skip
    start = AttemptStart(new_id(), 1, at, Role.PRIMARY, "groq", "groq/llama", 0.0, model="llama")
    ending = Ending(Outcome.WON, now, sends=1, key_name=None)
    record = attempt_record(asked, start, ending, measurement, exchange=None, censored_at=None)
    return Finished(call(record, started_at=at, client="anna", model="llama"))


@pytest.mark.parametrize("typical_ms", [0.1, 0.5, 2.0, 4.0, 9.9, 25.0])
async def test_gaps_come_out_of_the_views_as_they_were_measured(ledger_url: str, typical_ms: float) -> None:
    at = datetime.now(UTC) - timedelta(minutes=10)
    spread = [typical_ms * 2.0**octaves for octaves in (-3, -2, -1, 0, 0, 0, 0, 1, 2, 3)]
    await store(ledger_url, [measured(at, *random.Random(seed).sample(spread, 10)) for seed in range(30)])
    (row,) = await asked(ledger_url, "select itl_p50_ms, itl_max_ms from attempts limit 1")
    assert (row["itl_p50_ms"], row["itl_max_ms"]) == (WITHIN(typical_ms, abs=0.001), WITHIN(typical_ms * 8, abs=0.001))
    for view in ("gaps_24h", "load_5m"):
        (row,) = await asked(ledger_url, f"select itl_p50_ms, itl_p95_ms from {view}")
        assert row["itl_p50_ms"] == WITHIN(typical_ms, rel=0.09), view
        assert row["itl_p95_ms"] == WITHIN(typical_ms * 8, rel=0.09), view


async def test_chunks_that_come_together_are_the_shortest_gaps_there_are(ledger_url: str) -> None:
    await store(ledger_url, [measured(datetime.now(UTC), 0, 0, 0, 0, 0, 0, 3)])
    (row,) = await asked(ledger_url, "select n, itl_p50_ms, itl_p99_ms from gaps_24h")
    assert (row["n"], row["itl_p99_ms"]) == (7, WITHIN(3.0, rel=0.09))
    assert row["itl_p50_ms"] < 0.09


async def test_the_ledger_knows_the_edges_of_each_bucket_that_gaps_are_counted_in(ledger_url: str) -> None:
    known = await asked(ledger_url, "select * from buckets order by bucket")
    assert [row["bucket"] for row in known] == list(range(LEAST_BUCKET, BUCKETS))
    for row in known:
        edges_ms = (edge_s(row["bucket"]) * 1000, edge_s(row["bucket"] + 1) * 1000)
        assert (row["from_ms"], row["to_ms"]) == WITHIN(edges_ms, rel=1e-9)


async def test_speed_is_told_by_the_hour_of_the_day_and_by_the_day(ledger_url: str) -> None:
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    made: list[Entry] = []
    for age, hour, ttft_ms in ((1, 3, 100.0), (2, 3, 100.0), (2, 15, 400.0), (20, 3, 900.0)):
        at = noon.replace(hour=hour) - timedelta(days=age)
        one: dict[str, Any] = {
            "started_at": at,
            "ttft_ms": ttft_ms,
            "token_ms": ttft_ms,
            "decode_tps": 50.0,
            "model": "llama",
        }
        made += [Finished(call(won(new_id(), **one), started_at=at, model="llama")) for _ in range(5)]
    await store(ledger_url, made)
    hours = await asked(ledger_url, "select * from speed_by_hour order by hour")
    days = await asked(ledger_url, "select * from speed_days order by window_start")
    assert [(row["hour"], row["n"], row["ttft_p50_ms"]) for row in hours] == [
        (3, 10, WITHIN(100, rel=0.09)),
        (15, 5, WITHIN(400, rel=0.09)),
    ]
    assert [(row["n"], row["decode_tps_p50"]) for row in days] == [(n, WITHIN(50, rel=0.09)) for n in (5, 10, 5)]


async def test_load_counts_calls_tokens_and_gaps_by_the_wall_clock(ledger_url: str) -> None:
    at = datetime.now(UTC) - timedelta(minutes=30)
    made: list[Entry] = [
        Finished(
            call(
                won(new_id(), started_at=at, client="anna", model="llama", itl={"0": 10}),
                started_at=at, client="anna", model="llama", completion_tokens=300, prompt_tokens=10,
            )
        )
        for _ in range(30)
    ]  # fmt: skip
    await store(ledger_url, made)
    (row,) = await asked(ledger_url, "select * from load_5m")
    assert (row["client"], row["n"], row["requests_s"], row["tokens_s"]) == ("anna", 30, WITHIN(0.1), WITHIN(30.0))
    assert 10.0 <= row["itl_p50_ms"] <= 11.0
    (peak,) = await asked(ledger_url, "select * from load_peaks")
    assert peak["peak_tokens_s"] == WITHIN(30.0)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "Asia/Kathmandu"])
async def test_the_best_hour_is_one_of_utc_whatever_the_time_zone_of_who_asks(postgres_url: str, zone: str) -> None:
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
    times = [hour + timedelta(minutes=minutes) for minutes in (40, 70)]
    await store(postgres_url, [Finished(call(won(new_id(), started_at=at), started_at=at)) for at in times * 36])
    engine = create_engine(postgres_url)
    async with engine.begin() as connection:
        await connection.execute(text(f"set local time zone '{zone}'"))
        best = await connection.scalar(text("select sustained_requests_s from load_peaks"))
    await engine.dispose()
    assert best == WITHIN(0.01)


async def test_postgres_adds_up_what_any_version_ships_and_asks_no_rights_for_it(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    row = (
        "insert into calls (id, started_at, model, endpoint, streamed, mode, objective, prompt_class, launched, "
        "status_code, tags, replica, win_on) values (gen_random_uuid(), now(), 'llama', 'chat.completions', true, "
        "'auto', 'first_token', 0, 1, 200, '{}', 'r1', 'any')"
    )
    async with engine.begin() as connection:
        for statement in (
            "create role shipper_of_rows",
            "grant select, insert on calls, attempts to shipper_of_rows",
            "set local role shipper_of_rows",
            row,
            "select * from roll_up_fresh()",
        ):
            await connection.execute(text(statement))
    async with engine.begin() as connection:
        await connection.execute(text("drop owned by shipper_of_rows"))
        await connection.execute(text("drop role shipper_of_rows"))
    await engine.dispose()
    assert [row["n"] for row in await asked(postgres_url, "select n from client_usage_30d")] == [1]


def tagged(tags: dict[str, str], number: int, seed: int = 1, days: float = 25.0) -> list[Entry]:
    """Return calls of the last ``days`` with these tags, one in ten failed; a ``?`` becomes its number."""
    draw = random.Random(seed)
    made: list[Entry] = []
    for each in range(number):
        at = datetime.now(UTC) - timedelta(days=days * draw.random(), seconds=5)
        facts: dict[str, Any] = {"total_ms": draw.uniform(100, 5000), "ttft_ms": draw.uniform(100, 500)}
        facts |= {"completion_tokens": draw.choice([None, 50, 70_000]), "cost_usd": 0.002}
        if draw.random() < 0.1:
            facts = {"total_ms": 30_000.0, "status_code": 502, "error_kind": "all_failed"}
        own = {name.replace("?", str(each)): value.replace("?", str(each)) for name, value in tags.items()}
        made.append(Finished(call(won(new_id(), started_at=at), started_at=at, tags=own, **facts)))
    return made


async def wide(url: str) -> set[str]:
    return {row["tag"] for row in await asked(url, "select tag from rollup_wide_tags")}


async def test_tags_of_a_month_say_what_its_rows_say(ledger_url: str) -> None:
    a, b = (tagged({"variant": value, "team": "s\u00e9arch"}, 300, seed) for seed, value in enumerate("ab"))
    await store(ledger_url, a + b[:100], b[100:] + a[:50], tagged({}, 50), tagged({"variant": "once"}, 1))
    await same(ledger_url, "tag_values_30d", "tag_values", "tag", "value")
    assert not await wide(ledger_url)


async def test_figures_that_are_all_alike_have_no_variance(ledger_url: str) -> None:
    await store(ledger_url, *([each] for each in tagged({"variant": "a"}, 40)))
    (row,) = await asked(ledger_url, "select n_cost, cost_mean_usd, cost_variance from tag_values_30d")
    assert row["n_cost"] > 30
    assert (row["cost_mean_usd"], row["cost_variance"]) == (WITHIN(0.002), 0.0)


async def test_a_tag_of_more_values_than_are_added_up_is_read_from_rows(ledger_url: str) -> None:
    made = tagged({"user": "u?", "session": "s?", "variant": "a"}, 1100, days=0.0)
    await store(ledger_url, made[:600], made[600:], made[:50], tagged({"user": "u1", "variant": "b"}, 50, days=0.0))
    assert await wide(ledger_url) == {"user", "session"}
    await same(ledger_url, "tag_values_30d", "tag_values", "tag", "value")
    (kept,) = await asked(ledger_url, "select count(*) as n from rollup_tags where tag = 'user'")
    assert kept["n"] <= 1000
    (summed,) = await asked(ledger_url, "select sum(n) as n from rollup_tags where tag = 'variant'")
    assert summed["n"] == 1150


async def test_more_tags_than_are_added_up_are_all_read_from_rows(ledger_url: str) -> None:
    many = tagged({f"tag ? {each}": "x" for each in range(16)}, 700, days=0.0)
    await store(ledger_url, tagged({"variant": "a"}, 20, days=0.0), many[:300], many[300:600], many[600:])
    assert "" in await wide(ledger_url)
    await same(ledger_url, "tag_values_30d", "tag_values", "tag", "value")
    (kept,) = await asked(ledger_url, "select count(*) as n from rollup_tags")
    assert kept["n"] <= 10_000


async def test_a_tag_too_long_for_an_index_is_read_from_rows(ledger_url: str) -> None:
    value = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=9000))
    await store(ledger_url, tagged({"note": value}, 5, days=0.0))
    await same(ledger_url, "tag_values_30d", "tag_values", "tag", "value")


async def test_what_begins_in_the_last_instant_of_a_window_is_in_that_window(ledger_url: str) -> None:
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    at = hour - timedelta(microseconds=300)  # SQLite rounds seconds to milliseconds
    one = won(new_id(), started_at=at, model="llama", itl={"0": 9}, api="chat.completions", size_class=0)
    await store(ledger_url, [Finished(call(one, started_at=at))])
    starts = {5: hour - timedelta(minutes=5), 60: hour - timedelta(hours=1)}
    for table in ("rollup_calls", "rollup_attempts", "rollup_histograms"):
        for row in await asked(ledger_url, f"select minutes, window_start from {table} where minutes < 1440"):
            assert instant(row["window_start"]) == starts[row["minutes"]], table
    for view in ("throughput_5m", "load_5m"):
        (row,) = await asked(ledger_url, f"select window_start from {view}")
        assert instant(row["window_start"]) == starts[5], view


def instant(value: Any) -> datetime:
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    assert isinstance(found, datetime)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
