"""The ledger's rows joined to what clients and providers saw themselves, and what is true by that."""

import asyncio
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from benchmarks.truth.course import LEFT, MODES, Made
from benchmarks.truth.fleet import PROMPT_TOKENS, Fleet, Persona, Seen
from benchmarks.truth.rules import Figure, One, Truth, equal
from gateway.ledger import ClickHouse, create_engine, tables

Row: TypeAlias = dict[str, Any]

VIEWS = (
    *("race_value", "leaderboard", "slo", "provider_errors", "client_usage", "tag_values", "cache_value", "throughput"),
    "gaps_24h",
)
OK = 200


class Ledger(msgspec.Struct):
    """All rows of one run: of the two tables, and of the views that are compared. ``limits`` is what those count."""

    calls: list[Row]
    attempts: list[Row]
    views: dict[str, list[Row]]


class Attempt(msgspec.Struct, frozen=True):
    """A row of ``attempts`` with the requests it stands for: none where none arrived, two where one was repeated."""

    row: Row
    made: Made
    persona: Persona
    requests: Sequence[Seen]

    @property
    def seen(self) -> Seen | None:
        """The last of the requests."""
        return self.requests[-1] if self.requests else None


class Called(msgspec.Struct, frozen=True):
    """A row of ``calls`` with what its client saw, its attempts, and all requests that were made for it."""

    row: Row
    made: Made
    attempts: Sequence[Attempt]
    asked: Mapping[str, Sequence[Seen]]  # by provider

    @property
    def winner(self) -> Attempt | None:
        """The attempt whose words the client read."""
        return next((one for one in self.attempts if one.persona.name == self.made.provider), None)


class Facts(msgspec.Struct, frozen=True):
    """Everything of one run."""

    fleet: Fleet
    made: Sequence[Made]
    calls: Sequence[Called]
    attempts: Sequence[Attempt]
    # In no other list: calls of ``MODES``, and those whose end came as their client left, so that two clocks decide
    # which was first.
    others: Sequence[Called]
    strays: int  # rows that belong to no call or no request of this run, and calls without a row


async def read(engine: AsyncEngine, counted: Row) -> Ledger:
    """Read a ledger; ``counted`` is what limits count."""
    async with engine.connect() as connection:

        async def rows(query: Any) -> list[Row]:
            return [dict(row) for row in (await connection.execute(query)).mappings()]

        return Ledger(
            await rows(select(tables.calls)),
            await rows(select(tables.attempts)),
            {"limits": [counted]} | {view: await rows(text(f"select * from {view}")) for view in VIEWS},
        )


# The views that ClickHouse has too, by what tells their rows apart.
IN_CLICKHOUSE: Mapping[str, Sequence[str]] = {
    "race_value": ("model",),
    "client_usage": ("client", "model"),
    "throughput": ("deployment",),
    "provider_errors": ("deployment", "error_kind", "status_code"),
    "slo": ("day", "model"),
    "leaderboard": ("model", "deployment"),
}
ARRIVE_WITHIN_S = 60.0
# How far a value may be from SQL's, by a part of its column's name: quantiles of buckets and of rows, and what is made
# of roots by another method.
APART = {r"tps_p\d\d|throughput.*ttft_p\d\d": 0.0906, r"saved.*_(low|high)_ms": 0.003}
# A window of sums, and the last ten minutes, go on while the two are asked.
MOVING = ("leaderboard",)


async def _ask(url: str, statement: str) -> list[Row]:
    client = ClickHouse(url)
    try:
        async with client.asked(statement, 60.0) as answer:
            return [dict(zip(answer.columns, row, strict=True)) async for batch in answer.batches for row in batch]
    finally:
        await client.aclose()


async def arrived(url: str, database_url: str) -> None:
    """Wait until ClickHouse has as many attempts as the ledger; give up after ``ARRIVE_WITHIN_S``."""
    engine = create_engine(database_url)
    try:
        async with asyncio.timeout(ARRIVE_WITHIN_S), engine.connect() as connection:
            while True:
                stored = (await connection.execute(text("select count(*) from attempts"))).scalar_one()
                if int((await _ask(url, "select uniq(id) as n from attempts"))[0]["n"]) >= stored:
                    return
                await asyncio.sleep(1)
    except TimeoutError:
        return  # the figures say what is missing
    finally:
        await engine.dispose()


async def read_clickhouse(url: str) -> dict[str, list[Row]]:
    """Return what the views of ClickHouse say."""
    return {view: await _ask(url, f"select * from {view}") for view in IN_CLICKHOUSE}


