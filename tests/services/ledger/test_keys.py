"""Attempts that replace one whose key or form was refused, in views of both databases: as if the first had answered."""

from typing import Any

from msgspec import structs

from gateway.core.attempts import AttemptRecord, Outcome, Role
from gateway.core.calls import CallRecord
from gateway.ledger import Finished
from tests.services.ledger.asking import asked
from tests.services.ledger.test_rollups import store
from tests.unit.ledger.records import call, failed, lost, new_id, won

COSTS: dict[str, Any] = {"cost_usd": 0.5, "cost_low_usd": 0.5, "cost_high_usd": 0.5}
ALONE: dict[str, Any] = {"ttft_ms": 200.0, "alone_age_ms": 190.0, "alone_predicted_ms": 400.0}


ROLES = {"key_refused": Role.KEY, "form_refused": Role.FORM}


def refused(call_id: str, number: int = 1, *, kind: str, **facts: Any) -> AttemptRecord:
    nothing = dict.fromkeys(COSTS, 0.0)
    return failed(call_id, number, error_kind=kind, status_code=429, **nothing, **facts)


def again(before: AttemptRecord, attempt: AttemptRecord) -> AttemptRecord:
    """Return ``attempt`` as the one that repeats ``before`` with another key, or in another form."""
    role = ROLES[before.error_kind or ""]
    return structs.replace(attempt, role=role, counts_as=before.counts_as or before.role, replaces=before.id)


def answered(kind: str) -> CallRecord:
    """A primary that has answered, with its third key or form."""
    call_id = new_id()
    if not kind:
        return call(won(call_id, is_extra=False, **COSTS), launched=1, extras=0)
    first = refused(call_id, kind=kind)
    second = again(first, refused(call_id, 2, kind=kind))
    third = again(second, won(call_id, 3, is_extra=False, **COSTS))
    return call(first, second, third, launched=3, extras=0)


def overtaken(kind: str) -> CallRecord:
    """An audited primary that a racer has overtaken, each with its second key or form."""
    call_id, late = new_id(), {"is_overtaken": True, "overtaken_at_ms": 190.0, "predicted_ms": 400.0}
    primary = lost(
        call_id, 1, audited=True, outcome=Outcome.SUPERSEDED, censored_at_ms=None, token_ms=380.0, **late, **COSTS
    )
    racer = won(call_id, 2, is_extra=True, token_ms=200.0, **COSTS)
    facts: dict[str, Any] = {"launched": 2, "extras": 1, "duplicate_cost_usd": 0.5, **ALONE}
    if not kind:
        return call(primary, racer, **facts)
    first, second = refused(call_id, kind=kind, audited=True), refused(call_id, 2, kind=kind, is_extra=True)
    last = (
        structs.replace(again(first, primary), number=3),
        structs.replace(again(second, racer), number=4, is_extra=False),
    )
    return call(first, second, *last, **facts | {"launched": 4})


SAME = {
    "race_value": "n, n_raced, n_overtaken, n_rescued, n_compared, n_audited, n_audited_failed, saved_ms, cost_usd, "
    "duplicate_cost_usd, audit_cost_usd",
    "samples": ", ".join(
        f"count(*) filter (where {name}) as {name}"
        for name in (
            "is_counted",
            "is_won",
            "is_error",
            "is_late",
            "is_overtaken",
            "is_watched",
            "token_ms is not null",
        )
    ).replace(" as token_ms is not null", " as n"),
    "client_usage": "n, n_failed, n_raced, cost_usd, duplicate_cost_usd",
}


def of_model(model: str, kind: str = "") -> list[Any]:
    calls = (each(kind) for each in (answered, overtaken))
    return [
        Finished(
            structs.replace(
                each, model=model, attempts=tuple(structs.replace(one, model=model) for one in each.attempts)
            )
        )
        for each in calls
    ]


async def test_views_say_what_they_would_if_the_first_had_answered(ledger_url: str) -> None:
    models = {"plain": "", "keys": "key_refused", "forms": "form_refused"}
    await store(ledger_url, [each for model, kind in models.items() for each in of_model(model, kind)])
    for view, columns in SAME.items():
        plain, keys, forms = [
            await asked(ledger_url, f"select {columns} from {view} where model = '{model}'") for model in models
        ]
        assert plain, view
        assert keys == forms == plain, view
    launched = await asked(ledger_url, "select n_launched from race_value where model <> 'plain'")
    assert launched == [{"n_launched": 7}, {"n_launched": 7}]
