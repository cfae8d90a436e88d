"""The ledger's rows joined to what clients and providers saw themselves."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from benchmarks.truth.course import LEFT, Made
from benchmarks.truth.fleet import Fleet, Persona, Seen
from gateway.ledger import tables

Row: TypeAlias = dict[str, Any]

VIEWS = (
    *("race_value", "leaderboard", "slo", "provider_errors", "client_usage", "tag_values", "cache_value", "throughput"),
    "gaps_1h",
)


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
    # In no other list: answers that broke off, to be finished by another, and those whose end came as their client
    # left, so that two clocks decide which was first.
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
            is_torn = one.job.scenario.model == "torn"
            is_close = one.status == LEFT and any(seen.is_told for requests in own.values() for seen in requests)
            (others if is_torn or is_close else calls).append(called)
    strays += len(by_number) + sum(map(len, rows_of.values()))
    return Facts(fleet, made, calls, [attempt for call in calls for attempt in call.attempts], others, strays)
