"""The book of alerts: the same in memory, in SQLite and in Postgres, whoever else has it open."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import text

from gateway.alerts import (
    Alert,
    AlertEvent,
    AlertKind,
    AlertMessage,
    AlertScope,
    Book,
    BookAway,
    DeliveryResult,
    MemoryBook,
    Severity,
)
from gateway.alerts.memory_book import MOST_MESSAGES
from gateway.core.ids import new_id
from gateway.ledger import SqlAlertBook, create_engine, queries
from gateway.ledger.books import ALERTS_KEPT, MESSAGES_KEPT

NOW = datetime(2030, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
LEASE = timedelta(seconds=60)
HOOKS = ("chat", "ops")
SENT = DeliveryResult(ok=True, answer="200")
FAILED = DeliveryResult(ok=False, answer="503")


def alert(subject: str = "m", *, at: datetime = NOW, **changes: object) -> Alert:
    made = Alert(
        id=new_id(),
        kind=AlertKind.MODEL_OUT,
        subject=subject,
        severity=Severity.PAGE,
        summary=f"{subject} is out",
        figures={"n": 2, "share": 0.5, "why": "it's broken", "none": None},
        sql="select 1",
        opened_at=at,
        seen_at=at,
        replica="here",
    )
    return msgspec.structs.replace(made, **changes)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def book_url(request: pytest.FixtureRequest) -> str | None:
    return None if request.param == "memory" else str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
async def books(book_url: str | None) -> AsyncIterator[Sequence[Book]]:
    """Two views of one book, as two replicas have it."""
    if book_url is None:
        only = MemoryBook(new_id)
        yield [only, only]
        return
    both = [SqlAlertBook(book_url, new_id=new_id), SqlAlertBook(book_url, new_id=new_id)]
    yield both
    for each in both:
        await each.aclose()


async def due(book: Book, at: datetime = NOW, webhooks: Sequence[str] = HOOKS) -> list[AlertMessage]:
    return await book.take_due(at, lease=LEASE, webhooks=webhooks)


async def test_what_is_opened_is_read_as_it_was_written(books: Sequence[Book]) -> None:
    opened = alert()
    assert await books[0].open(opened, HOOKS)
    assert await books[1].current(NOW) == [opened]


async def test_what_a_provider_calls_its_model_keeps_no_alert_out_of_the_ledger(ledger_url: str) -> None:
    """An alert that cannot be stored would be tried again with each look, and each process would be left alone."""
    book = SqlAlertBook(ledger_url, new_id=new_id)
    await book.open(alert(summary="another model of a\x00b", figures={"model": "a\x00b", "before": None}), HOOKS)
    [opened] = await book.current(NOW)
    await book.aclose()
    assert (opened.summary, opened.figures) == ("another model of ab", {"model": "ab", "before": None})


async def test_of_many_who_open_the_same_incident_at_once_one_succeeds(books: Sequence[Book]) -> None:
    opened = await asyncio.gather(*(book.open(alert(), HOOKS) for _ in range(10) for book in books))
    assert sum(opened) == 1
    assert len(await books[0].current(NOW)) == 1
    assert sorted(each.webhook for each in await due(books[1])) == ["chat", "ops"]


async def test_an_incident_can_be_opened_again_once_it_is_resolved(books: Sequence[Book]) -> None:
    first, second = alert(), alert(at=NOW + timedelta(minutes=10))
    await books[0].open(first, ())
    assert not await books[1].open(second, ())
    assert await books[1].resolve(first, unseen_since=NOW, at=NOW + timedelta(minutes=5), webhooks=())
    assert await books[0].open(second, ())


async def test_of_two_who_resolve_an_alert_one_succeeds(books: Sequence[Book]) -> None:
    opened = alert()
    await books[0].open(opened, ())
    ended = await asyncio.gather(
        *(book.resolve(opened, unseen_since=NOW, at=NOW + LEASE, webhooks=HOOKS) for book in books)
    )
    assert sorted(ended) == [False, True]
    assert [each.event for each in await due(books[0], NOW + LEASE)] == [AlertEvent.RESOLVED] * 2


async def test_an_alert_that_was_seen_elsewhere_since_is_not_resolved(books: Sequence[Book]) -> None:
    opened = alert()
    await books[0].open(opened, ())
    await books[0].note_seen([opened.id], NOW + timedelta(seconds=30))
    await books[0].note_seen([opened.id], NOW + timedelta(seconds=10))  # a clock that is late
    late = NOW + timedelta(minutes=10)
    assert not await books[1].resolve(opened, unseen_since=NOW + timedelta(seconds=29), at=late, webhooks=())
    assert await books[1].resolve(opened, unseen_since=NOW + timedelta(seconds=30), at=late, webhooks=())
    [kept] = await books[0].current(NOW)
    assert (kept.seen_at, kept.resolved_at) == (NOW + timedelta(seconds=30), late)
    assert await books[0].current(late) == []


async def test_a_message_is_given_to_one_sender_until_its_lease_ends(books: Sequence[Book]) -> None:
    await books[0].open(alert(), HOOKS)
    first = await due(books[0])
    assert {each.webhook for each in first} == set(HOOKS)
    assert await due(books[1], NOW + LEASE - timedelta(seconds=1)) == []
    again = await due(books[1], NOW + LEASE)  # the first one died
    assert {each.id for each in again} == {each.id for each in first}


async def test_two_senders_at_once_share_the_messages(books: Sequence[Book]) -> None:
    for number in range(20):
        await books[0].open(alert(f"m{number}"), HOOKS)
    taken = [each.id for some in await asyncio.gather(*(due(book) for book in books)) for each in some]
    assert len(taken) == len(set(taken))
    rest = [each.id for each in await due(books[0])]
    assert len(set(taken) | set(rest)) == len(taken) + len(rest) == 40


async def test_a_failed_message_comes_again_later_and_a_sent_one_never(books: Sequence[Book]) -> None:
    await books[0].open(alert(), HOOKS)
    chat, ops = sorted(await due(books[0]), key=lambda each: each.webhook)
    await books[0].settle(chat, SENT, at=NOW, retry_at=None)
    await books[0].settle(ops, FAILED, at=NOW, retry_at=NOW + timedelta(seconds=10))
    assert await due(books[1], NOW + timedelta(seconds=9)) == []
    [again] = await due(books[1], NOW + timedelta(days=1))
    assert (again.id, again.webhook, again.tries) == (ops.id, "ops", 1)


async def test_the_end_of_an_incident_is_said_after_its_beginning(books: Sequence[Book]) -> None:
    opened = alert()
    await books[0].open(opened, ["ops"])
    [first] = await due(books[0])
    await books[0].resolve(opened, unseen_since=NOW, at=NOW, webhooks=["ops"])
    assert await due(books[1]) == []
    await books[0].settle(first, SENT, at=NOW, retry_at=None)
    [last] = await due(books[1])
    assert (last.event, last.alert.resolved_at) == (AlertEvent.RESOLVED, NOW)


async def test_messages_to_a_webhook_that_is_not_configured_here_wait(books: Sequence[Book]) -> None:
    await books[0].open(alert(), HOOKS)
    assert [each.webhook for each in await due(books[0], webhooks=["ops"])] == ["ops"]
    assert await due(books[0], webhooks=[]) == []


async def test_what_one_process_said_alone_is_stored_as_the_past_it_is(books: Sequence[Book]) -> None:
    past = alert(resolved_at=NOW + LEASE, scope=AlertScope.PROCESS)
    assert await books[0].open(past, ())
    assert await books[1].open(alert(), ())
    assert len(await books[1].current(NOW)) == 2


async def test_old_messages_and_very_old_alerts_are_deleted(ledger_url: str) -> None:
    book = SqlAlertBook(ledger_url, new_id=new_id)
    old = alert(at=NOW - ALERTS_KEPT - timedelta(days=1))
    await book.open(old, HOOKS)
    await book.resolve(old, unseen_since=NOW, at=NOW - ALERTS_KEPT - timedelta(hours=1), webhooks=())
    await book.open(alert("n", at=NOW - MESSAGES_KEPT - LEASE), HOOKS)
    await book.open(alert("o"), HOOKS)
    await book.aclose()
    found = await queries.run(ledger_url, "select subject from alerts order by subject")
    assert found.rows == [("n",), ("o",)]
    assert (await queries.run(ledger_url, "select count(*) from alert_messages")).rows == [(2,)]


async def test_a_database_without_the_tables_is_away(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    book = SqlAlertBook(f"sqlite:///{tmp_path}/empty.db", new_id=new_id)
    with pytest.raises(BookAway, match="no such table"):
        await book.current(NOW)
    await book.aclose()


async def test_a_book_in_memory_drops_the_oldest_messages_when_nobody_takes_them() -> None:
    book = MemoryBook(new_id)
    for number in range(MOST_MESSAGES + 5):
        await book.open(alert(f"m{number}"), ["ops"])
    assert (book.waiting, book.dropped) == (MOST_MESSAGES, 5)
    assert (await due(book))[0].alert.subject == "m5"


async def test_what_a_later_version_alerts_of_is_left_to_that_version(sqlite_url: str) -> None:
    book = SqlAlertBook(sqlite_url, new_id=new_id)
    for subject in ("new", "old"):
        assert await book.open(alert(subject), HOOKS[:1])
    engine = create_engine(sqlite_url)
    async with engine.begin() as connection:
        await connection.execute(text("update alerts set kind = 'novelty' where subject = 'new'"))
    await engine.dispose()
    assert [each.subject for each in await book.current(NOW)] == ["old"]
    assert [each.alert.subject for each in await due(book)] == ["old"]
    await book.aclose()
