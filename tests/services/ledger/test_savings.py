"""What the view says that racing saved, against the same arithmetic in Python, on both databases."""

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from gateway.core.attempts import AttemptRecord, Outcome, Role
from gateway.core.calls import CallRecord
from gateway.ledger import Ledger, queries
from tests.services.ledger.asking import asked
from tests.support.savings import QUANTILES, Overtaken, overtaken, saved, saved_at
from tests.unit.ledger.records import attempt, call, failed, new_id, won

BUCKET = 0.05  # a quantile out of buckets 9 % wide


def raced(drawn: Overtaken, **facts: Any) -> tuple[CallRecord, AttemptRecord | None]:
    """A call whose primary was overtaken, and if it was audited the primary's own row, which comes later."""
    call_id = new_id()
    primary = attempt(
        call_id, outcome=Outcome.LOST, censored_at_ms=drawn.ttft_ms, is_overtaken=True, overtaken_at_ms=drawn.ttft_ms,
        predicted_ms=drawn.predicted_ms, audited=drawn.audited, cost_usd=1.0,
    )  # fmt: skip
    winner = won(call_id, 2, ttft_ms=drawn.ttft_ms, cost_usd=2.0)
    known = {"alone_predicted_ms": drawn.predicted_ms, "alone_age_ms": drawn.ttft_ms, "launched": 2}
    if not drawn.audited:
        return call(primary, winner, **(known | facts)), None
    seen = {
        "outcome": Outcome.SUPERSEDED,
        "censored_at_ms": None,
        "ttft_ms": drawn.alone_ms,
        "token_ms": drawn.alone_ms,
    }
    return call(winner, **(known | facts)), msgspec.structs.replace(primary, **seen)


async def stored(url: str, folder: Path, *records: tuple[CallRecord, AttemptRecord | None]) -> None:
    ledger = Ledger(url, folder / "spool", "savings")
    for record, audited in records:
        ledger.call_finished(record)
        if audited is not None:
            ledger.attempts_ended(record.id, (audited,))
    await ledger.flush()
    await ledger.close()


async def value(url: str, view: str = "race_value") -> dict[str, Any]:
    [row] = await asked(url, f"select * from {view}")
    return row


async def test_the_view_estimates_as_the_simulation_does(ledger_url: str, tmp_path: Path) -> None:
    drawn = overtaken(7, 0.3, 1_500, 0.2)
    won_alone = [call(won(new_id(), ttft_ms=300.0), alone_ms=300.0) for _ in range(100)]
    await stored(ledger_url, tmp_path, *map(raced, drawn), *((each, None) for each in won_alone))
    row, expected = await value(ledger_url), saved(drawn, [300.0] * 100)
    n_audits = sum(each.audited for each in drawn)
    assert (row["basis"], row["n_audits"], row["n_compared"]) == ("audited", n_audits, len(drawn) + 100)
    assert expected.low_ms is not None
    assert expected.high_ms is not None
    assert row["saved_ms"] == pytest.approx(expected.ms, rel=1e-6)
    assert row["saved_low_ms"] == pytest.approx(expected.low_ms, rel=1e-6)
    assert row["saved_high_ms"] == pytest.approx(expected.high_ms, rel=1e-6)
    assert row["saved_ms_per_call"] == pytest.approx(expected.ms / (len(drawn) + 100))
    assert row["alone_mean_ms"] - row["ttft_mean_ms"] == pytest.approx(row["saved_ms_per_call"])
    assert row["audit_cost_usd"] == n_audits


async def test_without_racing_quantiles_let_audited_primaries_stand_for_all_that_were_overtaken(
    ledger_url: str, tmp_path: Path
) -> None:
    drawn = [Overtaken(200.0, 1000.0 + n, 900.0, audited=n % 2 == 0) for n in range(100)]
    won_alone = [call(won(new_id(), ttft_ms=100.0), alone_ms=100.0) for _ in range(100)]
    await stored(ledger_url, tmp_path, *map(raced, drawn), *((each, None) for each in won_alone))
    row = await value(ledger_url)
    assert (row["ttft_p50_ms"], row["ttft_p95_ms"]) == pytest.approx((100.0, 200.0), rel=BUCKET)
    assert row["alone_p50_ms"] == pytest.approx(100.0, rel=BUCKET)  # half of the calls
    assert row["alone_p95_ms"] == pytest.approx(1090.0, rel=BUCKET)  # nine tenths of the other half
    assert row["alone_p99_ms"] == pytest.approx(1098.0, rel=2 * BUCKET)  # at an edge of its bucket


