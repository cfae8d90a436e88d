"""The request limit of a simulated account, on a clock the test holds."""

from providers.simulator import RateLimit


def test_as_many_as_allowed_are_admitted_and_the_next_is_told_how_long_to_wait() -> None:
    limit = RateLimit(requests=2, window_s=10)
    assert limit.admit(0) is None
    assert limit.admit(4) is None
    assert limit.admit(7) == 3


def test_a_request_is_admitted_when_the_oldest_leaves_the_window() -> None:
    limit = RateLimit(requests=1, window_s=10)
    assert limit.admit(0) is None
    assert limit.admit(9.5) == 0.5
    assert limit.admit(10) is None


def test_refused_requests_do_not_count() -> None:
    limit = RateLimit(requests=1, window_s=10)
    limit.admit(0)
    for now_s in range(1, 10):
        limit.admit(now_s)
    assert limit.admit(10) is None
