"""What was used, and what was refused with room left, by hand-made phases."""

from collections.abc import Sequence

import msgspec
import pytest

from benchmarks.limits.course import Made, Phase
from benchmarks.limits.findings import Booked, Finding, found, missed, most_parallel
from benchmarks.limits.provider import Seen
from benchmarks.limits.trials import Job, Situation, Trial, Use

CALM, KILLED = Situation(name="calm"), Situation(name="killed", fault="kill")
BEGAN_S, FAULT_S = 1000.0, 1005.0


def call(number: int, at_s: float, *, limit: str = "rpm", lasts_s: float = 0.5, tokens: int = 100) -> Made:
    job = Job(number, limit, at_s, tokens, 0.0)
    sent_s = BEGAN_S + at_s
    return Made(job, 0, sent_s, sent_s + lasts_s, 200, sent_s + 0.1, Use(100, tokens))


def refused(number: int, at_s: float, *, limit: str = "rpm") -> Made:
    made = call(number, at_s, limit=limit, lasts_s=0.01)
    return msgspec.structs.replace(made, status=429, use=None, first_s=None)


def broken(made: Made) -> Made:
    return msgspec.structs.replace(made, status=None, use=None, first_s=None, ended_s=FAULT_S + 0.002)


def phase(made: Sequence[Made]) -> Phase:
    seen = {
        each.job.number: Seen(
            each.job.number, each.sent_s + 0.01, each.sent_s + 0.05, each.ended_s - 0.01, is_whole=True
        )
        for each in made
        if not each.is_refused
    }
    return Phase(BEGAN_S, 10.0, FAULT_S, made, seen)


def finding(amount: float, made: Sequence[Made], *, situation: Situation = CALM, limit: str = "rpm") -> Finding:
    whole = [each.use for each in made if each.use is not None]
    booked = Booked(
        len(whole), 0, sum(use.prompt_tokens + use.answer_tokens for use in whole), sum(use.of("usd") for use in whole)
    )
    return found(Trial(situation, limit, amount), phase(made), booked)


def test_requests_beyond_the_limit_are_an_overshoot_that_nothing_explains() -> None:
    told = finding(4.0, [call(number, number * 0.1) for number in range(5)])
    assert (told.used, told.over, told.allowed, told.under) == (5.0, pytest.approx(0.25), 0.0, 0.0)
    assert [*missed([told])] == ["calm, rpm: overshoot 25.00%, more than 0.00%"]


def test_tokens_may_exceed_by_what_the_calls_in_flight_used_beyond_the_expected() -> None:
    usual = [call(number, number * 1.0, limit="tpm") for number in range(5)]
    in_flight = [call(10, 6.0, limit="tpm", tokens=160), call(11, 6.1, limit="tpm", tokens=40)]
    told = finding(1360.0, [*usual, *in_flight], limit="tpm")
    assert told.used == 5 * 200 + 260 + 140
    assert told.allowed == pytest.approx(60 / 1360)
    assert not [*missed([told])]
    assert [*missed([finding(1339.0, [*usual, *in_flight], limit="tpm")])]


def test_a_calm_limit_that_is_not_used_up_is_a_miss() -> None:
    told = finding(100.0, [call(number, 0.1) for number in range(97)])
    assert told.under == pytest.approx(0.03)
    assert [*missed([told])] == ["calm, rpm: undershoot 3.00%, more than 2%"]


def test_a_refusal_is_in_vain_only_while_there_is_room_for_certain() -> None:
    made = [*(call(number, number * 0.1) for number in range(8)), refused(20, 0.35), refused(21, 0.75)]
    told = finding(8.0, made)
    assert (told.refused, told.falsely_refused) == (2, 1)  # after four calls of eight; after eight


def test_calls_at_a_time_are_those_that_the_provider_saw() -> None:
    assert most_parallel([(0.0, 2.0), (1.0, 3.0), (2.0, 4.0)], 0.0, 9.0) == 2
    assert most_parallel([(0.0, 2.0), (1.0, 3.0), (1.5, 4.0)], 0.0, 9.0) == 3
    assert most_parallel([(0.0, 2.0), (1.0, 3.0), (1.5, 4.0)], 2.5, 9.0) == 1


def test_more_calls_at_a_time_than_allowed_are_an_overshoot() -> None:
    made = [call(number, 9.0, limit="max_parallel") for number in range(3)]
    assert not [*missed([finding(3.0, made, limit="max_parallel")])]
    assert [*missed([finding(2.0, made, limit="max_parallel")])] == [
        "calm, max_parallel: overshoot 50.00%, more than 0.00%"
    ]


def test_one_gate_that_knows_everything_loses_calls_by_erlangs_formula() -> None:
    made = [call(number, number * 0.1, limit="max_parallel", lasts_s=1.02) for number in range(100)]
    told = finding(10.0, made, limit="max_parallel")
    assert told.ideal_parallel == pytest.approx(10.0 * (1 - 0.2146), rel=1e-3)  # ten offered to ten places


def test_what_a_killed_replica_could_not_report_explains_an_overshoot() -> None:
    early = [call(number, 1.0) for number in range(10)]
    made = [*early, call(10, 4.2), broken(call(11, 4.9))]
    told = finding(10.0, made, situation=KILLED)
    assert (told.died, told.failed) == (1, 0)
    assert (told.over, told.allowed) == (pytest.approx(0.2), pytest.approx(0.2))
    assert not [*missed([told])]
    assert len([*missed([finding(10.0, made)])]) == 2  # in calm nothing dies


def test_calls_that_are_not_in_the_ledger_are_a_miss() -> None:
    made = [call(number, number * 0.1) for number in range(4)]
    told = found(Trial(CALM, "rpm", 4.0), phase(made), Booked(calls=3))
    assert [*missed([told])] == ["calm, rpm: the ledger has 3, and 4 were used by whole answers"]


def test_added_latency_is_what_the_provider_did_not_take() -> None:
    told = finding(4.0, [call(number, number * 0.1) for number in range(4)])
    assert told.added_p50_ms == pytest.approx(60.0)  # 100 ms at the client, 40 at the provider
    assert told.slow_share == 1.0