async def test_quantiles_of_what_was_saved_have_the_intervals_of_the_simulation(
    ledger_url: str, tmp_path: Path
) -> None:
    drawn = overtaken(7, 0.3, 1_500, 0.2)
    seen_ms = [100.0 + n for n in range(400)]
    won_alone = [call(won(new_id(), ttft_ms=ms), alone_ms=ms) for ms in seen_ms]
    await stored(ledger_url, tmp_path, *map(raced, drawn), *((each, None) for each in won_alone))
    row = await value(ledger_url)
    for q in QUANTILES:
        expected, name = saved_at(q, drawn, seen_ms), f"saved_p{q * 100:.0f}"
        racing_ms = row[f"ttft_p{q * 100:.0f}_ms"]
        for end, value_ms in (("", expected.ms), ("_low", expected.low_ms), ("_high", expected.high_ms)):
            off_ms = 0.0 if value_ms is None else 2 * BUCKET * (abs(value_ms + racing_ms) + racing_ms)
            assert row[f"{name}{end}_ms"] == (None if value_ms is None else pytest.approx(value_ms, abs=off_ms))
    assert row["saved_p95_low_ms"] < row["saved_p95_ms"] < row["saved_p95_high_ms"]


async def test_what_was_seen_is_as_sure_as_the_buckets_of_its_quantiles(ledger_url: str, tmp_path: Path) -> None:
    draw = Random(3)
    for number in range(4):
        ttft_ms = sorted(draw.uniform(80, 900) for _ in range(101))
        alone_ms = [ms + draw.choice([0.0, 0.0, 5.0, 200.0]) for ms in ttft_ms]
        rescued = [
            call(failed(call_id), won(call_id, 2, ttft_ms=ms), alone_ms=alone, model=f"m{number}")
            for ms, alone in zip(ttft_ms, alone_ms, strict=True)
            for call_id in [new_id()]
        ]
        await stored(ledger_url, tmp_path, *((each, None) for each in rescued))
        result = await queries.run(ledger_url, f"select * from race_value where model = 'm{number}'")
        row = dict(zip(result.columns, result.rows[0], strict=True))
        for name, place in (("saved_p50", 50), ("saved_p95", 95), ("saved_p99", 99)):
            truth = sorted(alone_ms)[place] - ttft_ms[place]
            assert row[f"{name}_low_ms"] <= truth <= row[f"{name}_high_ms"]
            assert row[f"{name}_low_ms"] < row[f"{name}_ms"] < row[f"{name}_high_ms"]
            assert row[f"{name}_high_ms"] - row[f"{name}_low_ms"] < 0.2 * (truth + 2 * ttft_ms[place])


async def test_below_six_audits_the_prediction_stands_alone_and_says_how_many_calls_more(
    ledger_url: str, tmp_path: Path
) -> None:
    drawn = [Overtaken(200.0, 1000.0, 900.0, audited=n < 5) for n in range(100)]
    await stored(ledger_url, tmp_path, *map(raced, drawn))
    row = await value(ledger_url)
    assert (row["basis"], row["n_audits"], row["saved_ms"]) == ("curve", 5, pytest.approx(70_000))
    assert [row[name] for name in ("saved_low_ms", "saved_high_ms", "alone_p50_ms", "saved_p50_ms")] == [None] * 4
    assert (row["verdict"], row["calls_more"]) == ("not yet", 20)  # one more audit, at five of a hundred calls


