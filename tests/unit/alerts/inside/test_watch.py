"""When alerts open and end: once for each incident, over all replicas, restarts and a database that is away."""

import asyncio
from datetime import timedelta

import msgspec
import pytest
import structlog

from gateway.alerts import AlertEvent, AlertKind, AlertScope
from gateway.alerts.alert import key_of
from tests.unit.alerts.inside.world import EVERY_S, RESOLVE_AFTER_S, START, World, condition

OPENED, RESOLVED = AlertEvent.OPENED, AlertEvent.RESOLVED
KEY = "model_out:m"


async def test_a_condition_is_said_once_while_it_lasts_and_once_when_it_is_over() -> None:
    world = World()
    world.sources[0].now = [condition()]
    await world.run(3600)
    assert await world.said() == [(OPENED, KEY)]
    world.sources[0].now = []
    await world.run(3600)
    assert await world.said() == [(RESOLVED, KEY)]
    assert (world.counts[0].opened, world.counts[0].resolved) == (["model_out"], ["model_out"])


async def test_of_three_replicas_that_see_it_one_says_it() -> None:
    world = World(replicas=3)
    for source in world.sources:
        source.now = [condition()]
    await world.run(600)
    for source in world.sources:
        source.now = []
    await world.run(600)
    assert await world.said() == [(OPENED, KEY), (RESOLVED, KEY)]
    assert sum(len(each.opened) for each in world.counts) == 1


async def test_it_is_resolved_only_when_it_was_not_seen_for_a_while() -> None:
    world = World()
    world.sources[0].now = [condition()]
    await world.run(60)
    world.sources[0].now = []
    await world.run(RESOLVE_AFTER_S)
    assert await world.said() == [(OPENED, KEY)]
    await world.run(EVERY_S)
    assert await world.said() == [(RESOLVED, KEY)]


async def test_one_that_comes_and_goes_is_one_incident() -> None:
    world = World()
    for _ in range(20):
        world.sources[0].now = [condition()]
        await world.run(60)
        world.sources[0].now = []
        await world.run(RESOLVE_AFTER_S - 60)
    assert await world.said() == [(OPENED, KEY)]


async def test_one_that_opens_again_soon_after_its_end_says_so() -> None:
    world = World()
    for quiet_s in (600.0, 7200.0, 0.0):
        world.sources[0].now = [condition()]
        await world.run(60)
        world.sources[0].now = []
        await world.run(RESOLVE_AFTER_S + quiet_s)
    first, again, later = sorted(await world.book.current(START), key=lambda alert: alert.opened_at)
    assert first.summary == later.summary == condition().summary
    assert again.summary == f"Again, 10 min after its end: {first.summary}"
    assert (again.figures["reopens"], "reopens" in later.figures) == (first.id, False)


async def test_it_is_not_resolved_while_another_replica_sees_it() -> None:
    world = World(replicas=2)
    world.sources[0].now = [condition()]
    await world.run(3600)
    assert await world.said() == [(OPENED, KEY)]
    world.sources[0].now = []
    await world.run(RESOLVE_AFTER_S * 1.5)
    assert await world.said() == [(RESOLVED, KEY)]


async def test_one_that_must_last_before_it_is_said_is_not_said_earlier() -> None:
    world = World()
    world.sources[0].now = [condition(after_s=300)]
    await world.run(300)
    world.sources[0].now = []
    await world.run(60)
    assert await world.said() == []
    world.sources[0].now = [condition(after_s=300)]
    await world.run(300 + EVERY_S)
    assert await world.said() == [(OPENED, KEY)]


async def test_what_becomes_an_alert_if_it_goes_on_is_known_before_it_opens() -> None:
    world = World()
    world.sources[0].now = [condition(after_s=300.0), condition("n", AlertKind.DEPLOYMENT_OUT, covered_by=KEY)]
    await world.run(EVERY_S)
    [found] = world.watches[0].building()
    assert (found.key, found.after_s, found.opens_in_s) == (KEY, 300.0, 300.0)
    assert found.since == world.now
    await world.run(240)
    world.elapsed_s += 5
    [found] = world.watches[0].building()
    assert (found.opens_in_s, found.since) == (55.0, START + timedelta(seconds=EVERY_S))
    assert await world.said() == []
    await world.run(60)
    assert world.watches[0].building() == []
    assert await world.said() == [(OPENED, KEY)]


async def test_a_restart_neither_repeats_nor_forgets_it() -> None:
    world = World()
    world.sources[0].now = [condition()]
    await world.run(60)
    world.stop(0)
    world.start()
    world.sources[0].now = [condition()]
    await world.run(600)
    assert await world.said() == [(OPENED, KEY)]
    world.sources[0].now = []
    await world.run(600)
    assert await world.said() == [(RESOLVED, KEY)]


