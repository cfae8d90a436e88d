"""What the views answer, the same on both databases, for rows whose answers can be worked out by hand."""

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.core.attempts import AnswerKind, Flaw, Outcome, Role, TokensSource
from gateway.core.calls import CallRecord
from gateway.ledger import Ledger
from tests.services.ledger.asking import asked
from tests.unit.ledger.records import NOON, attempt, call, failed, lost, minutes, new_id, won

Ask = Callable[..., Awaitable[list[dict[str, Any]]]]


@pytest.fixture
def ask(ledger_url: str, tmp_path: Path) -> Ask:
    """Store calls, then return a view's rows as dicts."""

    async def store_and_ask(sql: str, *records: CallRecord) -> list[dict[str, Any]]:
        ledger = Ledger(ledger_url, tmp_path / "spool", "views")
        for record in records:
            ledger.call_finished(record)
        await ledger.flush()
        await ledger.close()
        return await asked(ledger_url, sql)

    return store_and_ask


def eight_attempts(**facts: Any) -> list[CallRecord]:
    """Return calls of five first tokens and speeds, 100 to 500 ms and 10 to 50 tok/s, one cut, and two failures."""
    ids = [new_id() for _ in range(8)]
    calls = [call(won(ids[n], ttft_ms=100.0 * (n + 1), decode_tps=10.0 * (n + 1), **facts)) for n in range(5)]
    calls.append(call(attempt(ids[5], outcome=Outcome.LOST, censored_at_ms=50.0, **facts)))
    calls.append(call(failed(ids[6], **facts)))
    calls.append(call(failed(ids[7], error_kind="rate_limited", status_code=429, **facts)))
    return calls


def counted(row: dict[str, Any]) -> tuple[int, ...]:
    return tuple(row[name] for name in ("n", "n_first_token", "n_censored", "n_errors", "n_rate_limited", "n_decode"))


async def test_throughput_of_an_hour_has_quantiles_over_first_tokens(ask: Ask) -> None:
    (row,) = await ask("select * from throughput_1h", *eight_attempts(started_at=datetime.now(UTC)))
    assert counted(row) == (8, 5, 1, 1, 1, 5)
    assert (row["ttft_p50_ms"], row["ttft_p95_ms"], row["ttft_p99_ms"]) == (300, 500, 500)
    # The slow tail: 95 % were at least as fast.
    assert (row["decode_tps_p50"], row["decode_tps_p95"], row["decode_tps_p99"]) == (30, 10, 10)


@pytest.mark.parametrize("number", [1, 2, 3, 5, 20, 21, 100, 140])
async def test_throughput_of_a_day_is_within_a_bucket_of_that_of_all_time(ask: Ask, number: int) -> None:
    now = datetime.now(UTC)
    speeds: list[dict[str, Any]] = [
        {"ttft_ms": 90 * 1.2**at, "decode_tps": 20 * 1.3 ** (at % 17), "e2e_tps": 0.0 if at % 5 == 0 else 9 * 1.2**at}
        for at in (number % 37 for number in range(number))
    ]
    calls = [call(won(new_id(), started_at=now, **each), started_at=now) for each in speeds]
    (of_rows,) = await ask("select * from throughput_24h", *calls)
    (of_sums,) = await ask("select * from throughput")
    for name, exact in of_rows.items():
        if re.search(r"_p\d\d", name) and exact is not None:
            assert exact / 1.0906 < of_sums[name] < exact * 1.0906, name  # a bucket is 9.05 % wide
        else:
            assert exact == of_sums[name], name


async def test_throughput_counts_the_censored_and_has_quantiles_of_buckets(ask: Ask) -> None:
    (row,) = await ask("select * from throughput", *eight_attempts())
    assert (row["deployment"], row["provider"]) == ("groq/llama", "groq")
    assert counted(row) == (8, 5, 1, 1, 1, 5)
    assert row["error_rate"] == pytest.approx(1 / 6)
    assert (row["ttft_p50_ms"], row["ttft_p99_ms"]) == pytest.approx((300, 500), rel=0.09)
    assert (row["decode_tps_p50"], row["decode_tps_p99"]) == pytest.approx((30, 10), rel=0.09)


