"""The planner: who is launched for a call, and when. Pure: estimates, health, settings, randomness in, launches out."""

from collections.abc import Sequence
from random import Random

import msgspec

from gateway.calls import Mode, Role
from gateway.settings.model import RaceSettings
from gateway.steering.constants import (
    BURST_TOKENS,
    COLD_EVENTS,
    EXPLORE_SHARE,
    HEDGE_MAX_S,
    HEDGE_MIN_S,
    HEDGE_SHARE,
    NEAR,
    NEXT_AT_LATEST_S,
    RESCUE_FACTOR,
    RESCUE_MAX_S,
    RESCUE_MIN_S,
    SPREAD_EXPONENT,
)
from gateway.steering.health import Condition, State
from gateway.steering.standings import Estimate


class Launch(msgspec.Struct, frozen=True):
    """An attempt to start, ``delay_s`` after the call began, unless the call is over by then."""

    deployment: str
    delay_s: float
    role: Role


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
    reasons: tuple[str, ...] = ()  # what was unusual about this plan, for people


class Candidate(msgspec.Struct, frozen=True):
    """A deployment as the planner sees it."""

    deployment: str
    estimate: Estimate
    condition: Condition
    score_s: float  # predicted seconds, the price of its scarcity included; lower is better


def plan(
    candidates: Sequence[Candidate], race: RaceSettings, *, prompt_tokens: int, tokens: float, random: Random
) -> Plan:
    """Choose the launches of one call.

    ``candidates`` are the model's deployments, each once; ``prompt_tokens`` is an estimate; ``tokens`` is what the
    budget holds now (STEERING, section 1.3).
    """
    ready = [each for each in candidates if each.condition.state is State.OK]
    tripped = [each for each in candidates if each.condition.state in _TRIPPED]
    probe = next((each for each in candidates if each.condition.probe_due), None)
    if not ready:
        cooling = [each.condition.cooling_s for each in candidates if each.condition.state is State.COOLING]
        if not tripped and cooling:
            return Plan((), (), race.mode, retry_after_s=min(cooling), reasons=("all are cooling down",))
        ready, tripped, probe = tripped or list(candidates), [], None
        if not ready:
            return Plan((), (), race.mode)

    primary = _draw(ready, random)
    others = sorted((each for each in ready if each is not primary), key=_score)
    draft = _Draft(primary, others, race, random, long_prompt=prompt_tokens > race.max_prompt_tokens)
    rescue_s = None
    if race.mode is not Mode.SINGLE:
        if race.budget > 0:
            draft.add_second(probe, tokens)
            draft.add_late_and_raced(alone=len(candidates) == 1)
        rescue_s = draft.add_rescues()
    planned = {launch.deployment for launch in draft.launches}
    return Plan(
        tuple(sorted(draft.launches, key=_delay)),
        tuple(each.deployment for each in (*others, *sorted(tripped, key=_score)) if each.deployment not in planned),
        race.mode,
        rescue_s=rescue_s,
        reasons=tuple(draft.reasons),
    )


def _draw(ready: Sequence[Candidate], random: Random) -> Candidate:
    """Choose among the near-best: two draws, the better the likelier, and of these the one with less in flight.

    Replicas that see the same standings would otherwise all send to the same winner.
    """
    best_s = min(each.score_s for each in ready)
    near = [each for each in ready if each.score_s <= NEAR * best_s]
    if len(near) == 1:
        return near[0]
    first, second = random.choices(near, [(best_s / each.score_s) ** SPREAD_EXPONENT for each in near], k=2)
    return second if second.condition.in_flight < first.condition.in_flight else first


