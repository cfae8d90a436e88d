"""The list of calls, and one call: the same from memory and from both databases."""

import asyncio
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import pytest

from gateway.core.attempts import AttemptStart, Outcome, Role
from gateway.core.calls import CallRecord, CallStart, Mode, Objective
from gateway.core.ids import uuid7
from gateway.core.reports import CallEnd, CallsFilter, Position, Window
from gateway.ledger.entries import Audited
from tests.services.ledger.reports.conftest import NOW, Library, plain
from tests.unit.ledger.records import attempt, call, failed, lost, won

WILD = """it's "quoted" \\ and %_ and ü"""  # text that no literal may break on


def at(ago_s: float) -> Any:
    return NOW - timedelta(seconds=ago_s)


def made(ago_s: float, *, seed: int = 0, **facts: Any) -> CallRecord:
    """Return a call that groq won and fireworks lost, so many seconds ago."""
    started_at = at(ago_s)
    draw = Random(f"{ago_s} {seed}")
    ids = [uuid7(int(started_at.timestamp() * 1000), draw.getrandbits(74)) for _ in range(3)]
    winner = won(ids[0], id=ids[1], started_at=started_at, deployment=facts.pop("deployment", "groq/llama"))
    loser = lost(ids[0], id=ids[2], started_at=started_at, deployment="fireworks/llama", provider="fireworks")
    known = {"started_at": started_at, "id": ids[0], "prompt_tokens": 7, "completion_tokens": 9, "ttft_ms": 200.0}
    return call(winner, loser, **(known | facts))


def broken(ago_s: float, **facts: Any) -> CallRecord:
    record = made(ago_s, **facts)
    one = failed(record.id, started_at=record.started_at)
    known = {"attempts": (one,), "winner_attempt_id": None, "status_code": 502, "error_kind": "all_failed"}
    return msgspec.structs.replace(record, **(known | {"ttft_ms": None, "launched": 1} | facts))


def various() -> list[CallRecord]:
    """Return calls that differ in what is asked for; the first are the oldest."""
    return [
        made(90_000, model="old"),  # more than a day ago
        made(600, model="a", client=None, tags={}),
        made(590, model="a", client=WILD, tags={"name": WILD}, request_id=WILD),
        made(580, model=WILD, ttft_ms=1500.0, deployment=WILD),
        broken(570, total_ms=2500.0),
        broken(560, status_code=499, error_kind="client_disconnected", total_ms=10.0),
        broken(550, status_code=400, error_kind="bad_request", total_ms=1.0),
        made(540, request_id="order-1", tags={"variant": "b", "other": "x"}),
        made(540, seed=1, request_id="order-1", tags={"variant": "a"}),  # at the same instant
    ]


FILTERS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [1, 2, 3, 4, 5, 6, 7, 8]),
    ({"window": None}, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
    ({"window": Window.WEEK, "model": "old"}, [0]),
    ({"model": WILD}, [3]),
    ({"client": ""}, [1]),
    ({"client": WILD}, [2]),
    ({"client": "nobody"}, []),
    ({"deployment": WILD}, [3]),
    ({"tag": ("name", WILD)}, [2]),
    ({"tag": ("variant", "b")}, [4, 5, 6, 3, 7]),
    ({"tag": ("variant", "a")}, [8]),
    ({"outcome": CallEnd.OK}, [1, 2, 3, 7, 8]),
    ({"outcome": CallEnd.FAILED}, [4]),
    ({"outcome": CallEnd.REJECTED}, [6]),
    ({"outcome": CallEnd.LEFT}, [5]),
    ({"slower_than_ms": 1000.0}, [3, 4]),
    ({"error": "all_failed"}, [4]),
    ({"request_id": WILD}, [2]),
    ({"request_id": "order-1", "tag": ("variant", "a")}, [8]),
    ({"attempts": True}, [1, 2, 3, 4, 5, 6, 7, 8]),
    ({"attempts": True, "client": "nobody"}, []),
]


def asked(wanted: dict[str, Any]) -> CallsFilter:
    known: dict[str, Any] = {"window": Window.DAY, "limit": 50}
    return CallsFilter(**(known | wanted))


@pytest.mark.parametrize(("wanted", "expected"), FILTERS, ids=[str(wanted) for wanted, _ in FILTERS])
async def test_a_filter_finds_the_same_calls_in_memory_and_in_sql(
    library: Library, wanted: dict[str, Any], expected: list[int]
) -> None:
    calls = various()
    should = {calls[number].id for number in expected}
    library.keep(*calls)
    waiting = await library.reports.calls(asked(wanted))
    library.waiting.clear()
    await library.store(*calls)
    stored = await library.reports.calls(asked(wanted))
    assert {row["id"] for row in stored.rows} == should
    assert [row["is_stored"] for row in stored.rows] == [True] * len(should)
    assert [row["is_stored"] for row in waiting.rows] == [False] * len(should)
    for row in (*waiting.rows, *stored.rows):
        del row["is_stored"]
    assert plain(waiting.rows) == plain(stored.rows)
    assert [str(row["id"]) for row in await library.ask(stored.sql)] == [row["id"] for row in stored.rows]


