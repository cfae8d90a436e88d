"""How often intervals hold the truth, and how often verdicts are false, over many small benches without waiting."""

from collections.abc import Mapping
from itertools import combinations
from math import exp, log
from random import Random
from statistics import fmean

import msgspec

from gateway.bench import BenchPlan, BenchSample, Contender, Key, TokenLengths, read_goal
from gateway.bench.figures import Draws, cells
from gateway.bench.plan import turns
from gateway.bench.verdicts import verdicts
from providers.simulator import Fate, Persona

_PROMPT_TOKENS = 400
_MS = 1000.0
DRAWS = 500  # of each interval; a real bench takes more
_MANY = 60_000
_SEEDS = 1009
_QUANTILES = (
    ("ttft_p50_ms", "ttft_ms", 0.5),
    ("ttft_p95_ms", "ttft_ms", 0.95),
    ("decode_tps_p50", "decode_tps", 0.5),
    ("decode_tps_p05", "decode_tps", 0.05),
    ("e2e_tps_p50", "e2e_tps", 0.5),
    ("gap_p95_ms", "itl_max_ms", 0.95),
    ("total_p50_ms", "total_ms", 0.5),
    ("total_p95_ms", "total_ms", 0.95),
)
_LOGS = {"ttft": "ttft_ms", "decode_tps": "decode_tps", "total": "total_ms"}