async def test_below_thirty_audits_there_is_an_interval_but_no_quantile(ledger_url: str, tmp_path: Path) -> None:
    drawn = [Overtaken(200.0, 1000.0, 900.0, audited=n < 6) for n in range(100)]
    await stored(ledger_url, tmp_path, *map(raced, drawn))
    row = await value(ledger_url)
    assert (row["basis"], row["verdict"], row["saved_ms"]) == ("audited", "saved", pytest.approx(80_000))
    assert row["saved_low_ms"] < 80_000 < row["saved_high_ms"]
    assert (row["alone_p50_ms"], row["saved_p50_ms"]) == (None, None)


@pytest.mark.parametrize(("extra", "high_ms"), [(True, 4.6), (False, 0.0)])
async def test_where_nobody_overtakes_racing_saved_nothing_and_that_is_told_within_5_ms_after_200_calls(
    ledger_url: str, tmp_path: Path, *, extra: bool, high_ms: float
) -> None:
    def one() -> tuple[CallRecord, None]:
        call_id = new_id()
        loser = attempt(call_id, 2, outcome=Outcome.LOST, censored_at_ms=600.0, cost_usd=1.0)
        raced_by = (loser,) if extra else ()
        return call(won(call_id, ttft_ms=600.0), *raced_by, alone_ms=600.0, launched=1 + extra), None

    await stored(ledger_url, tmp_path, *(one() for _ in range(29)))
    young = await value(ledger_url)
    assert (young["saved_ms"], young["saved_low_ms"], young["saved_high_ms"]) == (0.0, None, None)
    assert (young["saved_p50_ms"], young["saved_p50_low_ms"], young["saved_p50_high_ms"]) == (None, None, None)
    assert (young["verdict"], young["calls_more"]) == (("too few calls", 1) if extra else (None, None))
    assert young["saved_per_call_ms"] is None
    await stored(ledger_url, tmp_path, *(one() for _ in range(71)))
    wide = await value(ledger_url)  # nothing, or more than that: its calls do not say yet
    assert wide["saved_low_ms_per_call"] == 0.0
    assert (wide["verdict"], wide["calls_more"]) == (("not yet", pytest.approx(85, abs=1)) if extra else (None, None))
    await stored(ledger_url, tmp_path, *(one() for _ in range(100)))
    row = await value(ledger_url)
    assert (row["basis"], row["saved_ms"], row["saved_low_ms"]) == ("seen", 0.0, 0.0)
    assert row["saved_high_ms_per_call"] == pytest.approx(high_ms, abs=0.1)
    assert (row["verdict"], row["calls_more"]) == ("nothing worth its price" if extra else None, None)


async def test_a_few_overtaken_ones_need_no_audit_to_be_worth_little(ledger_url: str, tmp_path: Path) -> None:
    drawn = [Overtaken(300.0, 310.0, 320.0, audited=n == 0) for n in range(18)]
    others = [call(won(new_id(), ttft_ms=300.0), alone_ms=300.0, launched=2) for _ in range(1000)]
    await stored(ledger_url, tmp_path, *map(raced, drawn), *((each, None) for each in others))
    row = await value(ledger_url)
    assert (row["basis"], row["verdict"], row["saved_low_ms"]) == ("curve", "nothing worth its price", 0.0)
    assert 0.18 < row["saved_high_ms_per_call"] < 3


async def test_an_interval_has_a_width_even_where_all_overtaken_ones_were_audited(
    ledger_url: str, tmp_path: Path
) -> None:
    drawn = [Overtaken(200.0, 600.0 + n, 700.0, audited=True) for n in range(20)]
    others_ms = [300.0] * 40
    others = [call(won(new_id(), ttft_ms=ms), alone_ms=ms, launched=2) for ms in others_ms]
    await stored(ledger_url, tmp_path, *map(raced, drawn), *((each, None) for each in others))
    row, expected = await value(ledger_url), saved(drawn, others_ms)
    assert (row["saved_ms"], row["saved_low_ms"], row["saved_high_ms"]) == pytest.approx(
        (expected.ms, expected.low_ms, expected.high_ms), rel=1e-6
    )
    assert row["saved_low_ms"] < 0.7 * row["saved_ms"] < 1.4 * row["saved_ms"] < row["saved_high_ms"]


