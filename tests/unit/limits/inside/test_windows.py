"""Windows of limits: hours, days, weeks and months of a zone, and what has no end."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from math import inf
from zoneinfo import ZoneInfo

import pytest

from gateway.core.calls import LimitUse
from gateway.limits import (
    LimitReached,
    Limits,
    OwnShare,
    Payer,
    Use,
    Zones,
    began_s,
    level_of_key,
    level_of_team,
    used_by_quota,
)
from gateway.limits.windows import WINDOWS, Find, day, hour, month, week
from tests.unit.limits.inside.test_limits import MODEL, NOON_S, Process, attempt, record

# Clocks change at 2 or 3 o'clock, at midnight, by half an hour; some zones are quarters of an hour off.
_WHOLE = ("Europe/Berlin", "America/Santiago", "Africa/Cairo", "America/Havana")
CHANGING = {zone: {23.0, 24.0, 25.0} for zone in _WHOLE}
CHANGING["Australia/Lord_Howe"] = {23.5, 24.0, 24.5}
ZONES = (*CHANGING, "Asia/Kathmandu", "UTC")


@pytest.mark.parametrize("zone", ZONES)
def test_in_a_year_each_hour_begins_where_the_one_before_ends_with_the_clock_of_the_zone(zone: str) -> None:
    where, found = ZoneInfo(zone), hour(datetime(2025, 12, 31, tzinfo=UTC).timestamp(), zone)
    names, short = set(), []
    while found.starts_s < datetime(2027, 1, 2, tzinfo=UTC).timestamp():
        after = hour(found.ends_s, zone)
        assert (after.starts_s, hour(found.ends_s - 0.5, zone)) == (found.ends_s, found)
        local = datetime.fromtimestamp(found.starts_s, where)
        midnight_s = day(found.starts_s, zone).starts_s
        is_changed = datetime.fromtimestamp(midnight_s, where).utcoffset() != local.utcoffset()
        assert is_changed or (local.minute, local.second) == (0, 0)
        if found.ends_s - found.starts_s < 3600:
            short.append(found)
        names.add(found.name)
        found = after
    assert len(names) >= 366 * 24
    assert len(short) == (2 if zone == "Australia/Lord_Howe" else 0)  # its days of 23.5 and 24.5 hours


async def test_an_hour_of_kathmandu_ends_at_a_quarter_past_and_then_its_dollars_are_new() -> None:
    process = Process()
    level = level_of_key("team", {"usd_per_hour": 1.0}, "Asia/Kathmandu")

    async def spend() -> None:
        await process.limits.hold("call", [level], MODEL, Use(usd=0.98, most_usd=0.98))
        process.limits.call_finished(record("call", attempt(0.98), tokens=(0, 0)))

    quarter_past_s = NOON_S // 3600 * 3600 + 900
    process.clock.now_s = quarter_past_s - 100
    await spend()
    with pytest.raises(LimitReached) as refused:
        await spend()
    assert refused.value.headers["retry-after"] == "100"
    process.clock.now_s = quarter_past_s
    await spend()
    process.clock.now_s = quarter_past_s + 3599
    with pytest.raises(LimitReached):
        await spend()


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("find", [day, week, month])
def test_in_a_year_each_window_begins_where_the_one_before_ends_at_local_midnight(find: Find, zone: str) -> None:
    where, end_s = ZoneInfo(zone), datetime(2027, 1, 2, tzinfo=UTC).timestamp()
    windows = [find(datetime(2025, 12, 31, tzinfo=UTC).timestamp(), zone)]
    while windows[-1].ends_s < end_s:
        windows.append(find(windows[-1].ends_s, zone))
    for before, after in pairwise(windows):
        assert before.ends_s == after.starts_s
        assert before.name != after.name
        assert find(after.starts_s - 1.0, zone) == before
        local = datetime.fromtimestamp(after.starts_s, where)
        assert local.date() != datetime.fromtimestamp(after.starts_s - 1.0, where).date()
    hours = {round((each.ends_s - each.starts_s) / 3600, 1) for each in windows}
    if find is day:
        assert hours == CHANGING.get(zone, {24.0})


def test_a_week_is_named_by_its_iso_year_and_begins_on_monday() -> None:
    found = week(datetime(2027, 1, 3, 23, 30, tzinfo=UTC).timestamp(), "Europe/Berlin")  # Monday there already
    assert (found.name, found.starts_s) == ("2027-W01", datetime(2027, 1, 3, 23, tzinfo=UTC).timestamp())
    assert week(datetime(2027, 1, 3, 22, 30, tzinfo=UTC).timestamp(), "Europe/Berlin").name == "2026-W53"


async def test_each_day_of_a_year_has_its_dollars_from_local_midnight_on_at_each_of_two_processes() -> None:
    where, use = ZoneInfo("Europe/Berlin"), Use(usd=0.49, most_usd=0.49)
    level = level_of_key("team", {"usd_per_day": 1.0}, "Europe/Berlin")
    processes = [Process(processes=2), Process(processes=2)]  # each has its half
    for number in range(365):
        date = datetime(2026, 1, 2, tzinfo=UTC).date() + timedelta(days=number)
        begins_s, ends_s = (_midnight(date + timedelta(days=each), where) for each in (0, 1))
        for process in processes:
            process.clock.now_s = begins_s + 1
            await process.limits.hold(f"{number}", [level], Payer("llama", "llama"), use)
            process.limits.call_finished(record(f"{number}", attempt(0.49), tokens=(0, 0)))
            process.clock.now_s = ends_s - 100
            with pytest.raises(LimitReached) as refused:
                await process.limits.hold("late", [level], Payer("llama", "llama"), use)
            assert refused.value.headers["retry-after"] == "100"


def _midnight(day: date, where: ZoneInfo) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=where).timestamp()


LONG = {"per_hour": 3570, "per_day": 43_170, "per_week": 129_570, "per_month": 820_770, "total": None}


async def begin(process: Process, use: Use, limits: Mapping[str, float] = {}, payer: Payer = MODEL) -> str:
    await process.limits.hold("call", [level_of_key("team", limits)], payer, use)
    return "call"


@pytest.mark.parametrize(("name", "ends_in_s"), LONG.items())
@pytest.mark.parametrize("unit", ["usd", "tokens"])
async def test_what_a_window_has_left_is_told_with_what_the_call_may_take_and_what_would_let_it_pass(
    unit: str, name: str, ends_in_s: int | None
) -> None:
    process, limit = Process(), f"{unit}_{name}"
    of_usd = unit == "usd"
    limits = {limit: 1.0 if of_usd else 1000.0}
    use = Use(usd=0.98, most_usd=0.98) if of_usd else Use(10.0, 980.0)
    process.end(await begin(process, use, limits), attempt(0.98), tokens=(480, 500))
    more = Use(usd=0.03, most_usd=0.3) if of_usd else Use(10.0, 30.0)
    with pytest.raises(LimitReached) as refused:
        await begin(process, more, limits)
    left, may = ("0.02", "may cost 0.3") if of_usd else ("20", "may use 30")
    assert f"this key has {left} left of its limit of 1" in refused.value.message
    assert (
        f"({limit}), and this call {may}; ask for fewer tokens (max_tokens), shorten the prompt, or "
        in refused.value.message
    )
    assert refused.value.message.endswith(": quota exceeded, it will reset then")  # Qwen Code and pi end at these words
    assert ("ask the operator for a higher limit" in refused.value.message) == (ends_in_s is None)
    expected = {"x-should-retry": "false"} | ({} if ends_in_s is None else {"retry-after": str(ends_in_s)})
    assert (refused.value.code, refused.value.headers) == ("insufficient_quota", expected)
    await begin(process, Use(usd=0.01, most_usd=0.01) if of_usd else Use(10.0, 20.0), limits)


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("unit", ["usd", "tokens"])
@pytest.mark.parametrize(
    ("used_up", "ends_in_s"),
    [
        (("per_day", "per_month"), 820_770),
        (("per_hour", "per_week"), 129_570),
        (("per_day", "total"), None),
        (("per_hour", "per_day", "per_month", "total"), None),
    ],
)
async def test_of_limits_that_are_used_up_together_the_last_to_be_new_is_told(
    unit: str, used_up: tuple[str, ...], ends_in_s: int | None, *, is_known: bool
) -> None:
    """Who waits for the first of them is refused again."""
    process, limits = Process(), {f"{unit}_{name}": 1.0 if unit == "usd" else 1000.0 for name in used_up}
    process.end(await begin(process, Use(10.0, 990.0, 0.99, 0.99), limits), attempt(1.0), tokens=(500, 500))
    more, level = Use(10.0, 30.0, 0.03, 0.03), level_of_key("team", limits)
    with pytest.raises(LimitReached) as refused:
        await begin(process, more, limits)
    if is_known:  # and is refused before work is done
        with pytest.raises(LimitReached) as refused:
            process.limits.check([level])
        with pytest.raises(LimitReached) as least:
            process.limits.check_least([level], more)
        assert least.value.limit == refused.value.limit
    assert refused.value.limit == f"{unit}_{used_up[-1]}"
    assert refused.value.headers.get("retry-after") == (None if ends_in_s is None else str(ends_in_s))


async def test_a_limit_that_is_used_up_is_told_before_one_that_running_calls_hold() -> None:
    process, limits = Process(), {"usd_per_month": 2.0, "usd_per_day": 1.0}
    process.end(await process.begin(limits, usd=0.99, most_usd=0.99), attempt(1.0))
    await process.begin({"usd_per_month": 2.0, "usd_per_day": 3.0}, usd=0.99, most_usd=0.99)  # holds what the month has
    with pytest.raises(LimitReached) as refused:
        await process.begin(limits, usd=0.1, most_usd=0.1)
    assert (refused.value.limit, refused.value.headers["retry-after"]) == ("usd_per_day", "43170")


async def test_changing_the_zone_refunds_nothing() -> None:
    process, limits = Process(), {"usd_per_day": 1.0, "usd_per_week": 1.0, "usd_per_month": 1.0, "usd_total": 1.0}
    process.end(await process.begin(limits, usd=0.98, most_usd=0.98), attempt(0.98))
    for zone in ("Europe/Berlin", "America/Los_Angeles", "Asia/Kathmandu", "UTC"):
        for own in ({name: limit} for name, limit in limits.items()):
            level = level_of_key("team", own, zone)
            with pytest.raises(LimitReached):
                await process.limits.hold("more", [level], Payer("llama", "llama"), Use(usd=0.2, most_usd=0.2))


async def test_a_model_has_limits_of_dollars_and_tokens_in_all_windows() -> None:
    for limit, least in (("usd_per_week", 0.2), ("tokens_total", 200.0), ("tokens_per_hour", 200.0)):
        process, payer = Process(), Payer("llama", "llama", {limit: 5 * least})
        in_usd = limit.startswith("usd")

        def use(amount: float, *, in_usd: bool = in_usd) -> Use:
            return Use(usd=amount, most_usd=amount) if in_usd else Use(tokens=amount)

        process.end(await begin(process, use(4.9 * least), payer=payer), attempt(0.98), tokens=(480, 500))
        with pytest.raises(LimitReached, match="the model 'llama' has") as refused:
            await begin(process, use(least), payer=payer)
        assert (refused.value.limit, refused.value.of_model) == (limit, True)
        await begin(process, use(0.05 * least), payer=payer)


async def test_a_start_goes_on_from_what_each_window_of_each_zone_has_used() -> None:
    zones = Zones("Europe/Berlin", {"team": "Asia/Tokyo"})
    instants = began_s(zones, NOON_S)
    assert instants[0] == -inf
    assert len(instants) == 2 + 2 * 3  # the hour and the total are those of all
    rows = [LimitUse(since_s, 0.5, 100.0, client="team") for since_s in instants]
    rows += [LimitUse(since_s, 0.25, 50.0, model="llama") for since_s in instants]
    rows += [LimitUse(since_s, 0.125, 25.0, client="other", team="research", end_user="ann") for since_s in instants]
    clock = Process().clock
    leases = OwnShare(1, clock=clock, unix_clock=clock)
    leases.recollect(used_by_quota(rows, NOON_S, {"team": "crew"}, zones=zones))
    limits = Limits(leases, unix_clock=clock, clock=clock)
    all_limits = {name: 10_000.0 for name in WINDOWS if name.startswith(("usd_", "tokens_"))}
    for level, usd in (
        (level_of_key("team", all_limits, "Asia/Tokyo"), 0.5),
        (level_of_team("crew", all_limits, "Europe/Berlin"), 0.5),
        (level_of_team("research", all_limits, "Europe/Berlin"), 0.125),
    ):
        for each in limits.standings(level):
            assert each.used == (usd if each.limit.startswith("usd_") else usd * 200.0), each