def alike(in_sql: Mapping[str, Sequence[Row]], in_clickhouse: Mapping[str, Sequence[Row]]) -> Iterator[Figure]:
    """Yield, for each view, how many of its values are not those of SQL."""
    for view, keys in IN_CLICKHOUSE.items():
        if view in MOVING:
            continue
        rows = {tuple(str(row[key]) for key in keys): row for row in in_clickhouse[view]}
        unlike = sum(
            not _is_near(view, column, value, rows.get(tuple(str(row[key]) for key in keys), {}).get(column))
            for row in in_sql[view]
            for column, value in row.items()
            if isinstance(value, int | float)
        )
        yield equal(f"values of {view} that SQL has otherwise", 0, unlike)


def _is_near(view: str, column: str, there: float, here: Any) -> bool:
    apart = next((share for part, share in APART.items() if re.search(part, f"{view} {column}")), 1e-6)
    return here is not None and math.isclose(there, float(here), rel_tol=apart, abs_tol=1e-9)


def join(ledger: Ledger, made: Sequence[Made], fleet: Fleet) -> Facts:
    """Join rows to the truth, by the number that each call's client gave it."""
    by_number = {str(one.job.number): one for one in made}
    asked: dict[int, dict[str, Sequence[Seen]]] = defaultdict(dict)
    for (number, name), requests in fleet.seen.items():
        asked[number][name] = requests
    rows_of = defaultdict(list)
    for row in ledger.attempts:
        rows_of[row["call_id"]].append(row)
    calls: list[Called] = []
    others: list[Called] = []
    strays = 0
    for row in ledger.calls:
        one = by_number.pop(row["request_id"], None)
        if one is None:
            strays += 1
            continue
        own = asked[one.job.number]
        attempts = [
            Attempt(each, one, fleet.personas[each["provider"]], own.get(each["provider"], ()))
            for each in sorted(rows_of.pop(row["id"], ()), key=lambda each: each["number"])
            if each["provider"] in fleet.personas
        ]
        strays += len(own.keys() - {attempt.persona.name for attempt in attempts})
        if attempts:
            called = Called(row, one, attempts, own)
            is_other = one.job.scenario.model in MODES
            is_close = one.status == LEFT and any(seen.is_told for requests in own.values() for seen in requests)
            (others if is_other or is_close else calls).append(called)
    strays += len(by_number) + sum(map(len, rows_of.values()))
    return Facts(fleet, made, calls, [attempt for call in calls for attempt in call.attempts], others, strays)


def left(one: One) -> bool:
    """Return whether the client gave up, before its first token or after."""
    return bool(one.made.status == LEFT)


def kind(one: One) -> str:
    """Return what the call was to be answered with."""
    return str(one.made.job.scenario.kind)


def usage(count: str) -> Truth:
    """Return what a request's provider stated as usage."""

    def of(one: Attempt) -> int | None:
        persona, seen = one.persona, one.seen
        assert seen is not None
        stated = {
            "prompt_tokens": PROMPT_TOKENS,
            "completion_tokens": 0 if kind(one) == "empty" else round(seen.draw.tokens * persona.overstates),
            "reasoning_tokens": persona.thinks or None,
            "cached_tokens": None if persona.cached_usd is None else seen.draw.cached,
            "cache_write_tokens": None if persona.write_usd is None else seen.draw.written,
        }
        return stated[count]

    return of


def api(one: One) -> str:
    """Return the API that the client spoke."""
    return "messages" if one.made.job.scenario.path == "messages" else "chat.completions"


def win_on(one: One) -> str:
    """Return which token wins the call."""
    return "answer" if one.made.job.scenario.model == "thoughtful" else "any"


def tool_calls(kind: str, seen: Seen) -> int | None:
    """Return how many tool calls a request was answered with; None where its answer is not whole."""
    return None if not seen.is_told else int(kind in {"tool", "broken"} and seen.finish_reason == "tool_calls")


def valid(kind: str, seen: Seen) -> bool | None:
    """Return whether the arguments of its tool calls parse; None without any."""
    return (kind == "tool") if tool_calls(kind, seen) else None


def flaw(kind: str, seen: Seen) -> str | None:
    """Return what is wrong with an answer that has an end."""
    if kind == "broken" and tool_calls(kind, seen):
        return "bad_tool_call"
    return "empty" if kind == "empty" else None


def bill(attempts: Sequence[Attempt]) -> float:
    """Return what providers have on their bills for some attempts."""
    return sum(seen.cost_usd(one.persona) for one in attempts for seen in one.requests)


def saved(one: Attempt) -> float:
    """Return what reading the prompt cache saved, US dollars."""
    assert one.seen is not None
    return one.seen.draw.cached * (one.persona.input_usd - (one.persona.cached_usd or 0.0))


def mode_of(call: One) -> str:
    """Return how the call is to be run."""
    return {"race": "race", "thoughtful": "race", "hedged": "hedge"}.get(call.made.job.scenario.model, "single")
