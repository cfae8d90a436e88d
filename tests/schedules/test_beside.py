"""A model whose answer is late: the next model is asked beside it, and the first token wins. In virtual time."""

from typing import Any

import pytest

from tests.schedules.checks import wrong
from tests.schedules.scenario import LONE_MODEL, Ask, Client, Scenario
from tests.schedules.simulation import Evidence, run
from tests.support.behaviour import NEVER_S, Behaviour

WELL = Behaviour(first_s=0.4)
SILENT = Behaviour(first_s=NEVER_S)


def ask(*behaviours: Behaviour, spare: Behaviour = WELL, calls: int = 1, **more: Any) -> Evidence:
    """Ask ``lone`` so often, whose only deployment behaves so, and its fallback's likewise."""
    fields, scenario = more.pop("fields", {}), more.pop("scenario", {})
    each = Ask(model=LONE_MODEL, waits_s=0.1, **fields)
    evidence = run(
        Scenario(
            seed=1,
            ttft_s=120.0,
            behaviours={"ada": behaviours, "cid": (spare,), "dot": (spare,)},
            clients=(Client(at_s=0.1, asks=(each,) * calls, **more),),
            **scenario,
        )
    )
    problems = wrong(evidence)
    assert not problems, problems
    return evidence


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_silent_model_that_is_not_known_yet_is_answered_for_after_ten_seconds(stream: bool) -> None:
    evidence = ask(SILENT, fields={"stream": stream})
    [call] = evidence.witness.finished
    assert (call.model, call.answered_model, call.status_code) == ("lone", "spare", 200)
    assert call.ttft_ms is not None
    assert call.ttft_ms <= 10_500
    assert [str(each.role) for each in call.attempts if each.model == "spare"] == ["fallback"]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_silent_model_that_is_known_is_answered_for_within_three_times_its_quantile(stream: bool) -> None:
    evidence = ask(*[WELL] * 40, SILENT, calls=81, fields={"stream": stream})
    late = [call for call in evidence.witness.finished if call.answered_model == "spare"]
    assert len(late) >= 1
    for call in late:
        assert call.ttft_ms is not None
        assert call.ttft_ms <= 3 * 410 * 1.3 + 410  # 0.4 s, and what few measurements leave open
        [primary] = [each for each in call.attempts if each.number == 1]
        assert (str(primary.outcome), primary.is_overtaken) == ("lost", True)
        assert call.alone_predicted_ms is not None


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_late_model_may_still_answer_first(stream: bool) -> None:
    evidence = ask(Behaviour(first_s=11.0), spare=Behaviour(first_s=5.0), fields={"stream": stream})
    [call] = evidence.witness.finished
    assert (call.answered_model, call.status_code) == (None, 200)
    assert call.ttft_ms == pytest.approx(11_010, abs=20)
    outcomes = {each.model: str(each.outcome) for each in call.attempts}
    assert outcomes == {"lone": "won", "spare": "lost"}
    assert call.alone_ms == pytest.approx(call.ttft_ms)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_model_that_is_overtaken_while_little_is_known_runs_on_to_its_own_first_token(stream: bool) -> None:
    evidence = ask(Behaviour(first_s=30.0), fields={"stream": stream}, scenario={"total_s": 60.0})
    [call] = evidence.witness.finished
    assert (call.answered_model, call.launched) == ("spare", 2)
    assert call.total_ms < 15_000  # its client does not wait for that
    [late] = evidence.witness.audited
    assert (late.model, str(late.outcome), late.audited, late.is_overtaken) == ("lone", "superseded", True, True)
    assert late.token_ms == pytest.approx(30_010, abs=20)
    assert late.overtaken_at_ms == pytest.approx(10_410, abs=50)


