"""A plan and its launches: the planner's result, which a race carries out."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from gateway.core.attempts import Narrowed, Role
from gateway.core.calls import Mode, Objective
from gateway.core.prompt_classes import Effort
from gateway.steering.constants import IN_TIME_QUANTILE, LATE_HANGING, LATE_UNKNOWN_S
from gateway.steering.estimates import Estimate

# An explanation: a plan with all its numbers and the reason for each launch, for the operator. Times are seconds, money
# is US dollars; a figure that is unknown or never reached is None. ``msgspec.json.encode`` or ``msgspec.to_builtins``
# converts every record to JSON.


class Why(StrEnum):
    """The rule behind a launch."""

    DRAWN = "drawn"  # the primary
    CANARY = "canary"  # the primary, for its share of the calls
    CACHE_WARM = "cache warm"  # the primary: near the best, and most of the prompt should be in its cache
    ORDERED = "ordered"  # the primary: the request says who is asked first
    MADE = "made"  # the primary: the maker of what the conversation goes on from
    RENDEZVOUS = "rendezvous"  # the primary: selected by the prompt's first bytes, the same in every replica
    FLAWED = "flawed"  # the primary: its answers had more flaws than those of its peers, and may be good again
    TRIAL = "trial"  # the primary: broken, and not probed for so long that one call has to try it
    PROBE = "probe"  # broken or out, may have recovered
    EXPLORE = "explore"  # the deployment used longest ago
    BACK = "back"  # under ``single``: usually better than the primary, and lately slower
    COLD_START = "cold start"  # the primary is new
    WIDTH = "width"  # mode race
    BUDGET = "budget"  # the share of calls that is raced
    VALUE = "value"  # the seconds that this should save are worth more than the cost
    LATE = "late"  # hedge at the primary's quantile
    SLOWER = "slower"  # would be raced, but the answer there is slower, so the call should lose by that
    WORTH = "worth"  # would be raced, but should save less than ``worth_ms``
    BILLED = "billed"  # would be raced, but dollars are limited and the loser is billed in full
    ASKED_DELAY = "asked delay"  # hedge at hedge_delay_s
    DEADLINE = "deadline"  # the latest start that can still keep ttft_ms
    RESCUE = "rescue"  # the primary hangs
    FALLBACK = "fallback"  # the primary of another model, which runs beside a model that is late


class Start(msgspec.Struct, frozen=True):
    """One launch of the plan."""

    deployment: str
    delay_s: float  # after the call began
    role: Role
    audited: bool  # a loser's first token is awaited
    extra: bool  # starts beside another attempt, if that still runs
    why: str


class Prospect(msgspec.Struct, frozen=True, kw_only=True):
    """One deployment as the policy sees it for this call."""

    deployment: str
    state: str  # "ok", "failing", "cooling", "open", "half-open", "out"
    events: float  # recent first tokens with such prompts; older ones count less
    ttft_mean_s: float  # predicted for an attempt; times above 30 s count as 30 s
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    error_rate: float  # probability that the next attempt fails
    decode_tps: float  # predicted tokens per second after the first
    decode_s: float  # predicted time from the first to the last token of this answer
    stall_s: float = 0.0  # predicted silence within the answer, beyond the usual
    after_s: float = 0.0  # the part of the score after the first token
    input_usd_per_mtok: float | None
    output_usd_per_mtok: float | None
    cost_usd: float | None  # of this call, if the deployment answers
    scarcity_s: float  # added to the score by recent 429s
    headroom: float  # 0 to 1: the unused part of the rate limit; 1 if unknown
    crowding: float  # the factor on ttft_mean_s for the load there; 1: no queue
    in_flight: int  # running attempts of this replica
    max_in_flight: int | None
    weight: float | None  # the chance against others that are about as fast; None: 1, as for all
    canary: float | None  # the share of calls of a canary
    held_bytes: int | None  # bytes of the prompt that should be in the provider's cache, if that saves something
    score_s: float  # the compared figure; lower is better
    passed_over: str | None  # why the deployment comes after the others, whatever its score
    near: bool  # near enough to the best to become the primary, apart from caches
    draw: float  # probability of becoming the primary
    # Whether the vendor bills a loser's whole answer after the disconnect; None: unknown.
    bills_after_disconnect: bool | None = None
    tier: str | None = None  # the tier of service that the deployment asks for; None: the call decides


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A plan and its reasons."""

    objective: Objective
    mode: Mode
    prompt_tokens: int  # estimated
    answer_tokens: float  # expected
    effort: Effort | None = None  # to think, as the request says; figures are of such calls once ten are known
    hold: bool = False  # whether a first token may be held back for an attempt that should give the answer sooner
    spoken: bool = False  # whether the first clause wins, and not the first token
    reading_tok_s: float | None = None  # for the objective reading: how fast the answer is read
    ttft_ms: float | None  # the call's target
    min_tok_s: float | None
    budget: float  # extra attempts per call
    budget_tokens: float  # extra attempts saved so far
    value_usd_per_s: float | None = None  # what a second is worth, if a value is set
    extra_usd_per_call: float | None = None  # maximum cost of extra attempts per call
    budget_usd: float | None = None  # dollars saved so far
    cost_alone_usd: float | None = None  # of the call, if the primary runs alone
    # With every extra launch, counted as a whole answer times its probability.
    cost_expected_usd: float | None = None
    deployments: tuple[Prospect, ...]  # the primary is drawn among the first
    excluded: Mapping[str, str] = {}  # deployments that may not run for this call, with reasons
    launches: tuple[Start, ...]
    rest: tuple[str, ...]  # the order of failover
    retry_after_s: float | None  # no launches: when to try again
    notes: tuple[str, ...]  # what is unusual about this plan
    width_asked: int = 1  # attempts that mode, width and budget would start with the call if nothing stood in the way
    narrowed: Narrowed | None = None  # what stands in the way; None: nothing
    late_s: float | None = None  # after so long the first token is late, and the fallback is asked too
    fallback: str | None = None  # the model that is asked then, if the call may fall back