async def test_estimated_tokens_never_enter_a_speed(ask: Ask) -> None:
    (row,) = await ask(
        "select * from throughput",
        call(won(new_id(), decode_tps=50.0)),
        call(won(new_id(), decode_tps=5000.0, tokens_source=TokensSource.ESTIMATED)),
    )
    assert (row["n_first_token"], row["n_decode"], row["decode_tps_p50"]) == (2, 1, pytest.approx(50, rel=0.09))


async def test_a_deployment_that_never_delivered_has_no_quantiles(ask: Ask) -> None:
    (row,) = await ask("select * from throughput", call(failed(new_id())))
    assert (row["n_first_token"], row["ttft_p50_ms"], row["decode_tps_p50"], row["error_rate"]) == (0, None, None, 1)


@pytest.mark.parametrize("window", ["", "_24h"])
async def test_what_fails_with_a_clients_own_key_is_no_error_of_its_deployment(ask: Ask, window: str) -> None:
    now = datetime.now(UTC)
    records = [*eight_attempts(started_at=now), *eight_attempts(started_at=now, key_name="tenant")]
    (row,) = await ask(f"select * from throughput{window}", *records)
    assert counted(row) == (16, 10, 2, 1, 1, 10)
    assert row["error_rate"] == pytest.approx(1 / 11)
    rows = await ask(f"select error_kind, n from provider_errors{window} order by error_kind")
    assert rows == [{"error_kind": "rate_limited", "n": 1}, {"error_kind": "server_error", "n": 1}]


async def test_windows_of_five_minutes_begin_on_the_five_minutes(ask: Ask) -> None:
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - minutes(60)
    times = (hour + minutes(0.5), hour + minutes(4.9), hour + minutes(5))
    calls = [call(won(new_id(), started_at=at, ttft_ms=100.0 * 2**n)) for n, at in enumerate(times)]
    rows = await ask("select * from throughput_5m order by window_start", *calls)
    assert [str(row["window_start"])[:16] for row in rows] == [f"{at:%Y-%m-%d %H:%M}" for at in (hour, times[2])]
    assert [row["n"] for row in rows] == [2, 1]
    assert [row["ttft_p99_ms"] for row in rows] == pytest.approx([200, 400], rel=0.09)


async def test_the_leaderboard_corrects_for_losers_that_were_cut(ask: Ask) -> None:
    now = datetime.now(UTC)
    calls = []
    # Seen alone, flaky's winners look fastest (100 ms); six of ten were cut at 150 ms and then 400 ms is its median.
    for ttft_ms, censored_at_ms in [(100.0, None)] * 3 + [(None, 150.0)] * 3 + [(400.0, None)] * 4:
        call_id = new_id()
        outcome = Outcome.LOST if ttft_ms is None else Outcome.SUPERSEDED
        calls.append(
            call(
                won(call_id, ttft_ms=200.0, started_at=now, deployment="steady", provider="s"),
                attempt(
                    call_id, 2, started_at=now, deployment="flaky", provider="f",
                    outcome=outcome, ttft_ms=ttft_ms, censored_at_ms=censored_at_ms,
                ),
                started_at=now,
            )
        )  # fmt: skip
    rows = await ask("select * from leaderboard order by model, rank", *calls)
    assert [(row["rank"], row["deployment"]) for row in rows] == [(1, "steady"), (2, "flaky")]
    assert [row["ttft_p50_ms"] for row in rows] == pytest.approx([200, 400], rel=0.05)  # buckets are 9 % wide
    assert [(row["n"], row["events"], row["censored"]) for row in rows] == [(10, 10, 0), (7, 7, 3)]
    assert [bool(row["biased"]) for row in rows] == [False, True]


async def test_below_three_first_tokens_and_where_it_is_not_reached_a_quantile_is_null(ask: Ask) -> None:
    now = datetime.now(UTC)
    calls = []
    for _ in range(4):
        call_id = new_id()
        calls.append(
            call(
                attempt(call_id, started_at=now, deployment="never", outcome=Outcome.LOST, censored_at_ms=10.0),
                won(call_id, 2, started_at=now, deployment="slow", ttft_ms=9000.0),
            )
        )
    calls += [call(won(new_id(), started_at=now, deployment="twice")) for _ in range(2)]
    calls += [call(failed(new_id(), started_at=now, deployment="broken"))]
    rows = await ask("select * from leaderboard order by rank is null, rank, deployment", *calls)
    assert [(row["deployment"], row["rank"], row["ttft_p50_ms"] is None) for row in rows] == [
        ("slow", 1, False), ("broken", None, True), ("never", None, True), ("twice", None, True),
    ]  # fmt: skip