class World(msgspec.Struct, frozen=True):
    """The providers of a bench. ``mood``: sigma of a factor on all first tokens of a provider within one round."""

    name: str
    personas: tuple[Persona, ...]
    mood: float = 0.0
    tokens: int = 40

    def plan(self, rounds: int, seed: int, *, at_a_time: int = 2) -> BenchPlan:
        """Return a plan with one class of prompts."""
        return BenchPlan(
            seed=seed,
            contenders=tuple(Contender(name=persona.name, model="m") for persona in self.personas),
            kinds=("short",),
            concurrencies=(at_a_time,),
            rounds=rounds,
            warm_up=0,
            lengths=TokenLengths(),
            goal=read_goal("ttft<400ms,tps>60"),
        )

    def samples(self, plan: BenchPlan, seed: int) -> list[BenchSample]:
        """Return what a bench would have measured."""
        random = Random(f"samples/{seed}")
        personas = {persona.name: persona for persona in self.personas}
        drawn: list[BenchSample] = []
        for round_ in range(plan.rounds):
            for turn in turns(plan, round_):
                mood = exp(random.gauss(0.0, self.mood)) if self.mood else 1.0
                drawn += (self.sample(personas[key.deployment], key, mood, random) for key in turn.keys)
        return drawn

    def sample(self, persona: Persona, key: Key, mood: float, random: Random) -> BenchSample:
        """Draw one answer."""
        run = persona.draw(random, _PROMPT_TOKENS)
        ttft_ms = run.ttft_s * mood * _MS
        if run.fate is not Fate.ANSWER:
            return BenchSample(key=key, sitting=0, began_s=0.0, ended_ms=ttft_ms, error_kind="server_error")
        gaps_ms = sorted(persona.gap_s(random, run.decode_tps) * _MS for _ in range(self.tokens - 1))
        decoding_ms = sum(gaps_ms)
        total_ms = ttft_ms + decoding_ms
        return BenchSample(
            key=key,
            sitting=0,
            began_s=0.0,
            ended_ms=total_ms,
            total_ms=total_ms,
            ttft_ms=ttft_ms,
            ttft_answer_ms=ttft_ms,
            decode_tps=(self.tokens - 1) * _MS / decoding_ms,
            e2e_tps=self.tokens * _MS / total_ms,
            itl_p50_ms=gaps_ms[len(gaps_ms) // 2],
            itl_p95_ms=gaps_ms[int(len(gaps_ms) * 0.95)],
            itl_max_ms=gaps_ms[-1],
            prompt_tokens=_PROMPT_TOKENS,
            completion_tokens=self.tokens,
            cost_usd=1e-6 * self.tokens * persona.output_usd_per_mtok,
        )

    def many(self, persona: Persona, number: int, seed: int) -> list[BenchSample]:
        """Draw so many answers of one provider that their figures are nearly the truth."""
        random = Random(f"truth/{seed}/{persona.name}")
        key = Key(0, 1, persona.name, "short", 0)
        return [
            self.sample(persona, key, exp(random.gauss(0.0, self.mood)) if self.mood else 1.0, random)
            for _ in range(number)
        ]


class Tally(msgspec.Struct):
    """How many intervals of one figure there were, and how many held the truth."""

    number: int = 0
    held: int = 0

    def add(self, truth: float, low: float | None, high: float | None) -> None:
        """Count an interval; one that is not given says nothing."""
        if low is None or high is None:
            return
        self.number += 1
        self.held += low - 1e-12 <= truth <= high + 1e-12


class Verdicts(msgspec.Struct):
    """How many comparisons there were, how many showed a difference, and how many of these are the wrong way round."""

    comparisons: int = 0
    shown: int = 0
    wrong: int = 0
    benches_that_show: int = 0


class Coverage(msgspec.Struct):
    """What many benches of one world have shown."""

    figures: dict[str, Tally] = {}
    together: Verdicts = msgspec.field(default_factory=Verdicts)


class Truth(msgspec.Struct, frozen=True):
    """The true figures of a world."""

    figures: Mapping[tuple[str, str], float]  # by deployment and figure
    differences: Mapping[tuple[str, str, str], float]  # by aspect and the two deployments: how much less b has


def truth_of(world: World, seed: int = 0, number: int = _MANY) -> Truth:
    """Return the truth, from very many draws."""
    drawn = {persona.name: world.many(persona, number, seed) for persona in world.personas}
    plan = world.plan(1, 0)
    assert plan.goal is not None
    figures: dict[tuple[str, str], float] = {}
    means: dict[tuple[str, str], float] = {}
    for name, samples in drawn.items():
        whole = [sample for sample in samples if sample.error_kind is None]
        for figure, field, share in _QUANTILES:
            values = sorted(value for sample in whole if (value := getattr(sample, field)) is not None)
            figures[name, figure] = values[round((len(values) - 1) * share)]
        figures[name, "errors"] = 1.0 - len(whole) / len(samples)
        figures[name, "goodput"] = fmean(plan.goal.met(sample) is True for sample in samples)
        for aspect, field in _LOGS.items():
            means[name, aspect] = fmean(log(getattr(sample, field)) for sample in whole)
        means[name, "errors"], means[name, "goodput"] = figures[name, "errors"], figures[name, "goodput"]
    differences = {
        (aspect, a, b): means[a, aspect] - means[b, aspect]
        for a, b in combinations(drawn, 2)
        for aspect in (*_LOGS, "errors", "goodput")
    }
    return Truth(figures, differences)


def run(world: World, truth: Truth, *, rounds: int, benches: int, seed: int = 0) -> Coverage:
    """Run ``benches`` benches of ``rounds`` rounds; return how their intervals and verdicts did."""
    coverage = Coverage()
    for number in range(benches):
        own = (seed + number) * _SEEDS + rounds
        plan = world.plan(rounds, own)
        samples = world.samples(plan, own)
        draws = Draws(range(rounds), own, DRAWS)
        _count_figures(coverage, plan, samples, draws, truth)
        _count_verdicts(coverage, plan, samples, draws, truth)
    return coverage


def _count_figures(coverage: Coverage, plan: BenchPlan, samples: list[BenchSample], draws: Draws, truth: Truth) -> None:
    for cell in cells(plan, samples, draws):
        for name, estimate in cell.figures.items():
            known = truth.figures.get((cell.deployment, name))
            if known is not None:
                coverage.figures.setdefault(name, Tally()).add(known, estimate.low, estimate.high)


def _count_verdicts(
    coverage: Coverage, plan: BenchPlan, samples: list[BenchSample], draws: Draws, truth: Truth
) -> None:
    shown = 0
    for verdict in verdicts(plan, samples, draws):
        if verdict.aspect not in (*_LOGS, "errors", "goodput"):
            continue
        known = truth.differences.get((verdict.aspect, verdict.a, verdict.b))
        difference = known if known is not None else -truth.differences[verdict.aspect, verdict.b, verdict.a]
        less_is_better = verdict.aspect in ("ttft", "total", "errors")
        real = _as_share(verdict.aspect, difference, less_is_better=less_is_better)
        low, high = verdict.difference.low, verdict.difference.high
        coverage.figures.setdefault(f"verdict: {verdict.aspect}", Tally()).add(real, low, high)
        coverage.together.comparisons += 1
        coverage.together.shown += verdict.is_shown
        coverage.together.wrong += verdict.is_shown and real <= 0.0
        shown += verdict.is_shown
    coverage.together.benches_that_show += shown > 0


def _as_share(aspect: str, difference: float, *, less_is_better: bool) -> float:
    """Return by how much a is better than b, in the form of a verdict."""
    if aspect in ("errors", "goodput"):
        return -difference if less_is_better else difference
    return 1.0 - exp(difference) if less_is_better else exp(difference) - 1.0


# A fast first token; hardly ever late; very fast decoding after an unpredictable first token.
_SWIFT = Persona(
    name="swift",
    ttft_median_s=0.16,
    ttft_sigma=0.35,
    tail_share=0.04,
    decode_tps=90,
    error_share=0.01,
    input_usd_per_mtok=0.59,
    output_usd_per_mtok=0.79,
)
_STEADY = Persona(
    name="steady",
    ttft_median_s=0.28,
    ttft_sigma=0.12,
    tail_share=0.004,
    decode_tps=70,
    error_share=0.01,
    input_usd_per_mtok=0.40,
    output_usd_per_mtok=0.60,
)
_BURSTY = Persona(
    name="bursty",
    ttft_median_s=0.24,
    ttft_sigma=0.55,
    tail_share=0.06,
    decode_tps=500,
    error_share=0.03,
    input_usd_per_mtok=0.85,
    output_usd_per_mtok=1.20,
)


def _named(persona: Persona, name: str, ttft_factor: float = 1.0) -> Persona:
    return msgspec.structs.replace(persona, name=name, ttft_median_s=persona.ttft_median_s * ttft_factor)


WORLDS = (
    World("three unlike ones", (_SWIFT, _STEADY, _BURSTY)),
    World("four equal ones, with moods", tuple(_named(_STEADY, f"equal-{number}") for number in range(4)), mood=0.3),
    World("one 20 % slower", (_STEADY, _named(_STEADY, "slower", 1.25))),
)
