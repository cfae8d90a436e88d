"""History and heat map: the views' figures, on both databases."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from gateway.core.attempts import Outcome, TokensSource
from gateway.core.calls import CallRecord
from gateway.core.records import OutageRecord
from gateway.core.reports import HeatFilter, HeatMetric, HistoryFilter, Window
from gateway.ledger import Ledger, Retention, create_engine, prune
from tests.services.ledger.reports.conftest import NOW, Library
from tests.unit.ledger.records import attempt, call, failed, lost, new_id, won

COUNTS = ("n", "n_errors", "n_rate_limited", "n_won", "n_first_token")
FIGURES = (
    *COUNTS,
    "ttft_p50_ms",
    "ttft_p95_ms",
    "ttft_p99_ms",
    "decode_p50_tps",
    "decode_p05_tps",
    "itl_p50_ms",
    "itl_p95_ms",
)


def races(
    number: int, hours: float, *, client: str | None = "tests", seed: int = 1, until: datetime = NOW
) -> list[CallRecord]:
    """Return races of two models over the last ``hours``, with all that history counts."""
    draw = Random(seed)
    made = []
    for place in range(number):
        at = until - timedelta(hours=hours * (place + draw.random()) / number)
        call_id, model = new_id(), f"model-{place % 2}"
        facts: dict[str, Any] = {"started_at": at, "model": model, "client": client}
        match place % 9:
            case 0:
                one = failed(call_id, **facts)
            case 1:
                one = failed(call_id, error_kind="rate_limited", status_code=429, **facts)
            case 2:
                one = attempt(call_id, outcome=Outcome.SUPERSEDED, ttft_ms=draw.uniform(20, 5000), **facts)
            case _:
                source = TokensSource.REPORTED if place % 4 else TokensSource.ESTIMATED
                one = won(
                    call_id, ttft_ms=draw.uniform(20, 5000), decode_tps=draw.uniform(5, 300), tokens_source=source,
                    itl={str(draw.randrange(-56, 60)): 3, "0": 5}, **facts,
                )  # fmt: skip
        other = lost(call_id, deployment="fireworks/llama", provider="fireworks", **facts)
        made.append(call(one, other, **facts))
    return made


async def series_of(library: Library, **wanted: Any) -> dict[tuple[str, str], dict[str, list[Any]]]:
    found = await library.reports.history(HistoryFilter(**wanted))
    series = [msgspec.json.decode(each) for each in found.series]
    for each in series:
        assert each["t"][0] == found.since.timestamp()
        assert each["t"][-1] + found.step_s == found.until.timestamp()
        assert {len(each[name]) for name in FIGURES} == {len(each["t"])}
    return {(each["model"], each["deployment"]): each for each in series}


@pytest.mark.parametrize("window", list(Window))
async def test_a_history_has_what_its_own_statement_answers(library: Library, window: Window) -> None:
    await library.store(*races(60, window.length / timedelta(hours=1)))
    found = await library.reports.history(HistoryFilter(window=window))
    rows = await library.ask(found.sql)
    pointed = {
        (each["model"], each["deployment"], t): [each[name][place] for name in FIGURES]
        for each in map(msgspec.json.decode, found.series)
        for place, t in enumerate(each["t"])
        if each["n"][place]
    }
    assert pointed
    assert pointed == {(row["model"], row["deployment"], row["t"]): [row[name] for name in FIGURES] for row in rows}


async def test_a_month_has_the_figures_of_the_view_of_days(library: Library) -> None:
    await library.store(*races(200, 29 * 24))
    series = await series_of(library, window=Window.MONTH)
    rows = await library.ask("select *, " + _epoch(library, "window_start") + " as t from speed_days")
    assert len(rows) > 50
    for row in rows:
        each = series[row["model"], row["deployment"]]
        place = each["t"].index(row["t"])
        assert each["n"][place] == row["n"]
        assert each["n_errors"][place] == row["n_errors"]
        assert each["n_rate_limited"][place] == row["n_rate_limited"]
        assert each["n_first_token"][place] == row["n_first_token"]
        for mine, its in (
            ("ttft_p50_ms", "ttft_p50_ms"), ("ttft_p95_ms", "ttft_p95_ms"),
            ("decode_p50_tps", "decode_p50_tps"), ("decode_p05_tps", "decode_p05_tps"),
        ):  # fmt: skip
            assert each[mine][place] == pytest.approx(row[its])


async def test_gaps_of_a_day_in_one_step_are_the_views(library: Library) -> None:
    """All in one step of an hour: the view of the day adds up the same sums."""
    until = NOW.replace(minute=0, second=0) - timedelta(seconds=1)  # not over the end of a step
    await library.store(*races(40, 0.001, until=until))
    series = await series_of(library, window=Window.WEEK)
    for row in await library.ask("select * from gaps_24h"):
        each = series[row["model"], row["deployment"]]
        assert [value for value in each["itl_p50_ms"] if value is not None] == pytest.approx([row["itl_p50_ms"]])
        assert [value for value in each["itl_p95_ms"] if value is not None] == pytest.approx([row["itl_p95_ms"]])


@pytest.mark.parametrize("window", [Window.HOUR, Window.DAY, Window.WEEK])
async def test_a_clients_history_is_made_of_rows_and_is_the_same(library: Library, window: Window) -> None:
    hours = window.length / timedelta(hours=1)
    await library.store(*races(120, hours))
    all_of_them = await series_of(library, window=window)
    its_own = await series_of(library, window=window, client="tests")
    assert its_own.keys() == all_of_them.keys()
    for key, mine in its_own.items():
        for name in FIGURES:
            assert mine[name] == pytest.approx(all_of_them[key][name], nan_ok=True), (key, name)
    assert await series_of(library, window=window, client="nobody") == {}
    await library.store(*races(10, hours, client=None, seed=2))
    without = await series_of(library, window=window, client="")
    assert sum(sum(each["n"]) for each in without.values()) == 20


async def test_failures_with_clients_own_keys_are_in_no_history(library: Library) -> None:
    facts: dict[str, Any] = {"started_at": NOW - timedelta(minutes=5), "model": "llama", "client": "tests"}
    for key_name in (None, "tenant"):
        for kind in ("server_error", "rate_limited"):
            one = failed(new_id(), error_kind=kind, key_name=key_name, **facts)
            await library.store(call(one, **facts))
    for client in (None, "tests"):
        (each,) = (await series_of(library, window=Window.HOUR, client=client)).values()
        assert [sum(each[name]) for name in ("n", "errors", "rate_limited")] == [4, 1, 1]


async def test_a_history_is_of_the_model_and_deployment_that_are_asked_for(library: Library) -> None:
    await library.store(*races(20, 1))
    assert (await series_of(library, window=Window.DAY, model="model-0")).keys() == {
        ("model-0", "groq/llama"), ("model-0", "fireworks/llama"),
    }  # fmt: skip
    one = await series_of(library, window=Window.DAY, model="model-1", deployment="groq/llama")
    assert one.keys() == {("model-1", "groq/llama")}
    assert await series_of(library, window=Window.DAY, model="it's") == {}


async def test_a_range_of_an_hour_has_steps_of_a_minute_and_the_figures_of_its_sums(library: Library) -> None:
    await library.store(*races(120, 1))
    since, until = NOW - timedelta(hours=1), NOW + timedelta(minutes=1)
    found = await library.reports.history(HistoryFilter(since=since, until=until))
    assert found.step_s == 60
    fine = await series_of(library, since=since, until=until)
    sums = await series_of(library, window=Window.HOUR)
    assert fine.keys() == sums.keys()
    for key, mine in fine.items():
        for name in COUNTS:
            assert sum(mine[name]) == sum(sums[key][name]), (key, name)


@pytest.mark.parametrize(
    ("days", "length_h", "step_s"), [(0.5, 1, 60), (1, 20, 300), (8, 7, 3600), (20, 24 * 19, 3600), (40, 24, 86_400)]
)
async def test_a_range_has_the_shortest_steps_that_are_kept(
    library: Library, days: float, length_h: float, step_s: int
) -> None:
    since = (NOW - timedelta(days=days)).replace(minute=0, second=0)
    await library.store(call(won(new_id(), started_at=since, model="model-0"), started_at=since))
    found = await library.reports.history(HistoryFilter(since=since, until=since + timedelta(hours=length_h)))
    assert found.step_s == step_s
    assert found.since <= since
    assert found.until >= since + timedelta(hours=length_h)
    assert sum(msgspec.json.decode(found.series[0])["n"]) == 1


async def test_a_range_has_nothing_of_after_its_end(library: Library) -> None:
    await library.store(*races(60, 20))
    until = NOW - timedelta(hours=10)
    some = await series_of(library, since=NOW - timedelta(hours=20), until=until)
    epoch = _epoch(library, "started_at")
    rows = await library.ask(
        f"select count(*) as n from attempts where {epoch} < {until.timestamp() // 300 * 300 + 300}"
    )
    assert abs(sum(sum(each["n"]) for each in some.values()) - rows[0]["n"]) <= 2  # of the steps at both ends


async def test_a_heat_map_has_the_figures_of_the_view_by_hour(library: Library) -> None:
    """Within a day no hour of the day is there twice, so the view by hour has the same cells."""
    await library.store(*races(150, 20))
    rows = await library.ask("select * from speed_by_hour")
    for metric, its in (
        (HeatMetric.TTFT_P50, "ttft_p50_ms"), (HeatMetric.TTFT_P95, "ttft_p95_ms"),
        (HeatMetric.DECODE_P50, "decode_p50_tps"), (HeatMetric.N, "n"),
    ):  # fmt: skip
        table = await library.reports.heat(HeatFilter(metric=metric, window=Window.WEEK))
        cells = {(cell["model"], cell["deployment"], cell["hour"]): cell for cell in table.rows}
        assert len(cells) == len(rows) > 20
        for row in rows:
            cell = cells[row["model"], row["deployment"], row["hour"]]
            assert cell["n"] == row["n"]
            assert cell["value"] == pytest.approx(row[its])
        assert await library.ask(table.sql) == table.rows


async def test_a_cell_is_at_its_weekday_and_hour_in_utc(library: Library) -> None:
    """And errors count as in throughput: of what was answered or failed."""
    await library.store(*races(90, 30))
    expected: dict[tuple[str, str, int, int], list[int]] = {}
    for row in await library.ask(f"select *, {_epoch(library, 'started_at')} as t from attempts"):
        weekday, hour = (row["t"] // 86400 + 3) % 7, row["t"] // 3600 % 24  # 1970 began on a Thursday
        cell = expected.setdefault((row["model"], row["deployment"], weekday, hour), [0, 0, 0])
        cell[0] += 1
        cell[1] += row["outcome"] == "failed" and row["error_kind"] == "server_error"
        cell[2] += row["ttft_ms"] is not None
    table = await library.reports.heat(HeatFilter(metric=HeatMetric.ERROR_RATE, window=Window.WEEK))
    assert {_cell(row): (row["n"], row["value"]) for row in table.rows} == {
        key: (n, errors / (errors + first) if errors + first else None) for key, (n, errors, first) in expected.items()
    }


def _cell(row: Mapping[str, Any]) -> tuple[str, str, int, int]:
    return row["model"], row["deployment"], row["weekday"], row["hour"]


def _epoch(library: Library, instant: str) -> str:
    return library.reports._reader.words.epoch(instant)


async def test_outages_are_those_that_went_on_in_the_window(library: Library, tmp_path: Path) -> None:
    def outage(deployment: str, began_h: float, ended_h: float | None, reason: str = "timeout") -> OutageRecord:
        ended_at = None if ended_h is None else NOW - timedelta(hours=ended_h)
        began_at = NOW - timedelta(hours=began_h)
        return OutageRecord(
            id=new_id(), deployment=deployment, model="model-0", began_at=began_at, ended_at=ended_at, reason=reason,
            replica="r1",
        )  # fmt: skip

    ledger = Ledger(library.url, tmp_path / "spool", "outages")
    for each in (
        outage("groq/llama", 3, 2),
        outage("groq/llama", 30, 23, "before, and within"),
        outage("groq/llama", 40, 30, "too old"),
        outage("groq/llama", 0.5, None, "lasts"),
        outage("groq/llama", 31, None, "lasts for long"),
        outage("groq/llama", 100, None, "killed"),
        outage("it's", 1, 0.9),
    ):
        ledger.outage(each)
    await ledger.flush()
    await ledger.close()
    await library.store(*races(9, 1))
    found = await library.reports.history(HistoryFilter(window=Window.DAY))
    assert [row["reason"] for row in found.outages] == [
        "lasts", "timeout", "timeout", "before, and within", "lasts for long",
    ]  # fmt: skip
    assert found.outages[0]["ended_at"] is None
    assert found.outages[2]["began_at"] == NOW - timedelta(hours=3)
    assert [row["reason"] for row in await library.ask(found.outages_sql)] == [row["reason"] for row in found.outages]
    hour = await library.reports.history(HistoryFilter(window=Window.HOUR, deployment="it's"))
    assert [row["deployment"] for row in hour.outages] == ["it's"]
    of_model = await library.reports.history(HistoryFilter(window=Window.DAY, model="model-0"))
    assert {row["deployment"] for row in of_model.outages} == {"groq/llama"}
    nobody = await library.reports.history(HistoryFilter(window=Window.DAY, model="nobody"))
    assert nobody.outages == []


async def test_an_outage_without_an_end_lasts_as_its_view_says(library: Library, tmp_path: Path) -> None:
    library.now = now = datetime.now(UTC)  # NOW is of when the run began; the view looks at what was answered lately
    began_at = now - timedelta(minutes=30)
    ledger = Ledger(library.url, tmp_path / "spool", "outages")
    for deployment in ("groq/answers", "groq/silent"):
        ledger.outage(
            OutageRecord(
                id=new_id(), deployment=deployment, model="llama", began_at=began_at, ended_at=None, reason="timeout",
                replica="killed",
            )
        )  # fmt: skip
    await ledger.flush()
    await ledger.close()
    answered = won(new_id(), started_at=now - timedelta(minutes=3), deployment="groq/answers", token_ms=200.0)
    await library.store(call(answered, started_at=answered.started_at))
    viewed = await library.ask("select deployment, state from outages_30d order by deployment")
    assert [tuple(row.values()) for row in viewed] == [("groq/answers", "unknown"), ("groq/silent", "out")]
    found = await library.reports.history(HistoryFilter(window=Window.DAY))
    expected = {"groq/answers": False, "groq/silent": True}
    assert {row["deployment"]: row["may_last"] for row in found.outages} == expected
    listed = await library.reports.outages()
    assert {row["deployment"]: row["may_last"] for row in listed.rows} == expected


async def test_a_month_of_hours_is_kept_for_the_heat_map_and_of_other_quantiles_a_week(library: Library) -> None:
    """Each day an hour's worth of calls: what is left of them when it is pruned."""
    await library.store(*races(31 * 9, 30 * 24 - 1))
    engine = create_engine(library.url)
    await prune(engine, Retention(), NOW)
    await engine.dispose()
    oldest = {
        row["metric"]: NOW.timestamp() - row["t"]
        for row in await library.ask(
            f"select metric, {_epoch(library, 'min(window_start)')} as t from rollup_histograms where minutes = 60 "
            "group by metric"
        )
    }
    assert {metric for metric, age_s in oldest.items() if age_s > 20 * 86400} == {"ttft", "ttft_cut", "tps"}
    assert {"itl", "call_ttft"} & oldest.keys()
    assert (
        max(age_s for metric, age_s in oldest.items() if metric not in {"ttft", "ttft_cut", "tps"}) <= 8 * 86400 + 3600
    )
    table = await library.reports.heat(HeatFilter(metric=HeatMetric.TTFT_P50, window=Window.MONTH))
    [counted] = await library.ask("select sum(n) as n from rollup_attempts where minutes = 60")
    assert sum(row["n"] for row in table.rows) == counted["n"] > 500
    later = NOW + timedelta(days=32)
    engine = create_engine(library.url)
    for now in (later, later + timedelta(days=1)):  # nothing is new, so it waits for a day
        await prune(engine, Retention(), now)
    await engine.dispose()
    for name in ("rollup_attempts", "rollup_histograms", "rollup_calls"):
        assert await library.ask(f"select count(*) as n from {name} where minutes = 60") == [{"n": 0}]
