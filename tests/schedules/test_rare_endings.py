"""Endings that seldom come: each of these left something, or lost something, once."""

import gc

import pytest
from msgspec.structs import replace

from gateway.core.attempts import Outcome
from tests.schedules.checks import wrong
from tests.schedules.faults import FIRST, OTHERS, WELL, Fault, everybody, refuses
from tests.schedules.scenario import Ask, Client, Scenario, of_models
from tests.schedules.simulation import run
from tests.support.behaviour import Behaviour


def test_a_defect_between_two_models_leaves_a_call_that_is_recorded() -> None:
    fault = everybody(refuses("server_error"), ask=Ask(model="other", fallback="spare"))
    evidence = run(fault.scenario(), defective="spare")
    problems = [p for p in wrong(evidence) if not p.startswith("nothing_crashed")]
    assert not problems, problems
    assert [call.error_kind for call in evidence.store.calls.values()] == ["internal_error"]


@pytest.mark.parametrize("shuffle", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(1, 6))
def test_stopping_closes_no_upstream_that_is_still_asked(seed: int, shuffle: float) -> None:
    slow = replace(WELL, first_s=1.2)
    scenario = Scenario(
        seed=seed,
        shuffle=shuffle,
        race={"mode": "race", "width": 4, "budget": 3.0, "audit_share": 1.0},
        behaviours={FIRST: (WELL,), **dict.fromkeys(OTHERS, (slow,))},
        clients=(Client(at_s=0.1, asks=(Ask(race="race"),)),),
        reloads=(0.18,),
        shutdown_s=0.6,
        grace_s=1.0,
    )
    evidence = run(scenario)
    early = [tag for each in evidence.providers.values() for tag in each.closed_early]
    rows = [(r.provider, str(r.outcome), r.error_kind) for r in evidence.store.attempts.values()]
    assert not early, (early, rows)


def test_a_reload_just_before_the_end_leaves_no_upstream_open() -> None:
    scenario = Scenario(seed=1, clients=(Client(at_s=0.1, asks=(Ask(),)),))
    problems = wrong(run(scenario, reloads_last=True))
    assert not problems, problems


def test_a_fallbacks_answer_streams_without_the_prompt_of_the_first_model() -> None:
    fault = Fault(
        first=refuses("server_error"),
        ask=Ask(model="other", fallback="spare", prompt=5000, max_tokens=50),
        whole=lambda s: replace(s, behaviours={**s.behaviours, OTHERS[0]: (refuses("server_error"),)}),
    )
    evidence = run(fault.scenario())
    assert not wrong(evidence)
    assert {call.decision.model for call in evidence.witness.asked} == {"other", "spare"}
    assert not any("messages" in call.request.fields for call in evidence.witness.asked)


def test_a_client_that_leaves_a_rescued_answer_leaves_nothing() -> None:
    slow, fast = replace(PROSE, slow_at=3), replace(PROSE, gap_s=0.05)
    scenario = replace(RESCUED, behaviours={FIRST: (slow,), OTHERS[0]: (fast,)})
    scenario = replace(scenario, clients=(replace(scenario.clients[0], leaves_s=6.5),))
    evidence = run(scenario)
    outcomes = [row.outcome for row in sorted(evidence.store.attempts.values(), key=lambda row: row.number)]
    assert outcomes == [Outcome.SUPERSEDED, Outcome.CLIENT_GONE]
    assert not wrong(evidence)


@pytest.mark.parametrize(
    ("usual_tps", "is_rescued"),
    [({FIRST: 40.0, OTHERS[0]: 40.0}, True), ({OTHERS[0]: 40.0}, True), ({FIRST: 40.0}, False), ({}, False)],
)
def test_a_slow_stream_is_rescued_only_where_another_is_known_to_be_faster(
    usual_tps: dict[str, float], *, is_rescued: bool
) -> None:
    slow, fast = replace(PROSE, slow_at=3), replace(PROSE, gap_s=0.05)
    evidence = run(replace(RESCUED, behaviours={FIRST: (slow,), OTHERS[0]: (fast,)}, usual_tps=usual_tps))
    (call,) = evidence.store.calls.values()
    assert call.takeover == ("rescued" if is_rescued else None)
    assert not wrong(evidence)


