import pytest

from benchmarks.steering.fleet import Fleet
from benchmarks.steering.simulation import Setting, setting
from benchmarks.steering.worlds import WORLDS
from providers import ErrorKind


def fleet(where: Setting) -> Fleet:
    return Fleet(where.world, where.weather, where.run_s, where.seed)


def test_an_attempt_gets_what_was_drawn_for_it_whoever_asks() -> None:
    where = setting(WORLDS["calm"], 10, 7)
    request = where.requests[0]
    first, again = (fleet(where).ask("birch", request, 0, 0.0) for _ in range(2))
    assert first == again
    assert first == fleet(where).peek("birch", request, 0.0)
    assert first != fleet(where).ask("birch", request, 1, 0.0)  # the second of one call has luck of its own


def test_a_full_provider_answers_twice_as_late_and_never_more_than_ten_times() -> None:
    where = setting(WORLDS["herd"], 10, 7)
    crowded = fleet(where)
    number, request = crowded.number["cedar"], where.requests[0]
    empty_s = crowded.peek("cedar", request, 0.0).ttft_s
    assert empty_s is not None
    crowded.in_flight[number] = 8
    assert crowded.peek("cedar", request, 0.0).ttft_s == pytest.approx(2 * empty_s)
    crowded.in_flight[number] = 800
    assert crowded.peek("cedar", request, 0.0).ttft_s == pytest.approx(10 * empty_s)


def test_an_account_that_is_used_up_says_when_to_come_back() -> None:
    where = setting(WORLDS["ratelimit"], 10, 7)
    limited = fleet(where)
    answers = [limited.ask("cedar", where.requests[0], number, 0.0) for number in range(25)]
    refused = answers[-1]
    assert refused.error is ErrorKind.RATE_LIMITED
    assert refused.retry_after_s is not None
    assert limited.peek("cedar", where.requests[0], refused.retry_after_s).error is not ErrorKind.RATE_LIMITED
    headrooms = [answer.headroom for answer in answers if answer.headroom is not None]
    assert headrooms == sorted(headrooms, reverse=True)


def test_a_fake_streamer_sends_its_first_token_with_its_last() -> None:
    where = setting(WORLDS["fake"], 100, 7)
    honest = fleet(where).peek("cedar", where.requests[0], 0.0)
    fake = fleet(where).peek("cedar", where.requests[0], where.run_s)
    assert honest.tok_s is not None
    assert (fake.ttft_s, fake.tok_s) == (fake.end_s, None)
