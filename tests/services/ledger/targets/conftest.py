"""A ledger with calls of every kind, and the counting of targets there, on each of the two databases."""

import random
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.core.attempts import Outcome, TokensSource
from gateway.core.calls import CallRecord
from gateway.core.targets import Counts, Definition, Target
from gateway.ledger import Finished, TargetCounting, Words, create_engine, fold_all, is_sqlite, parse_url
from gateway.ledger.inserts import insert
from gateway.ledger.targets import statements
from gateway.ledger.targets.statements import begin
from tests.unit.ledger.records import attempt, call, failed, new_id

NOW = datetime.now(UTC).replace(microsecond=0)  # the sums know the real time


class Desk:
    """One ledger, and targets of it. ``now`` is the time at which it is asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.now = NOW
        self.targets: list[Target] = []
        self.words = Words(is_postgres=not is_sqlite(parse_url(url)))
        self.engine = create_engine(url)
        self.counting = TargetCounting(url, lambda: self.targets, utc_now=lambda: self.now, clock=lambda: 0.0)

    async def store(self, *records: CallRecord) -> None:
        for start in range(0, len(records), 500):
            await insert(self.engine, [Finished(record) for record in records[start : start + 500]])
        await fold_all(self.engine)

    async def count(self) -> int:
        """Count as a gateway does in the background."""
        return await self.counting.count(self.engine)

    async def counts(self, definition: Definition, length: timedelta) -> Counts:
        """Return what a report says."""
        return await self._ask(statements.counts(self.words, definition, length, self.now))

    async def of_rows(self, definition: Definition, length: timedelta) -> Counts:
        """Return the same from rows alone."""
        return await self._ask(statements.of_rows(self.words, definition, begin(length, self.now)))

    async def ask(self, sql: str) -> list[tuple[Any, ...]]:
        async with self.engine.connect() as connection:  # kept: most tests ask a hundred times
            return [tuple(row) for row in await connection.exec_driver_sql(sql)]

    async def _ask(self, sql: str) -> Counts:
        [row] = await self.ask(sql)
        return Counts(*map(int, row))


@pytest.fixture
async def desk(ledger_url: str) -> AsyncIterator[Desk]:
    made = Desk(ledger_url)
    yield made
    await made.engine.dispose()


def some_calls(number: int, *, days: float, seed: int = 1, now: datetime = NOW) -> Sequence[CallRecord]:
    """Return calls of every kind that there is, of the last ``days``."""
    draw = random.Random(seed)
    return [_some_call(draw, now - timedelta(days=days * draw.random())) for _ in range(number)]


def _some_call(draw: random.Random, at: datetime) -> CallRecord:
    call_id = new_id()
    whole: dict[str, Any] = {
        "started_at": at,
        "model": draw.choice(["llama", "qwen"]),
        "client": draw.choice(["anna", "it's \\ him", None]),
        "profile": draw.choice(["chat", "voice", None]),
        "endpoint": draw.choice(["chat.completions", "messages", "embeddings"]),
        "streamed": draw.random() < 0.5,
        "total_ms": draw.uniform(1, 3000),
    }
    kind = draw.random()
    if kind < 0.1:
        status = draw.choice([424, 429, 500, 503])
        return call(failed(call_id, started_at=at), **whole, status_code=status, error_kind="server_error")
    if kind < 0.15:
        return call(failed(call_id, started_at=at), **whole, status_code=400, error_kind="bad_request")
    if kind < 0.3:
        gone = attempt(call_id, outcome=Outcome.CLIENT_GONE, censored_at_ms=700.0, started_at=at)
        return call(gone, **whole, status_code=499, error_kind="client_disconnected")
    answered = attempt(
        call_id,
        started_at=at,
        ttft_ms=None if kind < 0.33 else draw.uniform(5, 900),
        decode_tps=draw.choice([None, draw.uniform(5, 120)]),
        itl_max_ms=draw.choice([None, draw.uniform(20, 2000)]),
        tokens_source=draw.choice(list(TokensSource)),
    )
    if kind < 0.4:  # it left while it was answered
        return call(answered, **whole, status_code=499, error_kind="client_disconnected")
    broken = {"error_kind": "stalled"} if kind < 0.45 else {}
    return call(answered, **whole, **broken)
