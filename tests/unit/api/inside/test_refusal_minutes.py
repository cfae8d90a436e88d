"""Refusals by the minute, in virtual time: few rows, whatever comes."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.api import RefusalMinutes
from gateway.api.refusals import ADDRESSES, MODELS, OTHER, ROWS
from gateway.core.records import RefusalRecord
from tests.unit.racing.virtual_time import run

NOON = datetime(2026, 3, 4, 12, 0, 40, 500_000, tzinfo=UTC)  # 19.5 s before the end of a minute
BEGAN_S = 1000.0  # of the loop
Test = Callable[[RefusalMinutes, list[tuple[RefusalRecord, ...]]], Coroutine[Any, Any, None]]


def counted(test: Test) -> list[tuple[RefusalRecord, ...]]:
    """Run ``test``; return what was recorded, minute by minute."""
    recorded: list[tuple[RefusalRecord, ...]] = []
    ids = iter(range(10**6))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        minutes = RefusalMinutes(
            recorded.append,
            utc_now=lambda: NOON + timedelta(seconds=loop.time() - BEGAN_S),
            new_id=lambda: str(next(ids)),
            replica="here",
        )
        await test(minutes, recorded)
        minutes.end()

    run(main())
    return recorded


def test_equal_refusals_of_a_minute_are_one_row() -> None:
    async def test(minutes: RefusalMinutes, _: object) -> None:
        for _ in range(3):
            minutes.add(401, "invalid_api_key", None, "192.0.2.1")
        minutes.add(404, "model_not_found", "search", "192.0.2.1")
        minutes.add(401, "invalid_api_key", None, "192.0.2.2")

    [rows] = counted(test)
    assert [(row.status_code, row.reason, row.client, row.address, row.n) for row in rows] == [
        (401, "invalid_api_key", None, "192.0.2.1", 3),
        (404, "model_not_found", "search", "192.0.2.1", 1),
        (401, "invalid_api_key", None, "192.0.2.2", 1),
    ]
    assert {row.replica for row in rows} == {"here"}
    assert {row.started_at for row in rows} == {NOON.replace(second=0, microsecond=0)}
    assert len({row.id for row in rows}) == 3


def test_a_minute_ends_with_the_clocks_minute_and_the_next_is_its_own() -> None:
    async def test(minutes: RefusalMinutes, recorded: list[tuple[RefusalRecord, ...]]) -> None:
        minutes.add(401, "invalid_api_key", None, "192.0.2.1")
        await asyncio.sleep(19.4)
        minutes.add(401, "invalid_api_key", None, "192.0.2.1")
        assert recorded == []
        await asyncio.sleep(0.2)
        assert [row.n for row in recorded[0]] == [2]
        await asyncio.sleep(300)
        minutes.add(401, "invalid_api_key", None, "192.0.2.1")

    first, second = counted(test)
    assert [row.started_at.minute for row in (*first, *second)] == [0, 6]


def test_a_quiet_gateway_records_nothing() -> None:
    async def test(_minutes: RefusalMinutes, _: object) -> None:
        await asyncio.sleep(600)

    assert counted(test) == []


def test_addresses_beyond_the_first_hundred_of_a_minute_are_others() -> None:
    async def test(minutes: RefusalMinutes, _: object) -> None:
        for _ in range(2):
            for number in range(150):
                minutes.add(401, "invalid_api_key", None, f"192.0.2.{number}")
        minutes.end()
        minutes.add(401, "invalid_api_key", None, "192.0.2.149")

    first, second = counted(test)
    assert len(first) == ADDRESSES + 1
    assert {row.address: row.n for row in first} == {f"192.0.2.{number}": 2 for number in range(100)} | {OTHER: 100}
    assert [row.address for row in second] == ["192.0.2.149"]


def test_an_asked_model_has_its_row_and_those_beyond_the_first_hundred_of_a_minute_share_one() -> None:
    async def test(minutes: RefusalMinutes, _: object) -> None:
        for _ in range(2):
            for number in range(MODELS + 50):
                minutes.add(404, "model_not_found", "search", None, f"model-{number}")
        minutes.add(401, "invalid_api_key", None, None)
        minutes.end()
        minutes.add(404, "model_not_found", "search", None, f"model-{MODELS + 49}")

    first, second = counted(test)
    expected: dict[str | None, int] = {f"model-{number}": 2 for number in range(MODELS)}
    assert {row.model: row.n for row in first} == expected | {OTHER: 100, None: 1}
    assert [row.model for row in second] == [f"model-{MODELS + 49}"]


def test_the_rows_of_a_minute_are_few_whatever_names_and_addresses_are_made_up() -> None:
    async def test(minutes: RefusalMinutes, _: object) -> None:
        for number in range(MODELS):
            for host in range(ADDRESSES):
                minutes.add(404, "model_not_found", None, f"192.0.2.{host}", f"model-{number}")
        for number in range(MODELS):
            minutes.add(404, "model_not_found", None, None, f"model-{number}")

    [rows] = counted(test)
    assert len(rows) == ROWS + 2
    assert sum(row.n for row in rows) == MODELS * ADDRESSES + MODELS
    assert [(row.address, row.model, row.n) for row in rows[-2:]] == [
        (OTHER, OTHER, MODELS * ADDRESSES - ROWS),
        (None, OTHER, MODELS),
    ]


def test_an_ipv6_network_is_one_address_and_no_address_is_none() -> None:
    async def test(minutes: RefusalMinutes, _: object) -> None:
        for peer in ("2001:db8::1", "2001:db8::2", "::ffff:192.0.2.1", None, "unix"):
            minutes.add(401, "invalid_api_key", None, peer)

    [rows] = counted(test)
    assert {row.address: row.n for row in rows} == {"2001:db8::/64": 2, "192.0.2.1": 1, None: 2}


def test_a_flood_of_all_kinds_makes_a_bounded_number_of_rows_and_loses_no_count() -> None:
    async def test(minutes: RefusalMinutes, _: object) -> None:
        for reason in range(20):
            for number in range(1000):
                minutes.add(400, f"reason {reason}", None, f"10.0.{number >> 8}.{number & 255}")

    [rows] = counted(test)
    assert len(rows) <= ROWS + 20
    assert sum(row.n for row in rows) == 20_000
