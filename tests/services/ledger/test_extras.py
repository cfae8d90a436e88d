"""Extra attempts in the ledger: beside rows of versions that did not count them."""

from typing import Any

from msgspec import structs

from gateway.core.attempts import Role
from gateway.core.calls import CallRecord
from gateway.ledger import Finished
from tests.services.ledger.asking import asked
from tests.services.ledger.test_rollups import store
from tests.unit.ledger.records import call, failed, lost, new_id, won


def alone() -> CallRecord:
    return call(won(new_id(), is_extra=False, text_gap_max_ms=712.5), launched=1, extras=0)


def failover() -> CallRecord:
    """A call whose first attempt failed: the second replaced it."""
    call_id = new_id()
    second = won(call_id, 2, role=Role.FAILOVER, is_extra=False)
    return call(failed(call_id, is_extra=False), second, launched=2, extras=0)


def rescue() -> CallRecord:
    """A call whose first attempt was silent, and was cut when the second answered."""
    call_id = new_id()
    second = won(call_id, 2, role=Role.FAILOVER, is_extra=True)
    return call(lost(call_id, 1, is_extra=False), second, launched=2, extras=1)


def race() -> CallRecord:
    """A race of two, in which one failed and was replaced while the other ran."""
    call_id = new_id()
    others = failed(call_id, 2, is_extra=True), lost(call_id, 3, role=Role.FAILOVER, is_extra=True)
    return call(won(call_id, is_extra=False), *others, launched=3, extras=2)


def all_kinds() -> list[Any]:
    return [Finished(each()) for each in (alone, failover, rescue, race)]


def of_older_versions() -> list[Any]:
    """The same calls, of which is not known which attempts were extra ones."""
    made = [each() for each in (alone, failover, rescue, race)]
    unknown = [tuple(structs.replace(attempt, is_extra=None) for attempt in each.attempts) for each in made]
    return [
        Finished(structs.replace(each, extras=None, attempts=attempts))
        for each, attempts in zip(made, unknown, strict=True)
    ]


async def told(url: str) -> tuple[int, int, float, int]:
    """Return calls, those with an extra attempt, the extra attempts of all, and the calls of clients with one."""
    (value,) = await asked(url, "select calls, calls_with_extra, extra_per_call from race_value")
    (usage,) = await asked(url, "select sum(n_raced) as n_raced from client_usage")
    calls, with_extra, per_call = value.values()
    return int(calls), int(with_extra), round(per_call * calls, 6), int(usage["n_raced"])


NEW = (4, 2, 3.0, 2)  # of ``all_kinds``, counted as they happened
OLD = (4, 3, 4.0, 3)  # and by the number of attempts: failovers too


async def test_what_replaced_a_failed_attempt_is_no_extra_one(ledger_url: str) -> None:
    await store(ledger_url, all_kinds())
    assert await told(ledger_url) == NEW
    by_role = await asked(
        ledger_url, "select role, count(*) as n from attempts where is_extra group by role order by role"
    )
    assert by_role == [{"role": "failover", "n": 2}, {"role": "race", "n": 1}]
    assert await asked(ledger_url, "select text_gap_max_ms from attempts where text_gap_max_ms is not null") == [
        {"text_gap_max_ms": 712.5}
    ]


async def test_rows_of_a_version_that_did_not_count_them_count_as_they_did(ledger_url: str) -> None:
    await store(ledger_url, of_older_versions())
    assert await asked(ledger_url, "select distinct extras from calls") == [{"extras": None}]
    assert await told(ledger_url) == OLD
    await store(ledger_url, all_kinds())
    assert await told(ledger_url) == tuple(a + b for a, b in zip(OLD, NEW, strict=True))
