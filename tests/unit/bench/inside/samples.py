"""Plans and samples for tests of ``gateway/bench``."""

from random import Random
from typing import Any

from gateway.bench import BenchPlan, BenchSample, Contender, Key, TokenLengths, read_goal
from gateway.bench.plan import turns


def plan(*names: str, **changed: Any) -> BenchPlan:
    """Return a plan of ten rounds for these deployments."""
    fields: dict[str, Any] = {
        "seed": 1,
        "contenders": tuple(Contender(name=name, model="m", input_usd=1.0, output_usd=2.0) for name in names),
        "kinds": ("short", "json"),
        "concurrencies": (1,),
        "rounds": 10,
        "warm_up": 1,
        "lengths": TokenLengths(),
    }
    return BenchPlan(**(fields | changed))


def sample(key: Key | None = None, **changed: Any) -> BenchSample:
    """Return the sample of an ordinary answer."""
    fields: dict[str, Any] = {
        "key": key or Key(0, 1, "a/m", "short", 0),
        "sitting": 0,
        "began_s": 1000.0,
        "ended_ms": 1200.0,
        "total_ms": 1100.0,
        "ttft_ms": 100.0,
        "ttft_answer_ms": 100.0,
        "decode_tps": 50.0,
        "e2e_tps": 45.0,
        "itl_p50_ms": 20.0,
        "itl_p95_ms": 30.0,
        "itl_max_ms": 40.0,
        "completion_tokens": 50,
        "cost_usd": 0.001,
        "cost_high_usd": 0.001,
    }
    return BenchSample(**(fields | changed))


def run(of: BenchPlan, ttft_ms: dict[str, float], *, seed: int = 1, spread: float = 0.1) -> list[BenchSample]:
    """Return the samples of a whole plan: first tokens around ``ttft_ms``, by deployment, all else alike."""
    random = Random(seed)
    return [
        sample(key, ttft_ms=ttft_ms[key.deployment] * random.lognormvariate(0.0, spread), began_s=1000.0 + round_)
        for round_ in range(of.rounds)
        for turn in turns(of, round_)
        for key in turn.keys
    ]


GOAL = read_goal("ttft<500ms,tps>45")
