"""The value of racing, refusals and usage: the views' figures, on both databases."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from gateway.core.attempts import AttemptRecord, Outcome
from gateway.core.calls import CallRecord
from gateway.core.reports import By, Window
from gateway.ledger import Ledger
from gateway.ledger.turns import read_instant
from tests.services.ledger.reports.conftest import NOW, Library, plain
from tests.services.ledger.test_savings import raced, stored
from tests.support.savings import overtaken
from tests.unit.ledger.records import call, failed, new_id, refusal, won


async def store_races(library: Library, folder: Path, hours: float) -> None:
    """Store raced calls of two clients, each with a model of its own that has the client's name."""
    draw, now = Random(3), datetime.now(UTC)  # views have the database's clock, and a suite takes its time
    records = []
    for name, number, audited in (("alice", 400, 0.3), ("bob", 30, 0.1)):
        for drawn in overtaken(7, 0.3, number, audited):
            at = now - timedelta(hours=hours * draw.random())
            record, late = raced(drawn, client=name, model=name, cost_usd=3.0)
            attempts = tuple(
                msgspec.structs.replace(each, started_at=at, client=name, model=name) for each in record.attempts
            )
            record = msgspec.structs.replace(record, started_at=at, attempts=attempts)
            late = None if late is None else msgspec.structs.replace(late, started_at=at, client=name, model=name)
            records.append((record, late))
    await stored(library.url, folder, *records)


def same(rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    """Check that rows agree; sums of floats are added up in another order."""
    assert len(rows) == len(others)
    for row, other in zip(rows, others, strict=True):
        assert row.keys() == other.keys()
        for name, value in row.items():
            assert other[name] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), name


@pytest.mark.parametrize(("window", "hours"), [(Window.HOUR, 0.9), (Window.DAY, 23.9), (Window.MONTH, 700)])
async def test_race_value_by_model_is_the_view_and_by_client_the_same_estimate(
    library: Library, tmp_path: Path, window: Window, hours: float
) -> None:
    await store_races(library, tmp_path, hours)
    viewed = await library.ask(f"select * from race_value_{window} order by model")
    assert [row["basis"] for row in viewed] == ["audited", "curve"]
    by_model = await library.reports.race_value(window, By.MODEL)
    same(by_model.rows, viewed)
    same(await library.ask(by_model.sql), viewed)
    by_client = await library.reports.race_value(window, By.CLIENT)
    same(await library.ask(by_client.sql), by_client.rows)
    if window is Window.HOUR:  # of rows, exactly an hour; quantiles of sums are of buckets
        assert [row["client"] for row in by_client.rows] == ["alice", "bob"]
        assert [row["saved_ms"] for row in by_client.rows] == pytest.approx([row["saved_ms"] for row in viewed])
        return
    same([{"model" if name == "client" else name: row[name] for name in row} for row in by_client.rows], viewed)


async def test_a_week_of_race_value_agrees_with_the_month_that_has_no_more(library: Library, tmp_path: Path) -> None:
    await store_races(library, tmp_path, 150)
    week = await library.reports.race_value(Window.WEEK, By.MODEL)
    same(week.rows, await library.ask("select * from race_value_30d order by model"))
    same(await library.ask(week.sql), week.rows)


async def test_calls_without_a_client_are_those_of_null(library: Library) -> None:
    await library.store(call(won(new_id(), started_at=NOW), started_at=NOW, client=None))
    [row] = (await library.reports.race_value(Window.DAY, By.CLIENT)).rows
    assert (row["client"], row["calls"]) == (None, 1)
    [used] = (await library.reports.usage(Window.DAY)).rows
    assert (used["client"], used["calls"], used["failed"], used["cost_usd"]) == (None, 1, 0, None)