async def test_race_value_says_what_racing_cost(ask: Ask) -> None:
    alone, won_by_primary, overtaken, superseded, rescued = (new_id() for _ in range(5))
    rows = await ask(
        "select * from race_value",
        call(won(alone, cost_usd=1.0)),
        call(won(won_by_primary, cost_usd=1.0), lost(won_by_primary, cost_usd=0.5)),
        call(
            attempt(overtaken, outcome=Outcome.LOST, censored_at_ms=350.0),
            won(overtaken, 2, launch_offset_ms=100.0, role=Role.HEDGE),
        ),
        call(attempt(superseded, outcome=Outcome.SUPERSEDED, ttft_ms=800.0), won(superseded, 2)),
        call(failed(rescued), won(rescued, 2, launch_offset_ms=20.0, role=Role.FAILOVER)),
    )
    (row,) = rows
    assert (row["model"], row["calls"], row["calls_with_extra"], row["launched"]) == ("llama", 5, 4, 9)
    assert row["extra_per_call"] == pytest.approx(0.8)
    assert (row["overtaken"], row["rescued"]) == (3, 1)
    assert (row["cost_usd"], row["duplicate_cost_usd"], row["duplicate_cost_share"]) == (2.5, 0.5, 0.2)


async def test_race_value_counts_the_money_of_losers_that_outlive_their_call_and_of_calls_nobody_won(
    ask: Ask, ledger_url: str, tmp_path: Path
) -> None:
    watched, hung_up = new_id(), new_id()
    ledger = Ledger(ledger_url, tmp_path / "spool", "audits")
    ledger.call_finished(call(won(watched, cost_usd=1.0), launched=2, cost_usd=1.0))
    ledger.attempts_ended(watched, (lost(watched, audited=True, cost_usd=0.5),))
    await ledger.flush()
    await ledger.close()
    (row,) = await ask(
        "select * from race_value",
        call(attempt(hung_up, outcome=Outcome.CLIENT_GONE, cost_usd=0.25), cost_usd=0.25, duplicate_cost_usd=0.25),
    )
    assert (row["calls"], row["cost_usd"], row["duplicate_cost_usd"]) == (2, 1.75, 0.5)


async def test_an_upper_bound_that_one_attempt_lacks_is_told_beside_the_sum(ask: Ask) -> None:
    prices: list[dict[str, Any]] = [
        {"cost_low_usd": 1.0, "cost_usd": 2.0, "cost_high_usd": 4.0},
        {"cost_low_usd": 1.0, "cost_usd": 2.0, "cost_high_usd": None},  # a search that was not told
        {"cost_low_usd": None, "cost_usd": None, "cost_high_usd": None},  # no price
        {"cost_low_usd": None, "cost_usd": 2.0, "cost_high_usd": None},  # of an older version: what it cost
    ]
    calls: list[CallRecord] = []
    facts: dict[str, Any] = {"model": "llama", "started_at": datetime.now(UTC)}
    for price in prices:
        winner = won(new_id(), number=1, cost_low_usd=0.0, cost_usd=0.0, cost_high_usd=0.0, **facts)
        calls.append(call(winner, lost(winner.call_id, **facts, **price), started_at=facts["started_at"]))
    (usage,) = await ask("select cost_high_usd, n_unpriced from client_usage", *calls)
    assert usage == {"cost_high_usd": 8.0, "n_unpriced": 2}
    assert await ask("select cost_high_usd, n_unpriced from race_value") == [usage]
    assert await ask("select cost_high_usd, n_unpriced from waste_30d") == [usage]


