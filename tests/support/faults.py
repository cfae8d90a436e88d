"""The faults, the setups they strike, and the rule by which an outcome is judged.

A fault says what the provider does that is asked first; the other one is well, but slower. Tests in virtual time
(tests/schedules/test_failing_providers.py) and the benchmark over sockets judge the same faults by the same rule.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from tests.support.behaviour import NEVER_S, Behaviour

FIRST_TOKEN_S = 10.5  # where nothing is known of a model it may be late for 10 s
KNOWN_S = 1.8  # where first tokens of 0.3 s are known, and this is exact
STANDS_STILL_S = 15.0  # a pause in the text: 12 s until it is noticed, and the other's first token
LIMIT_S = 65.0  # then a call has not ended
REFUSED_S = 2.0  # until the error where nobody can answer
MOST_ASKED = 2  # requests of one call to the provider that fails
WORDS = 60

WELL = Behaviour(opens_s=0.02, first_s=0.28, gap_s=0.015, tokens=WORDS, prose=True)
SLOWER = replace(WELL, first_s=0.32)
HANGS = replace(WELL, opens_s=NEVER_S)
UNAVAILABLE = replace(WELL, status=503, says="The model is overloaded.")
CUT = replace(WELL, breaks_at=41)
LIMITED = replace(WELL, status=429, says="Too many requests.")


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider that is asked first does with its requests in turn; the last one for all that follow."""

    first: tuple[Behaviour, ...]
    other: Behaviour = SLOWER
    known: int = 0  # calls before it, which go well
    calls: int = 1
    every_s: float = 4.0  # between the beginnings of two calls
    nobody: bool = False  # nobody can answer: the client should be told
    first_token_s: float = FIRST_TOKEN_S

    def behaviour(self, number: int, *, is_first: bool) -> Behaviour:
        """Return what is done with a provider's request of this number, from 0."""
        return self.first[min(number, len(self.first) - 1)] if is_first else self.other


FAULTS: Mapping[str, Fault] = {
    "429 once, `retry-after: 2`": Fault(first=(replace(LIMITED, retry_after_s=2.0), WELL)),
    "429 once, without it": Fault(first=(LIMITED, WELL)),
    "429 for good": Fault(first=(LIMITED,)),
    "500 once": Fault(first=(replace(WELL, status=500, says="Internal error."), WELL)),
    "503 for good": Fault(first=(UNAVAILABLE,)),
    "a reset before the headers": Fault(first=(replace(WELL, refusal="disconnected"), WELL)),
    "silence": Fault(first=(HANGS,)),
    "silence, and 40 first tokens are known": Fault(first=(HANGS,), known=40, first_token_s=KNOWN_S),
    "the first token after 20 s": Fault(first=(replace(WELL, first_s=20.0),)),
    "cut at word 40": Fault(first=(CUT,)),
    "silence from word 20 on": Fault(first=(replace(WELL, stalls_at=21),)),
    "an event that is not JSON": Fault(first=(replace(WELL, lie="garbage"),)),
    "no `[DONE]`": Fault(first=(replace(WELL, done=False),)),
    "the prompt is too long": Fault(
        first=(replace(WELL, refusal="bad_request", says="This model's maximum context length is 4096 tokens."),)
    ),
    "a content filter": Fault(
        first=(replace(WELL, refusal="bad_request", says="The prompt was blocked by the content filter."),)
    ),
    "cut at word 40, and the other refuses a begun answer": Fault(first=(CUT,), other=replace(SLOWER, habit="refuses")),
    "503 for 60 s": Fault(
        first=(replace(UNAVAILABLE, recovers_s=60.0),), other=replace(WELL, first_s=0.58), known=20, calls=25
    ),
    "503 of all": Fault(first=(UNAVAILABLE,), other=UNAVAILABLE, nobody=True),
}
BACK_WITHIN_S = 30.0  # of its recovery the first choice answers again

# Setups: a model's settings, given its two deployments.


