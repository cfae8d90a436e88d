import asyncio

import pytest

from gateway.core.attempts import Outcome
from gateway.core.calls import CallRecord
from gateway.core.errors import ApiError, CutByExpiry, CutByRevocation
from providers import ErrorKind, Price, UpstreamError
from tests.unit.racing.test_race import answers
from tests.unit.racing.track import DONE, FINISH, ROLE, RememberingSink, Timetable, Track, delta
from tests.unit.racing.virtual_time import run


async def to_the_end(track: Track) -> CallRecord:
    """Run the race, then wait for the audits it leaves behind."""
    record = await track.run()
    await asyncio.sleep(60)
    return record


def test_an_audited_loser_is_watched_for_its_first_token_and_not_censored() -> None:
    track = Track(answers("slow", 1.5), answers("quick", 0.2), audited=["slow", "quick"])
    run(to_the_end(track))
    (slow,) = track.recorder.audited
    assert (slow.outcome, slow.ttft_ms, slow.censored_at_ms) == (Outcome.SUPERSEDED, pytest.approx(1500), None)
    assert track.recorder.first_tokens == [("quick", 0.2), ("slow", 1.5)]
    assert all(record.audited for record in track.recorder.ended)


def test_a_client_never_waits_for_an_audit() -> None:
    track = Track(answers("slow", 1.5), answers("quick", 0.2), audited=["slow", "quick"])
    record = run(to_the_end(track))
    assert record.total_ms == pytest.approx(200)
    assert [attempt.deployment for attempt in record.attempts] == ["quick"]
    assert record.launched == 2


def test_an_audited_loser_is_cut_after_thirty_seconds_without_a_token() -> None:
    track = Track(answers("slow", 40.0), answers("quick", 0.2), audited=["slow", "quick"])
    run(to_the_end(track))
    (slow,) = track.recorder.audited
    assert (slow.outcome, slow.censored_at_ms) == (Outcome.LOST, pytest.approx(30000))
    assert track.upstreams["slow"].aborts == 1


def test_an_audited_loser_is_cut_at_its_first_token() -> None:
    slow = Timetable("slow", [(1.0 + 0.1 * number, delta("four")) for number in range(1000)])
    track = Track(slow, answers("quick", 0.2), audited=["slow", "quick"])
    run(to_the_end(track))
    (record,) = track.recorder.audited
    assert (record.outcome, record.completion_tokens, record.last_token_ms) == ("superseded", 1, pytest.approx(1000))
    assert slow.aborts == 1


def test_in_an_exploring_race_an_audited_loser_is_cut_once_its_speed_is_known() -> None:
    slow = Timetable("slow", [(1.0 + 0.1 * number, delta("four")) for number in range(1000)])
    track = Track(slow, answers("quick", 0.2), audited=["slow", "quick"], explores=True)
    run(to_the_end(track))
    (record,) = track.recorder.audited
    assert (record.completion_tokens, record.last_token_ms) == (32, pytest.approx(4100))
    assert slow.aborts == 1


def test_an_audited_loser_that_ends_before_its_call_is_in_the_calls_record() -> None:
    track = Track(answers("slow", 0.5), answers("quick", 0.2, *"abcdefghijkl", gap=1.0), audited=["slow", "quick"])
    record = run(to_the_end(track))
    assert [attempt.outcome for attempt in record.attempts] == ["superseded", "won"]
    assert track.recorder.audited == []


def test_an_audited_loser_is_watched_on_when_the_client_leaves() -> None:
    quick = answers("quick", 0.2, *"abcdefgh", gap=0.1)
    track = Track(answers("slow", 1.5), quick, audited=["slow", "quick"], sink=RememberingSink(gone_after=3))
    record = run(to_the_end(track))
    assert (record.status_code, track.outcomes) == (499, {"quick": "client_gone"})
    assert [(each.deployment, each.ttft_ms) for each in track.recorder.audited] == [("slow", pytest.approx(1500))]


@pytest.mark.parametrize(("reason", "kind"), [(CutByRevocation, "key_revoked"), (CutByExpiry, "key_expired")])
def test_an_audited_loser_is_cut_with_the_key_of_its_call(reason: type[ApiError], kind: str) -> None:
    quick = answers("quick", 0.2, *"abcdefgh", gap=0.1)
    sink = RememberingSink(gone_after=3)
    track = Track(answers("slow", 1.5), quick, audited=["slow", "quick"], sink=sink, cancelled_as=reason)
    record = run(to_the_end(track))
    assert (record.status_code, record.error_kind) == (499, kind)
    assert track.outcomes == {"quick": "client_gone", "slow": "client_gone"}
    assert track.upstreams["slow"].aborts == 1
    assert track.recorder.audited == []