async def test_cache_value_says_what_share_of_prompts_was_cached_and_what_that_saved(ask: Ask) -> None:
    now = datetime.now(UTC)
    cached: dict[str, Any] = {"prompt_tokens": 1000, "cached_tokens": 800, "cache_saved_usd": 0.5}
    rows = await ask(
        "select * from cache_value order by deployment",
        call(won(new_id(), started_at=now - minutes(60), **cached)),
        call(won(new_id(), started_at=now - minutes(2 * 24 * 60), cache_write_tokens=900, prompt_tokens=1000,
                 cached_tokens=0, cache_saved_usd=0.0)),
        call(won(new_id(), started_at=now - minutes(8 * 24 * 60), **cached)),
        call(won(new_id(), started_at=now, prompt_tokens=1000)),
        call(won(new_id(), deployment="groq/unpriced", prompt_tokens=10, cached_tokens=5)),
    )  # fmt: skip
    known, unpriced = rows
    assert (known["model"], known["deployment"], known["provider"]) == ("llama", "groq/llama", "groq")
    assert (known["calls"], known["n_told"], known["cached_tokens"], known["cache_write_tokens"]) == (4, 3, 1600, 900)
    assert (known["calls_7d"], known["calls_24h"]) == (3, 2)
    shares = [known["cached_share"], known["cached_share_7d"], known["cached_share_24h"]]
    assert shares == pytest.approx([1600 / 3000, 800 / 2000, 800 / 1000])
    saved = [known["cache_saved_usd"], known["cache_saved_usd_7d"], known["cache_saved_usd_24h"]]
    assert saved == pytest.approx([1.0, 0.5, 0.5])
    assert (unpriced["cached_share"], unpriced["cache_saved_usd"], unpriced["calls_7d"]) == (0.5, None, 0)


async def test_cache_value_leaves_losers_out_and_names_the_fallback_that_answered(ask: Ask) -> None:
    call_id = new_id()
    (row,) = await ask(
        "select * from cache_value",
        call(won(call_id, cached_tokens=1, model="small"), lost(call_id, cached_tokens=9), answered_model="small"),
    )
    assert (row["model"], row["calls"], row["cached_tokens"], row["cached_share"]) == ("small", 1, 1, None)


async def test_cache_latency_puts_what_caches_saved_beside_the_difference_in_ttft(ask: Ask) -> None:
    now = datetime.now(UTC)

    def answered(ttft_ms: float, cached_tokens: int | None, size_class: int = 1, **facts: Any) -> CallRecord:
        known: dict[str, Any] = {"started_at": now, "prompt_tokens": 2000} | facts
        winner = won(new_id(), ttft_ms=ttft_ms, cached_tokens=cached_tokens, **known)
        return call(winner, size_class=size_class, started_at=winner.started_at)

    (row,) = await ask(
        "select * from cache_latency_24h",
        *(answered(ttft_ms, 1500, cache_saved_usd=0.25) for ttft_ms in (300.0, 340.0)),
        *(answered(ttft_ms, 0) for ttft_ms in (390.0, 400.0, 410.0)),
        *(answered(ttft_ms, 1500, 2) for ttft_ms in (900.0, 900.0, 900.0, 900.0, 900.0, 900.0)),
        *(answered(ttft_ms, 0, 2) for ttft_ms in (800.0, 800.0)),
        answered(5000.0, 1500, 0, cache_saved_usd=0.5),  # nothing to compare it with, but it saved something
        answered(5000.0, 0, prompt_tokens=900),  # too short for any cache
        answered(5000.0, None),  # nobody knows
        answered(5000.0, 0, started_at=now - minutes(25 * 60)),
    )
    assert (row["model"], row["n_warm"], row["n_cold"], row["n_compared"]) == ("llama", 9, 5, 8)
    assert row["cache_saved_usd"] == pytest.approx(1.0)
    assert row["ttft_warm_ms"] == pytest.approx((2 * 320 + 6 * 900) / 8)
    assert row["ttft_cold_ms"] == pytest.approx((2 * 400 + 6 * 800) / 8)
    assert row["difference_ms"] == pytest.approx((2 * -80 + 6 * 100) / 8)
    error_ms = (2 / 8) * (800 / 2 + 100 / 3) ** 0.5
    assert row["difference_high_ms"] - row["difference_ms"] == pytest.approx(1.96 * error_ms)
    assert row["difference_ms"] - row["difference_low_ms"] == pytest.approx(1.96 * error_ms)


async def test_cache_latency_has_no_savings_of_clients_own_keys(ask: Ask) -> None:
    facts: dict[str, Any] = {"started_at": datetime.now(UTC), "cached_tokens": 500, "prompt_tokens": 2000}
    (row,) = await ask(
        "select n_warm, cache_saved_usd from cache_latency_24h",
        *(
            call(won(new_id(), cache_saved_usd=usd, key_name=key, **facts), started_at=facts["started_at"])
            for usd, key in ((0.25, None), (8.0, "tenant"))
        ),
    )
    assert row == {"n_warm": 2, "cache_saved_usd": 0.25}


