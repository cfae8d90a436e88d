"""Both sides of each trade in one test, by a whole gateway in virtual time: what is gained, and what it must not cost.

A change that helps one side at the cost of the other fails here, whichever it is.
"""

from collections.abc import Sequence
from math import log
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.core.attempts import Role
from gateway.core.calls import CallRecord
from tests.schedules.checks import wrong
from tests.schedules.days import DAYS, GOOD, NAMES, RACES, run
from tests.schedules.scenario import LONE_MODEL, MODEL, PROVIDERS, VECTORS, VOICE, Ask, Client, Scenario
from tests.schedules.simulation import Evidence
from tests.schedules.simulation import run as play
from tests.support.behaviour import NEVER_S, Behaviour

OK = 200
HUNDRED = 100
SILENT = Behaviour(opens_s=NEVER_S)
streamed_or_whole = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def played(scenario: Scenario) -> Evidence:
    """Run a scenario, in which nothing else may be wrong."""
    evidence = play(scenario)
    problems = wrong(evidence)
    assert not problems, problems
    return evidence


def in_order(evidence: Evidence) -> Sequence[CallRecord]:
    """Return the calls as they came."""
    return sorted(evidence.store.calls.values(), key=lambda call: call.started_at)


def spread(usual_s: float, number: int, seed: object) -> tuple[Behaviour, ...]:
    """Return behaviours whose first tokens are spread as usual."""
    dice = Random(str(seed))
    return tuple(Behaviour(first_s=dice.lognormvariate(log(usual_s), 0.3), tokens=2) for _ in range(number))


@pytest.mark.parametrize(("names", "alone"), [(NAMES, 0), (NAMES[:2], 3)], ids=["of three", "of two"])
@pytest.mark.parametrize("race", RACES)
def test_after_one_429_the_next_hundred_calls_race_and_none_fails(race: str, names: Sequence[str], alone: int) -> None:
    """With one other, nobody is left to race while the limit is respected: a second or so."""
    deployments = [{"deployment": f"{name}/{MODEL}"} for name in names]
    options: dict[str, Any] = {"n_calls": HUNDRED + 3, "deployments": deployments}
    good, bad = run(GOOD, RACES[race], **options), run(DAYS["429 once"], RACES[race], **options)
    [at] = [number for number, each in enumerate(bad.calls) if any(row.status_code == 429 for row in each.attempts)]
    following = bad.calls[at + 1 :][:HUNDRED]
    assert len(following) == HUNDRED
    assert sum(each.starts > 1 for each in following) >= HUNDRED - alone
    assert not good.failed
    assert not bad.failed
    assert not bad.alone[None]


@streamed_or_whole
@pytest.mark.parametrize("mode", ["auto", "single"])
def test_a_call_that_finds_all_limited_waits_for_the_first_of_them_if_that_is_soon_and_no_longer(
    mode: str, stream: bool
) -> None:
    for retry_after_s, status, most_s in ((1.5, OK, 2.5), (5.0, 429, 1.0)):
        limited = Behaviour(refusal="rate_limited", retry_after_s=retry_after_s)
        evidence = played(
            Scenario(
                seed=1,
                race={"mode": mode},
                behaviours=dict.fromkeys(PROVIDERS, (limited, Behaviour(first_s=0.1))),
                clients=tuple(Client(at_s=0.2 * number, asks=(Ask(stream=stream),)) for number in range(2)),
            )
        )
        calls = in_order(evidence)
        assert [call.status_code for call in calls] == [status, status]
        assert all(call.total_ms < 1000 * most_s for call in calls)
        assert calls[1].total_ms > 1000 * (retry_after_s - 0.3) or status != OK
        assert {attempt.role for attempt in calls[1].attempts} <= {Role.PRIMARY, Role.RACE, Role.HEDGE}
        assert sum(each.error_kind is not None for call in calls for each in call.attempts) == len(PROVIDERS)


