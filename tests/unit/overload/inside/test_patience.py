"""How many calls may wait and how long: a crowd as configured, a standing queue hardly."""

from gateway.overload.call_queue import STANDING_CALLS, STANDING_WAIT_S, QueuePatience

CALLS, WAIT_S = 100, 2.0
CROWD, STANDING = (CALLS, WAIT_S), (STANDING_CALLS, STANDING_WAIT_S)


def allowed(patience: QueuePatience, now_s: float) -> tuple[int, float]:
    return patience.most(now_s), patience.wait_s(now_s)


def test_a_crowd_may_wait_as_configured() -> None:
    patience = QueuePatience(CALLS, WAIT_S)
    assert allowed(patience, 50.0) == CROWD
    patience.fills(50.0)
    assert allowed(patience, 51.9) == CROWD


def test_a_queue_that_is_never_empty_for_longer_than_that_is_standing() -> None:
    patience = QueuePatience(CALLS, WAIT_S)
    patience.fills(50.0)
    assert allowed(patience, 52.0) == STANDING
    assert allowed(patience, 500.0) == STANDING


def test_a_queue_that_is_empty_for_moments_only_stays_a_standing_one() -> None:
    patience = QueuePatience(CALLS, WAIT_S)
    for second in range(50, 60):
        patience.fills(second)
        patience.empties(second + 0.5)
        assert allowed(patience, second + 0.9) == (CROWD if second < 52 else STANDING)


def test_a_queue_that_was_empty_once_and_never_since_is_a_standing_one() -> None:
    patience = QueuePatience(CALLS, WAIT_S)
    patience.fills(50.0)
    patience.empties(50.1)
    patience.fills(50.2)
    for second in range(53, 70):
        assert allowed(patience, second) == STANDING


def test_a_queue_that_was_empty_for_as_long_as_a_call_may_wait_is_a_crowds_again() -> None:
    patience = QueuePatience(CALLS, WAIT_S)
    patience.fills(50.0)
    patience.empties(55.0)
    assert allowed(patience, 56.9) == STANDING
    assert allowed(patience, 57.0) == CROWD
    patience.fills(60.0)
    assert allowed(patience, 61.9) == CROWD
    assert allowed(patience, 62.0) == STANDING


def test_a_standing_queue_is_never_longer_than_the_configured_one() -> None:
    patience = QueuePatience(1, 0.01)
    patience.fills(50.0)
    assert allowed(patience, 60.0) == (1, 0.01)
    patience.configure(CALLS, WAIT_S)
    assert allowed(patience, 60.0) == STANDING
