"""What is said of a target is what its rows say, whatever has been counted before."""

import itertools
from collections.abc import Mapping, Sequence
from datetime import timedelta

from gateway.core.targets import Counts, Definition, Target
from tests.services.ledger.targets.conftest import NOW, Desk, some_calls

Asked = tuple[Definition, timedelta]
DEFINITIONS = [
    Definition(),
    Definition(model="llama", ttft_ms=500.0),
    Definition(model="llama", ttft_ms=500.0, tok_s=45.0),
    Definition(client="it's \\ him", tok_s=45.0, gap_ms=1000.0),
    Definition(profile="voice", ttft_ms=300.0, tok_s=30.0, gap_ms=500.0),
    Definition(model="qwen", client="anna", profile="chat", ttft_ms=800.0),
    Definition(model="nobody's", ttft_ms=500.0),
]
TARGETS = [Target(f"t{number}", definition, 0.99) for number, definition in enumerate(DEFINITIONS)]
LENGTHS = [
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=1),
    timedelta(hours=6),
    timedelta(days=1),
    timedelta(days=3),
    timedelta(days=7),
    timedelta(days=28),
]


async def truth(desk: Desk, definitions: Sequence[Definition] = DEFINITIONS) -> Mapping[Asked, Counts]:
    """Return what the rows say now of each definition in each length."""
    return {asked: await desk.of_rows(*asked) for asked in itertools.product(definitions, LENGTHS)}


async def assert_says(desk: Desk, true: Mapping[Asked, Counts]) -> None:
    for asked, counts in true.items():
        assert await desk.counts(*asked) == counts, asked


async def test_what_is_said_is_what_the_rows_say(desk: Desk) -> None:
    await desk.store(*some_calls(400, days=30), *some_calls(300, days=0.3, seed=2))
    true = await truth(desk)
    await assert_says(desk, true)  # nothing has been counted
    desk.targets = TARGETS
    assert await desk.count() > 100
    await assert_says(desk, true)
    assert await desk.count() == 0
    whole = await desk.counts(DEFINITIONS[4], timedelta(days=28))
    assert min(whole.failed, whole.late, whole.slow, whole.halting) > 0
    assert whole.bad < whole.failed + whole.late + whole.slow + whole.halting  # some are late and slow
    assert whole.bad < whole.calls


async def test_rows_that_come_late_are_in_it_at_once_and_counted_again(desk: Desk) -> None:
    desk.targets = TARGETS
    await desk.store(*some_calls(300, days=30))
    await desk.count()
    await desk.store(*some_calls(60, days=29, seed=3))
    true = await truth(desk)
    await assert_says(desk, true)
    assert await desk.count() > 0
    await assert_says(desk, true)
    assert await desk.count() == 0


async def test_counts_are_read_where_they_are_true(desk: Desk) -> None:
    """The rows are gone, as with ``keep_calls_days``; what was counted of them is still known."""
    desk.targets = TARGETS
    await desk.store(*some_calls(300, days=28))
    await desk.count()
    before = [await desk.counts(definition, timedelta(days=28)) for definition in DEFINITIONS]
    async with desk.engine.begin() as connection:
        old = desk.words.instant(desk.now - timedelta(days=3))
        await connection.exec_driver_sql(f"delete from calls where started_at < {old}")
    assert [await desk.counts(definition, timedelta(days=28)) for definition in DEFINITIONS] == before
    assert await desk.count() == 0


async def test_a_window_whose_rows_are_gone_is_not_counted(desk: Desk) -> None:
    await desk.store(*some_calls(300, days=20))
    async with desk.engine.begin() as connection:
        old = desk.words.instant(desk.now - timedelta(days=10))
        await connection.exec_driver_sql(f"delete from calls where started_at < {old}")
    desk.targets = TARGETS[1:2]
    await desk.count()
    [row] = await desk.ask(
        f"select count(*) from target_counts where window_start < {desk.words.window(desk.now - timedelta(days=11))}"
    )
    assert row[0] == 0
    await assert_says(desk, await truth(desk))


async def test_a_changed_definition_is_counted_anew_and_an_objective_is_not(desk: Desk) -> None:
    desk.targets = TARGETS[1:2]
    await desk.store(*some_calls(200, days=28))
    await desk.count()
    desk.targets = [Target("t1", DEFINITIONS[1], 0.5, days=7)]
    assert await desk.count() == 0
    desk.targets = [Target("t1", Definition(model="llama", ttft_ms=400.0), 0.99)]
    assert await desk.count() > 0
    await assert_says(desk, await truth(desk, [desk.targets[0].definition]))


async def test_it_is_true_at_every_time_of_the_day(desk: Desk) -> None:
    desk.targets = TARGETS[1:5]
    await desk.store(*some_calls(250, days=9), *some_calls(150, days=1, seed=2))
    for hours in (0, 5, 11, 23):
        desk.now = NOW - timedelta(hours=hours, minutes=7 * hours)
        async with desk.engine.begin() as connection:
            await connection.exec_driver_sql("delete from target_counts")
        assert await desk.count() > 0, hours
        await assert_says(desk, await truth(desk, DEFINITIONS[1:5]))
