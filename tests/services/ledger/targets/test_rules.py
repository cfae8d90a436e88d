"""Which calls count for a target, and which of them are bad: one call for each rule of docs/monitoring.md#targets."""

from datetime import timedelta
from typing import Any

import pytest

from gateway.core.attempts import Outcome, TokensSource
from gateway.core.calls import CallRecord
from gateway.core.targets import Counts, Definition
from tests.services.ledger.targets.conftest import NOW, Desk, some_calls
from tests.unit.ledger.records import attempt, call, failed, new_id, won

AT = NOW - timedelta(hours=3)
MONTH = timedelta(days=28)
FAST = Definition(ttft_ms=500.0, tok_s=45.0, gap_ms=1000.0)
UP = Definition()


def answered(whole: dict[str, Any] | None = None, **facts: Any) -> CallRecord:
    return call(won(new_id(), started_at=AT, **({"itl_max_ms": 100.0} | facts)), started_at=AT, **(whole or {}))


def gone(total_ms: float) -> CallRecord:
    left = attempt(new_id(), started_at=AT, outcome=Outcome.CLIENT_GONE, censored_at_ms=total_ms)
    return call(left, started_at=AT, status_code=499, error_kind="client_disconnected", total_ms=total_ms)


def refused(status: int) -> CallRecord:
    return call(failed(new_id(), started_at=AT), started_at=AT, status_code=status, error_kind="whatever")


NOT_COUNTED, GOOD = Counts(), Counts(calls=1)
LATE, SLOW = Counts(calls=1, bad=1, late=1), Counts(calls=1, bad=1, slow=1)
HALTING, FAILED = Counts(calls=1, bad=1, halting=1), Counts(calls=1, bad=1, failed=1)
EMBEDDING = {"endpoint": "embeddings", "ttft_ms": None}
LEFT = {"status_code": 499, "error_kind": "client_disconnected"}
RULES = [
    ("a good one", answered(), GOOD, GOOD),
    ("not streamed", answered({"streamed": False}), GOOD, GOOD),
    ("the first token at the limit", answered(ttft_ms=500.0), LATE, GOOD),
    ("as fast as wanted", answered(decode_tps=45.0), GOOD, GOOD),
    ("too slow", answered(decode_tps=44.9), SLOW, GOOD),
    ("too short to have a speed", answered(decode_tps=None), GOOD, GOOD),
    ("of tokens that nobody counted", answered(decode_tps=9.0, tokens_source=TokensSource.ESTIMATED), GOOD, GOOD),
    ("a gap too long", answered(itl_max_ms=1000.1), HALTING, GOOD),
    ("a gap that nobody hears", answered(itl_max_ms=5000.0, speech_pause_ms=0.0), GOOD, GOOD),
    ("a pause of speech", answered(itl_max_ms=5000.0, speech_pause_ms=1000.1), HALTING, GOOD),
    ("one chunk", answered(itl_max_ms=None), GOOD, GOOD),
    ("all at once wrong", answered(ttft_ms=900.0, decode_tps=9.0, itl_max_ms=5000.0),
     Counts(calls=1, bad=1, late=1, slow=1, halting=1), GOOD),
    ("answered without a first token", answered({"ttft_ms": None}, ttft_ms=None, decode_tps=None), NOT_COUNTED, GOOD),
    ("failed", refused(502), FAILED, FAILED),
    ("no provider has taken it", refused(429), FAILED, FAILED),
    ("the operator's fault", refused(424), FAILED, FAILED),
    ("the client's own fault", refused(400), NOT_COUNTED, NOT_COUNTED),
    ("broke off", answered({"error_kind": "stalled"}), FAILED, FAILED),
    ("left in time", gone(499.0), NOT_COUNTED, NOT_COUNTED),
    ("gave up", gone(500.0), LATE, NOT_COUNTED),
    ("left while it was answered", answered(LEFT), GOOD, GOOD),
    ("left while it was answered too slowly", answered(LEFT, decode_tps=9.0), SLOW, GOOD),
    ("has no tokens", answered(EMBEDDING, ttft_ms=None), NOT_COUNTED, GOOD),
]  # fmt: skip


@pytest.mark.parametrize(("made", "fast", "up"), [rule[1:] for rule in RULES], ids=[rule[0] for rule in RULES])
async def test_each_rule_holds(desk: Desk, made: CallRecord, fast: Counts, up: Counts) -> None:
    await desk.store(made)
    assert await desk.counts(FAST, MONTH) == await desk.of_rows(FAST, MONTH) == fast
    assert await desk.counts(UP, MONTH) == await desk.of_rows(UP, MONTH) == up


async def test_a_call_whose_gateway_died_is_bad(desk: Desk) -> None:
    await desk.store(call(failed(new_id(), started_at=AT), started_at=AT, status_code=500, error_kind="interrupted"))
    assert await desk.counts(FAST, MONTH) == FAILED


async def test_the_rules_are_those_of_the_view_slo(desk: Desk) -> None:
    """With one condition on first tokens, its share is that of the view, which has 500 ms."""
    await desk.store(*some_calls(500, days=20))
    [(n, n_ok)] = await desk.ask("select sum(n_ttft), sum(n_ttft * ttft_ok_share) from slo_30d where model = 'llama'")
    counts = await desk.counts(Definition(model="llama", ttft_ms=500.0), MONTH)
    assert counts.calls == n
    assert counts.calls - counts.bad == pytest.approx(float(n_ok))


async def test_a_target_of_a_model_is_of_its_name_whoever_answers(desk: Desk) -> None:
    await desk.store(answered({"model": "llama", "answered_model": "qwen"}))
    assert (await desk.counts(Definition(model="llama"), MONTH)).calls == 1
    assert (await desk.counts(Definition(model="qwen"), MONTH)).calls == 0
