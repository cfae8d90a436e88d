"""docs/sql.md: both databases answer every question on them.

docs/reference/ledger.md and migrations/SUMS.md: they have every table and column.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Connection, inspect

from gateway.core.attempts import Outcome, TokensSource, Unit, WinOn
from gateway.core.calls import CallRecord
from gateway.core.records import OutageRecord
from gateway.ledger import Ledger, create_engine, is_sqlite, migrate, queries
from gateway.ledger.schema import VIEWS, renamed
from tests.services.ledger.asking import asked
from tests.services.ledger.test_schema import OF_ONE_ENGINE
from tests.unit.ledger.records import attempt, call, failed, lost, new_id, refusal, won
from tools.documentation import ledger_comments

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "sql.md").read_text(encoding="utf-8")
COLUMNS = "\n".join(each.read_text(encoding="utf-8") for each in ledger_comments.PAGES)
WINDOWS = ("_1h", "_24h", "_30d")
_QUESTION = re.compile(r"^\*\*(.+?)\*\*.*?\n((?:```sql.*?^```\n)+)", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"```sql ?(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)

_SECTION = re.compile(r"^### (\w+)\n(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
_LIKE = re.compile(r"\bas `(\w+)`")  # another one's columns, too
_NAME = re.compile(r"`(\w+)`")
_WINDOW = re.compile(rf"({'|'.join(WINDOWS)})$")


def questions() -> Mapping[str, Mapping[str, str]]:
    """Return the SQL of each question by its dialect, "" for both."""
    return {title: dict(_BLOCK.findall(blocks)) for title, blocks in _QUESTION.findall(PAGE)}


QUESTIONS = questions()


def lately(**ago: float) -> datetime:
    return datetime.now(UTC) - timedelta(**ago)


def rows() -> list[CallRecord]:
    """Return calls of the last days: races, a failure, a client that left, tags a and b, and a provider that lies."""
    made = []
    for number in range(120):
        at = lately(minutes=10 + number)
        variant = "ab"[number % 2]
        speed = 100.0 if variant == "a" else 300.0
        told: dict[str, Any] = {
            "model": "llama", "client": "tests", "api": "chat.completions", "chars": 400, "prompt_tokens": 50,
            "cost_usd": 0.001, "in_flight": number % 7, "itl": {"0": 3, "8": 90, "20": 5}, "key_name": "#1",
            "tool_calls": 1, "tool_calls_valid": number % 3 > 0, "cached_tokens": 10,
            "judged_as": "tools", "started_at": at,
        }  # fmt: skip
        honest = number % 4 < 2  # so that both variants have all of them
        name = ("groq" if honest else "fireworks") if number % 8 < 4 else "liar"
        tokens = 200 if name == "liar" else 100
        winner = won(
            new_id(), ttft_ms=speed + number % 5, token_ms=speed + number % 5, provider=name,
            deployment=f"{name}/llama", completion_tokens=tokens, sentence_ms=speed * 2, speech_pause_ms=0.0, **told,
        )  # fmt: skip
        cut = lost(
            winner.call_id,
            started_at=at,
            model="llama",
            cost_usd=0.0005,
            cost_low_usd=0.0,
            cost_high_usd=0.001,
            deployment="slow/llama",
            provider="slow",
            prompt_tokens=50,
            wasted_low_tokens=0,
            wasted_high_tokens=400,
            is_extra=True,
            tier_asked="priority",
            tier_served="standard",
            units_cost_usd=0.02,
            units={"web_search": Unit(2, 0.01), "audio_input": Unit(7, None)},
            thoughts_dropped={"prefix": 2, "account": 1},
        )
        made.append(
            call(
                winner, cut, started_at=at, tags={"variant": variant}, request_id="order-4711", api="chat.completions",
                size_class=0, completion_tokens=tokens, prompt_tokens=50, cost_usd=0.0015, cost_low_usd=0.001,
                cost_high_usd=0.002, duplicate_cost_usd=0.0005, is_empty=False, is_truncated=number == 0,
                tokens_source=TokensSource.REPORTED, alone_ms=winner.ttft_ms, ttft_ms=winner.ttft_ms,
            )
        )  # fmt: skip
    heard = won(new_id(), started_at=lately(), sentence_ms=400.0, speech_pause_ms=1200.0)
    paused = call(heard, started_at=lately(), tags={}, narrowed="cooling", width_asked=2, win_on=WinOn.SENTENCE)
    made.append(msgspec.structs.replace(paused, id="019a0000-0000-7000-8000-000000000000"))
    old = lately(days=9)
    made.append(call(won(new_id(), started_at=old, ttft_ms=900.0, token_ms=900.0), started_at=old, tags={}))
    gone = attempt(new_id(), outcome=Outcome.CLIENT_GONE, censored_at_ms=900.0, started_at=lately())
    made.append(
        call(gone, started_at=lately(), status_code=499, error_kind="client_disconnected", tags={}, win_on=WinOn.VALID,
             total_ms=900.0, abandoned_cost_low_usd=0.1, abandoned_cost_high_usd=0.2)
    )  # fmt: skip
    made.append(
        call(
            failed(new_id(), started_at=lately(minutes=5), error_message="busy"), started_at=lately(minutes=5), tags={}
        )
    )
    return made


@pytest.fixture
async def filled_url(ledger_url: str, tmp_path: Path) -> str:
    ledger = Ledger(ledger_url, tmp_path / "spool", "page")
    for record in rows():
        ledger.call_finished(record)
    minute = lately().replace(second=0, microsecond=0)
    misused = refusal(started_at=minute, client="tests", status_code=404, reason="model_not_found", n=3)
    ledger.refused((refusal(started_at=minute, n=70), misused))
    ledger.outage(
        OutageRecord(id=new_id(), deployment="a", model="m", began_at=lately(hours=1), reason="slow", replica="r")
    )
    await ledger.flush()
    await ledger.close()
    return ledger_url


async def answers(url: str, title: str) -> list[dict[str, Any]]:
    engine = create_engine(url)
    dialect = "sqlite" if is_sqlite(engine.url) else "postgresql"
    await engine.dispose()
    blocks = QUESTIONS[title]
    return await asked(url, blocks.get("", "") or blocks[dialect])


def test_there_are_at_least_twenty_questions() -> None:
    assert len(QUESTIONS) >= 20
    assert all("" in blocks or {"postgresql", "sqlite"} <= blocks.keys() for blocks in QUESTIONS.values())


async def test_every_question_is_answered(filled_url: str) -> None:
    empty = [title for title in QUESTIONS if not await answers(filled_url, title)]
    assert empty == []


def old_names(name: str) -> Mapping[str, str]:
    """Return a view's columns that have another name by now, which the page lists on their own."""
    return renamed(name) if name in VIEWS else {}


