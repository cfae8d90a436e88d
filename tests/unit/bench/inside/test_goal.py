import pytest

from gateway.bench import GoalError, read_goal
from tests.unit.bench.inside.samples import GOAL, sample


def test_an_answer_is_good_if_it_meets_every_part_of_the_goal() -> None:
    assert GOAL.met(sample(ttft_ms=499.0, decode_tps=46.0)) is True
    assert GOAL.met(sample(ttft_ms=500.0, decode_tps=46.0)) is False
    assert GOAL.met(sample(ttft_ms=499.0, decode_tps=45.0)) is False


def test_an_error_is_never_good_and_an_unknown_figure_is_unknown_unless_another_fails() -> None:
    assert GOAL.met(sample(error_kind="rate_limited")) is False
    assert GOAL.met(sample(decode_tps=None)) is None
    assert GOAL.met(sample(decode_tps=None, ttft_ms=900.0)) is False


def test_seconds_are_a_thousand_milliseconds() -> None:
    goal = read_goal("total<1.2s, gap<50ms ,e2e>40")
    assert goal.met(sample(total_ms=1199.0)) is True
    assert goal.met(sample(total_ms=1200.0)) is False
    assert goal.text == "total<1.2s,gap<50ms,e2e>40"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("fast", "not understood"),
        ("", "not understood"),
        ("ttft<500", "needs a unit"),
        ("ttft>500ms", "did you mean ttft<500ms?"),
        ("tps<45", "did you mean tps>45?"),
        ("tps>45ms", "tokens per second"),
        ("price<1s", "cannot be about 'price'"),
        ("ttft<500ms,,tps>4", "not understood"),
    ],
)
def test_a_wrong_goal_is_explained(said: str, told: str) -> None:
    with pytest.raises(GoalError, match=r".") as raised:
        read_goal(said)
    assert told in str(raised.value)