async def test_what_a_dead_replica_saw_is_resolved_by_another_one() -> None:
    world = World(replicas=2)
    world.sources[0].now = [condition("replica-0", AlertKind.SPOOL)]
    await world.run(60)
    world.stop(0)
    await world.run(RESOLVE_AFTER_S + 60)
    assert await world.said() == [(OPENED, "spool:replica-0"), (RESOLVED, "spool:replica-0")]


async def test_a_process_that_just_began_waits_before_it_resolves_what_others_saw() -> None:
    world = World()
    world.sources[0].now = [condition()]
    await world.run(60)
    world.stop(0)
    world.elapsed_s += 86_400  # nobody ran for a day
    world.start()
    await world.run(RESOLVE_AFTER_S)
    assert await world.said() == [(OPENED, KEY)]  # its own health is empty at first
    await world.run(EVERY_S)
    assert await world.said() == [(RESOLVED, KEY)]


async def test_a_source_that_cannot_tell_neither_opens_nor_resolves() -> None:
    world = World()
    world.sources[0].now = [condition()]
    await world.run(60)
    world.sources[0].now = []
    world.sources[0].cannot_tell()
    await world.run(3600)
    assert await world.said() == [(OPENED, KEY)]
    world.sources[0].fails = None
    await world.run(RESOLVE_AFTER_S)
    assert await world.said() == []
    await world.run(EVERY_S)
    assert await world.said() == [(RESOLVED, KEY)]


async def test_a_condition_lasts_though_its_source_cannot_tell_for_once() -> None:
    world = World()
    slow = condition("t", AlertKind.BURN_SLOW, after_s=3600.0)
    for _ in range(4):
        world.sources[0].fails, world.sources[0].now = None, [slow]
        await world.run(1200)
        world.sources[0].cannot_tell()
        await world.run(EVERY_S)
    assert await world.said() == [(OPENED, "burn_slow:t")]


async def test_a_condition_that_is_gone_when_its_source_can_tell_again_has_not_lasted() -> None:
    world = World()
    slow = condition("t", AlertKind.BURN_SLOW, after_s=3600.0)
    world.sources[0].now = [slow]
    await world.run(1800)
    world.sources[0].cannot_tell()
    await world.run(1800)
    world.sources[0].fails, world.sources[0].now = None, []
    await world.run(EVERY_S)
    world.sources[0].now = [slow]
    await world.run(3600)
    assert await world.said() == []


async def test_a_defect_of_a_source_is_logged_and_the_rest_goes_on() -> None:
    world = World()
    world.sources[0].fails = ZeroDivisionError()
    with structlog.testing.capture_logs() as logged:
        await world.run(EVERY_S)
    assert [each["event"] for each in logged] == ["alerts.source_failed"]


async def test_a_covered_one_is_not_said_during_the_other_nor_shortly_after() -> None:
    world = World()
    fast = condition("t", AlertKind.BURN_FAST)
    slow = condition("t", AlertKind.BURN_SLOW, covered_by=key_of(AlertKind.BURN_FAST, "t"), covered_s=3600)
    world.sources[0].now = [slow, fast]
    await world.run(600)
    world.sources[0].now = [slow]
    await world.run(RESOLVE_AFTER_S + 3500)
    assert await world.said() == [(OPENED, "burn_fast:t"), (RESOLVED, "burn_fast:t")]
    await world.run(200)
    assert await world.said() == [(OPENED, "burn_slow:t")]


async def test_a_covered_one_that_was_said_first_stays_open_until_it_is_over() -> None:
    world = World()
    fast = condition("t", AlertKind.BURN_FAST)
    slow = condition("t", AlertKind.BURN_SLOW, covered_by=key_of(AlertKind.BURN_FAST, "t"), covered_s=3600)
    world.sources[0].now = [slow]
    await world.run(60)
    world.sources[0].now = [slow, fast]
    await world.run(60)
    assert await world.said() == [(OPENED, "burn_slow:t"), (OPENED, "burn_fast:t")]


async def test_one_that_only_keeps_opens_nothing_and_lets_nothing_end() -> None:
    world = World()
    nearly = msgspec.structs.replace(condition(), opens=False)
    world.sources[0].now = [nearly]
    await world.run(600)
    assert await world.said() == []
    world.sources[0].now = [condition()]
    await world.run(60)
    world.sources[0].now = [nearly]
    await world.run(3600)
    assert await world.said() == [(OPENED, KEY)]