async def test_refusals_and_wrong_keys_are_the_views(library: Library, tmp_path: Path) -> None:
    ledger = Ledger(library.url, tmp_path / "spool", "w1")
    ledger.refused(
        tuple(
            refusal(
                started_at=(NOW - timedelta(minutes=7 * number)).replace(second=0), n=number + 1,
                address=f"192.0.2.{number % 5}", client=None if number % 3 else "it's",
                reason="invalid_api_key" if number % 3 else "body_too_large",
                status_code=401 if number % 3 else 413,
            )
            for number in range(40)
        )
    )  # fmt: skip
    await ledger.flush()
    await ledger.close()
    refused, guessed = await library.reports.refusals(Window.DAY)
    order = "order by n desc"
    assert plain(refused.rows) == plain(_instants(await library.ask(f"select * from refusals_24h {order}, client")))
    assert plain(guessed.rows) == plain(_instants(await library.ask(f"select * from wrong_keys_24h {order}, address")))
    assert {row["reason"] for row in refused.rows} == {"invalid_api_key", "body_too_large"}
    assert refused.rows[0]["first_seen_at"].tzinfo is not None
    assert len(await library.ask(refused.sql)) == len(refused.rows)
    assert len(await library.ask(guessed.sql)) == len(guessed.rows) == 5
    fewer, _ = await library.reports.refusals(Window.HOUR)
    assert sum(row["n"] for row in fewer.rows) < sum(row["n"] for row in refused.rows)


