"""An explanation: a plan with every number behind it and the reason for each launch, for the person who pays.

Times are seconds, money is US dollars; a figure that is not known, or never reached, is None. Every record becomes
JSON by ``msgspec.json.encode`` or ``msgspec.to_builtins``.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from gateway.attempt_records import Role
from gateway.calls import Mode, Objective


class Why(StrEnum):
    """The rule behind a launch."""

    DRAWN = "drawn"  # the primary
    CANARY = "canary"  # the primary, for its share of the calls
    CACHE_WARM = "cache warm"  # the primary: of those near the best it should hold most of the prompt in its cache
    RENDEZVOUS = "rendezvous"  # the primary: its first bytes choose it, in every replica
    FLAWED = "flawed"  # the primary: its answers failed more often than its peers', and may be good again
    PROBE = "probe"  # broken or out, may have recovered
    EXPLORE = "explore"  # not asked for longest
    SUSPECT = "suspect"  # slower lately than usual, which may be over
    COLD_START = "cold start"  # the primary is new
    WIDTH = "width"  # mode race
    BUDGET = "budget"  # the share of calls that is raced
    LATE = "late"  # hedge at the primary's quantile
    CROWDED = "crowded"  # would be raced, but has too much in flight
    BILLED = "billed"  # would be raced, but dollars are limited, and the loser would be billed in full
    ASKED_DELAY = "asked delay"  # hedge at hedge_delay_s
    DEADLINE = "deadline"  # the last instant at which it can still keep ttft_ms
    RESCUE = "rescue"  # the primary hangs


class Start(msgspec.Struct, frozen=True):
    """One launch of the plan."""

    deployment: str
    delay_s: float  # after the call began
    role: Role
    audited: bool  # watched beyond the claim if it loses
    extra: bool  # draws on the budget when it starts
    why: str


class Prospect(msgspec.Struct, frozen=True, kw_only=True):
    """One deployment as the policy sees it for this call."""

    deployment: str
    state: str  # "ok", "cooling", "open", "half-open", "out"
    events: float  # first tokens seen lately with such prompts; older ones count less
    ttft_mean_s: float  # predicted for an attempt; whatever is beyond 30 s counts as 30 s
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    error_rate: float  # chance that the next attempt fails
    decode_tps: float  # predicted tokens per second after the first
    decode_s: float  # predicted time from the first to the last token of this answer
    stall_s: float = 0.0  # predicted silence within the answer, beyond what is usual
    after_s: float = 0.0  # of the score, what comes after the first token
    input_usd_per_mtok: float | None
    output_usd_per_mtok: float | None
    cost_usd: float | None  # of this call if it is answered here
    scarcity_s: float  # added to the score by recent 429s
    headroom: float  # 0 to 1: what its rate limit leaves; 1 when it says nothing
    crowding: float  # what the load there multiplies ttft_mean_s by in the score; 1: nobody queues
    in_flight: int  # attempts of this replica under way
    max_in_flight: int | None
    weight: float | None  # its chances against others about as fast; None: as everybody's, 1
    canary: float | None  # the share of calls it is given if it is a canary
    held_bytes: int | None  # of the prompt, that its provider's cache should hold, where that saves something
    score_s: float  # what is compared; lower is better
    passed_over: str | None  # why it is asked after the others, whatever its score
    near: bool  # near enough to the best to be drawn as the primary, warm caches aside
    draw: float  # probability of becoming the primary
    # Whether its vendor bills a whole answer although one hung up, as a race does to losers; None: not known.
    bills_after_disconnect: bool | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A plan and what led to it."""

    objective: Objective
    mode: Mode
    prompt_tokens: int  # estimated
    answer_tokens: float  # expected
    reading_tok_s: float | None = None  # objective reading: how fast the answer is read
    ttft_ms: float | None  # what the call asks for
    min_tok_s: float | None
    budget: float  # extra attempts per call
    budget_tokens: float  # extra attempts saved up now
    extra_usd_per_call: float | None = None  # what extra attempts may cost per call,
    budget_usd: float | None = None  # and what of it is saved up now
    cost_alone_usd: float | None = None  # of the call, if the primary runs alone
    # With every extra launch, each as dear as a whole answer, times the chance that it starts.
    cost_expected_usd: float | None = None
    deployments: tuple[Prospect, ...]  # the primary's place is drawn among the first
    excluded: Mapping[str, str] = {}  # deployments that may not run for this call, and why
    launches: tuple[Start, ...]
    rest: tuple[str, ...]  # who follows, one after the other, when all of them fail
    retry_after_s: float | None  # nobody is launched: when to come back
    notes: tuple[str, ...]  # what is unusual about this plan
