"""Burn rates, standings and metrics of a real ledger."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from gateway.alerts import TargetWatch
from gateway.app.gauges import TargetFigures
from gateway.core.targets import Definition, Target
from gateway.ledger import LedgerReports, Reader, ReplayRunner, TargetCounting
from gateway.watching import Metrics
from tests.services.ledger.targets.conftest import Desk, some_calls
from tests.unit.ledger.records import call, failed, new_id, won

FAST = Target("fast", Definition(model="llama", ttft_ms=500.0), 0.9)
UP = Target("up", Definition(), 0.99, days=1)
WINDOWS_S = (300, 3600, 6 * 3600, 3 * 86_400)


@pytest.fixture
async def reports(desk: Desk) -> AsyncIterator[LedgerReports]:
    made = LedgerReports(
        Reader(desk.url),
        unshipped=list,
        running=lambda _: None,
        replays=ReplayRunner(desk.url, clock=lambda: 0.0, kept_s=0.0),
        utc_now=lambda: desk.now,
        clock=lambda: 0.0,
        kept_s=0.0,
        targets=lambda: desk.targets,
    )
    yield made
    await made.aclose()


async def test_burns_are_of_each_target_and_window_and_their_sql_says_the_same(
    desk: Desk, reports: LedgerReports
) -> None:
    desk.targets = [FAST, UP]
    await desk.store(*some_calls(600, days=4))
    burns = await reports.burns(WINDOWS_S)
    assert [(burn.target, burn.window_s) for burn in burns] == [
        (target.name, window_s) for target in desk.targets for window_s in WINDOWS_S
    ]
    for burn in burns:
        [row] = await desk.ask(burn.sql)
        assert row[:2] == (burn.calls, burn.bad)
        allowed = 0.1 if burn.target == "fast" else 0.01
        expected = None if not burn.calls else pytest.approx(burn.bad / burn.calls / allowed)
        assert burn.burn_rate == expected
    assert max(burn.bad for burn in burns) > 0


async def test_a_burn_is_its_bad_share_over_what_may_be_bad(desk: Desk, reports: LedgerReports) -> None:
    desk.targets = [UP]
    at = desk.now - timedelta(minutes=2)
    good = [call(won(new_id(), started_at=at), started_at=at) for _ in range(18)]
    bad = [call(failed(new_id(), started_at=at), started_at=at) for _ in range(2)]
    await desk.store(*good, *bad)
    [burn] = await reports.burns([300])
    assert (burn.target, burn.window_s, burn.calls, burn.bad) == ("up", 300, 20, 2)
    assert burn.burn_rate == pytest.approx(10.0)


async def test_without_calls_or_targets_there_is_nothing(desk: Desk, reports: LedgerReports) -> None:
    assert list(await reports.burns(WINDOWS_S)) == []
    assert list(await reports.targets()) == []
    desk.targets = [FAST]
    assert {burn.burn_rate for burn in await reports.burns(WINDOWS_S)} == {None}
    [standing] = await reports.targets()
    assert (standing.counts.calls, standing.good_share, standing.budget_left) == (0, None, None)


async def test_bad_calls_are_listed_by_their_sql(desk: Desk, reports: LedgerReports) -> None:
    desk.targets = [Target("t", Definition(model="llama", ttft_ms=500.0, tok_s=45.0), 0.99)]
    await desk.store(*some_calls(120, days=20))
    [standing] = await reports.targets()
    listed = await desk.ask(standing.misses_sql)
    assert 0 < len(listed) == standing.counts.bad <= 100


async def test_gateways_that_count_together_count_each_window_once(desk: Desk) -> None:
    desk.targets = [FAST, UP]
    await desk.store(*some_calls(300, days=20))
    others = [
        TargetCounting(desk.url, lambda: desk.targets, utc_now=lambda: desk.now, clock=lambda: 0.0) for _ in range(3)
    ]
    for _ in range(2):  # who finds another one at work leaves it to it
        await asyncio.gather(*(other.count(desk.engine) for other in others))
    for target in desk.targets:
        for window_s in WINDOWS_S:
            length = timedelta(seconds=window_s)
            assert await desk.counts(target.definition, length) == await desk.of_rows(target.definition, length)


async def test_metrics_show_budgets_and_burns_and_forget_targets_that_are_gone(
    desk: Desk, reports: LedgerReports
) -> None:
    desk.targets = [FAST, UP]
    await desk.store(*some_calls(300, days=20))
    metrics = Metrics(dict)
    watch = TargetWatch(desk.counting, reports.targets, lambda: desk.targets, show=TargetFigures(metrics).show)
    [fast, _] = await reports.targets()
    await watch.look()
    page = (await metrics.render())[0].decode()
    assert f'holeshot_target_calls{{target="fast"}} {float(fast.counts.calls)!r}' in page
    assert f'holeshot_target_bad_calls{{target="fast"}} {float(fast.counts.bad)!r}' in page
    assert f'holeshot_target_budget_left{{target="fast"}} {fast.budget_left!r}' in page
    assert f'holeshot_target_burn_rate{{target="fast",window="3d"}} {fast.burns[2].burn_rate!r}' in page
    assert 'holeshot_target_burn_rate{target="up",window="3d"}' not in page  # longer than the target's own
    assert await desk.ask("select count(*) from target_counts") != [(0,)]
    desk.targets = [FAST]
    await watch.look()
    page = (await metrics.render())[0].decode()
    assert 'holeshot_target_calls{target="up"}' not in page
    assert f'holeshot_target_calls{{target="fast"}} {float(fast.counts.calls)!r}' in page
    await desk.counting.aclose()
