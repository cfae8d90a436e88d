"""The book of probes on both databases: no more is reserved than may be, whoever reserves at the same time."""

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy.engine import make_url

from gateway.app.prober import refusal
from gateway.core.attempts import Role
from gateway.core.ids import new_id
from gateway.core.records import DailyFacts, NotProbed, OutageRecord, Probe, ProbeEnd, ProbeOutcome, ProbesUnreachable
from gateway.ledger import Ledger, SqlProbeBook
from gateway.settings import ProbeSettings
from tests.unit.ledger.records import call, raced_call, won

NOON = datetime(2026, 10, 5, 12, tzinfo=UTC)
SETTINGS = ProbeSettings(quiet_s=600, usd_per_day=1.0, max_per_day=1000)


def probe(deployment: str = "a/m", *, at: datetime = NOON, usd: float = 0.1) -> Probe:
    return Probe(id=new_id(), started_at=at, model="m", deployment=deployment, replica="here", reserved_usd=usd)


async def reserve(book: SqlProbeBook, one: Probe, settings: ProbeSettings = SETTINGS) -> NotProbed | None:
    return await book.reserve(
        one,
        lambda facts: refusal(facts, settings, one.reserved_usd, one.started_at),
        since=one.started_at - timedelta(seconds=settings.quiet_s),
    )


def ended(outcome: ProbeOutcome = ProbeOutcome.ANSWERED, usd: float | None = 0.01) -> ProbeEnd:
    return ProbeEnd(ended_at=NOON, outcome=outcome, cost_usd=usd, ttft_ms=100.0)


async def facts(book: SqlProbeBook, one: Probe) -> DailyFacts:
    """Return what the book knows; nothing is written."""
    found: list[DailyFacts] = []

    def refuse(known: DailyFacts) -> NotProbed:
        found.append(known)
        return NotProbed.MONEY

    await book.reserve(one, refuse, since=one.started_at - timedelta(hours=1))
    return found[0]


async def test_two_replicas_together_never_exceed_the_money_of_a_day(ledger_url: str) -> None:
    """Forty ask at once for a tenth of it each: ten get it, and none of them ends, as after a ``kill -9``."""
    one, other = SqlProbeBook(ledger_url), SqlProbeBook(ledger_url)
    asked = [reserve(book, probe(f"{number}/m")) for number in range(20) for book in (one, other)]
    said = await asyncio.gather(*asked)
    assert said.count(None) == 10
    assert set(said) <= {None, NotProbed.MONEY, NotProbed.IN_USE}
    known = await facts(one, probe("new/m"))
    assert known.spent_usd == pytest.approx(1.0)
    assert known.probes == 10
    await one.aclose()
    await other.aclose()


async def test_only_one_replica_probes_a_deployment(ledger_url: str) -> None:
    books = [SqlProbeBook(ledger_url) for _ in range(4)]
    said = await asyncio.gather(*(reserve(book, probe()) for book in books))
    assert said.count(None) == 1
    assert said.count(NotProbed.IN_USE) == 3
    assert await reserve(books[0], probe(at=NOON + timedelta(seconds=601))) is None
    for book in books:
        await book.aclose()


async def test_what_it_cost_replaces_what_was_reserved_if_it_is_known(ledger_url: str) -> None:
    book = SqlProbeBook(ledger_url)
    cheap, unknown, running = probe("a/m"), probe("b/m"), probe("c/m")
    for each in (cheap, unknown, running):
        assert await reserve(book, each) is None
    await book.settle(cheap.id, ended(usd=0.01))
    await book.settle(unknown.id, ended(usd=None))
    assert (await facts(book, probe("d/m"))).spent_usd == pytest.approx(0.01 + 0.1 + 0.1)
    await book.aclose()


async def test_a_new_day_begins_at_midnight(ledger_url: str) -> None:
    book = SqlProbeBook(ledger_url)
    midnight = NOON.replace(hour=0) + timedelta(days=1)
    assert await reserve(book, probe("a/m", at=midnight - timedelta(seconds=1), usd=1.0)) is None
    assert await reserve(book, probe("b/m", at=midnight - timedelta(seconds=1))) is NotProbed.MONEY
    assert await reserve(book, probe("b/m", at=midnight)) is None
    await book.aclose()