async def test_calls_are_listed_with_their_own_attempts_in_order(library: Library) -> None:
    calls = [made(30), made(20)]
    await library.store(calls[0])
    library.keep(calls[1])
    table = await library.reports.calls(asked({"attempts": True}))
    listed = {row["id"]: [str(each["id"]) for each in row["attempts"]] for row in table.rows}
    assert listed == {
        record.id: [each.id for each in sorted(record.attempts, key=lambda each: each.number)] for record in calls
    }
    assert "attempts" not in (await library.reports.calls(asked({}))).rows[0]


async def test_a_call_that_is_in_memory_and_in_sql_is_listed_once_as_stored(library: Library) -> None:
    first, second = made(20), made(10)
    await library.store(first)
    library.keep(first, second)
    table = await library.reports.calls(asked({}))
    assert [(row["id"], row["is_stored"]) for row in table.rows] == [(second.id, False), (first.id, True)]


async def test_pages_have_each_call_once_while_new_ones_arrive_and_rows_are_shipped(library: Library) -> None:
    there = [made(1000 + number // 3, seed=number) for number in range(40)]  # three at the same instant
    await library.store(*there[10:])
    library.keep(*there[:10])
    seen: list[str] = []
    after = None
    number = 0
    while True:
        table = await library.reports.calls(asked({"limit": 7, "after": after}))
        rows = table.rows[:7]
        seen += [row["id"] for row in rows]
        if len(table.rows) <= 7:
            break
        after = Position(rows[-1]["started_at"], rows[-1]["id"])
        number += 1
        await library.store(made(5, seed=number))  # a new call
        if library.waiting:  # and what waited is shipped
            shipped = library.waiting.pop()
            await library.store(shipped.call)  # type: ignore[union-attr] # calls were kept
    assert sorted(seen) == sorted(record.id for record in there)
    assert len(set(seen)) == 40


async def test_one_call_is_the_same_from_memory_and_from_sql(library: Library) -> None:
    record = msgspec.structs.replace(made(10), dropped=("seed",), tags={"name": WILD}, is_empty=False, api="chat")
    winner = msgspec.structs.replace(record.attempts[0], itl={"-56": 3}, price={"input": 0.5}, tool_calls_valid=True)
    record = msgspec.structs.replace(record, attempts=(winner, record.attempts[1]))
    library.keep(record)
    waiting = await library.reports.call(record.id)
    library.waiting.clear()
    await library.store(record)
    stored = await library.reports.call(record.id.upper())
    assert waiting is not None
    assert stored is not None
    assert (waiting.source, stored.source) == ("memory", "ledger")
    assert plain([waiting.call, *waiting.attempts]) == plain([stored.call, *stored.attempts])
    assert plain([stored.call])[0]["tags"] == {"name": WILD}
    assert plain([stored.call])[0]["dropped"] == ["seed"]
    assert stored.attempts[0]["audited"] is False
    assert [str(row["id"]) for row in await library.ask(stored.sql)] == [str(each["id"]) for each in stored.attempts]
    assert [str(row["id"]) for row in await library.ask(stored.call_sql)] == [record.id]


@pytest.mark.parametrize("is_stored", [True, False])
async def test_an_attempt_that_was_watched_longer_is_with_its_call_before_it_is_stored(
    library: Library, *, is_stored: bool
) -> None:
    record = made(10)
    late = attempt(record.id, 3, started_at=record.started_at, outcome=Outcome.LOST, audited=True)
    if is_stored:
        await library.store(record)
    else:
        library.keep(record)
    library.waiting.append(Audited(record.id, (late,)))
    found = await library.reports.call(record.id)
    assert found is not None
    assert [each["number"] for each in found.attempts] == [1, 2, 3]


async def test_a_running_call_shows_what_is_known(library: Library) -> None:
    record = made(1)
    start = AttemptStart(record.attempts[0].id, 1, at(1), Role.PRIMARY, "groq", "groq/llama", 0.5)
    library.running[record.id] = CallStart(
        id=record.id, started_at=at(1), client="tests", model="llama", endpoint="chat.completions", streamed=True,
        mode=Mode.RACE, objective=Objective.READING, prompt_class=0, tags={}, replica="r1", region=None,
        attempts=(start,),
    )  # fmt: skip
    found = await library.reports.call(record.id)
    assert found is not None
    assert (found.source, found.call["launched"], found.call["status_code"]) == ("running", 1, None)
    assert [(each["deployment"], each["outcome"]) for each in found.attempts] == [("groq/llama", None)]


@pytest.mark.parametrize("call_id", ["", "x", "' or true --", "0198f1d2-0000-7000-8000-000000000000"])
async def test_an_unknown_call_is_none(library: Library, call_id: str) -> None:
    assert await library.reports.call(call_id) is None


async def test_a_hundred_reports_at_once_are_answered_by_a_few_connections(library: Library) -> None:
    await library.store(made(10))
    tables = await asyncio.gather(*(library.reports.calls(asked({})) for _ in range(100)))
    assert {len(table.rows) for table in tables} == {1}


async def test_a_first_call_is_known_from_memory_and_from_sql(library: Library) -> None:
    assert await library.reports.has_calls() is False
    await library.store(made(10))
    assert await library.reports.has_calls() is True


async def test_a_first_call_counts_before_its_row_is_stored(library: Library) -> None:
    library.keep(made(10))
    assert await library.reports.has_calls() is True
