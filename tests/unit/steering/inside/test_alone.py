"""What a race knows of how long its primary would have taken alone."""

import pytest

from gateway.core.attempts import Outcome, Role
from gateway.core.prompt_classes import Measured, MeasuredApi
from gateway.racing import GatheringSink
from gateway.steering.counts import Evidence, bucket
from gateway.steering.estimates import Standings, standings
from providers import ErrorKind, UpstreamError
from providers.dialects import CHAT
from tests.unit.racing.test_audits import to_the_end
from tests.unit.racing.test_race import answers, refuses
from tests.unit.racing.track import DONE, Timetable, Track, delta, event
from tests.unit.racing.virtual_time import run


def known() -> Standings:
    events: dict[Measured, dict[int, float]] = {MeasuredApi.ANSWERS: {bucket(0.3): 50.0, bucket(0.9): 50.0}}
    return standings({"slow": Evidence(n=100.0, events=events)})


def test_a_primary_that_wins_would_have_taken_as_long_alone() -> None:
    record = run(Track(answers("quick", 0.2), answers("slow", 5.0)).run())
    assert (record.alone_ms, record.alone_predicted_ms, record.alone_age_ms) == (pytest.approx(200), None, None)
    assert [attempt.is_overtaken for attempt in record.attempts] == [False, True]


def test_of_an_overtaken_primary_its_age_is_known_and_a_prediction() -> None:
    track = Track(answers("slow", 5.0), answers("quick", 0.4))
    track.expects(known().of("slow"))
    record = run(track.run())
    assert (record.alone_ms, record.alone_age_ms) == (None, pytest.approx(400))
    assert record.alone_predicted_ms == pytest.approx(1000 * known().of("slow").expected_s(0.4))
    (slow, _) = record.attempts
    assert (slow.is_overtaken, slow.overtaken_at_ms, slow.censored_at_ms) == (
        True,
        pytest.approx(400),
        pytest.approx(400),
    )
    assert slow.predicted_ms == pytest.approx(record.alone_predicted_ms)


def test_an_audited_primary_tells_in_its_own_row_what_it_took() -> None:
    track = Track(answers("slow", 5.0), answers("quick", 0.4), audited=["slow", "quick"])
    track.expects(known().of("slow"))
    record = run(to_the_end(track))
    assert (record.alone_ms, record.alone_age_ms) == (None, pytest.approx(400))
    (slow,) = track.recorder.audited
    assert (slow.ttft_ms, slow.overtaken_at_ms) == (pytest.approx(5000), pytest.approx(400))
    assert slow.predicted_ms == pytest.approx(record.alone_predicted_ms)


def test_an_exploring_race_is_no_random_sample_and_predicts_nothing() -> None:
    launches = [("slow", 0.0, Role.PRIMARY), ("quick", 0.0, Role.EXPLORE)]
    track = Track(
        answers("slow", 5.0), answers("quick", 0.4), audited=["slow", "quick"], explores=True, launches=launches
    )
    track.expects(known().of("slow"))
    record = run(to_the_end(track))
    assert (record.alone_ms, record.alone_predicted_ms, record.alone_age_ms) == (None, None, pytest.approx(400))


def test_a_primary_that_fails_would_have_been_replaced_by_the_winner_later() -> None:
    bad = refuses("bad", ErrorKind.SERVER_ERROR, 500, at=0.3)
    record = run(Track(bad, answers("slow", 1.0)).run())
    assert (record.ttft_ms, record.alone_ms) == (pytest.approx(1000), pytest.approx(1300))


def test_a_failover_after_a_failure_gains_nothing() -> None:
    bad = refuses("bad", ErrorKind.SERVER_ERROR, 500, at=0.3)
    record = run(Track(bad, answers("slow", 1.0), launches=[("bad", 0.0, Role.PRIMARY)], rest=["slow"]).run())
    assert (record.ttft_ms, record.alone_ms) == (pytest.approx(1300), pytest.approx(1300))


def breaks(name: str, token_at: float, broken_at: float) -> Timetable:
    return Timetable(name, [(token_at, delta("half")), (broken_at, UpstreamError(ErrorKind.DISCONNECTED, "reset"))])


def test_a_stream_that_breaks_after_its_first_token_has_saved_nothing_alone() -> None:
    record = run(Track(breaks("dies", 0.1, 3.1)).run())
    assert (record.error_kind, record.ttft_ms, record.alone_ms) == (
        "disconnected",
        pytest.approx(100),
        pytest.approx(100),
    )


def test_a_primary_that_wins_its_race_and_breaks_had_answered() -> None:
    record = run(Track(breaks("dies", 0.1, 3.1), answers("slow", 5.0)).run())
    assert (record.ttft_ms, record.alone_ms) == (pytest.approx(100), pytest.approx(100))


def test_a_held_primary_that_breaks_would_have_answered_alone() -> None:
    track = Track(breaks("dies", 0.2, 0.4), answers("decoder", 0.5), decode_s={"dies": 9.0, "decoder": 1.0})
    record = run(track.run())
    assert track.outcomes == {"dies": Outcome.FAILED, "decoder": Outcome.WON}
    assert (record.ttft_ms, record.alone_ms) == (pytest.approx(500), pytest.approx(200))


@pytest.mark.parametrize("end", [UpstreamError(ErrorKind.DISCONNECTED, "reset"), None])
def test_a_primary_whose_first_token_comes_with_its_failure_would_have_been_replaced(end: UpstreamError | None) -> None:
    steps = [(0.1, delta("half") + (DONE if end is None else event(error={"message": "broken"}))), (0.1, end)]
    launches = [("dies", 0.0, Role.PRIMARY)]
    record = run(Track(Timetable("dies", steps), answers("slow", 1.0), launches=launches, rest=["slow"]).run())
    assert (record.ttft_ms, record.alone_ms) == (pytest.approx(1100), pytest.approx(1100))


def test_a_broken_primary_of_a_whole_answer_would_have_been_replaced() -> None:
    sink = GatheringSink(CHAT)
    record = run(Track(breaks("dies", 0.1, 0.5), answers("slow", 1.0), sink=sink, streamed=False).run())
    assert (record.ttft_ms, record.alone_ms) == (pytest.approx(1500), pytest.approx(1500))


def test_under_a_hold_the_primary_was_quicker_than_what_the_client_got() -> None:
    track = Track(
        answers("starter", 0.2, *"abcdefgh"), answers("decoder", 0.5), decode_s={"starter": 9.0, "decoder": 1.0}
    )
    record = run(track.run())
    assert track.outcomes == {"starter": Outcome.SUPERSEDED, "decoder": Outcome.WON}
    assert (record.ttft_ms, record.alone_ms) == (pytest.approx(500), pytest.approx(200))


def test_a_call_that_nobody_answered_says_nothing() -> None:
    track = Track(refuses("bad", ErrorKind.SERVER_ERROR, 500), launches=[("bad", 0.0, Role.PRIMARY)])
    with pytest.raises(Exception, match="bad"):
        run(track.run())
    (record,) = track.recorder.records
    assert (record.alone_ms, record.alone_predicted_ms, record.alone_age_ms) == (None, None, None)
