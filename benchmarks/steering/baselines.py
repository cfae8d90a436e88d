"""What others do: the policies of other gateways and of the literature, as fair as their idea allows.

All of them leave a deployment alone for 5 s after it failed, or as long as its 429 asks, fail over at once on errors,
and start another attempt after 15 s without a token. In flight and cooling down is
what each replica sees itself; averages of winners are shared, as LiteLLM shares them through Redis.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from math import exp, inf
from random import Random

from benchmarks.steering.policy import Policy
from benchmarks.steering.timeline import Timeline
from benchmarks.steering.traffic import Request
from gateway.core.attempts import AttemptRecord, AttemptStart, Outcome, Role
from gateway.core.calls import Mode, Objective
from gateway.steering import Launch, Plan

COOL_S = 5.0  # LiteLLM's default after a failure
SILENCE_S = 15.0
EWMA_WEIGHT = 0.2  # of the newest sample
PEAK_TAU_S = 10.0  # Finagle's and Envoy's decay
HEDGE_QUANTILE, HEDGE_SHARE = 0.75, 0.4  # SingleR: 0.25 of the calls are later than that, 0.4 of them are hedged
RECENT = 500  # samples its quantile is taken from
_BROKE = frozenset({Outcome.FAILED, Outcome.TIMEOUT})


class Baseline(Policy):
    """A policy that knows who is cooling down, who is in flight, and how to make a plan out of an order."""

    def __init__(self, timeline: Timeline, random: Random, objective: Objective, shared: dict[str, float]) -> None:
        self.shared = shared  # among replicas
        self.random = random
        self.objective = objective
        self.timeline = timeline
        self.in_flight: dict[str, int] = {}
        self._cooling_until_s: dict[str, float] = {}

    def order(self, names: list[str]) -> list[str]:
        """Return ``names``, never empty, the preferred first."""
        raise NotImplementedError

    def extras(self, order: list[str]) -> list[Launch]:  # noqa: ARG002 - for those who race
        """Return the launches beside the first."""
        return []

    def observe(self, attempt: AttemptRecord, seconds: float) -> None:
        """Take the figure of an attempt that answered: its TTFT, or under ``completion`` its whole time."""

    def plan(self, request: Request, names: Sequence[str]) -> Plan:  # noqa: ARG002 - the Policy's signature
        """Order those that are well; the others come last."""
        now_s = self.timeline.now_s
        well = [name for name in names if self._cooling_until_s.get(name, 0.0) <= now_s]
        order = self.order(well or list(names))
        launches = [Launch(order[0], 0.0, Role.PRIMARY), *self.extras(order)]
        launched = {launch.deployment for launch in launches}
        spare = [name for name in order if name not in launched]
        late = [Launch(name, SILENCE_S * number, Role.FAILOVER) for number, name in enumerate(spare[:2], start=1)]
        rest = [name for name in (*spare[2:], *names) if name not in launched and name not in spare[:2]]
        return Plan(
            tuple(sorted((*launches, *late), key=lambda launch: launch.delay_s)), tuple(dict.fromkeys(rest)), Mode.AUTO
        )

    def attempt_started(self, start: AttemptStart) -> None:
        self.in_flight[start.deployment] = self.in_flight.get(start.deployment, 0) + 1

    def attempt_ended(self, request: Request, attempt: AttemptRecord) -> None:  # noqa: ARG002 - the Policy's signature
        """Learn from a winner, and leave alone who failed."""
        self.in_flight[attempt.deployment] -= 1
        if attempt.outcome in _BROKE:
            cool_s = max(COOL_S, attempt.retry_after_s or 0.0)
            self._cooling_until_s[attempt.deployment] = self.timeline.now_s + cool_s
        elif attempt.outcome is Outcome.WON:
            whole = self.objective is Objective.COMPLETION
            millis = attempt.last_token_ms if whole else attempt.ttft_ms
            self.observe(attempt, (millis or 0.0) / 1000)


class Uniform(Baseline):
    """Anyone."""

    def order(self, names: list[str]) -> list[str]:
        return self.random.sample(names, len(names))


class RoundRobin(Baseline):
    """One after the other."""

    _turn = 0

    def order(self, names: list[str]) -> list[str]:
        self._turn += 1
        at = self._turn % len(names)
        return [*names[at:], *names[:at]]


class LowestEwma(Baseline):
    """Whoever's winners were fastest lately; the unknown first. LiteLLM's latency-based routing."""

    def order(self, names: list[str]) -> list[str]:
        return sorted(names, key=lambda name: (self.shared.get(name, 0.0), self.random.random()))

    def observe(self, attempt: AttemptRecord, seconds: float) -> None:
        before_s = self.shared.get(attempt.deployment, seconds)
        self.shared[attempt.deployment] = before_s + EWMA_WEIGHT * (seconds - before_s)


class RaceTwo(LowestEwma):
    """The two whose winners were fastest lately, always."""

    def extras(self, order: list[str]) -> list[Launch]:
        return [Launch(name, 0.0, Role.RACE) for name in order[1:2]]


class RaceAll(Uniform):
    """Everybody, always."""

    def extras(self, order: list[str]) -> list[Launch]:
        return [Launch(name, 0.0, Role.RACE) for name in order[1:]]


class PeakEwma(Baseline):
    """Two at random, of these the one with the lower peak-sensitive average times its load. Envoy, Finagle, Helicone.

    Jumps to a peak at once, and forgets it over ten seconds.
    """

    def __init__(self, timeline: Timeline, random: Random, objective: Objective, shared: dict[str, float]) -> None:
        super().__init__(timeline, random, objective, shared)
        self._peaks: dict[str, tuple[float, float]] = {}  # seconds, as of when

    def order(self, names: list[str]) -> list[str]:
        """Draw two; the rest follows in random order."""
        drawn = self.random.sample(names, len(names))
        first, second = sorted(drawn[:2], key=self._cost_s) if len(drawn) > 1 else (drawn[0], None)
        return [first, *([second] if second is not None else []), *drawn[2:]]

    def observe(self, attempt: AttemptRecord, seconds: float) -> None:
        now_s = self.timeline.now_s
        before_s, at_s = self._peaks.get(attempt.deployment, (0.0, -inf))
        keep = exp((at_s - now_s) / PEAK_TAU_S)
        value_s = seconds if seconds > before_s else keep * before_s + (1 - keep) * seconds
        self._peaks[attempt.deployment] = (value_s, now_s)

    def _cost_s(self, name: str) -> float:
        value_s, _ = self._peaks.get(name, (0.0, 0.0))
        return value_s * (1 + self.in_flight.get(name, 0))


class SingleR(PeakEwma):
    """Peak-EWMA, and a second attempt at a fixed quantile for a fixed share (Kaler, He and Elnikety 2017)."""

    def __init__(self, timeline: Timeline, random: Random, objective: Objective, shared: dict[str, float]) -> None:
        super().__init__(timeline, random, objective, shared)
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._delay_s = 1.0
        self._seen = 0

    def extras(self, order: list[str]) -> list[Launch]:
        hedged = self.random.random() < HEDGE_SHARE
        return [Launch(name, self._delay_s, Role.HEDGE) for name in order[1:2]] if hedged else []

    def observe(self, attempt: AttemptRecord, seconds: float) -> None:
        """Learn the quantile too, of the calls' times to first token."""
        super().observe(attempt, seconds)
        self._recent.append(((attempt.ttft_ms or 0.0) + attempt.launch_offset_ms) / 1000)
        self._seen += 1
        if self._seen % 20 == 0:
            self._delay_s = sorted(self._recent)[int(HEDGE_QUANTILE * len(self._recent))]


BASELINES: Mapping[str, type[Baseline]] = {
    "random": Uniform,
    "round robin": RoundRobin,
    "lowest EWMA": LowestEwma,
    "peak EWMA": PeakEwma,
    "SingleR": SingleR,
    "race two": RaceTwo,
    "race all": RaceAll,
}
