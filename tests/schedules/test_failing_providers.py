"""Sixteen ways in which a provider fails, in each setup: whole gateways in virtual time."""

import re
from functools import cache
from typing import Any

import msgspec
import pytest

from tests.schedules.scenario import Ask, Client, Scenario
from tests.schedules.simulation import Evidence, run
from tests.support.behaviour import Behaviour  # noqa: TC001 - of a hint that is read when the test runs
from tests.support.faults import FAULTS, SETUPS, WELL, Fault, Outcome, Verdict, judged_in_turn

NAME = "failing"
WELL_EVERYWHERE = Fault(first=(WELL,))
MOST_REQUESTS = 100


def happened(fault: Fault, setup: str, first: str, other: str, *, well: tuple[int, int] = (0, 0)) -> Evidence:
    """Have a fault happen; ``first`` is the provider that fails, after as many requests as both have well answered."""
    behaviours: dict[str, tuple[Behaviour, ...]] = {}
    for name, before in zip((first, other), well, strict=True):
        is_first = name == first
        found = [fault.behaviour(number, is_first=is_first) for number in range(MOST_REQUESTS)]
        behaviours[name] = (*[WELL if is_first else fault.other] * before, *found)
    names = (first, other) if SETUPS[setup].fallback else sorted((first, other))
    models = SETUPS[setup].models(NAME, *names)
    for model in models.values():
        model["timeouts"] = {"ttft_timeout_s": 120, "stall_timeout_s": 120}
    soon = Ask(model=NAME, max_tokens=1000, waits_s=1.0)
    later = msgspec.structs.replace(soon, waits_s=fault.every_s)
    asks = (*(soon,) * (fault.known + 1), *(later,) * (fault.calls - 1))
    clients = (Client(at_s=0.1, asks=asks),)
    return run(Scenario(seed=1, behaviours=behaviours, total_s=1_000.0, models=models, clients=clients))


@cache
def asked_first(setup: str) -> str:
    """Return which of two providers, of which nothing is known, is asked first."""
    evidence = happened(WELL_EVERYWHERE, setup, "ada", "bee")
    return min((each for each in evidence.providers.values() if each.asked), key=lambda each: each.asked[0].at).name


def verdict(fault: Fault, setup: str) -> Verdict:
    first = asked_first(setup)
    other = "bee" if first == "ada" else "ada"
    well = (0, 0)
    if fault.known:  # the same draws again: as many of these requests go well
        healthy = msgspec.structs.replace(fault, first=(WELL,), known=fault.known - 1, calls=1)
        before = happened(healthy, setup, first, other)
        well = len(before.providers[first].asked), len(before.providers[other].asked)
    evidence = happened(fault, setup, first, other, well=well)
    failing = evidence.providers[first].asked[well[0] :]
    texts = {each.text for provider in evidence.providers.values() for each in provider.asked}
    outcomes = [outcome(evidence, fault.known + number, first) for number in range(fault.calls)]
    recovers_s = fault.first[-1].recovers_s
    back = [] if recovers_s is None else [each.at - failing[0].at - recovers_s for each in failing if each.opened_at]
    return judged_in_turn(fault, outcomes, texts, min((at for at in back if at >= 0), default=None))


def outcome(evidence: Evidence, number: int, first: str) -> Outcome:
    seen = evidence.clients[0].seen[number]
    record = next(each for each in evidence.witness.finished if each.request_id == seen.name)
    said: list[dict[str, Any]] = [
        msgspec.json.decode(data) for data in re.findall(rb"(?m)^(?:data: )?(\{.*)$", seen.body)
    ]
    choices = [choice for chunk in said for choice in chunk.get("choices", ())]
    return Outcome(
        status=seen.status,
        text="".join(choice["delta"].get("content") or "" for choice in choices),
        is_whole=any(choice["finish_reason"] for choice in choices) and b"[DONE]" in seen.body,
        error=next((str(chunk["error"]["code"]) for chunk in said if "error" in chunk), None),
        ttft_s=None if record.ttft_ms is None else record.ttft_ms / 1000,
        end_s=record.total_ms / 1000,
        asked_first=sum(each.call == seen.name for each in evidence.providers[first].asked),
    )


BREAKS = ("cut at word 40", "an event that is not JSON", "silence from word 20 on")


def wanted(fault: str, setup: str) -> str:
    """Return the verdict that a fault should have: the model's other deployment, or its fallback's, continues."""
    if fault.endswith("refuses a begun answer") or (fault in BREAKS and not SETUPS[setup].takeover):
        return "safe"
    return "pass"


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_client_has_the_whole_answer_or_an_error_where_nobody_continues_it(fault: str, setup: str) -> None:
    seen = verdict(FAULTS[fault], setup)
    assert seen.word == wanted(fault, setup), seen.why