async def test_failures_in_a_row_are_counted_until_one_answers(ledger_url: str) -> None:
    book = SqlProbeBook(ledger_url)
    outcomes = [ProbeOutcome.ANSWERED, ProbeOutcome.FAILED, ProbeOutcome.CANCELLED, ProbeOutcome.FAILED, None]
    for number, outcome in enumerate(outcomes):
        one = probe(at=NOON + timedelta(hours=number), usd=0.0)
        assert await reserve(book, one, ProbeSettings(quiet_s=1)) is None
        if outcome is not None:
            await book.settle(one.id, ended(outcome))
    known = await facts(book, probe(at=NOON + timedelta(hours=9)))
    assert known.failures == 2
    assert known.probed_at == NOON + timedelta(hours=4)
    await book.aclose()


async def test_calls_and_outages_of_all_replicas_are_known(ledger_url: str, tmp_path: Path) -> None:
    book, ledger = SqlProbeBook(ledger_url), Ledger(ledger_url, tmp_path / "spool", "w1", utc_now=lambda: NOON)
    record = raced_call()
    ledger.call_finished(record)
    attempt = record.attempts[0]
    ledger.outage(
        OutageRecord(id=new_id(), deployment="b/m", model="m", began_at=NOON, reason="server_error", replica="r")
    )
    await ledger.flush()
    soon = attempt.started_at + timedelta(seconds=30)
    assert await reserve(book, probe(attempt.deployment, at=soon)) is NotProbed.IN_USE
    assert await reserve(book, probe(attempt.deployment, at=soon + timedelta(hours=2))) is None
    assert await reserve(book, probe("b/m", at=NOON + timedelta(minutes=1))) is NotProbed.BROKEN
    assert attempt.role is not Role.PROBE
    await ledger.close()
    await book.aclose()


async def test_an_outage_of_a_killed_replica_is_over_where_something_answers(ledger_url: str, tmp_path: Path) -> None:
    book, ledger = SqlProbeBook(ledger_url), Ledger(ledger_url, tmp_path / "spool", "w1", utc_now=lambda: NOON)
    answered = won(new_id(), token_ms=120.0)
    ledger.call_finished(call(answered))
    for deployment, replica, ended_at in (
        (answered.deployment, "killed", None),
        ("b/m", "killed", None),
        ("c/m", "killed", None),
        ("c/m", "killed", answered.started_at),  # it was started again since
    ):
        began_at = answered.started_at - timedelta(minutes=3 if ended_at is None else 2)
        ledger.outage(
            OutageRecord(
                id=new_id(), deployment=deployment, model="m", began_at=began_at, ended_at=ended_at, replica=replica,
                reason="server_error",
            )
        )  # fmt: skip
    await ledger.flush()
    at = answered.started_at + timedelta(minutes=5)
    known = {name: await facts(book, probe(name, at=at)) for name in (answered.deployment, "b/m", "c/m")}
    assert {name: each.is_broken for name, each in known.items()} == {
        answered.deployment: False,
        "b/m": True,
        "c/m": False,
    }
    await ledger.close()
    await book.aclose()


async def test_a_database_without_the_table_is_away(tmp_path: Path) -> None:
    book = SqlProbeBook(f"sqlite:///{tmp_path}/empty.db")
    with pytest.raises(ProbesUnreachable):
        await reserve(book, probe())
    await book.aclose()


async def test_a_role_that_may_read_attempts_and_store_probes_may_probe(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    role = f"prober_{uuid.uuid4().hex}"
    try:
        await connection.execute(
            f"create role {role} login; grant select on all tables in schema public to {role};"
            f"grant insert, update on probes to {role}"
        )
        book = SqlProbeBook(make_url(postgres_url).set(username=role).render_as_string(hide_password=False))
        one = probe()
        assert await reserve(book, one) is None
        await book.settle(one.id, ended())
        assert await connection.fetchval("select outcome from probes") == "answered"
        await book.aclose()
    finally:
        await connection.execute(f"drop owned by {role}; drop role {role}")
        await connection.close()
