"""What the planner decides and a race carries out: a plan, and the launches in it."""

from collections.abc import Mapping

import msgspec

from gateway.attempt_records import Role
from gateway.calls import Mode
from gateway.steering.explanation import Explanation, Why
from gateway.steering.standings import Estimate


class Launch(msgspec.Struct, frozen=True):
    """An attempt to start, ``delay_s`` after the call began, unless the call is over by then."""

    deployment: str
    delay_s: float
    role: Role
    audited: bool = False  # a loser is watched a little longer, so that its figures are not censored
    why: Why | None = None  # the rule behind it
    watch_s: float | None = None  # since its launch, a loser that is audited; None: as long as any


class Plan(msgspec.Struct, frozen=True):
    """What a race carries out.

    Launches are in the order of their delays. When one fails with nothing else running, the next comes forward at once;
    after them the ``rest`` follow, best first, as failovers. ``rescue_s`` says when a call without a token needs
    another attempt although the budget refused one: the race then starts its next candidate, refused launches first, as
    a failover; None when two may never run at once. Without launches ``retry_after_s`` says when the first of the
    deployments may be asked again.
    """

    launches: tuple[Launch, ...]
    rest: tuple[str, ...]
    mode: Mode  # as asked for
    retry_after_s: float | None = None
    rescue_s: float | None = None
    tripped: frozenset[str] = frozenset()  # of ``rest``, the broken: asked last, after waiting for who is only full
    # What each should cost its reader after its first token, seconds: under ``completion`` all of its decoding, under
    # ``reading`` what of it one has to wait for, under ``first_token`` its stalls; empty where all of that is nothing.
    decode_s: Mapping[str, float] = {}
    cost_usd: Mapping[str, float] = {}  # what a whole attempt should cost at list price; only where dollars are limited
    reasons: tuple[str, ...] = ()  # what was unusual about this plan, for people
    primary: Estimate | None = None  # of the first launch: what it would take alone
    explores: bool = False  # somebody is launched to learn of them
    explanation: Explanation | None = None  # on request
