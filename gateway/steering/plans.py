"""A plan and its launches: the result of the planner, which a race carries out."""

from collections.abc import Mapping

import msgspec

from gateway.attempt_records import Role
from gateway.calls import Mode
from gateway.steering.explanation import Explanation, Why
from gateway.steering.standings import Estimate


class Launch(msgspec.Struct, frozen=True):
    """An attempt that starts ``delay_s`` after the call began, unless the call is over by then."""

    deployment: str
    delay_s: float
    role: Role
    audited: bool = False  # watched after losing, so that its figures are not censored
    why: Why | None = None  # the rule behind it
    watch_s: float | None = None  # how long an audited loser is watched, since its launch; None: the default


class Plan(msgspec.Struct, frozen=True):
    """The launches of a race and its candidates for failover.

    Launches are ordered by delay. If one fails while no other runs, the next starts at once; after them the ``rest``
    follows, best first, as failovers. ``rescue_s`` is when a call without a token needs another attempt although the
    budget refused one: the race then starts its next candidate, refused launches first, as a failover; None if two may
    never run at once. Without launches, ``retry_after_s`` says when the first deployment may be used again.
    """

    launches: tuple[Launch, ...]
    rest: tuple[str, ...]
    mode: Mode  # as requested
    retry_after_s: float | None = None
    rescue_s: float | None = None
    tripped: frozenset[str] = frozenset()  # the broken ones of ``rest``: used last, after waiting for full ones
    # If first tokens may be held, the expected loss of each after its first token, seconds: under ``completion`` all
    # of its decoding, under ``reading`` the part that the reader waits for, under ``first_token`` its stalls. Empty if
    # they may not be held, or if all are 0: then the first token wins at once.
    decode_s: Mapping[str, float] = {}
    cost_usd: Mapping[str, float] = {}  # expected cost of a whole attempt at list price; only if dollars are limited
    answer_tokens: float = 0.0  # the expected length of the answer; only if the call is counted
    reasons: tuple[str, ...] = ()  # what is unusual about this plan, as text
    primary: Estimate | None = None  # of the first launch, if it ran alone
    explores: bool = False  # an attempt is launched to learn about its deployment
    explanation: Explanation | None = None  # on request