async def test_every_column_is_described_with_its_own_table_or_view(ledger_url: str) -> None:
    def of_schema(connection: Connection) -> dict[str, list[str]]:
        inspector = inspect(connection)
        names = [name for name in inspector.get_table_names() if not OF_ONE_ENGINE.fullmatch(name)]
        names += [name for name in inspector.get_view_names() if not name.endswith((*WINDOWS, "_pending"))]
        return {name: [column["name"] for column in inspector.get_columns(name)] for name in names}

    engine = create_engine(ledger_url)
    async with engine.connect() as connection:
        schema = await connection.run_sync(of_schema)
    await engine.dispose()
    described = descriptions()
    assert schema.keys() <= described.keys()
    missing = {
        name: [column for column in columns if column not in described[name] and column not in old_names(name)]
        for name, columns in schema.items()
    }
    assert {name: columns for name, columns in missing.items() if columns} == {}


def descriptions() -> dict[str, set[str]]:
    """Return the names that stand in the section of each table, and in that of each view."""
    texts = dict(_SECTION.findall(COLUMNS.split("\n## Views\n")[1]))
    named = {name: set(_NAME.findall(text)) for name, text in texts.items()}
    return {name: named[name].union(*(named[like] for like in _LIKE.findall(text))) for name, text in texts.items()}