async def test_one_that_only_keeps_covers_nothing_while_it_is_not_open() -> None:
    world = World()
    nearly = msgspec.structs.replace(condition("t", AlertKind.BURN_FAST), opens=False)
    slow = condition("t", AlertKind.BURN_SLOW, covered_by=nearly.key, covered_s=3600)
    world.sources[0].now = [nearly, slow]
    await world.run(60)
    assert await world.said() == [(OPENED, slow.key)]


async def test_while_the_database_is_away_each_process_says_it_once_and_says_why() -> None:
    world = World(replicas=2)
    world.book.is_away = True
    for source in world.sources:
        source.now = [condition()]
    with structlog.testing.capture_logs() as logged:
        await world.run(600)
    assert await world.said() == [(OPENED, KEY), (OPENED, KEY)]
    assert [each["event"] for each in logged].count("alerts.database_away") == 2
    assert [each["scope"] for each in logged if each["event"] == "alert.opened"] == [AlertScope.PROCESS] * 2
    assert all(watch.book_is_away for watch in world.watches)


async def test_a_database_that_is_known_not_to_answer_is_not_waited_for() -> None:
    world = World()
    world.book.hangs, world.is_known_to_be_away = asyncio.Event(), True
    world.sources[0].now = [condition()]
    await world.run(15)
    assert world.watches[0].book_is_away
    assert [each.kind for each in world.owns[0].alerts] == [condition().kind]
    assert not world.book.hangs.is_set()


async def test_what_was_said_while_the_database_was_away_is_resolved_once_when_it_is_back() -> None:
    world = World(replicas=2)
    world.book.is_away = True
    for source in world.sources:
        source.now = [condition()]
    await world.run(600)
    await world.said()
    world.book.is_away = False
    await world.run(600)
    assert await world.said() == []  # not again
    assert [each.scope for each in await world.book.current(world.now)] == [AlertScope.PROCESS]
    for source in world.sources:
        source.now = []
    await world.run(600)
    assert await world.said() == [(RESOLVED, KEY)]


async def test_one_that_begins_and_ends_while_the_database_is_away_is_in_the_history_later() -> None:
    world = World()
    world.book.is_away = True
    world.sources[0].now = [condition()]
    await world.run(60)
    world.sources[0].now = []
    await world.run(600)
    assert await world.said() == [(OPENED, KEY), (RESOLVED, KEY)]
    world.book.is_away = False
    await world.run(60)
    [past] = await world.book.current(START)
    assert past.resolved_at is not None
    assert await world.said() == []


async def test_what_was_open_before_the_database_went_away_is_not_said_again() -> None:
    world = World(replicas=2)
    for source in world.sources:
        source.now = [condition()]
    await world.run(60)
    await world.said()
    world.book.is_away = True
    await world.run(600)
    assert [each.subject for each in await world.watches[1].open_alerts()] == ["m"]
    for source in world.sources:
        source.now = []
    await world.run(1200)
    assert await world.said() == []
    world.book.is_away = False
    await world.run(EVERY_S)
    assert await world.said() == [(RESOLVED, KEY)]


@pytest.mark.parametrize("away", [False, True])
async def test_an_alert_without_a_webhook_is_an_alert_too(away: bool) -> None:
    world = World(webhooks=())
    world.book.is_away = away
    world.sources[0].now = [condition()]
    await world.run(60)
    [found] = await world.watches[0].open_alerts()
    assert found.opened_at == START + timedelta(seconds=EVERY_S)
    assert world.counts[0].opened == ["model_out"]


async def test_a_database_that_hangs_keeps_no_message_from_being_sent() -> None:
    world = World()
    world.sources[0].now = [condition()]
    world.book.is_away = True
    await world.run(EVERY_S)
    world.book.is_away = False
    world.book.hangs = asyncio.Event()
    looking = asyncio.create_task(world.watches[0].look())
    await world.book.hangs.wait()
    due = await world.owns[0].take_due(world.now, lease=timedelta(0), webhooks=world.webhooks)
    assert [each.event for each in due] == [OPENED]
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)


async def test_a_clock_that_was_ahead_keeps_no_alert_open() -> None:
    world = World(replicas=2)
    for source in world.sources:
        source.now = [condition()]
    world.ahead_s = 6 * 3600
    await world.run(600)
    assert await world.said() == [(OPENED, KEY)]
    world.ahead_s = 0
    await world.run(600)
    assert await world.said() == []
    for source in world.sources:
        source.now = []
    await world.run(RESOLVE_AFTER_S + EVERY_S)
    assert await world.said() == [(RESOLVED, KEY)]
