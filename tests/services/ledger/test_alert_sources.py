"""What the sources see, and that the evidence of each alert runs as it is, on both databases."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.alerts import (
    RULES,
    AlertKind,
    BurnSource,
    CachedSource,
    EndUserSource,
    LedgerSource,
    LengthSource,
    ModelHour,
    OutageSource,
    PatientSource,
    Severity,
    SlowdownSource,
    Source,
    Spenders,
    SpendingSource,
    StatedModels,
    StatedModelSource,
    Thresholds,
    WorkerSource,
    model_sql,
    team_sql,
)
from gateway.alerts.alert import AlertCondition, SourceUnavailable
from gateway.alerts.sources import WINDOWS_S
from gateway.alerts.stated_models import (
    LEAST_ANSWERED,
    LEAST_ANSWERS,
    LEAST_BEFORE,
    News,
    evidence,
    evidence_of_fingerprint,
)
from gateway.core.calls import NearLimit
from gateway.core.race_failures import SkippedDeployment
from gateway.core.reports import ReportsUnreachable
from gateway.core.targets import Burn
from gateway.ledger import Ledger, LedgerReports, Reader, ReplayRunner, create_engine, queries
from tests.unit.ledger.records import call, failed, new_id, won

NOW = datetime.now(UTC)
ODD = 'it\'s/a "model"'  # a name that must be quoted


EVIDENCE = "select count(*) as calls from calls"


def burns(**rates: float) -> Callable[[Sequence[int]], Awaitable[Sequence[Burn]]]:
    """Return what burns at the rate of each window, by its seconds: ``w3600=15``."""

    async def answer(windows_s: Sequence[int]) -> Sequence[Burn]:
        return [Burn(ODD, each, 1000, 20, rates.get(f"w{each}"), EVIDENCE) for each in windows_s]

    return answer


def not_asked(*reasons: str) -> Callable[[Collection[str]], Sequence[SkippedDeployment]]:
    def answer(deployments: Collection[str]) -> Sequence[SkippedDeployment]:
        return [
            SkippedDeployment(name, why, for_good=why == "out", is_broken=why != "cooling")
            for name, why in zip(deployments, reasons, strict=False)
            if why
        ]

    return answer


def outages(*reasons: str, deployments: Sequence[str] = ("a", "b")) -> OutageSource:
    return OutageSource(
        lambda: {ODD: dict.fromkeys(deployments, 120.0)},
        not_asked(*reasons),
        lambda *_: (),
        model_out_s=lambda: 30,
        deployment_out_s=lambda: 300,
        utc_now=lambda: NOW,
    )


class State:
    pending = 7
    oldest_pending_s: float | None = 301.0
    connected = False
    spool_problem: str | None = "unwritable"
    lost = 3
    sums_stand_still_s: float | None = None
    sums_problem = "the role may not"


def ledger_source(state: State) -> LedgerSource:
    return LedgerSource(state, replica="here", behind_s=lambda: 300, utc_now=lambda: NOW)


def spending(
    spent: dict[str | None, tuple[float, float]],
    limits: dict[str | None, dict[str, float]],
    *,
    day_usd: float | None = None,
    month_usd: float | None = None,
) -> SpendingSource:
    async def answer() -> dict[str | None, tuple[float, float]]:
        return spent

    return SpendingSource(
        answer,
        limits=lambda: limits,
        thresholds=lambda: Thresholds(0.8, day_usd, month_usd),
        utc_now=lambda: NOW,
    )


async def keys(source: Source) -> list[str]:
    return [each.key for each in await source.conditions()]


@pytest.mark.parametrize(
    ("rates", "kinds"),
    [
        ({"w3600": 14.4, "w300": 14.4}, [AlertKind.BURN_FAST]),
        ({"w3600": 14.4, "w300": 14.3}, []),  # it is over
        ({"w3600": 14.3, "w300": 99}, []),  # it has just begun
        ({"w300": 86.4, "w60": 86.4, "w3600": 7.2}, [AlertKind.BURN_FAST]),
        ({"w300": 86.4, "w60": 80, "w3600": 7.2}, []),
        ({"w21600": 6, "w1800": 6}, [AlertKind.BURN_FAST]),
        ({"w259200": 1, "w21600": 1}, [AlertKind.BURN_SLOW]),
        (
            {"w259200": 1.5, "w21600": 20, "w1800": 20, "w3600": 30, "w300": 40},
            [AlertKind.BURN_FAST, AlertKind.BURN_SLOW],
        ),
        ({}, []),  # no calls
    ],
)
async def test_a_target_burns_when_both_windows_of_a_rule_do(rates: dict[str, float], kinds: list[AlertKind]) -> None:
    found = [each for each in await BurnSource(burns(**rates), least_bad=lambda: 10).conditions() if each.opens]
    assert [each.kind for each in found] == kinds
    assert {each.severity for each in found if each.kind is AlertKind.BURN_FAST} <= {Severity.PAGE}


async def test_near_its_factor_a_burn_keeps_an_alert_and_opens_none() -> None:
    [found] = await BurnSource(burns(w3600=8, w300=20), least_bad=lambda: 10).conditions()
    assert (found.kind, found.opens) == (AlertKind.BURN_FAST, False)
    assert await keys(BurnSource(burns(w3600=7, w300=20), least_bad=lambda: 10)) == []


async def test_a_few_bad_calls_of_a_quiet_night_are_no_alert() -> None:
    assert await keys(BurnSource(burns(w3600=99, w300=99), least_bad=lambda: 21)) == []


def test_the_rules_are_those_of_the_workbook_and_one_for_the_first_minutes() -> None:
    assert [(each.long_s // 60, each.short_s // 60, each.factor) for each in RULES] == [
        (5, 1, 86.4), (60, 5, 14.4), (360, 30, 6.0), (72 * 60, 360, 1.0),
    ]  # fmt: skip
    assert WINDOWS_S == (60, 300, 1800, 3600, 21_600, 259_200)


async def test_a_model_is_out_when_none_of_its_deployments_can_answer() -> None:
    assert await keys(outages("open", "")) == ["deployment_out:a"]
    assert await keys(outages("open", "cooling")) == [f"model_out:{ODD}", "deployment_out:a"]
    assert await keys(outages("cooling", "")) == []
    assert await keys(outages(deployments=())) == []
    covered = [each.covered_by for each in await outages("open", "out").conditions()]
    assert covered == ["model_out:a, b: several models", f"model_out:{ODD}", f"model_out:{ODD}"]


async def test_the_sentence_says_since_when_why_and_how_many_others_answer() -> None:
    now = NOW.replace(hour=19, minute=46)
    refused = "the provider refused the key (401)"

    def unused(deployments: Collection[str]) -> Sequence[SkippedDeployment]:
        return [
            SkippedDeployment(each, "out: …", for_good=True, cause=refused) for each in deployments if each in broken
        ]

    source = OutageSource(
        lambda: {"fast": dict.fromkeys(["a/x", "b/x", "c/x"], 120.0)},
        unused,
        lambda *_: (),
        model_out_s=lambda: 30,
        deployment_out_s=lambda: 300,
        utc_now=lambda: now,
    )
    broken = {"a/x"}
    [found] = await source.conditions()
    assert found.summary == f"a/x is out since 19:46 UTC: {refused}. Two others answer."
    now += timedelta(minutes=3)
    broken = {"a/x", "b/x"}
    first, second = await source.conditions()
    assert first.summary == f"a/x is out since 19:46 UTC: {refused}. One other answers."
    assert second.summary == f"b/x is out since 19:49 UTC: {refused}. One other answers."
    broken = {"a/x", "b/x", "c/x"}
    model = (await source.conditions())[0]
    assert model.summary.startswith("fast is out since 19:49 UTC. None of its 3 deployments can answer: a/x: ")


async def test_a_ledger_is_behind_when_a_row_waits_too_long() -> None:
    state = State()
    assert await keys(ledger_source(state)) == ["ledger_behind:here", "spool:here", "ledger_unrecorded:here"]
    state.oldest_pending_s, state.spool_problem = 300.0, None
    assert await keys(ledger_source(state)) == []
    state.oldest_pending_s = None
    assert await keys(ledger_source(state)) == []


async def test_sums_that_stand_still_are_told_with_the_reason_once_they_have_for_a_minute() -> None:
    state = State()
    state.oldest_pending_s, state.spool_problem, state.sums_stand_still_s = None, None, 90.0
    [found] = await ledger_source(state).conditions()
    assert (found.key, found.after_s) == ("sums:here", 60.0)
    assert "have not been added up for 90 s" in found.summary
    assert found.summary.endswith("the role may not")


async def test_a_source_that_asks_a_database_known_to_be_away_is_not_waited_for() -> None:
    asked, is_away = [], True

    async def lengths(_: str) -> list[ModelHour]:
        asked.append(1)
        return []

    source: Source = PatientSource(LengthSource(lengths, utc_now=lambda: NOW), lambda: is_away)
    with pytest.raises(SourceUnavailable):
        await source.conditions()
    assert not asked
    is_away = False
    assert await source.conditions() == []
    assert asked


async def test_a_source_that_is_slow_says_what_it_said_last_and_lets_others_go_on() -> None:
    answers: asyncio.Queue[list[AlertCondition]] = asyncio.Queue()

    class Slow:
        kinds = (AlertKind.SUMS,)

        async def conditions(self) -> list[AlertCondition]:
            return await answers.get()

    state = State()
    state.oldest_pending_s, state.spool_problem, state.sums_stand_still_s = None, None, 90.0
    found = list(await ledger_source(state).conditions())
    source = PatientSource(Slow(), lambda: False, patient_s=0.0)

    async def said() -> Sequence[AlertCondition]:
        try:
            return await source.conditions()
        except SourceUnavailable:
            return []

    assert await said() == await said() == []
    answers.put_nowait(found)
    while not await said():
        pass
    assert await source.conditions() == found  # asked again, without an answer yet
    await source.aclose()


async def test_clients_are_named_when_they_have_spent_most_of_a_limit() -> None:
    spent: dict[str | None, tuple[float, float]] = {"a": (8.0, 8.0), "b": (7.9, 90.0), None: (1.0, 2.0)}
    limits: dict[str | None, dict[str, float]] = {
        "a": {"usd_per_day": 10, "rpm": 1},
        "b": {"usd_per_day": 10, "usd_per_month": 100},
        "c": {"usd_per_day": 0},
    }
    day, month = f"{NOW:%Y-%m-%d}", f"{NOW:%Y-%m}"
    assert await keys(spending(spent, limits)) == [
        f"spending:a/usd_per_day/{day}", f"spending:b/usd_per_month/{month}",
    ]  # fmt: skip
    assert await keys(spending(spent, {}, day_usd=16.9, month_usd=100.1)) == [f"spending:all/usd_per_day/{day}"]


async def test_what_is_asked_for_before_midnight_is_of_the_day_that_ends() -> None:
    now = datetime(2026, 11, 21, 23, 59, 59, tzinfo=UTC)

    async def spent() -> dict[str | None, tuple[float, float]]:
        nonlocal now
        now += timedelta(seconds=2)
        return {"a": (9.0, 9.0)}

    source = SpendingSource(
        spent, limits=lambda: {"a": {"usd_per_day": 10}}, thresholds=lambda: Thresholds(0.8, None, None),
        utc_now=lambda: now,
    )  # fmt: skip
    assert await keys(source) == ["spending:a/usd_per_day/2026-11-21"]


async def test_without_limits_in_dollars_the_database_is_not_asked() -> None:
    async def fail() -> dict[str | None, tuple[float, float]]:
        raise AssertionError("asked")

    source = SpendingSource(
        fail, limits=lambda: {"a": {"rpm": 1}}, thresholds=lambda: Thresholds(0.8, None, None), utc_now=lambda: NOW
    )
    assert await source.conditions() == []


async def test_a_dear_source_is_asked_seldom_and_its_failure_is_repeated() -> None:
    now_s, asked = 0.0, 0

    async def spent() -> dict[str | None, tuple[float, float]]:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise ReportsUnreachable("the database is away")
        return {"a": (9.0, 9.0)}

    source = SpendingSource(
        spent, limits=lambda: {"a": {"usd_per_day": 10}}, thresholds=lambda: Thresholds(0.8, None, None),
        utc_now=lambda: NOW,
    )  # fmt: skip
    cached = CachedSource(source, every_s=60, clock=lambda: now_s)
    assert len(await cached.conditions()) == len(await cached.conditions()) == asked == 1
    now_s = 60.0
    for _ in range(2):
        with pytest.raises(SourceUnavailable):
            await cached.conditions()
    now_s = 120.0
    assert (len(await cached.conditions()), asked) == (1, 3)


async def _conditions(reports: LedgerReports) -> list[AlertCondition]:
    still = State()
    still.sums_stand_still_s = 90.0
    sources: list[Source] = [
        BurnSource(burns(w3600=20, w300=20, w259200=2, w21600=2), least_bad=lambda: 10),
        outages("open", "out"),
        ledger_source(still),
        spending({"a's": (9, 9)}, {"a's": {"usd_per_day": 10, "usd_per_month": 10}, None: {}}, day_usd=1, month_usd=1),
        _spenders(reports),
        EndUserSource(lambda _: [_of_end_user()], share=lambda: 0.8),
        SlowdownSource(reports.open_slowdowns),
        StatedModelSource(_changed(), reports.stated_models, utc_now=lambda: NOW),
        LengthSource(_hours, utc_now=lambda: NOW + timedelta(hours=1)),
        WorkerSource(lambda: [4711], replica="here", utc_now=lambda: NOW),
    ]
    return [each for source in sources for each in await source.conditions()]


def _of_end_user() -> NearLimit:
    starts_s = NOW.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    return NearLimit("team:red's:u", "usd_per_day", "today", starts_s, starts_s + 86_400, "UTC", 9.0, 9.0)


def _spenders(reports: LedgerReports) -> SpendingSource:
    """Return the source of a team and a model that have spent most, as the ledger has it."""
    limits = {"usd_per_day": 1.0}

    async def of_models() -> dict[str | None, tuple[float, float]]:
        return {name: (usd, 0.0) for name, usd in (await reports.spent_by_models()).items()}

    return SpendingSource(
        of_models,
        limits=dict,
        thresholds=lambda: Thresholds(0.8, None, None),
        utc_now=lambda: NOW,
        others=(
            Spenders("team", lambda: {"red's": limits}, reports.spent_by_teams, team_sql),
            Spenders("model", lambda: {"llama": limits, "other": limits}, of_models, model_sql),
        ),
    )


async def _hours(_: str) -> list[ModelHour]:
    """Return hours of "llama" whose prompts became ten times as long on the last of five days."""
    last_at = NOW.replace(minute=0, second=0, microsecond=0)
    return [
        ModelHour(
            model="llama", hour_at=last_at - timedelta(days=ago), answered=LEAST_ANSWERED,
            prompt_tokens=LEAST_ANSWERED * (100 if ago else 1000), completion_tokens=None, sized=None, over_4k=None,
            over_32k=None,
        )
        for ago in range(5)
    ]  # fmt: skip


def _changed() -> StatedModels:
    """Return that "a" has begun to state another model."""
    stated = StatedModels(lambda: NOW)
    for model in ("m-1", *["m-2"] * LEAST_ANSWERS):
        stated.add("a", model)
    return stated


def _reports(url: str) -> LedgerReports:
    return LedgerReports(
        Reader(url),
        unshipped=list,
        running=lambda _: None,
        utc_now=lambda: NOW,
        clock=lambda: 0.0,
        replays=ReplayRunner(url, clock=lambda: 0.0),
    )


async def test_the_evidence_of_every_kind_of_alert_runs_and_shows_rows(ledger_url: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    for deployment in ("a", "b"):
        attempt = won(new_id(), deployment=deployment, started_at=NOW, cost_usd=0.5, client="a's", model_version="m-1")
        tags = {"team": "red's", "end_user": "u"}
        ledger.call_finished(call(attempt, started_at=NOW, client="a's", cost_usd=0.5, tags=tags))
    for _ in range(LEAST_BEFORE):
        attempt = won(new_id(), deployment="a", started_at=NOW, client="b's", model_version="m-1")
        ledger.call_finished(call(attempt, started_at=NOW, client="b's"))
    cut = failed(new_id(), started_at=NOW)
    ledger.call_finished(call(cut, started_at=NOW, replica="here", status_code=503, error_kind="interrupted"))
    await ledger.flush()
    await ledger.close()
    await _make_slowdowns(ledger_url)
    reports = _reports(ledger_url)
    found = await _conditions(reports)
    await reports.aclose()
    assert {each.kind for each in found} == set(AlertKind)
    for each in found:
        result = await queries.run(ledger_url, each.sql)
        assert result.rows, f"{each.key}: no rows\n{each.sql}"
    [of_client] = [each for each in found if each.subject.startswith("a's/usd_per_day")]
    rows: list[tuple[Any, ...]] = (await queries.run(ledger_url, of_client.sql)).rows
    assert [(row[0], float(row[2])) for row in rows] == [("a's", 2.0)]


@pytest.mark.parametrize(("of_call", "of_attempt"), [(None, 0.0), (2.0, None), (2.0, 3.0), (3.0, 2.0), (None, None)])
async def test_the_evidence_of_spending_says_what_the_view_of_usage_says(
    ledger_url: str, tmp_path: Path, of_call: float | None, of_attempt: float | None
) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    attempt = won(new_id(), started_at=NOW, client="a", cost_usd=of_attempt)
    ledger.call_finished(call(attempt, started_at=NOW, client="a", cost_usd=of_call))
    await ledger.flush()
    await ledger.close()
    [condition] = await spending({"a": (9.0, 9.0)}, {"a": {"usd_per_day": 10}}).conditions()
    viewed = await queries.run(ledger_url, "select client, model, n, cost_usd from client_usage")
    assert (await queries.run(ledger_url, condition.sql)).rows == viewed.rows


async def test_the_ledger_says_what_a_deployment_has_stated_and_what_came_before(
    ledger_url: str, tmp_path: Path
) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    for number, model in enumerate(("m-1", "m-1", ODD, "m-1", ODD, None)):
        at = NOW - timedelta(minutes=9 - number)
        attempt = won(new_id(), deployment=ODD, started_at=at, model_version=model)
        ledger.call_finished(call(attempt, started_at=at))
    await ledger.flush()
    await ledger.close()
    reports = _reports(ledger_url)
    found = await reports.stated_models(evidence(ODD, ODD, NOW - timedelta(hours=1)))
    none = await reports.stated_models(evidence("another", ODD, NOW - timedelta(hours=1)))
    await reports.aclose()
    assert [(each.model_version, each.answers, each.earlier) for each in found] == [("m-1", 3, 2), (ODD, 2, 0)]
    assert found[1].first_at - found[0].first_at == timedelta(minutes=2)
    assert none == []


async def test_the_ledger_says_which_fingerprints_a_model_had_and_whether_one_has_taken_over(
    ledger_url: str, tmp_path: Path
) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    for number, (model, own) in enumerate([("m-1", "fp"), ("m-2", "fp"), ("m-1", ODD), ("m-1", "fp"), ("m-1", ODD)]):
        at = NOW - timedelta(minutes=9 - number)
        attempt = won(new_id(), deployment=ODD, started_at=at, model_version=model, system_fingerprint=own)
        ledger.call_finished(call(attempt, started_at=at))
    await ledger.flush()
    await ledger.close()
    reports = _reports(ledger_url)
    since = NOW - timedelta(hours=1)
    found = await reports.stated_models(evidence_of_fingerprint(News(ODD, "m-1", NOW, ODD), since))
    none = await reports.stated_models(evidence_of_fingerprint(News(ODD, None, NOW, ODD), since))
    await reports.aclose()
    assert [(each.model_version, each.answers, each.earlier, each.later) for each in found] == [
        ("fp", 2, 1, 0),
        (ODD, 2, 0, 1),
    ]
    assert none == []


async def test_where_nothing_was_noticed_nothing_is_slower(ledger_url: str) -> None:
    reports = _reports(ledger_url)
    assert await reports.open_slowdowns() == []
    await reports.aclose()


async def _make_slowdowns(url: str) -> None:
    """Add an open row of two metrics and one that has ended."""
    engine = create_engine(url)
    async with engine.begin() as connection:
        at = f"'{NOW - timedelta(hours=1):%Y-%m-%d %H:%M:%S}'"
        for metric, ratio, ended in (("ttft", 1.5, "null"), ("tps", 2.0, "null"), ("gaps", 9.0, at)):
            await connection.exec_driver_sql(
                "insert into slowdowns (id, deployment, model, metric, began_at, noticed_at, ended_at, ratio, low,"
                f" high, n, evidence_sql) values ('{new_id()}', 'a', 'm', '{metric}', {at}, {at}, {ended}, {ratio},"
                " 1.2, 3.0, 100, 'select 1 as one')"
            )
    await engine.dispose()