def test_what_is_asked_most_comes_first() -> None:
    parts = re.findall(r"^## (\w+)$", PAGE, re.MULTILINE)
    assert parts == ["Questions", "Views", "Rules", "Tables", "Sums"]


async def test_every_view_is_in_the_list_of_views(ledger_url: str) -> None:
    engine = create_engine(ledger_url)
    async with engine.connect() as connection:
        names = await connection.run_sync(lambda sync: inspect(sync).get_view_names())
    await engine.dispose()
    listed = re.findall(r"`(\w+?)_?…?`", PAGE.split("\n## Views\n")[1].split("\n## ")[0])
    known = {_WINDOW.sub("", name) for name in names} - {"rollup_pending"}
    assert known <= {_WINDOW.sub("", name) for name in listed}


async def test_postgres_has_a_comment_on_every_table_view_and_column(postgres_url: str) -> None:
    found = await queries.run(
        postgres_url,
        "select relname, coalesce(attname, ''), description from pg_class "
        "cross join lateral (select 0 as attnum, null as attname union all select attnum, attname from pg_attribute "
        "  where attrelid = pg_class.oid and attnum > 0 and not attisdropped) as columns "
        "left join pg_description on objoid = pg_class.oid and objsubid = columns.attnum "
        "  and classoid = 'pg_class'::regclass "
        "where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v')",
    )
    said = {(table, column): text for table, column, text in found.rows if not OF_ONE_ENGINE.fullmatch(table)}
    assert [place for place, text in said.items() if not text] == []
    assert said["calls", ""] == "A row for each request of a client."
    assert said["calls", "held_ms"].startswith("How long the winner's first token was held back")
    assert said["race_value_24h", ""].endswith("Of the last 24 hours.")
    assert said["race_value_24h", "saved_p95_ms"].startswith("what racing took off these quantiles")