@pytest.mark.parametrize("mode", ["auto", "single"])
def test_of_twenty_calls_that_wait_for_limits_the_first_to_be_refused_again_warns_the_others(mode: str) -> None:
    limited = Behaviour(refusal="rate_limited", retry_after_s=1.0)
    behaviours = (limited, Behaviour(first_s=0.1), *[limited] * 20)
    evidence = played(
        Scenario(
            seed=1,
            race={"mode": mode},
            behaviours=dict.fromkeys(PROVIDERS, behaviours),
            clients=tuple(Client(at_s=0.02 * number, asks=(Ask(),)) for number in range(20)),
        )
    )
    calls = in_order(evidence)
    assert sum(call.status_code == OK for call in calls) >= (len(PROVIDERS) if mode == "single" else 1)
    refused = sum(each.status_code == 429 for call in calls for each in call.attempts)
    assert refused <= 4 * len(PROVIDERS)


@streamed_or_whole
def test_a_call_whose_client_leaves_while_it_waits_for_limits_is_in_the_ledger(stream: bool) -> None:
    limited = Behaviour(refusal="rate_limited", retry_after_s=1.5)
    evidence = played(
        Scenario(
            seed=1,
            behaviours=dict.fromkeys(PROVIDERS, (limited, Behaviour(first_s=0.1))),
            clients=(
                Client(at_s=0.0, asks=(Ask(stream=stream),)),
                Client(at_s=0.3, asks=(Ask(stream=stream),), leaves_s=0.5),
            ),
        )
    )
    well, gone = in_order(evidence)
    assert (well.status_code, gone.status_code, gone.attempts) == (OK, 499, ())


def test_a_call_of_a_model_that_cannot_be_asked_does_not_wait_for_it_where_its_fallback_is_limited() -> None:
    limited = Behaviour(refusal="rate_limited", retry_after_s=1.5)
    off = {"deployments": [{"deployment": f"ada/{MODEL}", "enabled": False}], "fallbacks": [MODEL]}
    evidence = played(
        Scenario(
            seed=1,
            models={"off": off},
            behaviours=dict.fromkeys(PROVIDERS, (limited, Behaviour(first_s=0.1))),
            clients=(Client(at_s=0.0, asks=(Ask(model="off"),)),),
        )
    )
    [call] = in_order(evidence)
    assert call.status_code == 429
    assert call.total_ms < 1000


@streamed_or_whole
def test_a_silent_model_is_answered_for_and_one_that_is_slow_and_well_is_not_doubled(stream: bool) -> None:
    slow_s, learns, calls = 4.0, 20, 60
    evidence = played(
        Scenario(
            seed=1,
            ttft_s=300.0,
            total_s=600.0,
            behaviours={
                "ada": (*spread(slow_s, calls, "slow"), SILENT),
                "cid": (Behaviour(first_s=0.4),),
                "dot": (Behaviour(first_s=0.4),),
            },
            clients=(Client(at_s=0.1, asks=(Ask(model=LONE_MODEL, stream=stream, waits_s=0.1),) * (calls + 1)),),
        )
    )
    *well, silent = in_order(evidence)
    assert [call.answered_model for call in well[learns:]] == [None] * (calls - learns)
    assert sum(call.launched - 1 for call in well[learns:]) == 0
    assert (silent.answered_model, silent.status_code) == ("spare", OK)
    assert silent.ttft_ms is not None
    assert silent.ttft_ms < 6 * 1000 * slow_s


def test_where_one_has_no_seat_rescues_go_on_until_one_answers() -> None:
    well = Behaviour(first_s=0.1)
    evidence = played(
        Scenario(
            seed=1,
            race={"mode": "single"},
            max_in_flight={"bee": 1},
            ttft_s=60.0,
            total_s=100.0,
            behaviours={"ada": (SILENT,) * 2, "bee": (SILENT,), "cid": (SILENT,) * 2, "dot": (well,)},
            clients=tuple(Client(at_s=0.05 * number, asks=(Ask(),)) for number in range(2)),
        )
    )
    assert [call.status_code for call in in_order(evidence)] == [OK, OK]


