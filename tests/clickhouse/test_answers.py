"""The real sink, from the spool into ClickHouse's engine: each view and question answers as Postgres does."""

import math
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from pydantic import SecretStr
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.ledger import (
    ATTEMPT_COLUMNS,
    CALL_COLUMNS,
    ClickHouse,
    ClickHouseSink,
    Finished,
    attempt_rows,
    call_rows,
    create_engine,
    fold_all,
    head_revision,
    migrate,
    queries,
)
from gateway.ledger.clickhouse.schema import VIEWS as TEXTS
from gateway.ledger.entries import Audited, Shippable
from gateway.ledger.inserts import insert
from gateway.ledger.schema import views_of
from gateway.ledger.spool import Spool
from gateway.settings import ClickHouseSettings
from tests.clickhouse.rows import lately, made
from tests.support.clickhouse import StandIn, clickhouse
from tests.support.servers import postgres

CALLS = int(os.environ.get("CALLS", "20000"))
DAYS = 33.0  # beyond the longest window
ROOT = Path(__file__).parents[2]
_QUESTION = re.compile(r"^\*\*(.+?)\*\*.*?\n((?:```sql.*?^```\n)+)", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"```sql ?(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
Rows = list[dict[str, Any]]
pytestmark = pytest.mark.asyncio(loop_scope="module")


class Both:
    """The same rows in Postgres and in ClickHouse."""

    def __init__(self, postgres_url: str, server: StandIn, engine: AsyncEngine) -> None:
        self.postgres_url = postgres_url
        self.server = server
        self.engine = engine
        self.taken_s: dict[str, tuple[float, float]] = {}

    async def ask(self, name: str, statement: str, in_clickhouse: str | None = None) -> tuple[Rows, Rows]:
        """Return what each of the two answers."""
        begun = time.perf_counter()
        there = await queries.run(self.postgres_url, statement)
        asked = time.perf_counter()
        here = await self.clickhouse(in_clickhouse or statement)
        self.taken_s[name] = (asked - begun, time.perf_counter() - asked)
        return [dict(zip(there.columns, row, strict=True)) for row in there.rows], here

    async def insert(self, entries: Sequence[Shippable]) -> None:
        client = ClickHouse(self.server.url)
        attempts, calls = (
            b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
            for rows in (attempt_rows(entries), call_rows(entries))
        )
        await client.insert("attempts", ATTEMPT_COLUMNS, attempts)
        await client.insert("calls", CALL_COLUMNS, calls)
        await client.aclose()

    async def clickhouse(self, statement: str) -> Rows:
        client = ClickHouse(self.server.url)
        try:
            async with client.asked(statement, 600.0) as answer:
                return [dict(zip(answer.columns, row, strict=True)) async for batch in answer.batches for row in batch]
        finally:
            await client.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Both]:
    folder = tmp_path_factory.mktemp("clickhouse")
    with postgres() as url:
        await migrate(url)
        engine = create_engine(url)
        async with clickhouse(folder / "database") as server:
            sink = ClickHouseSink(ClickHouseSettings(url=SecretStr(server.url)), folder / "spool")
            spool = Spool(folder / "spool" / "worker", now_s=0.0, completed=sink.queue.add)
            rows = made(CALLS, datetime.now(UTC), DAYS)
            for at_s in range(CALLS):
                if not (entries := list(islice(rows, 1000))):
                    break
                await insert(engine, entries)
                for entry in entries:
                    if isinstance(entry, Finished):
                        spool.call_finished(entry.call)
                    elif isinstance(entry, Audited):
                        spool.attempts_ended(entry.call_id, entry.attempts)
                spool.rotate_if_due(float(at_s))
            spool.close(remove=True)
            await sink.ship()
            await sink.close()
            await fold_all(engine)
            for table in ("calls", "attempts"):  # as after an answer that was lost: in a part of their own
                server.ask(f"insert into {table} select * from {table} where cityHash64(id) % 10 = 0")
            both = Both(url, server, engine)
            yield both
            await engine.dispose()
            for name, (in_postgres_s, in_clickhouse_s) in both.taken_s.items():
                sys.stdout.write(f"\n{name[:60]:60} {in_postgres_s * 1e3:8.0f} ms {in_clickhouse_s * 1e3:8.0f} ms")


def alike(there: Rows, here: Rows, keys: Sequence[str], tolerance: Mapping[str, float]) -> list[str]:
    """Return in what the two answers differ; ``tolerance``: by a part of the column's name, else 1e-6."""
    found = {tuple(_plain(row[key]) for key in keys): row for row in here}
    wanted = {tuple(_plain(row[key]) for key in keys): row for row in there}
    if found.keys() != wanted.keys():
        return [f"rows {sorted(map(str, found.keys() ^ wanted.keys()))[:5]}"]
    return [
        f"{key} {column}: {row[column]} in Postgres, {found[key][column]} in ClickHouse"
        for key, row in wanted.items()
        for column in row
        if not _is_same(row[column], found[key][column], _tolerance(column, tolerance))
    ]


def _tolerance(column: str, tolerance: Mapping[str, float]) -> float:
    return next((value for part, value in tolerance.items() if re.search(part, column)), 1e-6)


def _is_same(there: Any, here: Any, tolerance: float) -> bool:
    there, here = _plain(there), _plain(here)
    if isinstance(there, float) and isinstance(here, float):
        return math.isclose(there, here, rel_tol=tolerance, abs_tol=1e-9)
    return bool(there == here)