class Speaking(msgspec.Struct, frozen=True):
    """When a launch is due if an attempt has begun to speak: the first clause mostly comes soon."""

    at_s: float  # after the call began, at the soonest
    after_s: float  # after the attempt that began last


class Launch(msgspec.Struct, frozen=True):
    """An attempt that starts ``delay_s`` after the call began, unless the call is over by then."""

    deployment: str
    delay_s: float
    role: Role
    audited: bool = False  # watched after losing, so that the deployment's figures are not censored
    why: Why | None = None  # the rule behind the launch
    watch_s: float | None = None  # how long an audited loser is watched, since the launch; None: the default
    weight: float = 1.0  # what a first token counts as, if the deployment is as usual again
    speaking: Speaking | None = None  # None: whether anybody speaks matters not

    @classmethod
    def to_compare(cls, deployment: str) -> "Launch":
        """Return a further attempt that only compares answers: those of its deployment with others'."""
        return cls(deployment, 0.0, Role.EXPLORE)


class Offer(msgspec.Struct, frozen=True, gc=False):
    """A possible further attempt. Seconds and dollars are means over the calls in which the attempt starts."""

    deployment: str
    delay_s: float
    starts: float  # the share of calls in which this starts: the primary has no first token by then
    saved_s: float
    usd: float


