"""Slowdowns in SQL: found in the ledger's sums by one process, stored once, and gone on with after a restart."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from gateway.alerts import (
    DAY_S,
    HOUR_S,
    WINDOW_S,
    AttemptWindow,
    DetectedSlowdown,
    Detection,
    Happened,
    Histogram,
    Metric,
    detection,
)
from gateway.alerts import SlowdownChange as Began
from gateway.alerts.slowdowns import SlowdownEnd
from gateway.core.calls import CallRecord
from gateway.core.ids import new_id
from gateway.ledger import Ledger, Reader, SqlSlowdownBook, create_engine, is_sqlite, queries
from tests.services.ledger.asking import asked
from tests.support.slowed import Change, Model, Noise, World
from tests.unit.ledger import records

DAYS = 9
WORLD = World(calls_s=0.5, noise=Noise(0.05), nights=1.0, deployments=2)


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """No calls run beside these tests that reading the hours of nine days could hold up."""
    monkeypatch.setattr(detection, "_PAUSE_S", 0.0)


class Sums:
    """The sums of a simulated model, stored as the database would have made them."""

    def __init__(self, url: str) -> None:
        self.engine = create_engine(url)
        self.model = Model(WORLD, 5)
        self.start_s = self.model.start_s
        self.now_s = self.start_s

    async def pass_time(self, length_s: int, step_s: int, changes: dict[str, Change] | None = None) -> None:
        """Store sums of hours and days, or of five minutes."""
        windows = []
        until_s = self.now_s + length_s
        while self.now_s < until_s:
            windows.append(self.model.windows(self.now_s, step_s, changes))
            self.now_s += step_s
        async with self.engine.begin() as connection:
            await connection.execute(
                text(
                    "insert into rollup_series (id, deployment, provider, model, api, size_class, client) values "
                    "(1, 'd0', 'p', 'm', 'chat', 1, ''), (2, 'd1', 'p', 'm', 'chat', 1, '') on conflict do nothing"
                )
            )
            for kind in {5: [5], 60: [60, 1440]}[step_s // 60]:
                await self._store(connection, kind, windows)

    async def _store(self, connection: Any, minutes: int, windows: Sequence[dict[str, AttemptWindow]]) -> None:
        attempts: dict[tuple[int, int], list[float]] = {}
        counts: dict[tuple[int, int, str, int], float] = {}
        for some in windows:
            for series, window in enumerate(some.values(), 1):
                at_s = window.start_s // (minutes * 60) * minutes * 60
                ttft = window.histograms[Metric.TTFT]
                sums = attempts.setdefault((at_s, series), [0.0] * 4)
                answers = window.histograms[Metric.ITL].answers or 0.0
                first = sum(ttft.seen.values())
                for place, n in enumerate((answers, first, sum(ttft.cut.values()), window.tally.errors)):
                    sums[place] += n
                named = [(str(metric), one.seen) for metric, one in window.histograms.items()]
                for metric, seen in [*named, ("ttft_cut", ttft.cut)]:
                    for bucket, n in seen.items():
                        key = at_s, series, metric, bucket
                        counts[key] = counts.get(key, 0.0) + n
        await connection.execute(
            text(
                "insert into rollup_attempts "
                "(minutes, window_start, series_id, n_won, n_first_token, n_censored, n_errors) "
                "values (:minutes, :at, :series, :won, :first, :cut, :errors)"
            ),
            [
                {"minutes": minutes, "at": self._at(at_s), "series": series}
                | dict(zip(("won", "first", "cut", "errors"), map(int, sums), strict=True))
                for (at_s, series), sums in attempts.items()
            ],
        )
        await connection.execute(
            text(
                "insert into rollup_histograms (minutes, window_start, series_id, metric, bucket, n) "
                "values (:minutes, :at, :series, :metric, :bucket, :n)"
            ),
            [
                {
                    "minutes": minutes,
                    "at": self._at(at_s),
                    "series": series,
                    "metric": metric,
                    "bucket": bucket,
                    "n": int(n),
                }
                for (at_s, series, metric, bucket), n in counts.items()
            ],
        )

    def _at(self, unix_s: int) -> datetime | str:
        at = datetime.fromtimestamp(unix_s, UTC)
        return f"{at:%Y-%m-%d %H:%M:%S}" if is_sqlite(self.engine.url) else at


class Looking:
    """A process that may look."""

    def __init__(self, url: str, sums: Sums, holder: str, *, leaves: Callable[[], bool] = lambda: False) -> None:
        self.ledger = SqlSlowdownBook(url, Reader(url), holder)
        self.ahead_s = 0  # how far its clock is
        self.detection = Detection(self.ledger, lambda: sums.now_s + 61 + self.ahead_s, leaves=leaves)

    @property
    def shown(self) -> Sequence[DetectedSlowdown]:
        """The slowdowns that go on."""
        return self.detection.slower


async def rows(url: str) -> list[dict[str, Any]]:
    return await asked(url, "select * from slowdowns order by began_at")


async def test_a_slowdown_is_found_once_outlives_its_finder_and_ends(ledger_url: str) -> None:
    sums = Sums(ledger_url)
    await sums.pass_time(DAYS * DAY_S, HOUR_S)
    one, other = Looking(ledger_url, sums, "one"), Looking(ledger_url, sums, "other")
    await sums.pass_time(HOUR_S, WINDOW_S)
    assert await one.detection.look() == []
    slow = {"d0": Change(Metric.TTFT, 2.0, sums.now_s)}
    began_s = sums.now_s
    while not one.shown and sums.now_s < began_s + HOUR_S:
        await sums.pass_time(WINDOW_S, WINDOW_S, slow)
        await one.detection.look()
        assert await other.detection.look() == []  # somebody else looks
    assert sums.now_s <= began_s + 4 * WINDOW_S
    [row] = await rows(ledger_url)
    assert (row["deployment"], row["model"], row["metric"], row["ended_at"]) == ("d0", "m", "ttft", None)
    assert row["low"] < 2.0 < row["high"]
    assert 1.7 < row["ratio"] < 2.4
    assert [slowdown.deployment for slowdown in one.shown] == ["d0"]
    evidence = await queries.run(ledger_url, row["evidence_sql"])
    assert {"window_start", "deployment", "mean_ms"} <= set(evidence.columns)
    assert {
        place["deployment"] for place in (dict(zip(evidence.columns, line, strict=True)) for line in evidence.rows)
    } == {
        "d0",
        "d1",
    }

    await one.ledger.resign()
    await sums.pass_time(WINDOW_S, WINDOW_S, slow)
    await other.detection.look()
    assert [slowdown.deployment for slowdown in other.shown] == ["d0"]
    assert len(await rows(ledger_url)) == 1

    recovered_s = sums.now_s
    while other.shown and sums.now_s < recovered_s + HOUR_S:
        await sums.pass_time(WINDOW_S, WINDOW_S)
        await other.detection.look()
    assert sums.now_s <= recovered_s + 4 * WINDOW_S
    [row] = await rows(ledger_url)
    assert row["ending"] == "as_usual"
    assert row["ended_at"] is not None
    for each in (one, other):
        await each.ledger.aclose()
    await sums.engine.dispose()


async def test_a_clock_that_was_ahead_for_a_while_hides_nothing_that_comes_later(sqlite_url: str) -> None:
    sums = Sums(sqlite_url)
    await sums.pass_time(DAYS * DAY_S, HOUR_S)
    one = Looking(sqlite_url, sums, "one")
    await sums.pass_time(HOUR_S, WINDOW_S)
    await one.detection.look()
    one.ahead_s = 6 * HOUR_S
    await one.detection.look()
    one.ahead_s = 0
    slow = {"d0": Change(Metric.TTFT, 2.0, sums.now_s)}
    began_s = sums.now_s
    while not one.shown and sums.now_s < began_s + HOUR_S:
        await sums.pass_time(WINDOW_S, WINDOW_S, slow)
        await one.detection.look()
    assert [slowdown.deployment for slowdown in one.shown] == ["d0"]
    await one.ledger.aclose()
    await sums.engine.dispose()


async def test_a_slowdown_that_nobody_has_looked_at_for_weeks_ends_with_the_next_look(ledger_url: str) -> None:
    sums = Sums(ledger_url)
    one = Looking(ledger_url, sums, "one")
    began_s = sums.now_s
    found = DetectedSlowdown(
        model="m",
        deployment="d0",
        metric=Metric.TTFT,
        began_s=began_s,
        noticed_s=began_s + 900,
        ratio=1.6,
        low=1.4,
        high=1.8,
        n=300,
    )
    assert await one.ledger.store(Began(Happened.BEGAN, found))
    sums.now_s += 40 * DAY_S  # the gateway was off
    assert [change.ending for change in await one.detection.look()] == [SlowdownEnd.NO_CALLS]
    [row] = await rows(ledger_url)
    assert (row["ending"], one.shown) == ("no_calls", [])
    await one.ledger.aclose()
    await sums.engine.dispose()


async def test_another_process_looks_once_the_first_one_is_silent(ledger_url: str) -> None:
    now, lease = datetime(2026, 11, 22, tzinfo=UTC), timedelta(minutes=11)
    one = SqlSlowdownBook(ledger_url, Reader(ledger_url), "one")
    other = SqlSlowdownBook(ledger_url, Reader(ledger_url), "other")
    assert await one.elected(now, lease)
    assert not await other.elected(now + timedelta(minutes=10), lease)
    assert await one.elected(now + timedelta(minutes=10), lease)
    assert not await other.elected(now + timedelta(minutes=20), lease)
    assert await other.elected(now + timedelta(minutes=22), lease)
    assert not await one.elected(now + timedelta(minutes=23), lease)
    await one.aclose()
    await other.aclose()


async def test_a_defect_in_one_look_does_not_end_the_search(tmp_path: Path) -> None:
    def defect() -> bool:
        raise ZeroDivisionError

    url = f"sqlite:///{tmp_path}/ledger.db"
    one = Looking(url, Sums(url), "one", leaves=defect)
    with capture_logs() as logs:
        assert await one.detection.look() == []
    assert [(log["event"], log["log_level"]) for log in logs] == [("detector.failed", "error")]
    await one.ledger.aclose()


async def test_a_process_that_has_never_looked_ends_without_asking_the_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    slowdowns = SqlSlowdownBook(url, Reader(url), "one")
    await slowdowns.resign()
    await slowdowns.aclose()
    assert not (tmp_path / "ledger.db").exists()


async def test_attempts_that_were_cut_are_counted_by_their_age_and_hours_without_them_are_left_out(
    ledger_url: str, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    ledger.call_finished(raced_call(now - timedelta(minutes=1)))
    await ledger.flush()
    await ledger.close()
    slowdowns = SqlSlowdownBook(ledger_url, Reader(ledger_url), "one")
    until_s = int(now.timestamp()) + 600
    found = await slowdowns.windows(HOUR_S, until_s - 3 * HOUR_S, until_s)
    [windows] = [window for models in found.values() for window in models.values()]
    assert windows["groq/llama"].histograms[Metric.TTFT] == Histogram({34: 1.0}, {})
    assert windows["cerebras/llama"].histograms[Metric.TTFT] == Histogram({}, {34: 1.0})

    engine = create_engine(ledger_url)  # as before the upgrade
    async with engine.begin() as connection:
        await connection.execute(text("delete from rollup_histograms where metric = 'ttft_cut'"))
    await engine.dispose()
    found = await slowdowns.windows(HOUR_S, until_s - 3 * HOUR_S, until_s)
    [windows] = [window for models in found.values() for window in models.values()]
    assert Metric.TTFT in windows["groq/llama"].histograms
    assert Metric.TTFT not in windows["cerebras/llama"].histograms
    await slowdowns.aclose()


def raced_call(started_at: datetime) -> CallRecord:
    """A call of now: its attempts began with it."""
    call_id = new_id()
    return records.call(
        records.won(call_id, started_at=started_at),
        records.lost(call_id, deployment="cerebras/llama", provider="cerebras", started_at=started_at),
        started_at=started_at,
    )
