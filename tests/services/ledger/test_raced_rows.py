"""Calls and attempts as a replay reads them, on both databases."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from gateway.core.attempts import Outcome
from gateway.ledger import Ledger, models, raced_calls
from gateway.replay import ReplayedCall, Try
from gateway.replay.sample import audits
from tests.support.replayed import RATE_S, WORLDS, Drawing, ledger, store
from tests.unit.ledger.records import attempt, call, failed, new_id, won

NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
LONG_AGO = NOON - timedelta(days=30)
FAILURES = next(each for each in WORLDS if each.name == "failures")


def raced(count: int, audit_share: float = 0.2) -> list[ReplayedCall]:
    return ledger(Drawing(FAILURES, 1).calls(count), audit_share, Random(1))


def told(calls: list[ReplayedCall]) -> list[tuple[object, ...]]:
    return sorted((each.ttft_ms or 0.0, list(map(told_of, each.tries))) for each in calls)


def told_of(one: Try) -> tuple[object, ...]:
    return one.deployment, one.role, one.seen_ms, one.overtaken_ms, one.failed, one.won, one.audited


async def test_rows_are_read_as_they_happened(ledger_url: str, tmp_path: Path) -> None:
    written = raced(400)
    await store(ledger_url, tmp_path / "spool", written, model="it's", until=NOON)
    assert await models(ledger_url, LONG_AGO) == {"it's": 400}
    read = await raced_calls(ledger_url, "it's", LONG_AGO, count=400)
    assert told(read) == told(written)
    assert {each.weight for each in read} == {1.0}
    assert max(each.started_s for each in read) == NOON.timestamp()
    assert {one.price for each in read for one in each.tries} == {(0.6, 0.9)}


async def test_only_the_window_and_the_model_are_read(ledger_url: str, tmp_path: Path) -> None:
    await store(ledger_url, tmp_path / "spool", raced(60), model="a", until=NOON)
    await store(ledger_url, tmp_path / "other", raced(30), model="b", until=NOON)
    since = NOON - timedelta(seconds=RATE_S * 19.5)
    assert await models(ledger_url, since) == {"a": 20, "b": 20}
    assert len(await raced_calls(ledger_url, "b", LONG_AGO, count=30)) == 30
    assert await models(ledger_url, NOON + timedelta(hours=1)) == {}


async def test_of_many_calls_a_sample_stands_for_all_with_more_of_the_audited(ledger_url: str, tmp_path: Path) -> None:
    await store(ledger_url, tmp_path / "spool", raced(4_000, 0.1), model="m", until=NOON)
    heard: list[int] = []
    read = await raced_calls(ledger_url, "m", LONG_AGO, count=4_000, most=1_000, progress=heard.append)
    assert 800 < len(read) < 1_200
    assert sum(each.weight for each in read) == pytest.approx(4_000, rel=0.1)
    audited = [each for each in read if each.tries[0].audited]
    assert 320 < len(audited) < 480  # all of them
    assert {each.weight for each in audited} == {1.0}
    assert heard == sorted(heard)
    every = await raced_calls(ledger_url, "m", LONG_AGO, count=4_000)
    whole, part = (audits(rows, [each.weight for each in rows]) for rows in (every, read))
    assert {name: each.count for name, each in part.items()} == {name: each.count for name, each in whole.items()}
    overtaken = sum(each.overtaken for each in whole.values())
    assert sum(each.overtaken for each in part.values()) == pytest.approx(overtaken, rel=0.25)


async def test_calls_that_could_not_be_raced_are_left_out(ledger_url: str, tmp_path: Path) -> None:
    writer = Ledger(ledger_url, tmp_path / "spool", "replay")
    writer.call_finished(call(won(new_id(), token_ms=200.0)))
    writer.call_finished(call(failed(new_id()), status_code=400, error_kind="invalid_request"))
    writer.call_finished(call(won(new_id()), prompt_class=40))  # embeddings
    writer.call_finished(call(won(new_id()), answered_model="another"))
    await writer.flush()
    await writer.close()
    assert await models(ledger_url, LONG_AGO) == {"llama": 1}


async def test_an_attempt_failed_when_its_failover_began(ledger_url: str, tmp_path: Path) -> None:
    call_id = new_id()
    writer = Ledger(ledger_url, tmp_path / "spool", "replay")
    later = attempt(
        call_id, 2, role="failover", launch_offset_ms=450.0, token_ms=100.0, ttft_ms=100.0, outcome=Outcome.WON
    )
    writer.call_finished(call(failed(call_id, headers_ms=30.0), later))
    await writer.flush()
    await writer.close()
    [read] = await raced_calls(ledger_url, "llama", LONG_AGO, count=1)
    assert (read.tries[0].failed, read.tries[0].failed_ms) == (True, 450.0)


async def test_of_several_keys_the_one_that_was_not_refused_is_the_try(ledger_url: str, tmp_path: Path) -> None:
    call_id = new_id()
    refused = failed(call_id, error_kind="key_refused", status_code=429)
    second = attempt(
        call_id, 2, role="key", counts_as="primary", replaces=refused.id, launch_offset_ms=450.0, token_ms=100.0,
        ttft_ms=100.0, outcome=Outcome.WON,
    )  # fmt: skip
    writer = Ledger(ledger_url, tmp_path / "spool", "replay")
    writer.call_finished(call(refused, second))
    await writer.flush()
    await writer.close()
    [read] = await raced_calls(ledger_url, "llama", LONG_AGO, count=1)
    [only] = read.tries
    assert (only.role, only.starts_with_call, only.won, only.failed) == ("primary", True, True, False)