class Plan(msgspec.Struct, frozen=True):
    """The launches of a race and its candidates for failover.

    Launches are ordered by delay. If one fails while no other runs, the next starts at once. After the launches the
    ``rest`` follows, best first, as failovers. ``rescue_s``: when a call without a token needs another attempt though
    the budget refused one. The race then starts its next candidate, refused launches first, as a failover. None: two
    attempts may never run at once. ``retry_after_s``: without launches, when the first deployment may be used again.
    ``free_in_s``: when the first deployment is free of those whose providers have said when; None if none has.
    """

    launches: tuple[Launch, ...]
    rest: tuple[str, ...]
    mode: Mode  # as requested
    rescue_s: float | None = None
    retry_after_s: float | None = None
    free_in_s: float | None = None
    tripped: frozenset[str] = frozenset()  # the broken ones of ``rest``: used last, after waiting for full ones
    # If first tokens may be held: the expected loss of each deployment after its first token, in seconds. Under
    # ``completion`` all of the decoding, under ``reading`` the part that the reader waits for, under ``first_token``
    # the stalls. Empty if first tokens may not be held, or if all are 0: then the first token wins at once.
    decode_s: Mapping[str, float] = {}
    cost_usd: Mapping[str, float] = {}  # expected cost of a whole attempt at list price; only if dollars are limited
    cached: Mapping[str, int] | None = None  # deployment → tokens of the prompt that should be in its cache
    answer_tokens: float = 0.0  # the expected length of the answer; only if the call is counted
    reasons: tuple[str, ...] = ()  # what is unusual about this plan, as text
    primary: Estimate | None = None  # of the first launch, if it ran alone
    hanging: int = 0  # primaries at the deployment that another model has overtaken, and that are still silent
    explores: bool = False  # an attempt is launched to measure a deployment
    offer: Offer | None = None  # the further attempt that is worth its cost, if seconds have a value
    explanation: Explanation | None = None  # on request
    # What the best further attempt would save from the start, and the floor that the saving does not reach; seconds.
    worth_s: tuple[float, float] | None = None
    # What mode, width and budget would launch at the start if nothing stood in the way; and what stood in the way,
    # None: nothing. A hedge that is not yet due is not narrowed.
    width_asked: int = 1  # 0: such calls are never raced
    narrowed: Narrowed | None = None
    withheld: Launch | None = None  # a hedge that would be due then, if a deployment were left
    withheld_by: Narrowed | None = None  # why no deployment is left

    @property
    def is_known(self) -> bool:
        """Whether enough first tokens of the primary were seen to know when one is late."""
        return self.primary is not None and self.primary.is_known

    @property
    def mostly_s(self) -> float:
        """By when three of four of the primary's first tokens come, seconds after the start; 0 if unknown."""
        return 0.0 if self.primary is None or not self.is_known else self.primary.quantile_s(IN_TIME_QUANTILE)

    @property
    def late_s(self) -> float:
        """When another model is asked too, as this one's first token is late: seconds after the start.

        Sooner if the only deployment has never answered, and several calls still hang there that another model has
        answered since. A deployment that only thinks for long answers the first of these calls, and then counts as
        before.
        """
        if self.primary is None:
            return LATE_UNKNOWN_S
        if self.hanging and self.primary.is_unheard and not self.rest and len(self.launches) == 1:
            return self.primary.overdue_s / min(self.hanging, LATE_HANGING)
        return self.primary.overdue_s

    @classmethod
    def at(cls, deployment: str) -> "Plan":
        """Return a plan of one attempt at ``deployment``, with nothing after it."""
        return cls((Launch(deployment, 0.0, Role.PRIMARY),), (), Mode.SINGLE)

    def continued(self, launch: Launch) -> "Plan":
        """Return a plan of a model that only continues another's answer, by this ``launch``."""
        return msgspec.structs.replace(self, launches=(launch,))

    def asking_last(self, last: Iterable[str]) -> "Plan":
        """Return the plan with the deployments ``last`` after all others."""
        return msgspec.structs.replace(self, rest=(*self.rest, *last))

    def in_another_form(self, deployment: str) -> "Plan":
        """Return a plan that asks this deployment alone once more, in another form."""
        again = Launch(deployment, 0.0, Role.FORM)
        return msgspec.structs.replace(self, launches=(again,), rest=(), rescue_s=None, withheld=None)