class Setup(msgspec.Struct, frozen=True):
    """How a model with two providers behind it is configured."""

    race: Mapping[str, Any]
    fallback: bool = False  # the second provider has another model, which is the first one's fallback
    takeover: bool = False

    def models(self, name: str, first: str, other: str) -> dict[str, Any]:
        """Return the models of a configuration; ``first`` and ``other`` are names of providers."""
        shared: dict[str, Any] = {"race": dict(self.race)}
        if self.takeover:
            shared["takeover"] = "always"
        deployments = [{"deployment": f"{each}/m", "continues": "prefix"} for each in (first, other)]
        if not self.fallback:
            return {name: {"deployments": deployments, **shared}}
        spare = f"{name}-spare"
        return {
            name: {"deployments": deployments[:1], "fallbacks": [spare], **shared},
            spare: {"deployments": deployments[1:], **shared},
        }


SETUPS: Mapping[str, Setup] = {
    "race of two": Setup({"mode": "race", "width": 2, "budget": 1}),
    "`single`": Setup({"mode": "single"}),
    "`fallbacks`": Setup({}, fallback=True),
    "race of two, `takeover`": Setup({"mode": "race", "width": 2, "budget": 1}, takeover=True),
    "`fallbacks`, `takeover`": Setup({}, fallback=True, takeover=True),
}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one call's client got. Seconds from its request."""

    status: int | None
    text: str
    is_whole: bool  # a finish reason, and [DONE]
    error: str | None  # its code
    ttft_s: float | None
    end_s: float | None  # None: it was not waited for
    pause_s: float = 0.0  # the longest in the text
    asked: int = 0  # requests to all providers
    asked_first: int = 0  # to the one that fails


class Verdict(msgspec.Struct, frozen=True):
    """pass, partial, safe or fail; and why."""

    word: str
    why: str = ""


def judged(fault: Fault, outcome: Outcome, texts: Collection[str]) -> Verdict:
    """Judge one call; ``texts`` are the right ones."""
    text_is_right = outcome.text in texts
    if outcome.end_s is None or outcome.end_s > LIMIT_S:
        return Verdict("fail", f"no end within {LIMIT_S:g} s")
    if outcome.is_whole and outcome.error is None:
        return _answered(fault, outcome) if text_is_right else Verdict("fail", "another text, and no error")
    if outcome.error is None:
        return Verdict("fail", "cut, and no error")
    if not any(each.startswith(outcome.text) for each in texts):
        return Verdict("fail", "a wrong text, and an error")
    if fault.nobody and outcome.end_s <= REFUSED_S and not outcome.text:
        return Verdict("pass")
    return Verdict("safe", f"an error, {outcome.error}")


def _answered(fault: Fault, outcome: Outcome) -> Verdict:
    assert outcome.ttft_s is not None
    if outcome.ttft_s > fault.first_token_s:
        return Verdict("partial", f"the first token after {outcome.ttft_s:.1f} s")
    if outcome.pause_s > STANDS_STILL_S:
        return Verdict("partial", f"stands still for {outcome.pause_s:.1f} s")
    if outcome.asked_first > MOST_ASKED:
        return Verdict("partial", f"{outcome.asked_first} requests to a provider that fails")
    return Verdict("pass")


def judged_in_turn(fault: Fault, outcomes: Sequence[Outcome], texts: Collection[str], back_s: float | None) -> Verdict:
    """Judge all calls of a fault; ``back_s``: how long after its recovery the first choice answered again."""
    verdicts = [judged(fault, each, texts) for each in outcomes]
    worst = max(verdicts, key=lambda each: ("pass", "partial", "safe", "fail").index(each.word))
    if worst.word != "pass" or fault.calls == 1:
        return worst
    if back_s is None or back_s > BACK_WITHIN_S:
        return Verdict("partial", "not back" if back_s is None else f"back after {back_s:.0f} s")
    return Verdict("pass", f"back after {back_s:.0f} s")