def _instants(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """SQLite's text as instants."""
    for row in rows:
        for name in ("first_seen_at", "last_seen_at"):
            if isinstance(row[name], str):
                row[name] = read_instant(row[name])
    return rows


@pytest.mark.parametrize("window", list(Window))
async def test_usage_adds_up_what_clients_used(library: Library, window: Window) -> None:
    hours = window.length / timedelta(hours=1)
    draw = Random(1)
    records = []
    for number in range(60):
        at = NOW - timedelta(hours=hours * draw.random())
        one = failed(new_id(), started_at=at) if number % 5 == 0 else won(new_id(), started_at=at)
        records.append(
            call(one, started_at=at, client=f"c{number % 3}", prompt_tokens=number, cost_usd=0.5, completion_tokens=2)
        )
    old = NOW - window.length - timedelta(days=2)
    await library.store(*records, call(won(new_id(), started_at=old), started_at=old, client="old"))
    table = await library.reports.usage(window)
    same(await library.ask(table.sql), table.rows)
    assert {row["client"]: (row["calls"], row["failed"], row["prompt_tokens"]) for row in table.rows} == {
        f"c{client}": (20, 4, sum(range(client, 60, 3))) for client in range(3)
    }
    assert sum(row["cost_usd"] for row in table.rows) == pytest.approx(30)


@pytest.mark.parametrize("window", [Window.DAY, Window.MONTH])
async def test_usage_is_the_views_by_client(library: Library, window: Window) -> None:
    records = []
    for number in range(12):
        at = datetime.now(UTC) - window.length * 0.05 * number  # the view has the database's clock
        one = failed(new_id(), started_at=at) if number == 7 else won(new_id(), started_at=at, cost_usd=0.25)
        known = {"cost_usd": None if number % 2 else 0.125, "client": f"c{number % 2}", "model": f"m{number % 3}"}
        records.append(call(one, started_at=at, prompt_tokens=number, duplicate_cost_usd=0.0625, **known))
    await library.store(*records)
    viewed = await library.ask(
        "select client, cast(sum(n) as bigint) as calls, cast(sum(n_failed) as bigint) as failed, "
        "cast(sum(prompt_tokens) as bigint) as prompt_tokens, "
        "cast(sum(completion_tokens) as bigint) as completion_tokens, sum(cost_usd) as cost_usd, "
        f"sum(duplicate_cost_usd) as duplicate_cost_usd from client_usage_{window} group by client order by 6 desc"
    )
    assert sum(row["calls"] for row in viewed) == 12
    same((await library.reports.usage(window)).rows, viewed)


async def test_spending_is_of_this_day_and_month_in_utc(library: Library) -> None:
    today = NOW.replace(hour=0, minute=0, second=0)
    month = today.replace(day=1)
    times = [today, today - timedelta(seconds=1), month, month - timedelta(seconds=1)]
    await library.store(
        *(
            call(won(new_id(), started_at=at), started_at=at, client="c", cost_usd=10.0**number)
            for number, at in enumerate(times)
        )
    )
    expected = [0.0, 0.0]
    for number, at in enumerate(times):
        expected[0] += 10.0**number if at >= today else 0
        expected[1] += 10.0**number if at >= month else 0
    assert (await library.reports.spent())["c"] == pytest.approx(tuple(expected))


@pytest.mark.parametrize("tags", [{}, {"x" * 300: "y"}], ids=["few", "too many"])
async def test_what_teams_spend_is_known_whatever_else_clients_tag(library: Library, tags: dict[str, str]) -> None:
    today = NOW.replace(hour=0, minute=0, second=0)
    for team, at, usd in (
        ("a", today, 1.0),
        ("b", today, 2.0),
        ("a", today - timedelta(seconds=1), 4.0),
        ("a", today.replace(day=1) - timedelta(days=3), 8.0),
    ):
        one = call(won(new_id(), started_at=at), started_at=at, tags={"team": team, **tags}, cost_usd=usd)
        broken = call(failed(new_id(), started_at=at), started_at=at, tags={"team": team}, cost_usd=16.0)
        await library.store(one, broken)
    yesterday = 4.0 if today.day > 1 else 0.0
    assert await library.reports.spent_by_teams() == {"a": (1.0, 1.0 + yesterday), "b": (2.0, 2.0)}


async def test_gaps_are_read_once_a_minute(library: Library) -> None:
    assert await library.reports.gaps() == {}
    await library.store(call(won(new_id(), started_at=NOW, model="m", itl={"0": 9}), started_at=NOW, model="m"))
    assert await library.reports.gaps() == {}
    library.reports._gaps_until = NOW
    gaps = await library.reports.gaps()
    [view] = await library.ask("select * from gaps_24h")
    assert gaps == {("m", "groq/llama"): (view["itl_p50_ms"], view["itl_p95_ms"], None)}


async def test_the_longest_silence_of_a_voice_is_of_who_was_silent(library: Library) -> None:
    """Not of who went on behind another, nor of the text of one that has lost."""

    def spoken(pause_ms: float, outcome: Outcome = Outcome.WON, **fields: Any) -> AttemptRecord:
        more = {"model": "m", "speech_pause_ms": pause_ms, "outcome": outcome, **fields}
        return msgspec.structs.replace(won(new_id(), started_at=NOW, itl={}), **more)

    def told(attempt: AttemptRecord, **fields: Any) -> CallRecord:
        return msgspec.structs.replace(call(attempt, started_at=NOW, model="m"), **fields)

    own = [told(spoken(10.0 * number)) for number in range(1, 20)]
    of_others = [
        told(spoken(9000.0, continues=new_id())),
        told(spoken(9000.0, is_kept=True)),
        told(spoken(9000.0, Outcome.SUPERSEDED)),
        told(spoken(9000.0, Outcome.SUPERSEDED, is_kept=True), takeover="rescued"),
        told(msgspec.structs.replace(spoken(9000.0), started_at=NOW - timedelta(hours=2))),
    ]
    silent = [
        told(spoken(700.0, Outcome.STALLED, deployment="a/m")),
        told(spoken(800.0, Outcome.SUPERSEDED, deployment="b/m"), takeover="rescued"),
    ]
    await library.store(*own, *of_others, *silent)
    gaps = await library.reports.gaps()
    assert {name: silence_ms for (_, name), (_, _, silence_ms) in gaps.items()} == {
        "groq/llama": 190.0,
        "a/m": 700.0,
        "b/m": 800.0,
    }