async def test_cache_latency_compares_nothing_where_all_are_warm(ask: Ask) -> None:
    now = datetime.now(UTC)
    (row,) = await ask(
        "select * from cache_latency_24h",
        call(won(new_id(), started_at=now, prompt_tokens=2000, cached_tokens=9), started_at=now),
    )
    assert (row["n_warm"], row["n_cold"], row["n_compared"], row["cache_saved_usd"]) == (1, 0, 0, None)
    assert row["ttft_warm_ms"] is row["difference_ms"] is row["difference_low_ms"] is None


async def test_slo_counts_failures_against_ttft_and_the_clients_own_faults_nowhere(ask: Ask) -> None:
    rows = await ask(
        "select * from slo order by day",
        call(won(new_id(), ttft_ms=499.0, decode_tps=46.0)),
        call(won(new_id(), ttft_ms=500.0, decode_tps=45.0)),
        call(won(new_id(), ttft_ms=100.0, decode_tps=None)),
        call(failed(new_id())),
        call(failed(new_id()), status_code=400, error_kind="bad_request"),
        call(failed(new_id()), status_code=429, error_kind="rate_limited"),
        call(failed(new_id()), status_code=424, error_kind="provider_auth"),  # the operator's fault is a failure
        call(won(new_id(), ttft_ms=100.0), started_at=NOON + minutes(24 * 60)),
    )
    first, second = rows
    assert (str(first["day"]), first["model"], first["n"], first["n_failed"]) == ("2026-03-04", "llama", 7, 3)
    assert (first["n_ttft"], first["ttft_ok_share"]) == (6, pytest.approx(2 / 6))
    assert (first["n_tps"], first["tps_ok_share"]) == (2, pytest.approx(1 / 2))
    assert (str(second["day"]), second["ttft_ok_share"]) == ("2026-03-05", 1)


async def test_slo_counts_who_gave_up_waiting_as_a_miss_and_who_left_sooner_in_neither(ask: Ask) -> None:
    gone = {"status_code": 499, "error_kind": "client_disconnected"}
    answered = [call(won(new_id(), ttft_ms=ttft_ms)) for ttft_ms in [300.0] * 5 + [900.0] * 7]
    gave_up = [
        call(attempt(new_id(), outcome=Outcome.CLIENT_GONE, censored_at_ms=513.0), total_ms=513.0, **gone)
        for _ in range(18)
    ]
    left = call(attempt(new_id(), outcome=Outcome.CLIENT_GONE, censored_at_ms=200.0), total_ms=200.0, **gone)
    call_id = new_id()
    read_on = attempt(call_id, outcome=Outcome.CLIENT_GONE, ttft_ms=400.0)
    had_enough = call(read_on, total_ms=2000.0, winner_attempt_id=read_on.id, **(gone | {"ttft_ms": 400.0}))
    (row,) = await ask("select * from slo", *answered, *gave_up)
    assert (row["n"], row["n_ttft"], row["n_gave_up"], row["n_left"]) == (30, 30, 18, 0)
    assert row["ttft_ok_share"] == pytest.approx(5 / 30)
    (row,) = await ask("select * from slo", left, had_enough)
    assert (row["n"], row["n_ttft"], row["n_failed"], row["n_gave_up"], row["n_left"]) == (32, 31, 0, 18, 1)
    assert row["ttft_ok_share"] == pytest.approx(6 / 31)


async def test_slo_leaves_embeddings_out_and_takes_no_speed_from_estimated_tokens(ask: Ask) -> None:
    (row,) = await ask(
        "select * from slo",
        call(won(new_id(), decode_tps=40.0)),
        call(won(new_id(), decode_tps=5000.0, tokens_source=TokensSource.ESTIMATED)),
        call(won(new_id(), ttft_ms=None, decode_tps=None), endpoint="embeddings"),
        call(failed(new_id()), endpoint="embeddings"),
    )
    assert (row["n"], row["n_failed"], row["n_ttft"], row["ttft_ok_share"]) == (2, 0, 2, 1)
    assert (row["n_tps"], row["tps_ok_share"]) == (1, 0)