async def test_a_failover_that_need_not_be_waited_for_is_worth_that_wait(ledger_url: str, tmp_path: Path) -> None:
    def rescued() -> tuple[CallRecord, None]:
        call_id = new_id()
        return call(failed(call_id), won(call_id, 2, ttft_ms=1000.0), alone_ms=1300.0, launched=2), None

    await stored(ledger_url, tmp_path, rescued())
    row = await value(ledger_url)
    assert (row["basis"], row["rescued"], row["saved_ms"]) == ("seen", 1, pytest.approx(300))
    assert (row["saved_low_ms"], row["calls_more"]) == (None, 29)
    await stored(ledger_url, tmp_path, *(rescued() for _ in range(39)))
    row = await value(ledger_url)
    assert (row["verdict"], row["saved_ms_per_call"]) == ("saved", pytest.approx(300))
    assert 200 < row["saved_low_ms_per_call"] < 300 < row["saved_high_ms_per_call"] < 430


async def test_a_hold_is_taken_off_what_was_saved_and_has_an_interval_of_its_own(
    ledger_url: str, tmp_path: Path
) -> None:
    held = [call(won(new_id(), ttft_ms=500.0), alone_ms=400.0, held_ms=100.0, launched=2) for _ in range(50)]
    await stored(ledger_url, tmp_path, *((each, None) for each in held))
    row = await value(ledger_url)
    assert (row["saved_ms_per_call"], row["verdict"]) == (pytest.approx(-100), "lost")
    assert row["saved_low_ms_per_call"] < -100 < row["saved_high_ms_per_call"] < 0


async def test_a_primary_that_fails_once_overtaken_saves_nothing_and_is_counted(
    ledger_url: str, tmp_path: Path
) -> None:
    records = [raced(Overtaken(200.0, 1000.0, 1000.0, audited=True)) for _ in range(60)]
    broken = []
    for record, audited in records[:30]:
        assert audited is not None
        lost = {"outcome": Outcome.FAILED, "ttft_ms": None, "token_ms": None}
        broken.append((record, msgspec.structs.replace(audited, **lost)))
    await stored(ledger_url, tmp_path, *broken, *records[30:])
    row = await value(ledger_url)
    assert (row["n_audits"], row["n_audits_failed"], row["saved_ms"]) == (60, 30, pytest.approx(30 * 800))


async def test_exploring_races_are_seen_and_no_sample_of_the_others(ledger_url: str, tmp_path: Path) -> None:
    records = []
    for alone_ms in (500.0, 700.0):
        record, audited = raced(Overtaken(200.0, alone_ms, 0.0, audited=True))
        assert audited is not None
        nothing_predicted = msgspec.structs.replace(audited, predicted_ms=None)
        records.append((msgspec.structs.replace(record, alone_predicted_ms=None), nothing_predicted))
    await stored(ledger_url, tmp_path, *records)
    row = await value(ledger_url)
    assert (row["basis"], row["n_audits"], row["saved_ms"]) == ("seen", 2, pytest.approx(800))


async def test_a_window_has_the_calls_of_its_time(ledger_url: str, tmp_path: Path) -> None:
    await stored(ledger_url, tmp_path, raced(Overtaken(200.0, 900.0, 800.0, audited=False)))
    for view in ("race_value_1h", "race_value_24h", "race_value_30d"):
        assert (await queries.run(ledger_url, f"select * from {view}")).rows == []


async def test_what_was_cut_or_added_by_racing_is_duplicated_and_a_failover_is_not(
    ledger_url: str, tmp_path: Path
) -> None:
    failover = new_id()
    replaced = call(failed(failover, cost_usd=0.5), won(failover, 2, role=Role.FAILOVER, cost_usd=1.0))
    await stored(ledger_url, tmp_path, (replaced, None), raced(Overtaken(200.0, 900.0, 800.0, audited=False)))
    row = await value(ledger_url)
    assert (row["cost_usd"], row["duplicate_cost_usd"]) == (pytest.approx(4.5), pytest.approx(1.0))