def test_time_in_which_the_client_reads_nothing_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.racing.rescue.ONE_GAP", 2.0)  # else no single pause, however long, is slowness
    monkeypatch.setattr("gateway.server.connection.UNREAD_BYTES", 0)  # so the write after the next one waits
    # The provider is silent from the last write before the client reads on until after the next looks at its speed.
    quick = replace(PROSE, tokens=40, gap_s=0.1, slow_at=20, fast_at=21, slow_gap_s=5.5)
    client = replace(RESCUED.clients[0], stops_reading_s=1.91, reads_on_s=6.2, buffer_bytes=0)
    evidence = run(replace(RESCUED, behaviours={FIRST: (quick,), **dict.fromkeys(OTHERS, (quick,))}, clients=(client,)))
    (call,) = evidence.store.calls.values()
    assert (call.takeover, call.launched, call.error_kind) == (None, 1, None)
    assert call.total_ms > 7000.0
    assert not wrong(evidence)


def test_a_slow_stream_runs_on_when_the_budget_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.racing.services.MOST_RESCUES", 0.5)
    slow, fast = replace(PROSE, slow_at=3), replace(PROSE, gap_s=0.05)
    takeover = {"when": "always", "within_s": 10.0, "slow": {"budget": 0.02}}
    evidence = run(replace(RESCUED, behaviours={FIRST: (slow,), OTHERS[0]: (fast,)}, takeover=takeover))
    (call,) = evidence.store.calls.values()
    assert (call.takeover, call.launched) == (None, 1)
    assert not wrong(evidence)


@pytest.mark.parametrize(("fast_at", "is_rescued"), [(10, False), (None, True)])
def test_a_slow_stream_that_recovers_before_another_has_text_is_not_cut(
    fast_at: int | None, *, is_rescued: bool
) -> None:
    slow = replace(PROSE, tokens=100, slow_at=3, fast_at=fast_at, gap_s=0.02)
    rival = replace(PROSE, first_s=1.4, gap_s=0.02)
    evidence = run(replace(RESCUED, behaviours={FIRST: (slow,), **dict.fromkeys(OTHERS, (rival,))}))
    (call,) = evidence.store.calls.values()
    assert (call.takeover, call.launched) == ("rescued" if is_rescued else None, 2)
    assert not wrong(evidence)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_stays_of_a_rival_that_is_asked_in_the_instant_in_which_the_slow_one_ends(seed: int) -> None:
    slow = replace(PROSE, tokens=15, gap_s=0.0, slow_at=15, fast_at=19, slow_gap_s=1.25)
    rival = replace(PROSE, opens_s=60.0)
    behaviours = {FIRST: (slow,), **dict.fromkeys(OTHERS, (rival,))}
    evidence = run(replace(RESCUED, seed=seed, shuffle=1.0, behaviours=behaviours))
    (call,) = evidence.store.calls.values()
    assert (call.total_ms, call.takeover) == (pytest.approx(5060.0), None)
    assert not wrong(evidence)


def test_before_the_first_visible_character_another_answer_takes_its_place() -> None:
    slow = replace(PROSE, blanks=8, slow_at=2)
    fast = replace(PROSE, blanks=1, gap_s=0.05)
    evidence = run(replace(RESCUED, behaviours={FIRST: (slow,), OTHERS[0]: (fast,)}))
    (call,) = evidence.store.calls.values()
    assert call.takeover == "rescued"
    assert [each.begun for each in evidence.providers[OTHERS[0]].asked] == [""]
    assert not wrong(evidence)


def test_of_two_that_were_to_go_on_the_other_is_asked_again_however_long_the_answer_had_run() -> None:
    breaks = replace(PROSE, slow_at=1, breaks_at=25)
    other = replace(PROSE, first_s=1.2, habit="anew")  # has its token when the second one is under way
    scenario = replace(RESCUED, takeover={"when": "always", "within_s": 2.0})
    behaviours = {FIRST: (breaks,), OTHERS[0]: (other,), OTHERS[1]: (replace(PROSE, first_s=0.5),)}
    evidence = run(replace(scenario, behaviours=behaviours))
    (call,) = evidence.store.calls.values()
    assert (call.takeover, call.launched, call.status_code) == ("finished", 4, 200)
    assert not wrong(evidence)


PROSE = Behaviour(prose=True, tokens=30, slow_gap_s=1.0, opens_s=0.01, first_s=0.05)
RESCUED = Scenario(
    seed=1,
    race={"mode": "single", "budget": 0.0, "audit_share": 0.0},
    takeover={"when": "always", "within_s": 10.0, "slow": {"budget": 1.0}},
    usual_tps=dict.fromkeys((FIRST, *OTHERS), 40.0),
    behaviours={},
    clients=(Client(at_s=0.0, asks=(Ask(dialect="responses", order=(FIRST, *OTHERS)),)),),
    stall_s=6.0,
    total_s=300.0,
)


def test_a_sound_that_times_out_as_another_answers_is_forgotten_at_once() -> None:
    gc.disable()  # a collection would free it, too
    try:
        assert wrong(run(of_models(155))) == []
    finally:
        gc.enable()
