"""A stream that stands still in the middle of its text: another goes on beside it, whoever has text first wins."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from gateway.core.attempts import Outcome
from tests.schedules.checks import wrong
from tests.schedules.faults import FIRST, OTHERS
from tests.schedules.scenario import Ask, Client, Scenario
from tests.schedules.simulation import Evidence, run
from tests.support.behaviour import Behaviour

PROSE = Behaviour(prose=True, tokens=40, opens_s=0.01, first_s=0.05, gap_s=0.02)
STOPS = replace(PROSE, stalls_at=20)
RIVAL = replace(PROSE, first_s=1.0)
NOTICED_S = 12.0
CHAT = Ask(order=(FIRST, *OTHERS))


def pauses(seconds: float, *, at: int = 20) -> Behaviour:
    return replace(PROSE, slow_at=at, fast_at=at + 1, slow_gap_s=seconds)


def ended(first: Behaviour, *others: Behaviour, ask: Ask = CHAT, refuses: bool = False, **options: object) -> Evidence:
    """Run one call that asks ``FIRST``, and see that all is right with it; ``refuses``: nobody may be asked beside."""
    scenario = Scenario(
        seed=1,
        race={"mode": "single", "budget": 0.0, "audit_share": 0.0},
        takeover={"when": "always", "within_s": 10.0},
        behaviours={FIRST: (first,), **dict.fromkeys(OTHERS, others or (RIVAL,))},
        clients=(Client(at_s=0.0, asks=(ask,)),),
        stall_s=120.0,
        total_s=300.0,
    )
    evidence = run(replace(scenario, **options), refuses=refuses)
    problems = wrong(evidence)
    assert not problems, problems
    return evidence


def outcomes(evidence: Evidence) -> Sequence[Outcome]:
    return [row.outcome for row in sorted(evidence.store.attempts.values(), key=lambda row: row.number)]


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_another_goes_on_beside_a_stream_that_stopped(dialect: str) -> None:
    evidence = ended(STOPS, ask=replace(CHAT, dialect=dialect))
    (call,) = evidence.store.calls.values()
    assert (call.takeover, call.takeovers, call.status_code, call.error_kind) == ("finished", 1, 200, None)
    assert outcomes(evidence) == [Outcome.STALLED, Outcome.WON]
    assert NOTICED_S < call.total_ms / 1000 < NOTICED_S + 3.0


def test_a_deployment_whose_pauses_are_known_is_noticed_after_three_seconds() -> None:
    (call,) = ended(STOPS, known_streams={FIRST: 300}).store.calls.values()
    assert call.takeover == "finished"
    assert 3.0 < call.total_ms / 1000 < 6.0


def test_a_false_alarm_keeps_the_answer_and_cuts_the_rival() -> None:
    evidence = ended(pauses(13.0), replace(RIVAL, first_s=3.0))
    (call,) = evidence.store.calls.values()
    assert (call.takeover, call.takeovers, call.error_kind) == (None, None, None)
    assert outcomes(evidence) == [Outcome.WON, Outcome.LOST]
    assert 13.0 < call.total_ms / 1000 < 15.0, "what it sent was held back"


def test_a_rival_that_never_has_text_costs_the_stream_nothing() -> None:
    evidence = ended(pauses(40.0), replace(PROSE, opens_s=200.0))
    (call,) = evidence.store.calls.values()
    assert (call.takeover, call.error_kind) == (None, None)
    assert outcomes(evidence)[0] is Outcome.WON
    assert 40.0 < call.total_ms / 1000 < 42.0


def test_a_pause_that_is_not_long_enough_starts_nobody() -> None:
    evidence = ended(pauses(11.5))
    assert outcomes(evidence) == [Outcome.WON]


def test_where_the_budget_permits_none_the_stream_has_until_its_limit() -> None:
    evidence = ended(STOPS, refuses=True)
    (call,) = evidence.store.calls.values()
    assert (call.takeover, call.error_kind) == ("finished", None)
    assert 60.0 < call.total_ms / 1000 < 63.0


def test_without_takeover_the_client_has_a_clean_error_after_a_minute() -> None:
    evidence = ended(replace(STOPS, prose=False), takeover=None)
    (call,) = evidence.store.calls.values()
    assert (call.takeover, call.error_kind, outcomes(evidence)) == (None, "stall_timeout", [Outcome.STALLED])
    assert 60.0 < call.total_ms / 1000 < 61.0


def test_before_anything_visible_another_answer_takes_its_place() -> None:
    evidence = ended(replace(PROSE, blanks=8, stalls_at=3))
    (call,) = evidence.store.calls.values()
    assert (call.takeover, call.error_kind) == ("finished", None)
    assert call.total_ms / 1000 < NOTICED_S + 3.0
    assert [each.begun for each in evidence.providers[OTHERS[0]].asked] == [""]


@pytest.mark.parametrize("leaves_s", [5.0, 12.5, 13.2])
def test_a_client_that_leaves_leaves_nothing_behind(leaves_s: float) -> None:
    evidence = ended(STOPS, clients=(Client(at_s=0.0, asks=(CHAT,), leaves_s=leaves_s),))
    assert Outcome.CLIENT_GONE in outcomes(evidence)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_where_both_go_on_in_the_same_instant(seed: int) -> None:
    first = replace(PROSE, gap_s=0.0, slow_at=20, fast_at=21, slow_gap_s=13.0)
    ended(first, replace(PROSE, gap_s=0.0, first_s=0.99), seed=seed, shuffle=1.0)