async def test_an_attempt_counts_for_the_model_it_ran_for(ask: Ask) -> None:
    now = datetime.now(UTC)
    answered, failed_twice = new_id(), new_id()
    calls = [
        call(failed(answered), won(answered, 2, model="small", deployment="small/x"), answered_model="small"),
        call(failed(failed_twice), failed(failed_twice, 2, model="small", deployment="small/x")),
        call(won(new_id(), model="small", deployment="small/x", started_at=now), answered_model="small"),
    ]
    samples = await ask("select model, deployment, is_won from samples order by model, is_won", *calls)
    assert [(row["model"], row["deployment"], bool(row["is_won"])) for row in samples] == [
        *[("llama", "groq/llama", False)] * 2,
        ("small", "small/x", False),
        *[("small", "small/x", True)] * 2,
    ]
    (ranked,) = await ask("select model, deployment, n from leaderboard")
    assert (ranked["model"], ranked["deployment"], ranked["n"]) == ("small", "small/x", 1)


async def test_an_api_that_a_deployment_lacks_is_no_error_of_it(ask: Ask) -> None:
    (row,) = await ask("select is_error, is_counted from samples", call(failed(new_id(), error_kind="no_such_api")))
    assert not row["is_error"]
    assert not row["is_counted"]


async def test_a_half_minute_is_a_whole_number_on_both_databases(ask: Ask) -> None:
    (row,) = await ask("select slot from samples", call(won(new_id(), started_at=NOON + minutes(0.75))))
    assert isinstance(row["slot"], int)
    assert row["slot"] == NOON.timestamp() // 30 + 1


async def test_answer_quality_counts_each_flaw_of_judged_answers_with_wilsons_interval(ask: Ask) -> None:
    facts: dict[str, Any] = {"model": "llama", "started_at": datetime.now(UTC)}
    flaws = [Flaw.BAD_JSON] * 3 + [Flaw.EMPTY] + [None] * 36
    calls = [
        *(call(won(new_id(), **facts, judged_as=AnswerKind.JSON, flaw=flaw)) for flaw in flaws),
        call(won(new_id(), **facts, judged_as=AnswerKind.PLAIN)),
        call(won(new_id(), **facts)),
    ]
    rows = await ask(
        "select * from answer_quality_30d where judged_as = 'json' and n_flawed > 0 order by n_flawed", *calls
    )
    assert [(row["flaw"], row["n"], row["n_flawed"]) for row in rows] == [
        ("empty", 40, 1),
        ("bad_json", 40, 3),
        ("any", 40, 4),
    ]
    assert (rows[2]["share"], rows[2]["share_low"], rows[2]["share_high"]) == (
        pytest.approx(0.1),
        pytest.approx(0.03957, abs=1e-5),
        pytest.approx(0.23053, abs=1e-5),
    )
    unflawed = await ask("select * from answer_quality_30d where judged_as = 'plain'")
    assert {row["flaw"] for row in unflawed} == {"any", *Flaw}
    assert all(row["share_low"] == pytest.approx(0.0, abs=1e-9) and row["share_high"] > 0.7 for row in unflawed)


@pytest.mark.parametrize("window", ["", "_24h"])
async def test_how_many_times_as_many_tokens_a_provider_states_is_said_alike_by_both(ask: Ask, window: str) -> None:
    now = datetime.now(UTC)
    calls = [
        call(
            won(new_id(), provider=name, deployment=f"{name}/llama", model="llama", started_at=now, chars=400,
                completion_tokens=tokens, tokens_source=TokensSource.REPORTED),
            started_at=now,
        )
        for name, tokens in (("groq", 100), ("nebius", 100), ("liar", 200))
        for _ in range(20)
    ]  # fmt: skip
    (row,) = await ask(f"select provider, error_kind, last_message from provider_errors{window}", *calls)
    assert tuple(row.values()) == (
        "liar", "usage_far_off", "states 2.00 times as many tokens per character as the others",
    )  # fmt: skip


async def test_provider_errors_keep_the_last_words(ask: Ask) -> None:
    rows = await ask(
        "select * from provider_errors order by n desc",
        call(failed(new_id(), error_message="new", started_at=NOON + minutes(1))),
        call(failed(new_id(), error_message="old")),
        call(attempt(new_id(), outcome=Outcome.TIMEOUT, error_kind="ttft_timeout")),
        call(won(new_id())),
    )
    assert [(row["error_kind"], row["status_code"], row["n"], row["last_message"]) for row in rows] == [
        ("server_error", 503, 2, "new"),
        ("ttft_timeout", None, 1, None),
    ]
    assert str(rows[0]["last_seen_at"]).startswith("2026-03-04 12:01")