def test_one_that_runs_on_in_silence_is_cut_when_the_process_stops() -> None:
    evidence = ask(SILENT, scenario={"total_s": 60.0, "shutdown_s": 20.0})
    [late] = evidence.witness.audited
    assert (late.model, str(late.outcome), late.audited, late.token_ms) == ("lone", "interrupted", True, None)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_when_the_late_model_fails_its_fallback_goes_on(stream: bool) -> None:
    refuses = Behaviour(opens_s=12.0, refusal="server_error")
    evidence = ask(refuses, spare=Behaviour(first_s=5.0), fields={"stream": stream})
    [call] = evidence.witness.finished
    assert (call.answered_model, call.status_code) == ("spare", 200)
    assert call.ttft_ms is not None
    assert call.ttft_ms <= 16_000
    assert len([each for each in call.attempts if each.model == "spare"]) == 1


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_when_the_fallback_fails_the_late_model_goes_on(stream: bool) -> None:
    refuses = Behaviour(refusal="server_error")
    evidence = ask(Behaviour(first_s=14.0), spare=refuses, fields={"stream": stream})
    [call] = evidence.witness.finished
    assert (call.answered_model, call.status_code) == (None, 200)
    assert call.ttft_ms == pytest.approx(14_010, abs=20)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_when_both_fail_the_client_hears_of_both(stream: bool) -> None:
    late = Behaviour(opens_s=12.0, refusal="server_error")
    evidence = ask(late, spare=Behaviour(opens_s=6.0, refusal="disconnected"), fields={"stream": stream})
    [call] = evidence.witness.finished
    assert (call.answered_model, call.status_code) == (None, 502)
    [seen] = evidence.clients[0].seen
    assert b"model 'lone'" in seen.body
    assert b"model 'spare'" in seen.body


@pytest.mark.parametrize("leaves_s", [5.0, 10.15, 12.0])
def test_a_client_that_leaves_stops_the_requests_of_both_models(leaves_s: float) -> None:
    evidence = ask(SILENT, spare=SILENT, leaves_s=leaves_s)
    [call] = evidence.witness.finished
    assert (call.status_code, call.answered_model) == (499, None)
    assert {str(each.outcome) for each in call.attempts} == {"client_gone"}
    assert {each.model for each in call.attempts} == ({"lone"} if leaves_s < 10 else {"lone", "spare"})
    assert call.total_ms == pytest.approx(leaves_s * 1000, abs=100)


def test_beside_a_model_that_is_broken_the_next_one_is_asked_at_once() -> None:
    refuses = Behaviour(refusal="server_error")
    evidence = ask(*[refuses] * 12, SILENT, calls=13)
    last = evidence.witness.finished[-1]
    assert (last.answered_model, last.status_code) == ("spare", 200)
    assert last.ttft_ms is not None
    assert last.ttft_ms <= 500
    assert [str(each.role) for each in last.attempts if each.model == "spare"] == ["fallback"]


def test_a_deadline_starts_the_next_model_early_enough_to_meet_it() -> None:
    evidence = ask(SILENT, fields={"deadline_ms": 3000.0})
    [call] = evidence.witness.finished
    assert (call.answered_model, call.deadline_ms, call.deadline_met) == ("spare", 3000.0, True)
    assert call.ttft_ms == pytest.approx(1900, abs=100)  # nothing is known of either: after half of the time


def test_a_deadline_starts_the_next_model_not_before_most_answers_have_come() -> None:
    usual = Behaviour(first_s=4.0)
    evidence = ask(*[usual] * 40, SILENT, calls=41, fields={"deadline_ms": 7000.0})
    *before, last = evidence.witness.finished
    assert {call.launched for call in before[15:]} == {1}
    assert (last.answered_model, last.deadline_met) == ("spare", True)
    assert last.ttft_ms is not None
    assert 4400 < last.ttft_ms < 7000  # its own lateness is 12 s


def test_where_all_places_are_taken_the_next_model_is_asked_after_two_seconds() -> None:
    evidence = run(
        Scenario(
            seed=1,
            ttft_s=120.0,
            queue_timeout_s=30.0,
            max_in_flight={"ada": 1},
            behaviours={"ada": (Behaviour(first_s=8.0),), "cid": (WELL,), "dot": (WELL,)},
            clients=tuple(Client(at_s=at_s, asks=(Ask(model=LONE_MODEL),)) for at_s in (0.1, 1.0)),
        )
    )
    assert not wrong(evidence)
    second, first = evidence.witness.finished
    assert (first.answered_model, second.answered_model, second.launched) == (None, "spare", 1)
    assert second.ttft_ms == pytest.approx(2410, abs=50)
    assert [str(each.role) for each in second.attempts] == ["fallback"]
