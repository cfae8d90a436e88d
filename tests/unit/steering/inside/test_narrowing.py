"""Whether racing is narrowed: when that begins and ends, and that it is told once."""

import pytest
import structlog

from gateway.core.attempts import Narrowed
from gateway.steering.narrowing import ENDS_AFTER_S, RECENT, Narrowings
from tests.unit.ledger.records import call, won

EIGHT_PM = 1_000_000.0


class Calls:
    """Calls of one model, one a second."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.due_to = ["small/x"]
        self.narrowings = Narrowings(
            lambda _model, _reason: self.due_to, clock=lambda: self.now_s, unix_clock=lambda: EIGHT_PM + self.now_s
        )

    def end(self, *reasons: Narrowed | None, width_asked: int | None = 2, model: str = "m") -> None:
        for reason in reasons:
            self.now_s += 1.0
            record = call(won("1"), model=model, launched=1, width_asked=width_asked, narrowed=reason)
            self.narrowings.call_finished(record)


@pytest.fixture
def calls() -> Calls:
    return Calls()


def test_it_begins_with_the_first_of_several_narrowed_calls_and_is_told_once(calls: Calls) -> None:
    with structlog.testing.capture_logs() as lines:
        calls.end(*[Narrowed.RATE_LIMITS] * 4)
        assert calls.narrowings.of("m") is None
        calls.end(*[Narrowed.RATE_LIMITS] * 40)
    found = calls.narrowings.of("m")
    assert found is not None
    assert (found.reason, found.since.timestamp(), found.why) == (
        "rate_limits", EIGHT_PM + 25.0 - 24.0, "small/x is rate-limited",
    )  # fmt: skip
    assert [(each["event"], each["log_level"], each["model"], each["reason"]) for each in lines] == [
        ("race.narrowed", "warning", "m", "rate_limits")
    ]


def test_calls_that_alternate_are_told_once(calls: Calls) -> None:
    with structlog.testing.capture_logs() as lines:
        for _ in range(200):
            calls.end(Narrowed.BUDGET, None)
    assert [each["event"] for each in lines] == ["race.narrowed"]


def test_a_narrowed_call_now_and_then_is_no_state(calls: Calls) -> None:
    with structlog.testing.capture_logs() as lines:
        for _ in range(100):
            calls.end(Narrowed.BUDGET, None, None)
    assert (lines, calls.narrowings.of("m")) == ([], None)


def test_it_ends_after_a_minute_of_wide_calls(calls: Calls) -> None:
    with structlog.testing.capture_logs() as lines:
        calls.end(*[Narrowed.COOLING] * RECENT)
        calls.end(*[None] * int(ENDS_AFTER_S + RECENT))
        assert calls.narrowings.of("m") is None
        calls.end(*[None] * 200)
    assert [each["event"] for each in lines] == ["race.narrowed", "race.widened"]


def test_on_a_quiet_model_whose_calls_alternate_it_is_told_once(calls: Calls) -> None:
    with structlog.testing.capture_logs() as lines:
        calls.end(*[Narrowed.COOLING] * RECENT)
        for number in range(100):
            calls.now_s += ENDS_AFTER_S
            calls.end(Narrowed.COOLING if number % 2 else None)
    assert [each["event"] for each in lines] == ["race.narrowed"]


def test_without_calls_it_is_shown_for_a_minute(calls: Calls) -> None:
    calls.end(*[Narrowed.COOLING] * RECENT)
    calls.now_s += ENDS_AFTER_S - 1
    assert calls.narrowings.of("m") is not None
    calls.now_s += 1
    assert calls.narrowings.of("m") is None


def test_another_reason_is_told_when_the_first_has_not_held_for_a_minute(calls: Calls) -> None:
    with structlog.testing.capture_logs() as lines:
        calls.end(*[Narrowed.COOLING] * RECENT)
        calls.end(*[Narrowed.BUDGET] * int(ENDS_AFTER_S + RECENT))
    assert [each["reason"] for each in lines] == ["cooling", "budget"]


def test_calls_that_want_one_attempt_neither_begin_nor_end_it(calls: Calls) -> None:
    calls.end(None, width_asked=1)
    for _ in range(RECENT):
        calls.end(Narrowed.CAPACITY)
        calls.end(None, None, width_asked=1)
    assert calls.narrowings.of("m") is not None


def test_what_requests_or_the_policy_want_is_no_warning(calls: Calls) -> None:
    with structlog.testing.capture_logs() as lines:
        calls.end(*[Narrowed.NO_RIVAL_WORTH_IT] * RECENT)
    assert [each["log_level"] for each in lines] == ["info"]


@pytest.mark.parametrize("reason", Narrowed)
def test_each_reason_is_said_in_words(calls: Calls, reason: Narrowed) -> None:
    calls.due_to = []
    calls.end(*[reason] * RECENT)
    found = calls.narrowings.of("m")
    assert found is not None
    assert "{" not in found.why


def test_other_models_are_forgotten(calls: Calls) -> None:
    calls.end(*[Narrowed.BUDGET] * RECENT)
    calls.end(*[Narrowed.BUDGET] * RECENT, model="n")
    calls.narrowings.keep({"n"})
    assert calls.narrowings.of("m") is None
    assert calls.narrowings.of("n") is not None


def test_of_two_reasons_the_first_in_the_stated_order_is_told() -> None:
    assert Narrowed.BUDGET.before(None) is Narrowed.BUDGET
    assert Narrowed.BUDGET.before(Narrowed.COOLING) is Narrowed.COOLING
    assert Narrowed.COOLING.before(Narrowed.BUDGET) is Narrowed.COOLING
