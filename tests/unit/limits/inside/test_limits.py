"""Limits of one process that has no Redis, in virtual time."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from math import inf
from random import Random
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from gateway.core.attempts import AttemptRecord, Outcome, Role, TokensSource
from gateway.core.calls import CallRecord, Level, Mode, Objective
from gateway.core.errors import InvalidRequest
from gateway.limits import (
    BudgetSpent,
    LimitReached,
    Limits,
    OwnShare,
    Payer,
    Use,
    admission,
    level_of_end_user,
    level_of_key,
    level_of_team,
    limits,
    used_by_quota,
)
from gateway.limits.quota import Quota
from gateway.limits.windows import day
from providers import Price
from tests.unit.limits.inside.used import used

if TYPE_CHECKING:
    from gateway.limits.windows import LimitWindow

NOON_S = datetime(2026, 11, 21, 12, 0, 30, tzinfo=UTC).timestamp()
MODEL = Payer("llama", "llama")
Waiting = dict[str, asyncio.Task[dict[str, str]]]


class Clock:
    """Unix time that moves when told to."""

    def __init__(self) -> None:
        self.now_s = NOON_S

    def __call__(self) -> float:
        return self.now_s


class Process:
    """One process and its calls."""

    def __init__(self, processes: int = 1, new_leases: type[OwnShare] = OwnShare) -> None:
        self.clock = Clock()
        self.leases = new_leases(processes, clock=self.clock, unix_clock=self.clock)
        self.limits = Limits(self.leases, clock=self.clock, unix_clock=self.clock)
        self.calls = 0

    async def begin(
        self,
        limits: Mapping[str, float],
        *above: Level,
        payer: Payer = MODEL,
        client: str | None = "team",
        **use: float,
    ) -> str:
        self.calls += 1
        await self.limits.hold(f"call {self.calls}", [level_of_key(client, limits), *above], payer, Use(**use))
        return f"call {self.calls}"

    def end(self, call_id: str, *attempts: AttemptRecord, tokens: tuple[int, int] = (0, 0)) -> None:
        self.limits.call_finished(record(call_id, *attempts, tokens=tokens))


def record(call_id: str, *attempts: AttemptRecord, tokens: tuple[int, int]) -> CallRecord:
    return CallRecord(
        id=call_id,
        started_at=datetime.now(UTC),
        client="team",
        model="llama",
        endpoint="chat.completions",
        streamed=True,
        mode=Mode.RACE,
        objective=Objective.READING,
        prompt_class=0,
        replica="r",
        region=None,
        launched=len(attempts),
        winner_attempt_id=None,
        status_code=200,
        error_kind=None,
        ttft_ms=None,
        total_ms=1.0,
        overhead_ms=None,
        prompt_tokens=tokens[0],
        completion_tokens=tokens[1],
        tags={},
        attempts=attempts,
    )


def attempt(usd: float | None, *, model: str | None = None, **facts: object) -> AttemptRecord:
    made = AttemptRecord(
        id="a",
        call_id="c",
        number=1,
        started_at=datetime.now(UTC),
        role=Role.PRIMARY,
        provider="p",
        deployment="p/m",
        launch_offset_ms=0.0,
        outcome=Outcome.WON,
        cost_usd=usd,
        model=model,
        client="team",
    )
    return msgspec.structs.replace(made, **facts)


async def test_requests_are_counted_by_the_minute_of_the_clock() -> None:
    process = Process()
    for _ in range(3):
        process.end(await process.begin({"rpm": 3.0}))
    with pytest.raises(LimitReached) as refused:
        await process.begin({"rpm": 3.0})
    assert refused.value.status_code == 429
    assert refused.value.headers["retry-after"] == "30"
    assert "3 requests a minute" in refused.value.message
    process.clock.now_s += 30.0
    await process.begin({"rpm": 3.0})


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
async def test_a_clock_that_jumps_an_hour_and_back_refuses_nobody_for_longer_and_forgets_nothing(jump_s: float) -> None:
    process, limits = Process(), {"rpm": 1, "usd_per_day": 10}
    process.clock.now_s = datetime(2026, 11, 21, 23 if jump_s > 0 else 0, 30, tzinfo=UTC).timestamp()
    process.end(await process.begin(limits, usd=6.0), attempt(6.0))
    process.clock.now_s += jump_s  # another day
    process.end(await process.begin(limits, usd=6.0), attempt(6.0))
    process.clock.now_s -= jump_s
    with pytest.raises(LimitReached, match="a minute"):
        await process.begin(limits)
    process.clock.now_s += 60
    with pytest.raises(LimitReached, match="a day"):
        await process.begin(limits, usd=6.0)
    await process.begin(limits, usd=3.0)


async def test_a_call_that_is_refused_by_one_limit_uses_nothing_of_the_others() -> None:
    process = Process()
    limits = {"rpm": 2.0, "max_parallel": 1.0}
    first = await process.begin(limits)
    for _ in range(5):
        with pytest.raises(LimitReached, match="max_parallel"):
            await process.begin(limits)
    process.end(first)
    await process.begin(limits)


@pytest.mark.parametrize("limits", [{"rpm": 2.0}, {"max_parallel": 2.0}])
async def test_a_call_is_not_refused_for_its_own_part_of_a_limit(limits: dict[str, float]) -> None:
    process = Process()
    for _ in range(2):
        await process.begin(limits)
    with pytest.raises(LimitReached):
        await process.begin(limits)
    levels = [level_of_key("team", limits)]
    with pytest.raises(LimitReached):
        process.limits.check(levels)
    process.limits.check(levels, is_begun=True)


async def test_parallel_beginningend_one_for_one() -> None:
    process = Process()
    running = [await process.begin({"max_parallel": 2.0}) for _ in range(2)]
    for _ in range(10):
        with pytest.raises(LimitReached):
            await process.begin({"max_parallel": 2.0})
        process.end(running.pop(0))
        running.append(await process.begin({"max_parallel": 2.0}))
    process.limits.drop(running.pop())
    await process.begin({"max_parallel": 2.0})


async def test_what_is_held_is_what_is_expected_and_what_counts_is_what_was_used() -> None:
    """A hold of the worst case would leave most of a limit unused."""
    process = Process()
    limits = {"usd_per_day": 1.0}
    calls = [await process.begin(limits, usd=0.2) for _ in range(5)]
    with pytest.raises(LimitReached):
        await process.begin(limits, usd=0.2)
    for call in calls:
        process.end(call, attempt(0.05), attempt(0.01))  # the loser is paid for as well
    for _ in range(3):
        process.end(await process.begin(limits, usd=0.2), attempt(0.2))
    with pytest.raises(LimitReached) as refused:
        await process.begin(limits, usd=0.2)  # 0.9 are spent
    assert (refused.value.code, refused.value.type) == ("insufficient_quota", "insufficient_quota")
    await process.begin(limits, usd=0.1)


async def test_the_overshoot_is_what_running_beginningcost_beyond_what_they_held() -> None:
    process = Process()
    calls = [await process.begin({"usd_per_day": 1.0}, usd=0.25) for _ in range(4)]
    for call in calls:
        process.end(call, attempt(0.5))
    with pytest.raises(LimitReached):
        await process.begin({"usd_per_day": 1.0}, usd=0.0001)


async def test_tokens_are_the_clients_and_losers_are_not() -> None:
    process = Process()
    process.end(await process.begin({"tpm": 1000.0}, prompt_tokens=100, tokens=300), tokens=(100, 850))
    with pytest.raises(LimitReached, match="tokens a minute"):
        await process.begin({"tpm": 1000.0}, prompt_tokens=20, tokens=60)
    await process.begin({"tpm": 1000.0}, prompt_tokens=20, tokens=40)


async def test_a_prompt_that_no_minute_has_room_for_is_a_bad_request() -> None:
    process = Process()
    with pytest.raises(InvalidRequest, match="tpm") as refused:
        await process.begin({"tpm": 1000.0}, prompt_tokens=1001, tokens=1100)
    assert refused.value.status_code == 400


async def test_a_day_ends_at_midnight_utc_and_a_month_with_its_last_day() -> None:
    process = Process()
    process.clock.now_s = datetime(2026, 11, 29, 23, 59, 0, tzinfo=UTC).timestamp()
    limits = {"usd_per_day": 1.0, "usd_per_month": 1.5}
    process.end(await process.begin(limits, usd=1.0), attempt(1.0))
    with pytest.raises(LimitReached) as refused:
        await process.begin(limits, usd=0.5)
    assert refused.value.headers["retry-after"] == "60"
    process.clock.now_s += 60.0
    process.end(await process.begin(limits, usd=0.5), attempt(0.5))
    with pytest.raises(LimitReached, match="usd_per_month"):
        await process.begin(limits, usd=0.1)
    process.clock.now_s += 24 * 3600.0
    await process.begin(limits, usd=1.0)


async def test_a_call_counts_in_the_window_in_which_it_began() -> None:
    process = Process()
    process.clock.now_s = datetime(2026, 11, 21, 23, 59, 59, tzinfo=UTC).timestamp()
    running = await process.begin({"usd_per_day": 1.0}, usd=0.5)
    process.clock.now_s += 2.0
    process.end(running, attempt(1.0))
    await process.begin({"usd_per_day": 1.0}, usd=1.0)


@pytest.mark.parametrize(("source", "left"), [(TokensSource.REPORTED, 0), (TokensSource.IMPLAUSIBLE, 900)])
async def test_a_count_that_cannot_be_holds_no_more_tokens_than_its_call_did(source: TokensSource, left: int) -> None:
    process = Process()
    running = await process.begin({"tpm": 1000}, tokens=100.0)
    ended = record(running, attempt(0.0), tokens=(10, 1_000_000))
    process.limits.call_finished(msgspec.structs.replace(ended, tokens_source=source))
    with pytest.raises(LimitReached):
        await process.begin({"tpm": 1000}, prompt_tokens=left + 1.0, tokens=left + 1.0)
    if left:
        await process.begin({"tpm": 1000}, prompt_tokens=1.0 * left, tokens=1.0 * left)


async def test_an_audited_loser_counts_when_it_ends_after_its_call() -> None:
    process = Process()
    payer = Payer("llama", "llama", {"usd_per_day": 10.0})
    process.end(await process.begin({"usd_per_day": 1.0}, payer=payer, usd=0.1), attempt(0.1))
    process.limits.attempt_audited(attempt(0.9, model="llama"))
    with pytest.raises(LimitReached, match="this key"):
        await process.begin({"usd_per_day": 1.0}, payer=payer, usd=0.01)
    with pytest.raises(LimitReached, match="the model 'llama'"):
        await process.begin({}, payer=payer, usd=9.01)
    await process.begin({}, payer=payer, usd=8.99)


async def test_a_model_has_a_limit_of_its_own_and_a_fallback_pays_for_itself() -> None:
    process = Process()
    dear, spare = Payer("llama", "llama", {"usd_per_day": 1.0}), Payer("spare", "spare", {"usd_per_day": 1.0})
    call = await process.begin({}, payer=dear, usd=0.5)
    await process.limits.hold_fallback(call, spare, Use(usd=0.5))
    process.end(call, attempt(0.1, model="llama"), attempt(0.9, model="spare"))
    await process.begin({}, payer=dear, usd=0.9)
    with pytest.raises(LimitReached) as refused:
        await process.begin({}, payer=spare, usd=0.2)
    assert refused.value.of_model


async def test_a_model_that_is_asked_once_more_by_the_same_call_holds_its_dollars_once() -> None:
    process, dear = Process(), Payer("llama", "llama", {"usd_per_day": 1.0})
    call = await process.begin({}, payer=dear, usd=0.4)
    for _ in range(3):
        await process.limits.hold_fallback(call, dear, Use(usd=0.4))
    other = await process.begin({}, payer=dear, usd=0.5)
    process.end(call, attempt(0.1, model="llama"))
    process.end(other, attempt(0.1, model="llama"))
    await process.begin({}, payer=dear, usd=0.8)


async def test_a_call_that_leaves_while_its_model_asks_for_a_lease_holds_nothing() -> None:
    class SilentForModels(OwnShare):
        async def enlarge(
            self, short: Sequence[tuple[Quota, float]], patience_s: float, beyond_usd: float = 0.0
        ) -> None:
            if any(quota.key.startswith("model:") for quota, _ in short):
                asks.set()
                await asyncio.Event().wait()
            await super().enlarge(short, patience_s, beyond_usd)

    process, asks = Process(new_leases=SilentForModels), asyncio.Event()
    mine, payer = {"max_parallel": 1.0, "usd_per_day": 5.0}, Payer("llama", "llama", {"usd_per_day": 1.0})
    call = asyncio.create_task(process.begin(mine, payer=payer, usd=0.5))
    await asks.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert [each.used for each in process.limits.standings(level_of_key("team", mine))] == [0.0, 0.0]


async def test_a_call_waits_for_a_lease_that_others_use_up_while_it_waits_for_another() -> None:
    class Slow(OwnShare):
        async def enlarge(
            self, short: Sequence[tuple[Quota, float]], patience_s: float, beyond_usd: float = 0.0
        ) -> None:
            for quota, amount in short:
                if quota.name == "max_parallel":
                    asks.set()
                    await granted.wait()
                quota.leased(quota.held + amount, reported=quota.used, at_s=process.clock(), until_s=inf)

    process, asks, granted = Process(new_leases=Slow), asyncio.Event(), asyncio.Event()
    team = level_of_team("research", {"rpm": 10.0})
    process.limits.drop(await process.begin({}, team))  # one request is leased, and free again
    slow = asyncio.create_task(process.begin({"max_parallel": 1.0}, team))
    await asks.wait()
    await process.begin({}, team, client="other")
    granted.set()
    await slow
    assert [each.used for each in process.limits.standings(team)] == [2.0]


async def test_a_deployment_without_a_price_counts_as_the_models_dearest() -> None:
    process = Process()
    payer = Payer("llama", "llama", dearest=Price(0.001, 0.01))
    unpriced = attempt(None, prompt_tokens=100, completion_tokens=40)
    process.end(await process.begin({"usd_per_day": 1.0}, payer=payer, usd=0.5), unpriced)
    with pytest.raises(LimitReached):
        await process.begin({"usd_per_day": 1.0}, payer=payer, usd=0.51)
    await process.begin({"usd_per_day": 1.0}, payer=payer, usd=0.5)


async def test_lists_of_deployments_that_clients_make_up_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MOST_PAYERS", 3)
    process = Process()
    for number in range(5):
        process.end(await process.begin({"rpm": 9.0}, payer=Payer(f"a/m,a/{number}", "a/m", dearest=Price(1.0, 1.0))))
    assert list(process.limits._payers) == ["a/m,a/2", "a/m,a/3", "a/m,a/4"]


async def test_processes_that_cannot_talk_have_a_share_each() -> None:
    process = Process(processes=4)
    for _ in range(15):
        await process.begin({"rpm": 60.0})
    with pytest.raises(LimitReached):
        await process.begin({"rpm": 60.0})


async def test_a_restart_goes_on_from_what_the_ledger_knows() -> None:
    process = Process()
    now_s = process.clock()
    spent = [*used(now_s, 0.7, 5.7, client="team"), *used(now_s, 9.0, 9.0), *used(now_s, 9.1, 9.1, model="qwen")]
    process.leases.recollect(used_by_quota(spent, now_s))
    with pytest.raises(LimitReached):
        await process.begin({"usd_per_day": 1.0, "usd_per_month": 10.0}, usd=0.31)
    await process.begin({"usd_per_day": 1.0, "usd_per_month": 10.0}, usd=0.3)
    with pytest.raises(LimitReached, match="the model 'qwen'"):
        await process.begin({}, payer=Payer("qwen", "qwen", {"usd_per_day": 9.2}), usd=0.2)


async def test_what_a_model_has_spent_through_lists_counts_after_a_restart() -> None:
    process = Process()
    now_s, names = process.clock(), (("qwen", 0.5), ("qwen, llama", 0.4))
    spent = [each for name, usd in names for each in used(now_s, usd, usd, model=name)]
    process.leases.recollect(used_by_quota(spent, process.clock(), payer_of=lambda name: name.partition(",")[0]))
    with pytest.raises(LimitReached, match="the model 'qwen'"):
        await process.begin({}, payer=Payer("qwen", "qwen", {"usd_per_day": 1.0}), usd=0.2)


async def test_what_the_ledger_says_late_still_counts() -> None:
    process = Process()
    process.end(await process.begin({"usd_per_day": 1.0}, usd=0.1), attempt(0.1))
    process.leases.recollect(used_by_quota(used(process.clock(), 0.8, 0.8, client="team"), process.clock()))
    with pytest.raises(LimitReached):
        await process.begin({"usd_per_day": 1.0}, usd=0.11)
    await process.begin({"usd_per_day": 1.0}, usd=0.1)


async def test_other_limits_apply_at_once_and_what_was_used_counts_on() -> None:
    process = Process()
    for _ in range(3):
        process.end(await process.begin({"rpm": 3.0}))
    process.end(await process.begin({"rpm": 5.0}))
    process.end(await process.begin({"rpm": 5.0}))
    with pytest.raises(LimitReached):
        await process.begin({"rpm": 5.0})
    with pytest.raises(LimitReached):
        await process.begin({"rpm": 2.0})
    await process.begin({})


async def test_a_limit_that_is_taken_away_and_put_back_counts_on() -> None:
    process = Process()
    process.end(await process.begin({"usd_per_day": 1.0, "rpm": 9.0}, usd=0.1), attempt(1.0))
    process.end(await process.begin({"rpm": 9.0}, usd=0.1), attempt(1.0))
    with pytest.raises(LimitReached):
        await process.begin({"usd_per_day": 1.5, "rpm": 9.0}, usd=0.6)


async def test_a_client_with_nothing_left_is_refused_before_its_request_is_read() -> None:
    process = Process()
    process.limits.check([level_of_key("team", {"rpm": 1.0})])
    process.end(await process.begin({"rpm": 1.0}))
    with pytest.raises(LimitReached):
        await process.begin({"rpm": 1.0})
    with pytest.raises(LimitReached):
        process.limits.check([level_of_key("team", {"rpm": 1.0})])
    process.limits.check([level_of_key("other", {"rpm": 1.0})])
    process.limits.check([level_of_key("team", {"rpm": 2.0})])


async def test_headers_say_what_is_left_of_the_minute() -> None:
    process = Process()
    headers = await process.limits.hold(
        "c", [level_of_key("team", {"rpm": 10.0, "tpm": 500.0})], MODEL, Use(10.0, 100.0, 0.0)
    )
    assert headers == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "9",
        "x-ratelimit-reset-requests": "30s",
        "x-ratelimit-limit-tokens": "500",
        "x-ratelimit-remaining-tokens": "400",
        "x-ratelimit-reset-tokens": "30s",
    }


async def test_standings_say_what_is_used_and_held_and_when_that_ends() -> None:
    process, limits = Process(), {"rpm": 10.0, "max_parallel": 2.0, "usd_per_day": 5.0}

    def standings() -> dict[str, tuple[float | None, float | None]]:
        return {
            each.limit: (each.used, each.resets_in_s) for each in process.limits.standings(level_of_key("team", limits))
        }

    day_s = 12 * 3600.0 - 30
    assert standings() == {"rpm": (0.0, 30.0), "max_parallel": (0.0, None), "usd_per_day": (0.0, day_s)}
    call_id = await process.begin(limits, usd=0.5)
    assert standings() == {"rpm": (1.0, 30.0), "max_parallel": (1.0, None), "usd_per_day": (0.5, day_s)}
    process.end(call_id)
    assert standings() == {"rpm": (1.0, 30.0), "max_parallel": (0.0, None), "usd_per_day": (0.0, day_s)}
    process.clock.now_s += 30
    assert standings()["rpm"] == (0.0, 60.0)
    assert [each.of for each in process.limits.standings(level_of_key("team", {"rpm": 7.0}))] == [7.0]


async def test_standings_keep_what_is_used_and_held_when_a_limit_changes_or_its_past_is_read() -> None:
    process, limits, more = Process(), {"usd_per_day": 5.0}, {"usd_per_day": 7.0}
    await process.begin(limits, usd=0.5)
    await process.begin(more, usd=0.25)
    process.limits.check_least([level_of_key("team", limits)], Use())  # a reload has lowered the limit
    assert [each.used for each in process.limits.standings(level_of_key("team", limits))] == [0.75]
    process.leases.recollect(used_by_quota(used(process.clock(), 1.0, 1.0, client="team"), process.clock()))
    assert [each.used for each in process.limits.standings(level_of_key("team", limits))] == [1.75]


async def test_of_other_processes_nothing_is_known_before_the_first_call() -> None:
    process, limits = Process(processes=2), {"rpm": 10.0}
    assert [each.used for each in process.limits.standings(level_of_key("team", limits))] == [None]
    await process.begin(limits)
    assert [each.used for each in process.limits.standings(level_of_key("team", limits))] == [1.0]


async def test_a_call_counts_at_its_key_its_team_and_its_end_user_and_the_error_says_whose_limit_it_was() -> None:
    process = Process()
    team, user = level_of_team("research", {"rpm": 5.0}), level_of_end_user("team:research", "u1", {"rpm": 2.0})
    for _ in range(2):
        process.end(await process.begin({"rpm": 3.0}, team, user))
    with pytest.raises(LimitReached, match=r"^this end user has reached its limit of 2 requests a minute"):
        await process.begin({"rpm": 3.0}, team, user)
    process.end(await process.begin({"rpm": 3.0}, team))
    with pytest.raises(LimitReached, match=r"^this key has reached"):
        await process.begin({"rpm": 3.0}, team)
    for _ in range(2):
        process.end(await process.begin({"rpm": 3.0}, team, client="other"))
    with pytest.raises(LimitReached, match=r"^the team 'research' has reached its limit of 5 "):
        await process.begin({"rpm": 3.0}, team, client="other")
    assert [each.used for each in process.limits.standings(team)] == [5.0]


async def test_what_one_level_refuses_counts_at_none() -> None:
    process = Process()
    team = level_of_team("research", {"usd_per_day": 1.0, "max_parallel": 1.0})
    call = await process.begin({"rpm": 3.0}, team, usd=0.1)
    with pytest.raises(LimitReached, match=r"^the team"):
        await process.begin({"rpm": 3.0}, team, usd=0.1)
    process.end(call, attempt(0.4))
    assert [each.used for each in process.limits.standings(team)] == [0.4, 0.0]
    assert [each.used for each in process.limits.standings(level_of_key("team", {"rpm": 3.0}))] == [1.0]


async def test_dollars_of_audited_losers_and_of_before_the_start_count_for_the_team_too() -> None:
    process = Process()
    team = level_of_team("research", {"usd_per_day": 2.0})
    spent = used(process.clock(), 1.0, 1.0, client="team")
    process.leases.recollect(used_by_quota(spent, process.clock(), {"team": "research"}))
    process.end(await process.begin({}, team, payer=Payer("llama", "llama", dearest=Price(1.0, 1.0)), usd=0.1))
    process.limits.attempt_audited(attempt(0.75, model="llama"))
    with pytest.raises(LimitReached, match=r"^the team"):
        await process.begin({}, team, usd=0.3)
    await process.begin({}, team, usd=0.2)


async def test_of_end_users_who_are_over_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_END_USERS", 10)
    process, own = Process(), {"rpm": 1.0, "usd_per_month": 5.0}
    for minute in range(20):
        process.clock.now_s = NOON_S + 120 * minute
        for number in range(10):
            user = level_of_end_user("client:team", f"user {minute} {number}", own)
            process.end(await process.begin({}, user))
    months = [key for key in process.leases._kept if ":usd_per_month:" in key]
    assert len(months) <= 20


async def test_a_new_quota_does_not_take_longer_the_more_there_are() -> None:
    looked = 0

    class Endless:
        name = "now"

        @property
        def ends_s(self) -> float:
            nonlocal looked
            looked += 1
            return inf

    leases = Process().leases
    for number in range(2_000):
        quota = Quota(f"user:{number}", "max_parallel", 1.0, cast("LimitWindow", Endless()))
        await leases.enlarge([(quota, 1.0)], 0.0)
    assert looked < 2 * 2_000


async def test_end_users_beyond_the_most_keep_limits_of_their_own_whoever_else_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MOST_END_USERS", 3)
    process, own = Process(), {"rpm": 2.0, "tokens_total": 100.0}
    users = [level_of_end_user("client:team", f"u{number}", own) for number in range(8)]
    for tokens in (60, 30):
        for user in users:
            process.end(await process.begin({}, user, tokens=10.0), tokens=(tokens, 0))
    for user in users:
        with pytest.raises(LimitReached, match=r"^this end user has reached its limit of 2 requests a minute"):
            await process.begin({}, user, tokens=10.0)
    process.clock.now_s += 60.0
    for user in users:
        process.end(await process.begin({}, user, tokens=10.0), tokens=(10, 0))
    for user in users:
        with pytest.raises(LimitReached, match=r"^this end user has reached its limit of 100 tokens in all"):
            await process.begin({}, user, tokens=10.0)
    assert {f"{user.owner}:tokens_total:total" for user in users} <= process.limits.counted()
    assert process.limits.sharing == 0
    assert len(process.leases._kept) <= 3 * len(own)


async def test_only_while_calls_of_as_many_end_users_run_further_ones_share_an_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MOST_END_USERS", 3)
    process = Process()

    async def begin(user: str) -> str:
        return await process.begin({}, level_of_end_user("client:team", user, {"max_parallel": 1.0}))

    running = [await begin(user) for user in ("u1", "u2", "u3", "u4")]
    with pytest.raises(LimitReached, match=r"^this end user"):
        await begin("u5")  # has the same account as u4
    assert process.limits.sharing == 2
    for each in running:
        process.end(each)
    for user in ("u5", "u6", "u7", "u8"):
        process.end(await begin(user))
    assert process.limits.sharing == 2


async def test_the_headers_tell_of_the_level_with_least_left() -> None:
    process = Process()
    levels = [level_of_key("team", {"rpm": 10.0}), level_of_team("research", {"rpm": 4.0, "tpm": 500.0})]
    headers = await process.limits.hold("c", levels, MODEL, Use(10.0, 100.0, 0.0))
    assert headers["x-ratelimit-remaining-requests"] == "3"
    assert headers["x-ratelimit-limit-tokens"] == "500"


async def begun_at_once(
    process: Process, calls: int, limits: Mapping[str, float], *, usd: float, most_usd: float
) -> list[str]:
    """Begin so many calls at once; return those that were admitted."""
    begun = await asyncio.gather(
        *(process.begin(limits, usd=usd, most_usd=most_usd) for _ in range(calls)), return_exceptions=True
    )
    return [each for each in begun if isinstance(each, str)]


@pytest.mark.parametrize("most_usd", [0.01, 0.3, 1.0, 7.0])
async def test_however_long_the_answers_a_limit_in_dollars_is_exceeded_by_one_call_and_short_ones_use_all_of_it(
    most_usd: float,
) -> None:
    attacked, fair = Process(), Process()
    limits = {"usd_per_day": 1.0, "usd_per_month": 20.0}
    for _ in range(200):  # teach that answers are short
        attacked.end(await attacked.begin(limits, usd=0.0001, most_usd=most_usd), attempt(0.0001))
    spent = 0.02
    while begun := await begun_at_once(attacked, 400, limits, usd=0.0001, most_usd=most_usd):
        for call in begun:
            attacked.end(call, attempt(most_usd))
            spent += most_usd
    assert spent <= 1.0 + most_usd

    for _ in range(100):
        fair.end(await fair.begin(limits, usd=0.01, most_usd=most_usd), attempt(0.01))
    with pytest.raises(LimitReached) as refused:
        await fair.begin(limits, usd=0.01, most_usd=most_usd)
    assert refused.value.code == "insufficient_quota"


async def test_dollars_that_running_beginningmay_still_use_are_free_again_when_they_end() -> None:
    process, limits = Process(), {"usd_per_day": 1.0}
    begun = await begun_at_once(process, 10, limits, usd=0.01, most_usd=0.3)
    assert len(begun) == 4  # the last one may go beyond
    with pytest.raises(LimitReached) as refused:
        await process.begin(limits, usd=0.01, most_usd=0.3)
    assert (refused.value.code, refused.value.headers) == ("rate_limit_exceeded", {"retry-after": "1"})
    assert "held for running calls" in refused.value.message
    process.limits.check([level_of_key("team", limits)])  # the next request is read all the same
    process.end(begun[0], attempt(0.01))
    await process.begin(limits, usd=0.01, most_usd=0.3)


async def test_a_key_with_most_of_its_dollars_left_is_not_told_that_they_are_spent() -> None:
    process, limits = Process(), {"usd_per_day": 0.03}
    process.end(await process.begin(limits, usd=0.01, most_usd=0.01), attempt(0.01))
    with pytest.raises(LimitReached) as refused:
        await process.begin(limits, usd=0.05, most_usd=0.5)
    assert refused.value.message == (
        "this key has its limit of 0.03 US dollars a day (usd_per_day), and this call alone needs about 0.05;"
        " ask for fewer tokens (max_tokens), shorten the prompt, or ask the operator for a higher limit"
    )
    assert refused.value.headers == {"x-should-retry": "false"}  # it is no use to wait: no day has room for it
    with pytest.raises(LimitReached, match="this call alone needs about 0"):
        process.limits.check_least([level_of_key("team", limits)], Use(usd=0.05))
    process.limits.check([level_of_key("team", limits)])  # the next request is read all the same
    process.end(await process.begin(limits, usd=0.0199, most_usd=0.0199), attempt(0.0199))
    told = r"^this key has 0\.0001 left of its limit of 0\.03 .*, and this call may cost 0\.001; ask for .*, or try "
    with pytest.raises(LimitReached, match=told) as refused:
        await process.begin(limits, usd=0.001, most_usd=0.001)
    assert refused.value.code == "insufficient_quota"
    process.end(await process.begin(limits, usd=0.0001, most_usd=0.0001), attempt(0.0001))
    with pytest.raises(LimitReached, match=r"^this key has reached its limit of 0\.03 US dollars a day"):
        await process.begin(limits, usd=0.001, most_usd=0.001)


async def test_what_is_left_is_not_told_where_other_processes_may_have_used_their_share() -> None:
    process, limits = Process(processes=2), {"usd_per_day": 1.0}
    process.end(await process.begin(limits, usd=0.499, most_usd=0.499), attempt(0.499))
    with pytest.raises(LimitReached, match=r"^this key has used this process's part of its limit of 1 "):
        await process.begin(limits, usd=0.01, most_usd=0.01)


async def test_what_was_used_before_a_start_is_no_other_processs_part() -> None:
    process, limits = Process(), {"usd_per_day": 1.0}
    owner, today = level_of_key("team", limits).owner, day(process.clock()).name
    process.leases.recollect({f"{owner}:usd_per_day:{today}": 0.99})
    with pytest.raises(
        LimitReached, match=r"^this key has 0\.01 left of its limit of 1 .*, and this call may cost 0\.2;"
    ):
        await process.begin(limits, usd=0.2, most_usd=0.2)
    process.end(await process.begin(limits, usd=0.01, most_usd=0.01), attempt(0.01))
    with pytest.raises(LimitReached, match=r"^this key has reached its limit of 1 "):
        await process.begin(limits, usd=0.2, most_usd=0.2)


async def test_tokens_that_running_calls_hold_are_not_told_as_used() -> None:
    process, limits = Process(), {"tpm": 500.0}
    begun = await process.begin(limits, prompt_tokens=10, tokens=400)
    with pytest.raises(LimitReached, match="held for running calls") as refused:
        await process.begin(limits, prompt_tokens=10, tokens=400)
    assert (refused.value.limit, refused.value.headers) == ("tpm", {"retry-after": "1"})
    levels = [level_of_key("team", limits)]
    process.limits.check(levels)  # the next request is read all the same
    with pytest.raises(LimitReached, match="held for running calls"):
        process.limits.check_least(levels, Use(prompt_tokens=101))
    process.end(begun, tokens=(10, 5))
    process.end(await process.begin(limits, prompt_tokens=10, tokens=400), tokens=(10, 190))
    with pytest.raises(LimitReached, match="has 285 left of its limit of 500 tokens a minute") as refused:
        await process.begin(limits, prompt_tokens=10, tokens=400)
    assert refused.value.headers == {"retry-after": "30"}


async def test_a_dearer_fallback_holds_what_it_may_cost_on_the_clients_limits_too() -> None:
    process, limits = Process(), {"usd_per_day": 1.0}
    call = await process.begin(limits, usd=0.001, most_usd=0.01)
    await process.limits.hold_fallback(call, Payer("opus", "opus"), Use(usd=0.1, most_usd=0.9))
    begun = await begun_at_once(process, 10, limits, usd=0.001, most_usd=0.05)
    assert len(begun) == 2
    for each in (call, *begun):
        process.end(each, attempt(0.1))
    assert [each.used for each in process.limits.standings(level_of_key("team", limits))] == [pytest.approx(0.3)]


async def test_a_call_that_its_client_left_counts_at_what_it_may_still_cost() -> None:
    process, limits = Process(), {"usd_per_day": 1.0}
    gone = attempt(0.0001, outcome=Outcome.CLIENT_GONE, cost_low_usd=0.0, cost_high_usd=0.9)
    process.end(await process.begin(limits, usd=0.001, most_usd=1.0), gone)
    assert [each.used for each in process.limits.standings(level_of_key("team", limits))] == [0.9]
    no_price = attempt(None, outcome=Outcome.CLIENT_GONE)
    process.end(await process.begin(limits, usd=0.001, most_usd=0.05), no_price)
    assert [each.used for each in process.limits.standings(level_of_key("team", limits))] == [pytest.approx(0.95)]


async def test_a_call_that_its_client_left_counts_at_what_such_calls_usually_cost_at_most() -> None:
    process, limits = Process(), {"usd_per_day": 2.0}
    gone = attempt(0.0001, outcome=Outcome.CLIENT_GONE, cost_low_usd=0.0, usual_high_usd=0.2, cost_high_usd=1.5)
    process.end(await process.begin(limits, usd=0.001, most_usd=1.0), gone)
    assert [each.used for each in process.limits.standings(level_of_key("team", limits))] == [0.2]


async def test_a_call_that_its_client_left_counts_in_its_models_limit_at_what_is_known_of_it() -> None:
    process, payer = Process(), Payer("llama", "llama", {"usd_per_day": 1.0})
    gone = attempt(0.0001, outcome=Outcome.CLIENT_GONE, limit_usd=0.3)  # and searches that nobody has counted
    await process.limits.hold("call", [], payer, Use(usd=0.001, most_usd=0.4))
    process.end("call", gone)
    assert process.limits.model_dollars() == {"llama": pytest.approx(0.7)}


async def waiting(
    process: Process, calls: int, limits: Mapping[str, float], line_s: float = 9.0, **use: float
) -> Waiting:
    """Begin so many calls that wait in line where running ones hold the dollars; return their tasks by call."""
    found: Waiting = {}
    for _ in range(calls):
        process.calls += 1
        call = f"call {process.calls}"
        levels = [level_of_key("team", limits)]
        found[call] = asyncio.ensure_future(process.limits.hold(call, levels, MODEL, Use(**use), line_s=line_s))
        await asyncio.sleep(0)
    return found


@pytest.mark.parametrize(("most_usd", "limit"), [(0.3, 1.0), (1.92, 1.0), (1.92, 0.5)])
async def test_of_forty_calls_at_once_those_go_one_after_another_that_are_too_many(
    most_usd: float, limit: float
) -> None:
    process, limits, spent = Process(), {"usd_per_day": limit}, 0.0
    begun = await waiting(process, 40, limits, usd=0.01, most_usd=most_usd)
    order: list[str] = []
    while running := [call for call, task in begun.items() if task.done()]:
        assert len(running) <= 1 + (limit - spent) / most_usd
        for call in running:
            assert begun.pop(call).exception() is None
            order.append(call)
            process.end(call, attempt(0.0125))
            spent += 0.0125
        for _ in range(9):
            await asyncio.sleep(0)
    assert len(order) == 40
    assert order == sorted(order, key=lambda call: int(call.split()[1]))  # first come, first served


async def test_forty_calls_at_once_with_the_longest_answers_exceed_a_limit_in_dollars_by_one() -> None:
    process, limits, spent, refused = Process(), {"usd_per_day": 1.0}, 0.0, 0
    begun = await waiting(process, 40, limits, usd=0.01, most_usd=0.32)
    while running := [call for call, task in begun.items() if task.done()]:
        for call in running:
            if (error := begun.pop(call).exception()) is None:
                process.end(call, attempt(0.32))
                spent += 0.32
            else:
                assert isinstance(error, LimitReached)
                assert error.code == "insufficient_quota"  # nothing is left, so nothing is waited for
                refused += 1
        for _ in range(9):
            await asyncio.sleep(0)
    assert (spent, refused) == (pytest.approx(1.28), 36)


async def test_who_waits_in_line_too_long_is_told_to_come_again_and_who_leaves_makes_way() -> None:
    process, limits = Process(), {"usd_per_day": 1.0}
    first = await process.begin(limits, usd=0.01, most_usd=2.0)
    patient = await waiting(process, 3, limits, usd=0.01, most_usd=2.0)
    (_, one), (second, two), (third, three) = patient.items()
    one.cancel()
    [(_, late)] = (await waiting(process, 1, limits, line_s=0.001, usd=0.01, most_usd=2.0)).items()
    with pytest.raises(LimitReached, match="held for running calls") as refused:
        await late
    assert refused.value.headers == {"retry-after": "1"}
    process.end(first, attempt(0.01))
    await two
    assert not three.done()
    process.limits.drop(second)
    await three
    process.limits.drop(third)
    assert not process.limits._admission.lines


async def test_so_many_wait_in_line_and_further_ones_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MOST_WAITING", 3)
    process, limits = Process(), {"usd_per_day": 1.0}
    await process.begin(limits, usd=0.01, most_usd=2.0)
    begun = await waiting(process, 3, limits, usd=0.01, most_usd=2.0)
    [(_, fourth)] = (await waiting(process, 1, limits, usd=0.01, most_usd=2.0)).items()
    with pytest.raises(LimitReached, match="held for running calls"):
        await fourth
    for task in begun.values():
        task.cancel()


@pytest.mark.parametrize("limit", [0.5, 1.0])
async def test_a_day_of_usual_calls_leaves_less_than_a_tenth_of_a_limit_unused(limit: float) -> None:
    """Whatever a call is expected to cost, and may cost: those of this day cost some cents."""
    process, limits, spent, random = Process(), {"usd_per_day": limit}, 0.0, Random(5)
    with suppress(BudgetSpent):
        while True:
            call = await process.begin(limits, usd=0.4, most_usd=1.92)
            process.end(call, attempt(usd := random.uniform(0.01, 0.04)))
            spent += usd
    assert 0.9 * limit <= spent <= limit + 0.04


async def test_a_dearer_fallback_is_held_for_by_the_only_call_that_goes_beyond_a_limit() -> None:
    process, limits = Process(), {"usd_per_day": 1.0}
    call = await process.begin(limits, usd=0.01, most_usd=1.9)
    await process.limits.hold_fallback(call, Payer("opus", "opus"), Use(usd=0.1, most_usd=9.6))
    with pytest.raises(LimitReached, match="held for running calls"):
        await process.begin(limits, usd=0.01, most_usd=1.9)
    process.end(call, attempt(0.1))
    small = await process.begin(limits, usd=0.01, most_usd=0.5)
    other = await process.begin(limits, usd=0.01, most_usd=0.8)
    await process.limits.hold_fallback(small, Payer("opus", "opus"), Use(usd=0.1, most_usd=9.6))
    with pytest.raises(LimitReached, match="held for running calls"):  # the small one goes beyond already
        await process.limits.hold_fallback(other, Payer("opus", "opus"), Use(usd=0.1, most_usd=9.6))