async def test_comments_that_have_changed_are_written_again_and_no_others_are_touched(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    async with engine.begin() as connection:
        await connection.exec_driver_sql("comment on table calls is 'another version''s'")
        await connection.exec_driver_sql("create table our_own (id integer)")
        await connection.exec_driver_sql("comment on table our_own is 'ours'")
    await migrate(postgres_url)
    found = await queries.run(
        postgres_url, "select obj_description('calls'::regclass), obj_description('our_own'::regclass)"
    )
    await engine.dispose()
    assert found.rows == [("A row for each request of a client.", "ours")]


async def test_the_difference_of_two_prompts_is_as_it_was_made(filled_url: str) -> None:
    [row] = await answers(filled_url, "What does prompt B change against A?")
    assert (row["n_a"], row["n_b"]) == (60, 60)
    assert row["ttft_difference_ms"] == pytest.approx(200.0, abs=1.0)
    assert row["ttft_difference_low_ms"] < row["ttft_difference_ms"] < row["ttft_difference_high_ms"]
    assert row["ttft_difference_high_ms"] - row["ttft_difference_low_ms"] < 5.0


async def test_the_tokens_of_losers_are_told_with_their_bounds(filled_url: str) -> None:
    title = "Which tokens were wasted on attempts that lost, and at which provider?"
    [row] = await answers(filled_url, title)
    assert (row["provider"], row["lost"], row["prompt_tokens"], row["received"]) == ("slow", 120, 6000, 0)
    assert (row["at_least"], row["at_most"]) == (0, 48_000)


async def test_who_states_twice_the_tokens_is_named_and_nobody_else(filled_url: str) -> None:
    [row] = await answers(filled_url, "Which provider states tokens wrongly?")
    assert (row["deployment"], row["n"]) == ("liar/llama", 60)
    assert row["last_message"].startswith("states 2.0")


async def test_the_p95_of_a_client_is_what_one_call_in_twenty_takes_longer_than(filled_url: str) -> None:
    [row] = await answers(filled_url, "How long does each client wait, at the p95?")
    found = sorted(
        record.ttft_ms for record in rows() if record.ttft_ms is not None and record.started_at > lately(days=1)
    )
    assert row["n"] == len(found)
    assert row["ttft_p95_ms"] == found[-(-95 * len(found) // 100) - 1]


async def test_the_error_budget_is_half_a_percent_of_a_month_s_calls(filled_url: str) -> None:
    [row] = await answers(filled_url, "How much of the error budget is left?")
    assert round(row["n_missed"], 6) == 3  # who gave up, who failed, and an old call of 900 ms
    assert float(row["n_allowed"]) == pytest.approx(0.005 * float(row["n"]))
    assert row["share_left"] == pytest.approx(1 - row["n_missed"] / float(row["n_allowed"]))


async def test_what_clients_spent_adds_up(filled_url: str) -> None:
    [row] = await answers(filled_url, "Which client spends most?")
    assert row["calls"] == 124
    assert row["usd"] == pytest.approx(120 * 0.0015)
    assert (row["at_least"], row["at_most"]) == (pytest.approx(120 * 0.001), pytest.approx(120 * 0.002))


async def test_a_tag_costs_what_its_answered_calls_cost(ledger_url: str, tmp_path: Path) -> None:
    unanswered = {"status_code": 503, "error_kind": "no_provider", "total_ms": 1.0}
    await shipped(ledger_url, tmp_path, [{"cost_usd": 0.5}, {"cost_usd": 0.5}, unanswered])
    told = await answers(ledger_url, "What does a tag cost?")
    assert {row["value"]: (row["calls"], pytest.approx(row["usd"])) for row in told} == {"a": (2, 1.0), "b": (2, 1.0)}


async def test_errors_have_a_denominator(filled_url: str) -> None:
    [row] = [
        row for row in await answers(filled_url, "What went wrong in the last day, and how often?") if row["n"] == 1
    ]
    assert (row["deployment"], row["last_message"]) == ("groq/llama", "busy")
    assert 0 < row["share"] < 0.1


async def test_values_that_are_all_alike_are_compared_without_an_error(ledger_url: str, tmp_path: Path) -> None:
    # 3 x 0.1 squared less (3 x 0.1) squared / 3 is less than zero in binary fractions.
    [row] = await compared(ledger_url, tmp_path, [{"cost_usd": 0.1, "total_ms": 0.1}] * 3)
    assert (row["cost_difference_usd"], row["cost_low_usd"], row["cost_high_usd"]) == (0.0, 0.0, 0.0)


async def test_an_interval_is_of_the_calls_that_have_the_figure(ledger_url: str, tmp_path: Path) -> None:
    unanswered = {"status_code": 503, "error_kind": "no_provider", "total_ms": 1.0}
    answered: list[dict[str, Any]] = [{"total_ms": 100.0}, {"total_ms": 300.0}]
    [row] = await compared(ledger_url, tmp_path, answered + [unanswered] * 6)
    # Of each value two answers, variance 20,000: the difference's standard error is sqrt(2 x 20,000 / 2).
    assert row["total_difference_high_ms"] == pytest.approx(1.96 * 20_000**0.5)


async def compared(url: str, tmp_path: Path, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ship the same calls tagged a and b, and return how they differ."""
    await shipped(url, tmp_path, calls)
    return await asked(url, "select * from tag_differences where a = 'a'")


async def shipped(url: str, tmp_path: Path, calls: list[dict[str, Any]]) -> None:
    """Ship the same calls tagged a and b."""
    ledger = Ledger(url, tmp_path / "spool", "page")
    for variant in "ab":
        for fields in calls:
            at = lately(minutes=5)
            ledger.call_finished(call(won(new_id(), started_at=at), started_at=at, tags={"variant": variant}, **fields))
    await ledger.flush()
    await ledger.close()
