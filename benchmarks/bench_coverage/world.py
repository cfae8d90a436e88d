"""A bench without waiting: its samples are drawn as the simulated providers draw their answers."""

from collections.abc import Iterable, Sequence
from math import exp
from random import Random
from statistics import NormalDist

import msgspec

from gateway.bench.plan import Contender, Key, Lengths, Plan, Sample, read_goal, turns
from providers.simulator.persona import Fate, Persona

_PROMPT_TOKENS = 400
_MS = 1000.0


class World(msgspec.Struct, frozen=True):
    """The providers of a bench. ``mood``: sigma of a factor on all first tokens of a provider within one round."""

    name: str
    personas: tuple[Persona, ...]
    mood: float = 0.0
    tokens: int = 40

    def plan(self, rounds: int, seed: int, *, at_a_time: int = 2) -> Plan:
        """Return a plan with one class of prompts."""
        return Plan(
            seed=seed,
            contenders=tuple(Contender(name=persona.name, model="m") for persona in self.personas),
            kinds=("short",),
            concurrencies=(at_a_time,),
            rounds=rounds,
            warm_up=0,
            lengths=Lengths(),
            goal=read_goal("ttft<400ms,tps>60"),
        )

    def samples(self, plan: Plan, seed: int) -> list[Sample]:
        """Return what a bench would have measured."""
        random = Random(f"samples/{seed}")
        personas = {persona.name: persona for persona in self.personas}
        drawn: list[Sample] = []
        for round_ in range(plan.rounds):
            for turn in turns(plan, round_):
                mood = exp(random.gauss(0.0, self.mood)) if self.mood else 1.0
                drawn += (self.sample(personas[key.deployment], key, mood, random) for key in turn.keys)
        return drawn

    def sample(self, persona: Persona, key: Key, mood: float, random: Random) -> Sample:
        """Draw one answer."""
        run = persona.draw(random, _PROMPT_TOKENS)
        ttft_ms = run.ttft_s * mood * _MS
        if run.fate is not Fate.ANSWER:
            return Sample(key=key, sitting=0, began_s=0.0, ended_ms=ttft_ms, error_kind="server_error")
        gaps_ms = sorted(persona.gap_s(random, run.decode_tps) * _MS for _ in range(self.tokens - 1))
        decoding_ms = sum(gaps_ms)
        total_ms = ttft_ms + decoding_ms
        return Sample(
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

    def many(self, persona: Persona, number: int, seed: int) -> list[Sample]:
        """Draw so many answers of one provider that their figures are nearly the truth."""
        random = Random(f"truth/{seed}/{persona.name}")
        key = Key(0, 1, persona.name, "short", 0)
        return [
            self.sample(persona, key, exp(random.gauss(0.0, self.mood)) if self.mood else 1.0, random)
            for _ in range(number)
        ]


def interval_of(hits: int, number: int) -> tuple[float, float]:
    """Return Wilson's interval of 95 % of a share."""
    z = NormalDist().inv_cdf(0.975)
    share = hits / number
    middle = (share + z * z / (2 * number)) / (1 + z * z / number)
    spread = z / (1 + z * z / number) * (share * (1 - share) / number + z * z / (4 * number**2)) ** 0.5
    return middle - spread, middle + spread


def quantile(values: Iterable[float | None], share: float) -> float:
    """Return a quantile of the values that are known."""
    ordered: Sequence[float] = sorted(value for value in values if value is not None)
    return ordered[round(share * (len(ordered) - 1))]
