"""The book of probes on both databases: no more is reserved than may be, whoever reserves at the same time."""

import asyncio
import json
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import asyncpg
import msgspec
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from typer.testing import CliRunner, Result

from gateway.cli.main import application
from gateway.core.attempts import Role
from gateway.core.ids import new_id
from gateway.core.records import Facts, NotProbed, OutageRecord, Probe, ProbeEnd, ProbeOutcome, ProbesUnreachable
from gateway.ledger.books import SqlProbeBook
from gateway.ledger.database import create_engine, downgrade, migrate
from gateway.ledger.retention import KEEP_ALL, prune
from gateway.ledger.writer import Ledger
from gateway.probing.prober import Turn, refusal
from gateway.settings import ProbeSettings
from tests.unit.detecting import test_writing as writers
from tests.unit.ledger.records import raced_call

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


async def facts(book: SqlProbeBook, one: Probe) -> Facts:
    """Return what the book knows; nothing is written."""
    found: list[Facts] = []

    def refuse(known: Facts) -> NotProbed:
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


async def test_answers_to_fixed_prompts_are_kept_for_three_weeks(ledger_url: str) -> None:
    book, engine = SqlProbeBook(ledger_url), create_engine(ledger_url)
    for prompt, days in enumerate((20, 22, 0)):
        one = msgspec.structs.replace(probe(f"{days}/m", at=NOON - timedelta(days=days)), prompt=prompt)
        assert await reserve(book, one) is None
        await book.settle(one.id, msgspec.structs.replace(ended(), answer="The\x00 sea."))
    await prune(engine, KEEP_ALL, NOON)
    async with engine.connect() as connection:
        kept = await connection.execute(text("select deployment, prompt, answer from probes order by deployment"))
        assert list(map(tuple, kept)) == [("0/m", 2, "The sea."), ("20/m", 0, "The sea."), ("22/m", 1, None)]
    await engine.dispose()
    await book.aclose()


async def test_one_replica_has_the_turn_of_a_fixed_prompt(ledger_url: str) -> None:
    books = [SqlProbeBook(ledger_url) for _ in range(3)]
    turn = Turn.of("a/m", NOON)

    async def asked(book: SqlProbeBook, at: datetime) -> NotProbed | None:
        one = msgspec.structs.replace(probe(at=at, usd=0.0), prompt=turn.prompt)
        return await book.reserve(one, lambda known: refusal(known, SETTINGS, 0.0, at, turn), since=at)

    assert await reserve(books[0], probe(at=turn.since - timedelta(seconds=1))) is None  # of a quiet one
    said = await asyncio.gather(*(asked(book, turn.since + timedelta(seconds=9)) for book in books))
    assert sorted(map(str, said)) == ["None", "in_use", "in_use"]
    for book in books:
        await book.aclose()


async def test_a_database_without_the_table_is_away(tmp_path: Path) -> None:
    book = SqlProbeBook(f"sqlite:///{tmp_path}/empty.db")
    with pytest.raises(ProbesUnreachable):
        await reserve(book, probe())
    await book.aclose()


async def test_a_gateway_that_may_only_insert_calls_may_probe(postgres_url: str) -> None:
    await downgrade(postgres_url, "0016")
    connection = await asyncpg.connect(postgres_url)
    role = f"prober_{uuid.uuid4().hex}"
    try:
        await connection.execute(
            f"create role {role} login; grant select, insert on all tables in schema public to {role}"
        )
        await migrate(postgres_url)
        book = SqlProbeBook(make_url(postgres_url).set(username=role).render_as_string(hide_password=False))
        one = probe()
        assert await reserve(book, one) is None
        await book.settle(one.id, ended())
        assert await connection.fetchval("select outcome from probes") == "answered"
        await book.aclose()
    finally:
        await connection.execute(f"drop owned by {role}; drop role {role}")
        await connection.close()


async def write(url: str, days_ago: float, likely: dict[str, float], number: int = 6) -> None:
    """Store what each deployment has written to half of the prompts; ``likely``: of each one's likeliest word."""
    book, random = SqlProbeBook(url), Random(f"{days_ago}")
    for name, share in likely.items():
        for prompt in [prompt for prompt in range(13) for _ in range(number)]:
            one = probe(name, at=datetime.now(UTC) - timedelta(days=days_ago))
            assert (
                await book.reserve(msgspec.structs.replace(one, prompt=prompt), lambda _: None, since=one.started_at)
                is None
            )
            await book.settle(one.id, msgspec.structs.replace(ended(), answer=writers.text(random, share)))
    await book.aclose()


def compared(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(
        application(), ["bench", "--same-model", "--from-probes", *arguments], env={"HOLESHOT_DATABASE_URL": url}
    )


def test_deployments_are_compared_by_what_probes_have_stored(
    ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asyncio.run(write(ledger_url, 6.9, {"a/m": 0.4, "b/m": 0.4, "other/m": 0.8}))
    asyncio.run(write(ledger_url, 7.1, {"a/m": 0.4, "b/m": 0.9}))  # what is older does not count
    asyncio.run(write(ledger_url, 1, {"few/m": 0.4}, number=4))

    alike = compared(ledger_url, "a/m", "b/m")
    assert alike.exit_code == 0, alike.output
    assert alike.stdout.startswith("156 answers that probes stored in the last seven days; nothing was asked\n")
    assert "holds: b/m: no difference from a/m is shown: p = " in alike.stdout
    unlike = compared(ledger_url, "a/m", "b/m", "other/m", "--json")
    assert unlike.exit_code == 3, unlike.output
    told = json.loads(unlike.stdout)
    assert [(check["deployment"], check["outcome"]) for check in told["gate"]["checks"]] == [
        ("b/m", "holds"),
        ("other/m", "broken"),
    ]
    assert (told["requests"], told["spent_usd"], len(told["method"])) == (3 * 78, None, 1)
    few, none = compared(ledger_url, "a/m", "few/m"), compared(ledger_url, "c/m,d/m")
    assert (few.exit_code, none.exit_code) == (4, 4)
    for each in (few, none):
        assert "0 of 25 prompts have 5 of each (switch on probes.same_model," in " ".join(each.stdout.split())
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".jsonl") == []
