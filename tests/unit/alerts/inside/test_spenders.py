"""Teams, models and end users that have spent most of their dollars are told, end users in one alert."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from gateway.alerts import (
    AlertEvent,
    EndUserSource,
    NearSource,
    Spenders,
    SpendingSource,
    Thresholds,
    model_sql,
    team_sql,
)
from gateway.core.calls import NearLimit
from gateway.limits import Limits, OwnShare, Payer, Use, level_of_end_user, level_of_key, level_of_team
from tests.unit.alerts.inside.world import RESOLVE_AFTER_S, World
from tests.unit.limits.inside.test_limits import attempt, record

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


async def none() -> Mapping[str | None, tuple[float, float]]:
    raise AssertionError("asked for clients, of which none has a limit")


def others(
    word: str, spent: Mapping[str | None, tuple[float, float]], limits: Mapping[str, Mapping[str, float]]
) -> Spenders:
    async def answer() -> Mapping[str | None, tuple[float, float]]:
        return spent

    return Spenders(word, lambda: limits, answer, team_sql if word == "team" else model_sql)


def spending(*those: Spenders) -> SpendingSource:
    thresholds = Thresholds(0.8, None, None)
    return SpendingSource(none, limits=dict, thresholds=lambda: thresholds, utc_now=lambda: NOW, others=those)


async def test_teams_and_models_are_named_when_they_have_spent_most_of_a_limit() -> None:
    teams = others(
        "team", {"a": (8.0, 8.0), "b": (7.9, 90.0)}, {"a": {"usd_per_day": 10}, "b": {"usd_per_month": 100}, "c": {}}
    )
    models = others("model", {"a": (8.0, 0.0), "b": (7.9, 0.0)}, {"a": {"usd_per_day": 10}, "b": {"usd_per_day": 10}})
    found = await spending(teams, models).conditions()
    assert [each.subject for each in found] == [
        "team:a/usd_per_day/2026-11-29",
        "team:b/usd_per_month/2026-11",
        "model:a/usd_per_day/2026-11-29",
    ]
    assert [each.summary.partition(", of a limit of ")[2] for each in found] == [
        "$10.00, which is new at 2026-11-30 00:00 UTC",
        "$100.00, which is new at 2026-12-01 00:00 UTC",
        "$10.00, which is new at 2026-11-30 00:00 UTC",
    ]
    assert found[0].summary.startswith("Team a: $8.00 spent today, of a limit of $10.00")
    assert "'2026-11-01 00:00:00+00'" in found[1].sql


async def test_who_has_no_limit_in_dollars_is_not_asked_about() -> None:
    assert await spending(Spenders("team", lambda: {"a": {"rpm": 1}}, none, team_sql)).conditions() == []


def near(n: int, zone: str = "UTC") -> Sequence[NearLimit]:
    starts = datetime(2026, 11, 29, tzinfo=ZoneInfo(zone))
    starts_s, ends_s = starts.timestamp(), (starts + timedelta(days=1)).timestamp()
    return [
        NearLimit(
            f"team:research:u{number}", "usd_per_day", "2026-11-29", starts_s, ends_s, zone, 0.8 + number / 1000, 1.0
        )
        for number in range(n)
    ]


async def test_end_users_are_one_alert_which_is_told_again_when_they_are_twice_as_many() -> None:
    world = World()
    those: list[Any] = []
    source = EndUserSource(lambda _: those, share=lambda: 0.8)
    said: list[str] = []
    for n in (0, 1, 1, 40, 41, 60, 63, 64):
        those[:] = near(n)
        world.sources[0].now = list(await source.conditions())
        await world.run(60)
        said += [key for event, key in await world.said() if event is AlertEvent.OPENED]
    assert [key.rpartition("/")[2] for key in said] == ["1", "32", "64"]
    assert len({key.rpartition("/")[0] for key in said}) == 1
    those.clear()
    world.sources[0].now = list(await source.conditions())
    await world.run(2 * RESOLVE_AFTER_S)
    assert len(await world.said()) == 3


async def test_the_sentence_names_the_first_by_their_hashes_and_says_how_many_more_there_are() -> None:
    source = EndUserSource(lambda _: near(12), share=lambda: 0.8)
    found = (await source.conditions())[-1]
    assert found.summary.startswith(
        "12 end users have spent 80% of a limit today, which is new at 2026-11-30 00:00 UTC, or more:"
        " team:research:u11 ($0.81 of $1.00), "
    )
    assert found.summary.endswith("u2 ($0.80 of $1.00) and 2 more")
    assert found.figures == {"n": 12, "limit": "usd_per_day"}


async def test_end_users_of_another_zone_are_another_alert_of_their_own_day() -> None:
    source = EndUserSource(lambda _: [*near(1), *near(1, "Asia/Kolkata")], share=lambda: 0.8)
    there, here = await source.conditions()
    assert "which is new at 2026-11-30 00:00 Asia/Kolkata" in there.summary
    assert "'2026-11-28 18:30:00+00'" in there.sql
    assert "'2026-11-29 00:00:00+00'" in here.sql
    assert there.subject != here.subject == "end users/usd_per_day/2026-11-29/1"


async def test_limits_know_which_end_users_have_used_most_of_theirs() -> None:
    def clock() -> float:
        return NOW.timestamp()

    limits = Limits(OwnShare(1, clock=clock, unix_clock=clock), unix_clock=clock, clock=clock)
    for user, usd in (("ann", 0.5), ("bob", 0.9), ("zoe", 0.0)):
        levels = [level_of_key("app", {}), level_of_end_user("client:app", user, {"usd_per_day": 1.0, "rpm": 9})]
        await limits.hold(user, levels, Payer("llama", "llama"), Use(usd=usd))
        assert [each.owner for each in limits.end_users_near(0.4)] == ["client:app:ann"] * (user != "ann")
        if user == "ann":
            limits.call_finished(record(user, attempt(usd), tokens=(1, 1)))
    [found] = limits.end_users_near(0.4)
    assert (found.owner, found.name, found.used_usd, found.limit_usd) == ("client:app:ann", "usd_per_day", 0.5, 1.0)
    assert (found.window, found.zone) == ("2026-11-29", "UTC")
    assert limits.end_users_near(0.8) == []


async def test_a_limit_of_another_zone_or_window_is_told_with_the_end_of_its_window_in_that_zone() -> None:
    def clock() -> float:
        return NOW.timestamp()

    limits = Limits(OwnShare(1, clock=clock, unix_clock=clock), unix_clock=clock, clock=clock)
    named = {"usd_per_hour": 1.0, "usd_per_day": 1.0, "usd_per_week": 1.0, "usd_per_month": 1.0, "usd_total": 1.0}
    levels = [level_of_key("app", named, "Asia/Kolkata"), level_of_team("a", {"usd_per_day": 1.0})]
    await limits.hold("1", levels, Payer("llama", "llama"), Use(usd=0.9))
    limits.call_finished(record("1", attempt(0.9), tokens=(1, 1)))
    found = await NearSource(limits.near, share=lambda: 0.8).conditions()
    words = {str(each.figures["limit"]): each.summary.partition(", of a limit of $1.00")[2] for each in found}
    assert words == {  # of the team's day the ledger tells
        "usd_per_hour": ", which is new at 2026-11-29 18:00 Asia/Kolkata",
        "usd_per_day": ", which is new at 2026-11-30 00:00 Asia/Kolkata",
        "usd_per_week": ", which is new at 2026-11-30 00:00 Asia/Kolkata",
        "usd_per_month": ", which is new at 2026-12-01 00:00 Asia/Kolkata",
        "usd_total": "",
    }
    [of_day] = [each for each in found if each.figures["limit"] == "usd_per_day"]
    assert of_day.summary.startswith("Client app: $0.90 spent today, of a limit")