def test_models_that_think_for_half_a_minute_cost_little_more_and_one_that_hangs_is_rescued() -> None:
    thinks_s, calls, budget = 30.0, 200, 0.1
    behaviours = {
        name: (*spread(thinks_s, 40, name), SILENT, *spread(thinks_s, 60, f"{name} later")) for name in PROVIDERS
    }
    evidence = played(
        Scenario(
            seed=1,
            race={"mode": "auto", "budget": budget},
            ttft_s=600.0,
            total_s=900.0,
            remembered=dict.fromkeys(PROVIDERS, (thinks_s, 50.0)),
            behaviours=behaviours,
            clients=tuple(Client(at_s=2.0 * number, asks=(Ask(),)) for number in range(calls)),
        )
    )
    of_all = in_order(evidence)
    assert {call.status_code for call in of_all} == {OK}
    hung = {each.call for one in evidence.providers.values() for each in one.asked if each.behaviour is SILENT}
    later = [call for call in of_all[calls // 2 :] if call.request_id not in hung]  # a burst is spent by then
    assert sum(call.extras or 0 for call in later) <= 0.13 * len(later)
    waits_ms = [call.ttft_ms for call in of_all if call.request_id in hung]
    assert waits_ms
    assert all(waited_ms is not None and waited_ms < 6 * 1000 * thinks_s for waited_ms in waits_ms)


KINDS = {  # an answer whose text is delivered as it comes, one that is not, and those without text
    "streamed": Ask(order=PROVIDERS),
    "messages": Ask(order=PROVIDERS, dialect="messages"),
    "whole": Ask(order=PROVIDERS, stream=False),
    "sound": Ask(order=PROVIDERS, dialect="speech", model=VOICE, stream=False),
    "vectors": Ask(order=PROVIDERS, dialect="embeddings", model=VECTORS, stream=False),
}
DELIVERED = {"streamed", "messages", "sound"}  # what has begun is with the client


def broken(kind: str, at: int, *, takes_over: bool) -> tuple[CallRecord, Evidence]:
    """Let the first answer break before its event ``at``."""
    ask = KINDS[kind]
    well = Behaviour(prose=takes_over and kind not in {"sound", "vectors"}, tokens=12)
    evidence = played(
        Scenario(
            seed=1,
            race={"mode": "single", "budget": 0.0, "audit_share": 0.0},
            takeover={"when": "always"} if takes_over else None,
            behaviours={name: (replace(well, breaks_at=at) if name == PROVIDERS[0] else well,) for name in PROVIDERS},
            clients=(Client(at_s=0.0, asks=(ask,)),),
        )
    )
    [call] = evidence.store.calls.values()
    return call, evidence


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("takes_over", [True, False], ids=["takeover", "no takeover"])
def test_before_the_first_byte_anybody_may_answer_and_after_it_only_who_goes_on(kind: str, takes_over: bool) -> None:
    nothing, some = 0, 8
    call, evidence = broken(kind, nothing, takes_over=takes_over)
    assert (call.status_code, call.error_kind, call.launched) == (OK, None, 2)
    assert [each.begun for each in evidence.providers[PROVIDERS[1]].asked] == [""]
    assert not any(each.role is Role.TAKEOVER for each in call.attempts)

    call, evidence = broken(kind, some, takes_over=takes_over)
    roles = [each.role for each in call.attempts[1:]]
    begun = [each.begun for one in PROVIDERS[1:] for each in evidence.providers[one].asked]
    if kind not in DELIVERED:  # its client has nothing of it
        assert (call.status_code, call.error_kind, begun) == (OK, None, [""])
    elif takes_over and kind != "sound":
        assert (call.takeover, call.error_kind, roles) == ("finished", None, [Role.TAKEOVER])
        assert all(begun)
    else:
        assert call.error_kind == "disconnected"
        assert (roles, begun) == ([], [])