def _plain(value: Any) -> Any:
    match value:
        case bool() | None:
            return value
        case datetime():
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat(timespec="microseconds")
        case date():
            return value.isoformat()
        case str():
            is_instant = re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", value)
            return datetime.fromisoformat(value).isoformat(timespec="microseconds") if is_instant else value
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


# Postgres reads quantiles of throughput from buckets that are 9 % wide, ClickHouse from the rows.
VIEWS: Mapping[str, tuple[Sequence[str], Mapping[str, float]]] = {
    "throughput": (("deployment", "provider"), {r"_p\d\d": 0.0906}),
    "slo": (("day", "model"), {}),
    "client_usage": (("client", "model"), {}),
    "provider_errors": (("provider", "deployment", "error_kind", "status_code"), {}),
    "race_value": (("model",), {r"saved.*_(low|high)_ms": 0.003}),
}


async def test_every_row_is_there_once(both: Both) -> None:
    for table in ("calls", "attempts"):
        there, here = await both.ask(table, f"select count(*) as n, count(distinct id) as ids from {table}")
        assert alike(there, here, ("n",), {}) == []
        assert here[0]["n"] == here[0]["ids"] > CALLS * 0.9


WINDOWS = ("", "_24h", "_30d")
ASKED = [(view, window) for view in VIEWS for window in WINDOWS if f"{view}{window}" in views_of(head_revision())]


@pytest.mark.parametrize(("view", "window"), ASKED)
async def test_a_view_answers_as_in_postgres(both: Both, view: str, window: str) -> None:
    keys, tolerance = VIEWS[view]
    there, here = await both.ask(view + window, f"select * from {view}{window}")
    assert there
    assert list(there[0]) == list(here[0])
    for row in (*there, *here):
        if row.get("error_kind") == "usage_far_off":
            row["last_seen_at"] = None  # in Postgres when its last window of sums began
        if view == "provider_errors" and window != "_24h":
            row["first_seen_at"] = None  # likewise its first one
    assert alike(there, here, keys, tolerance) == []


# What ClickHouse does not have: these are asked of SQL.
ONLY_IN_SQL = re.compile(
    r"\b(leaderboard|samples|waste|throughput_5m|speed_by_hour|speed_days|tag_differences|tag_values|answer_quality|cache_value"
    r"|\w+_by_month|cache_latency|would_win|load_5m|load_peaks|gaps|wrong_keys|refusals|outages|slowdowns|probes|alerts|rollup_\w+)(_1h|_24h|_30d)?\b"
)


# What ClickHouse understands otherwise, and how to write it there: docs/guides/clickhouse.md says so.
OTHERWISE = {
    "What was each provider's p95 in each hour?",  # quantileExactInclusive(0.95)(ttft_ms)
    "Which thoughts of earlier turns did vendors not show their models, and [why](providers.md#histories)?",  # ->>
    "What was billed besides tokens of text, in which [tier](reference/ledger.md#attempts)?",  # json_each, and ->>
    "Does it get slower when more is in flight?",  # intDiv(a, b) where Postgres divides integers
    "Which deployment gives a voice its first clause soonest, with which silences?",  # a result named as its column
}


def questions() -> dict[str, str]:
    """Return the documented questions that are about calls and attempts alone, in Postgres's words."""
    found = {}
    for title, blocks in _QUESTION.findall((ROOT / "docs" / "sql.md").read_text(encoding="utf-8")):
        wordings = dict(_BLOCK.findall(blocks))
        statement = wordings.get("postgresql") or wordings.get("", "")
        if statement and title not in OTHERWISE and not ONLY_IN_SQL.search(statement):
            found[title] = statement
    return found


QUESTIONS = questions()


@pytest.mark.parametrize("title", QUESTIONS)
async def test_a_question_is_answered_as_in_postgres(both: Both, title: str) -> None:
    there, here = await both.ask(title, QUESTIONS[title])
    assert len(there) == len(here)
    for wanted, found in zip(sorted(there, key=_place), sorted(here, key=_place), strict=True):
        assert [
            (column, wanted[column], found[column])
            for column in wanted
            if not _is_same(wanted[column], found[column], 1e-6)
        ] == []


def _place(row: dict[str, Any]) -> str:
    plain = map(_plain, row.values())
    return "|".join(f"{value:.4g}" if isinstance(value, float) else str(value) for value in plain)


async def test_most_questions_about_calls_have_answers(both: Both) -> None:
    answered = [title for title, statement in QUESTIONS.items() if await both.clickhouse(statement)]
    assert len(answered) >= len(QUESTIONS) - 2
    assert len(QUESTIONS) > 15


async def test_the_leaderboard_is_postgres_s(both: Both) -> None:
    """Of rows that stay in its ten minutes while the two are asked: other questions, before it, have not got them."""
    entries = list(lately(4000, datetime.now(UTC), 4.0))
    for first in range(0, len(entries), 1000):
        await insert(both.engine, entries[first : first + 1000])
        await both.insert(entries[first : first + 1000])
    there, here = await both.ask("leaderboard", "select * from leaderboard")
    assert {row.pop("state") for row in there} == {"ok"}  # ClickHouse has no outages, and not these two columns
    assert {row.pop("open_since") for row in there} == {None}
    assert {row["basis"] for row in there} == {"audited", "all"}
    assert {row["buffered"] for row in there} == {True, False}
    assert any(row["ttft_p95_high_ms"] for row in there)
    assert list(there[0]) == list(here[0])
    assert alike(there, here, ("model", "deployment"), {}) == []


async def test_all_views_are_held_to_postgres() -> None:
    assert {*VIEWS, "leaderboard"} == {path.stem for path in TEXTS.glob("*.sql")}