class _Draft:
    """A plan in the making: the primary, and who of the spare deployments is launched beside it."""

    def __init__(
        self, primary: Candidate, others: Sequence[Candidate], race: RaceSettings, random: Random, *, long_prompt: bool
    ) -> None:
        self.launches = [Launch(primary.deployment, 0.0, Role.PRIMARY)]
        self.reasons = ["long prompt: hedged"] if long_prompt else []
        self._primary = primary
        self._others = others
        self._spare = [each.deployment for each in others]  # not launched yet, best first
        self._race = race
        self._random = random
        self._long_prompt = long_prompt

    def add_second(self, probe: Candidate | None, tokens: float) -> None:
        """Fill the second slot, beside the primary from the start, with whom something is to be learned of.

        That is a broken deployment that may have recovered, now and then the least seen, or anyone when the primary is
        new. No user waits for them. All but the first stay away from long prompts: every attempt pays its prefill.
        """
        race, others, random = self._race, self._others, self._random
        if probe is not None:
            self._launch(probe.deployment, 0.0, Role.EXPLORE, "probe")
        elif self._long_prompt or not others or (race.mode is Mode.RACE and race.width > len(others)):
            return
        elif random.random() < EXPLORE_SHARE:
            least_seen = min(others, key=lambda each: each.estimate.events * (0.5 + random.random()))
            self._launch(least_seen.deployment, 0.0, Role.EXPLORE, "explore")
        elif race.mode is Mode.AUTO and self._primary.estimate.events < COLD_EVENTS and tokens >= BURST_TOKENS / 2:
            self._launch(others[0].deployment, 0.0, Role.RACE, "cold start")

    def add_late_and_raced(self, *, alone: bool) -> None:
        """Add hedges and racers, as many as the mode or the budget wants.

        A deployment ``alone`` at its model races itself only when asked to by mode: that cuts a slow tail too.
        """
        delays = self._delays_s()
        spare = [self._primary.deployment] * len(delays) if alone and self._race.mode is not Mode.AUTO else self._spare
        for deployment, delay_s in zip(tuple(spare), delays, strict=False):
            self._launch(deployment, delay_s, Role.HEDGE if delay_s > 0 or self._race.mode is Mode.HEDGE else Role.RACE)

    def add_rescues(self) -> float:
        """Let two spare ones stand by for a primary that hangs; return when the first of them starts, in seconds.

        A call in such trouble needs another attempt anyway, so they are not extra.
        """
        rescue_s = min(RESCUE_MAX_S, max(RESCUE_MIN_S, RESCUE_FACTOR * self._primary.estimate.q95_s))
        for number, deployment in enumerate(self._spare[:2], start=1):
            self._launch(deployment, min(NEXT_AT_LATEST_S, number * rescue_s), Role.FAILOVER)
        return rescue_s

    def _delays_s(self) -> list[float]:
        """Return when each further attempt starts."""
        race = self._race
        share = min(race.budget, HEDGE_SHARE)
        late_s = min(HEDGE_MAX_S, max(HEDGE_MIN_S, self._primary.estimate.curve.quantile_s(1.0 - share)))
        if race.mode is Mode.HEDGE:
            asked_s = late_s if race.hedge_delay_s is None else race.hedge_delay_s
            return [max(asked_s, late_s) if self._long_prompt else asked_s]
        if self._long_prompt:
            return [late_s]
        if race.mode is Mode.RACE:
            return [0.0] * (race.width - len(self.launches))
        # A tenth of an attempt per call pays for hedges; what the budget holds above that buys races at t = 0. Above
        # one attempt per call they get wider.
        delays = [0.0 if self._random.random() < (race.budget - HEDGE_SHARE) / (1.0 - HEDGE_SHARE) else late_s]
        beyond = race.budget - 1.0
        while beyond > 0:
            if beyond >= 1 or self._random.random() < beyond:
                delays.append(0.0)
            beyond -= 1.0
        return delays

    def _launch(self, deployment: str, delay_s: float, role: Role, reason: str | None = None) -> None:
        self.launches.append(Launch(deployment, delay_s, role))
        if deployment in self._spare:
            self._spare.remove(deployment)
        if reason is not None:
            self.reasons.append(reason)


def _score(candidate: Candidate) -> float:
    return candidate.score_s


def _delay(launch: Launch) -> float:
    return launch.delay_s


_TRIPPED = frozenset({State.OPEN, State.HALF_OPEN})