def test_an_audit_that_outlives_its_call_reaches_nobody_so_the_end_of_a_key_leaves_it_alone() -> None:
    track = Track(
        answers("slow", 1.5), answers("quick", 0.2, *"ab"), audited=["slow", "quick"], sink=(sink := RememberingSink())
    )

    async def received() -> tuple[int, int]:
        await track.run()
        before = len(sink.blocks)
        await asyncio.sleep(60)
        return before, len(sink.blocks)

    before, after = run(received())
    assert before == after
    assert [each.deployment for each in track.recorder.audited] == ["slow"]


def test_an_audited_loser_that_fails_costs_the_call_nothing() -> None:
    bad = Timetable("bad", [(0.5, UpstreamError(ErrorKind.SERVER_ERROR, "no", status=500))])
    track = Track(bad, answers("quick", 0.2), audited=["bad", "quick"])
    record = run(to_the_end(track))
    assert record.error_kind is None
    assert track.recorder.audited[0].outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("end", "outcome", "kind", "censored_at_ms"),
    [
        ([FINISH, DONE], Outcome.LOST, None, 1500.0),
        ([DONE], Outcome.FAILED, "upstream_empty", None),
        ([], Outcome.FAILED, "upstream_empty", None),
    ],
)
def test_an_audited_loser_whose_answer_ends_without_a_token_has_not_had_one(
    end: list[bytes], outcome: Outcome, kind: str | None, censored_at_ms: float | None
) -> None:
    slow = Timetable("slow", [(1.0, ROLE), *((1.5, each) for each in end), (1.5, None)])
    track = Track(slow, answers("quick", 0.2), audited=["slow", "quick"])
    assert run(to_the_end(track)).error_kind is None
    (record,) = track.recorder.audited
    assert (record.outcome, record.error_kind, record.ttft_ms) == (outcome, kind, None)
    assert record.censored_at_ms == (None if censored_at_ms is None else pytest.approx(censored_at_ms))


def test_an_audited_loser_of_an_exploring_race_that_breaks_off_has_failed() -> None:
    slow = Timetable("slow", [(1.0, delta("half")), (1.5, None)])
    track = Track(slow, answers("quick", 0.2), audited=["slow", "quick"], explores=True)
    run(to_the_end(track))
    (record,) = track.recorder.audited
    assert (record.outcome, record.error_kind) == (Outcome.FAILED, "upstream_truncated")


@pytest.mark.parametrize("end", [[(1.4, UpstreamError(ErrorKind.DISCONNECTED, "reset"))], []])
def test_an_audited_loser_whose_stream_breaks_or_stalls_after_its_finish_reason_has_not_failed(
    end: list[tuple[float, UpstreamError]],
) -> None:
    slow = Timetable("slow", [(1.0, delta("short")), (1.2, FINISH), *end])
    track = Track(slow, answers("quick", 0.2), audited=["slow", "quick"], explores=True)
    run(to_the_end(track))
    (record,) = track.recorder.audited
    assert (record.outcome, record.error_kind, record.ttft_ms) == ("superseded", None, pytest.approx(1000))


def test_an_audited_loser_that_breaks_after_an_empty_answers_end_was_cut_without_a_token() -> None:
    slow = Timetable("slow", [(1.0, ROLE), (1.2, FINISH), (1.4, UpstreamError(ErrorKind.DISCONNECTED, "reset"))])
    track = Track(slow, answers("quick", 0.2), audited=["slow", "quick"])
    run(to_the_end(track))
    (record,) = track.recorder.audited
    assert (record.outcome, record.error_kind, record.censored_at_ms) == ("lost", None, pytest.approx(1400))


def test_only_audited_losers_are_watched() -> None:
    track = Track(answers("cut", 1.0), answers("watched", 1.0), answers("quick", 0.2), audited=["watched", "quick"])
    run(to_the_end(track))
    assert [record.outcome for record in track.recorder.ended] == ["lost", "won", "superseded"]


def test_an_audit_is_paid_for_in_the_ledger() -> None:
    price = Price(input_usd=0.01, output_usd=0.1)
    track = Track(answers("slow", 1.5), answers("quick", 0.2), audited=["slow", "quick"], price=price)
    run(to_the_end(track))
    (slow,) = track.recorder.audited
    assert slow.cost_usd == pytest.approx(0.1 + 0.3)  # of 10 tokens, and of "from slow"


def test_an_audited_loser_answers_no_longer_than_the_request_lets_it() -> None:
    price = Price(input_usd=0.01, output_usd=0.1)
    track = Track(answers("slow", 1.5), answers("quick", 0.2), audited=["slow", "quick"], price=price, max_tokens=70)
    run(to_the_end(track))
    (slow,) = track.recorder.audited
    assert slow.cost_high_usd == pytest.approx(10 * 0.01 + 70 * 0.1)


def test_stopping_the_gateway_ends_audits_and_records_them() -> None:
    async def main() -> None:
        await track.run()
        await track.tasks.close()

    track = Track(answers("slow", 1.5), answers("quick", 0.2), audited=["slow", "quick"])
    run(main())
    assert track.upstreams["slow"].aborts == 1
    assert [record.outcome for record in track.recorder.audited] == ["interrupted"]
